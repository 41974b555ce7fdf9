"""What holds at a step, given what the coordinator published."""

import pytest

from elastic_runtime.protocol.plan import Change, ChangeStage, JobPhase, Plan, Timeline, Transfer, View, transfers

START = Plan(("worker-0", "worker-1"), ("ps-0", "ps-0", "ps-1"))


def _view(*changes: Change, substitutes: dict[str, str] | None = None) -> View:
    return View(1, 1, JobPhase.RUNNING, 10, "step-10", START, changes, substitutes=substitutes or {})


def test_stages_take_effect_one_step_after_the_other() -> None:
    change = Change(3, 20, (ChangeStage({0: "ps-1"}, ("worker-0",)), ChangeStage({1: "ps-2"})))
    timeline = Timeline(_view(change))
    assert timeline.at(10) == timeline.at(19) == START
    assert timeline.at(20) == Plan(("worker-0",), ("ps-1", "ps-0", "ps-1"), 3)
    assert timeline.at(21) == timeline.at(999) == Plan(("worker-0",), ("ps-1", "ps-2", "ps-1"), 3)
    assert transfers(change, START) == [
        Transfer(0, 20, coming=("ps-1",), leaving=("ps-0",), staying=()),
        Transfer(1, 21, coming=("ps-2",), leaving=("ps-0",), staying=()),
    ]


def test_a_change_without_stages_is_seen_by_its_number() -> None:
    timeline = Timeline(_view(Change(1, 12, checkpoint=True), Change(2, 15, halt=True, checkpoint=True)))
    assert [timeline.at(step).after for step in (11, 12, 14, 15)] == [0, 1, 1, 2]
    assert (timeline.halts_at(), timeline.newest) == (15, 2)


def test_a_substitute_computes_the_slices_of_the_one_it_stands_in_for() -> None:
    plan = Timeline(_view(substitutes={"worker-1": "worker-0"})).at(10)
    assert plan.slices_of("worker-0") == (0, 1)
    assert plan.slices_of("worker-1") == ()


def test_a_substitute_may_have_one_itself() -> None:
    timeline = Timeline(_view(substitutes={"worker-1": "worker-0", "worker-0": "worker-2"}))
    assert timeline.at(10).workers == ("worker-2", "worker-2")


def test_nothing_is_known_of_steps_before_the_generation() -> None:
    with pytest.raises(ValueError, match="step 9 lies before step 10"):
        Timeline(_view()).at(9)


def test_changes_that_overlap_are_refused() -> None:
    long = Change(1, 12, (ChangeStage(), ChangeStage(), ChangeStage()))
    with pytest.raises(ValueError, match="change 2 at step 13 begins before step 14"):
        Timeline(_view(long, Change(2, 13)))


def test_a_worker_begins_where_a_plan_first_names_it() -> None:
    timeline = Timeline(
        _view(Change(1, 12, checkpoint=True), Change(2, 15, (ChangeStage(), ChangeStage(workers=("worker-7",)))))
    )
    assert [timeline.first_step_of(name) for name in ("worker-1", "worker-7", "worker-8")] == [10, 16, None]


def test_a_worker_that_stands_in_begins_with_the_generation() -> None:
    assert Timeline(_view(substitutes={"worker-1": "worker-5"})).first_step_of("worker-5") == 10
