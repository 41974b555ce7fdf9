"""What is kept for the latest workloads is theirs alone, and not kept for ever."""

import gc
import weakref

import pytest
from worlds import make_spec, make_workload

from policy_net.laboratory.simulation.case import case_jobs
from policy_net.laboratory.simulation.environment import KEPT, Environment, kept_for_the_latest


class Thing:
    """Equal to every other one."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing)

    __hash__ = None  # type: ignore[assignment]


def test_a_result_is_found_again_for_the_same_things_and_for_no_others() -> None:
    made: list[tuple[Thing, ...]] = []

    @kept_for_the_latest
    def make(*things: Thing) -> int:
        made.append(things)
        return len(made)

    one, other = Thing(), Thing()
    assert [make(one), make(one), make(other), make(one, other), make(other)] == [1, 1, 2, 3, 2]


def test_what_fails_is_tried_again() -> None:
    @kept_for_the_latest
    def make(things: list[int]) -> int:
        return things.pop()

    things = [1]
    assert make(things) == 1
    again: list[int] = []
    for _ in range(2):
        with pytest.raises(IndexError):
            make(again)


@pytest.mark.heavy
def test_older_things_are_let_go() -> None:
    @kept_for_the_latest
    def make(thing: Thing) -> int:
        return 1

    first = Thing()
    gone = weakref.ref(first)
    make(first)
    del first
    for _ in range(KEPT):
        make(Thing())
    gc.collect()
    assert gone() is None


def test_the_jobs_of_a_case_follow_from_its_own_seed() -> None:
    workload = make_workload(make_spec(0), make_spec(1))
    rows = [case_jobs(workload, Environment(2, seed=seed, job_noise=0.3)).rows for seed in (0, 1)]
    assert (rows[0]["noise_key"] != rows[1]["noise_key"]).all()
    assert (rows[0]["speed_factor"] != rows[1]["speed_factor"]).all()
