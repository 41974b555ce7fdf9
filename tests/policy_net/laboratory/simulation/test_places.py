"""All-reduce jobs, and what it does to a job where its workers lie."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from worlds import PairSpeeds, make_spec, make_workload

from policy_net.domain import Allocation, CapacityMode, Decision, JobKind, Resources, Share
from policy_net.errors import BadInput, InvalidAllocation
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment, PlacementStrategy
from policy_net.laboratory.workloads.workload import WorkloadJob


class RingSpeeds(PairSpeeds):
    """One sample a second and worker, without servers."""

    def grid(self, job_type: str) -> NDArray[np.float64]:
        grid = np.zeros((17, 17))
        grid[0] = np.arange(17.0)
        return grid


class Apart:
    """Halves the speed by every further node; notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, int], ...]] = []

    def relative_speed(self, job_type: str, workers_by_node: Sequence[tuple[str, int]]) -> float:
        self.asked.append(tuple(workers_by_node))
        return 0.5 ** (len(workers_by_node) - 1)


def ring(number: int = 0, **changes: object) -> WorkloadJob:
    values = {"kind": JobKind.ALLREDUCE, "min_ps": 0, "max_ps": 0, "requested": Allocation(1, 0), "total_epochs": 1e3}
    return make_spec(number, **{**values, **changes})


def simulate(*jobs: WorkloadJob, effect: Apart | None = None, **environment: object) -> Simulation:
    world = Environment(**{"nodes": 2, **environment})  # type: ignore[arg-type]
    return Simulation(make_workload(*jobs), world, RingSpeeds(), effect)


def give(workers: int) -> Decision:
    return Decision({"job-0": Allocation(workers, 0)})


def test_an_allreduce_job_trains_with_workers_alone() -> None:
    simulation = simulate(ring())
    (progress,) = simulation.apply(give(3))
    assert (progress.samples, progress.seconds) == (3600.0, 1200.0)
    assert simulation.counters.unusable_allocations == 0
    assert simulation.observe()[0].jobs[0].run_seconds == 1200.0


def test_an_allreduce_job_may_hold_no_server() -> None:
    with pytest.raises(InvalidAllocation, match="outside its caps \\(0 to 16 workers, 0 to 0 PSs\\)"):
        simulate(ring()).apply(Decision({"job-0": Allocation(1, 1)}))


def test_fewer_workers_than_its_minimum_train_nothing_and_are_counted() -> None:
    simulation = simulate(ring(min_workers=3))
    (below,) = simulation.apply(give(2))
    (enough,) = simulation.apply(give(3))
    assert (below.samples, below.seconds, enough.samples) == (0.0, 0.0, 3600.0)
    assert simulation.counters.unusable_allocations == 1


def test_a_minimum_that_never_fits_is_refused() -> None:
    with pytest.raises(BadInput, match=r"never fits: 5 workers \(2 CPU \+ 1 GPU each\) need more than 2 node"):
        simulate(ring(min_workers=5))


def test_a_job_that_trains_only_beyond_its_caps_is_refused() -> None:
    with pytest.raises(BadInput, match="is 0 from 1 to 16 workers and 1 to 16 PSs"):
        simulate(make_spec())  # a PS job, of a type that trains without


def test_workers_that_lie_apart_train_slower_and_packed_ones_do_not() -> None:
    spread = simulate(ring(), effect=Apart())
    packed = simulate(ring(), effect=Apart(), placement=PlacementStrategy.PACK)
    assert [simulation.apply(give(2))[0].samples for simulation in (spread, packed)] == [1200.0, 2400.0]


def test_the_effect_is_told_the_gpu_types_of_the_nodes() -> None:
    effect = Apart()
    simulation = simulate(ring(), effect=effect, gpu_types=(("v100", 1),))
    simulation.apply(give(3))
    assert effect.asked == [(("v100", 2), ("", 1))]
    assert [node.gpu_type for node in simulation.observe()[0].nodes] == ["v100", ""]


def test_a_placement_that_comes_with_the_decision_has_its_effect_too() -> None:
    simulation = simulate(ring(), effect=Apart())
    on_one_node = {"job-0": (Share("node-1", Allocation(2, 0)),)}
    assert simulation.apply(Decision({"job-0": Allocation(2, 0)}, on_one_node))[0].samples == 2400.0


def test_with_pooled_capacity_places_make_no_difference() -> None:
    effect = Apart()
    assert simulate(ring(), effect=effect, capacity_mode=CapacityMode.POOLED).apply(give(2))[0].samples == 2400.0
    assert effect.asked == []


@pytest.mark.parametrize("types", [(("v100", 3),), (("v100", 0),), (("v100", 2), ("k80", 1))])
def test_gpu_types_for_more_nodes_than_there_are_or_for_none_are_refused(types: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(BadInput, match="gpu_types name"):
        Environment(2, gpu_types=types)


def test_the_ends_of_jobs_are_known_with_the_effect_of_their_places() -> None:
    slow = simulate(ring(total_epochs=6.0, worker_demand=Resources(2000, 2)), effect=Apart())
    (progress,) = slow.apply(give(2))
    assert (progress.finished, slow.time_seconds) == (True, 600.0)
