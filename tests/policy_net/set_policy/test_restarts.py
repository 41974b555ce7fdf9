"""What restarts cost, learned from what jobs did, and what a plan makes of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.domain import SUSPENDED, Allocation, ClusterState, Job, JobKind, Node, Progress, Resources
from policy_net.errors import BadInput
from policy_net.set_policy.beliefs import SetBeliefs
from policy_net.set_policy.planner import plan
from policy_net.set_policy.restarts import Restarts
from policy_net.set_policy.steps import NO_COST, ResizeCost, StepTable

ONE = Allocation(workers=1, ps=1)
TWO = Allocation(workers=2, ps=1)


def did(job: str, seconds: float, paused: float, *, allocation: Allocation = ONE, finished: bool = False) -> Progress:
    return Progress(job, "cnn", allocation, seconds, 10 * seconds, seconds, 100.0, finished, paused)


def test_a_start_costs_what_passes_until_the_job_trains_over_as_many_decisions_as_that_takes() -> None:
    restarts = Restarts()
    assert restarts.seconds == 0.0
    restarts.observe([did("a", 0.0, 4.0)])
    assert restarts.seconds == 4.0, "the longest so far, as none is through"
    restarts.observe([did("a", 5.0, 2.0)])
    assert restarts.seconds == 6.0
    restarts.observe([did("a", 5.0, 1.0)])
    assert restarts.seconds == 6.0, "the pause of a resize is no restart"
    restarts.observe([did("a", 0.0, 0.0, allocation=SUSPENDED), did("b", 5.0, 12.0)])
    assert restarts.seconds == 9.0
    restarts.observe([did("a", 5.0, 3.0), did("b", 5.0, 0.0)])
    assert restarts.seconds == 7.0, "it held nothing in between"


def test_jobs_that_have_gone_are_forgotten() -> None:
    restarts = Restarts()
    restarts.observe([did("a", 1.0, 4.0), did("b", 0.0, 9.0)])
    restarts.observe([did("a", 1.0, 0.0, finished=True)])
    restarts.observe([])
    assert restarts.snapshot() == {
        **{"seen": 1, "mean_seconds": 4.0, "starting": [], "training": []},
        **{"resizes": [0.0, 0.0, 0.0], "sizes": []},
    }


def test_a_resize_costs_what_passes_until_the_job_trains_at_its_new_size() -> None:
    restarts = Restarts()
    restarts.observe([did("a", 10.0, 50.0)])
    assert restarts.resize_cost == NO_COST, "a start is no resize"
    restarts.observe([did("a", 0.0, 60.0, allocation=TWO)])
    assert restarts.resize_cost == NO_COST, "it does not train yet"
    restarts.observe([did("a", 40.0, 20.0, allocation=TWO), did("b", 100.0, 0.0)])
    assert restarts.resize_cost == ResizeCost(80.0, (3600.0 + 60.0 + 60.0) / 2.0)
    restarts.observe([did("a", 50.0, 0.0), did("b", 90.0, 10.0)])
    assert restarts.resize_cost == ResizeCost(40.0, (3600.0 + 60.0 + 60.0 + 50.0 + 100.0) / 3.0), "b kept its size"
    assert restarts.seconds == 25.0, "the mean of the two starts"


def test_resizes_that_cost_next_to_nothing_cost_nothing() -> None:
    restarts = Restarts()
    restarts.observe([did("a", 10.0, 0.0)])
    restarts.observe([did("a", 10.0, 2.0, allocation=TWO)])
    assert restarts.resize_cost == NO_COST


def test_old_resizes_count_less() -> None:
    restarts = Restarts()
    restarts.observe([did("a", 10.0, 0.0)])
    for number in range(100):
        restarts.observe([did("a", 10.0, 20.0, allocation=(TWO, ONE)[number % 2])])
    assert restarts.snapshot()["resizes"] == [50.0, 1000.0, 1500.0]


def test_a_snapshot_from_before_resizes_were_learned_goes_on_with_none() -> None:
    older = Restarts.restored({"seen": 1, "mean_seconds": 4.0, "starting": [], "training": ["a"]})
    older.observe([did("a", 10.0, 30.0, allocation=TWO)])
    assert older.resize_cost == NO_COST, "nobody knows whether that is another size"
    older.observe([did("a", 10.0, 30.0)])
    assert older.resize_cost.seconds == 30.0


@given(
    st.lists(
        st.lists(
            st.builds(
                did,
                st.sampled_from(["a", "b", "c"]),
                st.sampled_from([0.0, 3.0]),
                st.floats(0.0, 100.0),
                allocation=st.sampled_from([SUSPENDED, ONE, TWO]),
                finished=st.booleans(),
            ),
            unique_by=lambda entry: entry.job_id,
        )
    )
)
def test_what_was_learned_survives_a_snapshot_and_stays_within_what_was_seen(history: list[list[Progress]]) -> None:
    first, second = SetBeliefs(), SetBeliefs()
    for entries in history:
        first.restarts.observe(entries)
        second.restore(json.loads(json.dumps(first.snapshot())))
        assert second.digest() == first.digest()
        assert second.restarts.seconds == first.restarts.seconds
        assert second.restarts.resize_cost == first.restarts.resize_cost
    assert 0.0 <= first.restarts.seconds <= sum(entry.paused_seconds for entries in history for entry in entries) + 1e-9


@pytest.mark.parametrize(
    "damage",
    [
        *({"seen": -1}, {"mean_seconds": -2.0}, {"mean_seconds": "nan"}, {"starting": [["a"]]}, {"training": None}),
        *({"resizes": [1.0, 2.0]}, {"resizes": [1.0, -2.0, 3.0]}, {"training": ["a"], "sizes": [["a", -1, 0]]}),
    ],
)
def test_a_damaged_snapshot_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="not a snapshot of restarts"):
        Restarts.restored({**Restarts().snapshot(), **damage})


def job_of(name: str, epochs: float, current: Allocation = SUSPENDED) -> Job:
    return Job(
        job_id=name,
        job_type="cnn",
        submit_time_seconds=0.0,
        worker_demand=Resources(1000),
        ps_demand=Resources(1000),
        samples_per_epoch=1.0,
        total_epochs=epochs,
        remaining_epochs=epochs,
        requested=ONE,
        max_workers=1,
        max_ps=1,
        current=current,
        kind=JobKind.PS,
    )


def planned(state: ClusterState, restart_seconds: float) -> list[str]:
    """Who gets the two tasks that there is room for; a job trains one epoch a second."""
    grid = np.zeros((17, 17))
    grid[1:, 1:] = 1.0
    tables = [StepTable(grid, 1, 1, SUSPENDED) for _ in state.jobs]
    return [
        name for name, held in plan(state, tables, restart_seconds=restart_seconds).allocation.items() if held.tasks
    ]


@pytest.mark.parametrize(
    ("newcomer_seconds", "restart_seconds", "goes_on"),
    [(99.0, 0.0, False), (99.0, 1.0, True), (50.0, 24.0, False), (50.0, 26.0, True), (50.0, 1000.0, True)],
)
def test_a_running_job_gives_way_only_to_one_that_is_shorter_by_two_restarts(
    newcomer_seconds: float, restart_seconds: float, goes_on: bool
) -> None:
    jobs = (job_of("running", 100.0, ONE), job_of("newcomer", newcomer_seconds))
    state = ClusterState(0.0, (Node("n", Resources(2000)),), jobs, 60.0)
    assert planned(state, restart_seconds) == ["running" if goes_on else "newcomer"]
    waiting = replace(state, jobs=(replace(jobs[0], current=SUSPENDED), jobs[1]))
    assert planned(waiting, restart_seconds) == ["newcomer"], "between two that hold nothing the shorter one starts"


def test_a_job_waits_rather_than_stopping_another_where_others_end_sooner() -> None:
    jobs, near = [job_of("long", 400.0, ONE), job_of("newcomer", 200.0)], job_of("near", 10.0, ONE)
    cases = (([], 20.0, "newcomer"), ([near], 20.0, "long"), ([near], 0.0, "newcomer"))
    for beside, restart_seconds, expected in cases:
        state = ClusterState(0.0, (Node("n", Resources(2000 + 2000 * len(beside))),), (*beside, *jobs), 60.0)
        assert planned(state, restart_seconds)[-1] == expected


class Linear:
    """Speeds that grow with the workers, one sample a second each."""

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        return float(self.grid(job_type)[ps, workers])

    def grid(self, job_type: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        return np.vstack([np.arange(17.0), np.zeros((16, 17))])


@pytest.mark.parametrize(("restart_seconds", "most"), [(0.0, 4), (49.0, 4), (51.0, 2)])
def test_an_all_reduce_job_is_offered_more_only_where_that_saves_more_than_a_restart(
    restart_seconds: float, most: int
) -> None:
    job = replace(
        job_of("a", 200.0, Allocation(workers=2, ps=0)), kind=JobKind.ALLREDUCE, max_workers=4, max_ps=0, min_ps=0
    )
    restarts = Restarts()
    restarts.observe([did("b", 1.0, restart_seconds)])
    for current, expected in ((2, most), (0, 4), (4, 4)):
        state = ClusterState(0.0, (), (replace(job, current=Allocation(workers=current, ps=0)),), 60.0)
        assert restarts.without_futile_growth(state, Linear()).jobs[0].max_workers == expected
    served = ClusterState(0.0, (), (job_of("c", 200.0, ONE),), 60.0)
    assert restarts.without_futile_growth(served, Linear()) == served, "with servers it grows while it trains"
