"""A worker keeps its promises: no step at the clock of an open proposal is begun."""

import threading
from dataclasses import replace

from elastic_runtime.protocol.plan import Change, ChangeStage, JobPhase, Plan, View
from elastic_runtime.worker.membership import StepBarrier
from elastic_runtime.worker.protocol.step_turns import Vote, WorkerTurn

VIEW = View(1, 1, JobPhase.RUNNING, 0, "step-0", Plan(("worker-0", "worker-1"), ("ps-0",)))
SHRINK = Change(4, 7, (ChangeStage(workers=("worker-1",)),))


class Time:
    """Seconds that pass by themselves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def barrier(name: str = "worker-0") -> StepBarrier:
    made = StepBarrier(name, Time(), patience_seconds=0.0)
    made.on_view(VIEW)
    return made


def test_a_clock_ahead_is_accepted_and_held() -> None:
    worker = barrier()
    assert worker.begin(5, 1) is WorkerTurn.GO
    assert worker.on_view(replace(VIEW, number=2, proposal=SHRINK)) == Vote(accepted=4)
    assert worker.begin(6, 1) is WorkerTurn.GO
    assert worker.begin(7, 1) is WorkerTurn.SILENT  # patience is over at once here
    assert worker.waited_seconds > 0


def test_a_clock_that_was_begun_is_refused() -> None:
    worker = barrier()
    worker.begin(7, 1)
    assert worker.on_view(replace(VIEW, number=2, proposal=SHRINK)) == Vote(refused=4)
    assert worker.begin(8, 1) is WorkerTurn.GO


def test_a_withdrawn_proposal_binds_nobody() -> None:
    worker = barrier()
    worker.on_view(replace(VIEW, number=2, proposal=SHRINK))
    worker.on_view(replace(VIEW, number=3))
    assert worker.begin(7, 1) is WorkerTurn.GO


def test_a_confirmed_change_takes_effect_at_its_clock() -> None:
    worker = barrier()
    worker.on_view(replace(VIEW, number=2, changes=(SHRINK,)))
    assert worker.begin(6, 1) is WorkerTurn.GO
    assert worker.begin(7, 1) is WorkerTurn.LEAVE
    assert barrier("worker-1").begin(7, 1) is WorkerTurn.GO


def test_those_who_are_not_in_the_plan_are_not_asked() -> None:
    assert barrier("worker-9").on_view(replace(VIEW, number=2, proposal=SHRINK)) == Vote()


def test_nobody_begins_where_the_job_halts() -> None:
    worker = barrier()
    worker.on_view(replace(VIEW, number=2, changes=(Change(1, 3, halt=True, checkpoint=True),)))
    assert (worker.begin(2, 1), worker.begin(3, 1)) == (WorkerTurn.GO, WorkerTurn.LEAVE)


def test_a_barrier_holds_until_the_change_is_committed() -> None:
    worker = barrier()
    change = Change(2, 3, (ChangeStage({0: "ps-1"}),), barrier=True)
    worker.on_view(replace(VIEW, number=2, changes=(change,)))
    assert worker.begin(3, 1) is WorkerTurn.SILENT
    worker.on_view(replace(VIEW, number=3, changes=(change,), committed=2))
    assert worker.begin(3, 1) is WorkerTurn.GO


def test_an_old_view_changes_nothing() -> None:
    worker = barrier()
    worker.on_view(replace(VIEW, number=5, changes=(SHRINK,)))
    assert worker.on_view(replace(VIEW, number=4, proposal=replace(SHRINK, number=5, clock=9))) == Vote()
    assert worker.begin(7, 1) is WorkerTurn.LEAVE


def test_a_new_generation_failure_and_expulsion_are_told() -> None:
    worker = barrier()
    worker.on_view(replace(VIEW, number=2, generation=2))
    assert worker.begin(1, 1) is WorkerTurn.ENTER
    worker.on_view(replace(VIEW, number=3, generation=2, phase=JobPhase.FAILED, failure="why"))
    assert worker.begin(1, 2) is WorkerTurn.FAILED
    expelled = StepBarrier("worker-0", Time(), 0.0, expelled=lambda: True)
    expelled.on_view(VIEW)
    assert expelled.begin(1, 1) is WorkerTurn.EXPELLED
    assert expelled.wait(lambda _: True, 0.0) is None


def test_who_waits_goes_on_as_soon_as_the_proposal_is_resolved() -> None:
    worker = StepBarrier("worker-0", Time(), patience_seconds=60.0)
    worker.on_view(replace(VIEW, number=2, proposal=SHRINK))
    turns: list[WorkerTurn] = []
    waiting = threading.Thread(target=lambda: turns.append(worker.begin(7, 1)))
    waiting.start()
    worker.on_view(replace(VIEW, number=3))
    waiting.join(30)
    assert turns == [WorkerTurn.GO]
