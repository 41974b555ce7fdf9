"""Patience of the launcher, on a clock of the test's own."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elastic_runtime.launcher.settings import LauncherSettings
from elastic_runtime.launcher.task_table import Actions, ProcessPlan, staying
from elastic_runtime.protocol.plan import Change, ChangeStage, JobPhase, Member, Plan, TaskRole, View

SETTINGS = LauncherSettings(
    restart_backoff_seconds=1.0,
    longest_backoff_seconds=4.0,
    leave_seconds=10.0,
    unlisted_seconds=20.0,
    grace_seconds=5.0,
)
VIEW = View(1, 1, JobPhase.RUNNING, 0, "", Plan((), ()))


def member(task: str) -> Member:
    return Member(task, TaskRole.WORKER, 1, "{}")


def test_what_is_wanted_and_does_not_run_is_started() -> None:
    view = replace(VIEW, wanted=("ps-0", "worker-0"))
    assert ProcessPlan(SETTINGS).decide(view, ["ps-0"], 0.0) == Actions(start=("worker-0",))


def test_nothing_is_started_for_a_job_that_is_over() -> None:
    for phase in (JobPhase.SUSPENDED, JobPhase.FINISHED, JobPhase.FAILED):
        assert ProcessPlan(SETTINGS).decide(replace(VIEW, phase=phase, wanted=("worker-0",)), [], 0.0) == Actions()


def test_a_task_that_keeps_dying_is_started_more_and_more_slowly() -> None:
    plan = ProcessPlan(SETTINGS)
    view = replace(VIEW, wanted=("worker-0",))
    now, pauses = 0.0, []
    for _ in range(5):
        plan.on_ended("worker-0", now)
        died = now
        while not plan.decide(view, [], now).start:
            now += 0.5
        pauses.append(now - died)
    assert pauses == [1.0, 2.0, 4.0, 4.0, 4.0]


def test_a_leaving_task_is_asked_after_a_while_and_killed_after_another() -> None:
    plan = ProcessPlan(SETTINGS)
    view = replace(VIEW, members=(member("worker-0"),), leaving=("worker-0",))
    assert plan.decide(view, ["worker-0"], 100.0) == Actions()
    assert plan.decide(view, ["worker-0"], 109.9) == Actions()
    assert plan.decide(view, ["worker-0"], 110.0) == Actions(terminate=("worker-0",))
    plan.on_terminated("worker-0", 110.0)
    assert plan.decide(view, ["worker-0"], 114.9) == Actions()
    assert plan.decide(view, ["worker-0"], 115.0) == Actions(kill=("worker-0",))


def test_who_still_starts_when_the_job_ends_badly_is_not_waited_for() -> None:
    plan = ProcessPlan(SETTINGS)
    view = replace(VIEW, wanted=("ps-0", "worker-0"), members=(member("worker-0"),))
    assert plan.decide(view, ["ps-0", "worker-0"], 0.0) == Actions()
    over = replace(VIEW, phase=JobPhase.FAILED)
    assert plan.decide(over, ["ps-0", "worker-0"], 1.0) == Actions(terminate=("ps-0",))


def test_who_was_a_member_only_in_views_that_nobody_saw_is_known_by_its_plan() -> None:
    plan = ProcessPlan(SETTINGS)
    plan.decide(replace(VIEW, wanted=("ps-0", "worker-0", "worker-1")), ["ps-0", "worker-0", "worker-1"], 0.0)
    over = replace(VIEW, phase=JobPhase.FINISHED, start_plan=Plan(("worker-0",), ("ps-0",)))
    assert not plan.is_needless("worker-0", over)
    assert plan.is_needless("worker-1", over)
    assert plan.decide(over, ["worker-0", "worker-1"], 1.0) == Actions(terminate=("worker-1",))
    assert plan.decide(over, ["worker-0"], 1e6) == Actions()


def test_a_script_whose_job_is_done_takes_as_long_as_it_takes() -> None:
    plan = ProcessPlan(SETTINGS)
    members = (member("worker-0"), member("ps-0"))
    plan.decide(replace(VIEW, wanted=("ps-0", "worker-0", "worker-1"), members=members), ["ps-0", "worker-0"], 0.0)
    over = replace(VIEW, phase=JobPhase.FINISHED, leaving=("worker-0",))
    running = ["ps-0", "worker-0", "worker-1"]
    assert plan.decide(over, running, 1.0) == Actions(terminate=("worker-1",))  # it had not joined yet
    assert plan.decide(over, ["ps-0", "worker-0"], 1e6) == Actions(terminate=("ps-0",))


def test_who_stays_is_known_from_the_moment_of_the_agreement() -> None:
    begun = replace(VIEW, start_plan=Plan(("worker-0", "worker-1"), ()))
    workers = ["worker-0", "worker-1", "worker-2"]
    assert staying(begun, workers) == {*workers}
    change = Change(1, 40, (ChangeStage(workers=("worker-1",)), ChangeStage({0: "ps-1"})))
    assert staying(replace(begun, changes=(change,)), workers) == {"worker-1", "worker-2"}
    assert staying(replace(begun, leaving=("worker-1",)), workers) == {"worker-0", "worker-2"}


def test_a_task_is_needless_that_never_joined_and_is_not_wanted() -> None:
    plan = ProcessPlan(SETTINGS)
    wanted = replace(VIEW, wanted=("worker-0", "worker-1"), members=(member("worker-0"),))
    plan.decide(wanted, ["worker-0", "worker-1"], 0.0)
    assert not plan.is_needless("worker-1", wanted)
    assert plan.is_needless("worker-1", VIEW)
    assert plan.is_needless("worker-1", replace(wanted, phase=JobPhase.FINISHED))
    assert not plan.is_needless("worker-0", VIEW)


def test_a_task_that_the_coordinator_does_not_know_is_given_time_to_become_known() -> None:
    plan = ProcessPlan(SETTINGS)
    assert plan.decide(VIEW, ["worker-0"], 0.0) == Actions()
    assert plan.decide(replace(VIEW, members=(member("worker-0"),)), ["worker-0"], 19.0) == Actions()
    assert plan.decide(VIEW, ["worker-0"], 30.0) == Actions()  # the count begins anew
    assert plan.decide(VIEW, ["worker-0"], 50.0) == Actions(terminate=("worker-0",))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(JobPhase)),
            st.sets(st.sampled_from(["worker-0", "worker-1", "ps-0"])),
            st.sets(st.sampled_from(["worker-0", "worker-1", "ps-0"])),
            st.floats(0.0, 30.0),
        ),
        max_size=12,
    )
)
def test_no_task_is_started_twice_and_every_unneeded_one_ends(rounds: list[tuple[JobPhase, set, set, float]]) -> None:
    plan = ProcessPlan(SETTINGS)
    running: set[str] = set()
    now = 0.0
    for phase, wanted, leaving, seconds in rounds:
        now += seconds
        actions = plan.decide(
            replace(VIEW, phase=phase, wanted=tuple(sorted(wanted)), leaving=tuple(leaving)), running, now
        )
        assert not set(actions.start) & running
        assert {*actions.terminate, *actions.kill} <= running
        running |= set(actions.start)
        for task in actions.terminate:
            plan.on_terminated(task, now)
        for task in actions.kill:
            running.remove(task)
            plan.on_ended(task, now)
    over = replace(VIEW, phase=JobPhase.FINISHED)
    for _ in range(3):
        now += SETTINGS.leave_seconds + SETTINGS.grace_seconds
        actions = plan.decide(over, running, now)
        for task in actions.terminate:
            plan.on_terminated(task, now)
        running -= set(actions.kill)
    assert not running
