import pytest
from worlds import PairSpeeds, make_spec, make_workload, one_pair_each

from policy_net.errors import BadInput
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment


def simulation(total_epochs: float = 30.0, jobs: int = 2, nodes: int = 2) -> Simulation:
    workload = make_workload(*(make_spec(number, total_epochs=total_epochs) for number in range(jobs)))
    return Simulation(workload, Environment(nodes), PairSpeeds())


def test_a_snapshot_of_another_workload_is_refused_and_changes_nothing() -> None:
    other = simulation(jobs=3)
    mine = simulation()
    before = mine.snapshot()
    with pytest.raises(BadInput, match="with 3 jobs, not of 'test' with 2"):
        mine.restore(other.snapshot())
    assert mine.snapshot() == before


def test_a_snapshot_of_another_environment_is_refused() -> None:
    with pytest.raises(BadInput, match="'nodes': 3"):
        simulation().restore(simulation(nodes=3).snapshot())


def test_a_snapshot_taken_before_the_first_decision_starts_over() -> None:
    fresh, used = simulation(), simulation()
    used.apply(one_pair_each(used.observe()[0]))
    used.restore(fresh.snapshot())
    assert used.observe() == fresh.observe()
    assert used.jobs.outcomes() == fresh.jobs.outcomes()
