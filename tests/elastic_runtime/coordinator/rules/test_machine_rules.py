"""What a coordinator does in each case, step by step, with simulated members."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_world import BATCH, BLOCKS, LAYOUT, SETTINGS, TOTAL_STEPS, TRAINING, World

from elastic_runtime.control.messages import RequestOutcome, RequestState, ResizeMode, Size
from elastic_runtime.coordinator.rules.registering import Newcomer
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.errors import BadInput
from elastic_runtime.model.layout import TensorSpec, build_layout
from elastic_runtime.protocol.plan import JobPhase, TaskRole, Timeline, View

LARGE = build_layout([TensorSpec("weight", (99 * 1024,), "float32")], [], 4096).to_json().decode()


def replace_settings(**changes: object) -> CoordinatorSettings:
    return SETTINGS.model_copy(update=changes)


def last_plan(view: View) -> tuple[set[str], tuple[str, ...]]:
    plan = Timeline(view).at(10**9)
    return set(plan.owners), plan.workers


def moves(view: View) -> list[int]:
    return [len(stage.moves) for stage in view.changes[-1].stages]


def test_a_job_starts_when_its_first_checkpoint_is_written_and_read() -> None:
    world = World()
    assert world.views[-1].wanted == ("ps-0", "ps-1", "worker-0", "worker-1")
    assert world.views[-1].generation == 0
    world.start("worker-1")
    assert world.views[-1].initialiser == "worker-1"
    world.kill(world.members["worker-1"], reported=True)
    assert world.views[-1].initialiser == ""
    assert world.views[-1].wanted == ("ps-0", "ps-1", "worker-0", "worker-2")
    view = world.rounds(lambda view: view.generation == 1)
    assert (view.phase, view.start_checkpoint) == (JobPhase.STARTING, "step-0000000000")
    assert last_plan(view) == ({"ps-0", "ps-1"}, ("worker-0", "worker-2"))
    world.rounds(lambda view: view.phase is JobPhase.RUNNING)


def test_a_rolling_resize_waits_for_warm_tasks_and_moves_in_stages() -> None:
    world = World().training()
    world.resize("r", 3, 3)
    assert world.views[-1].wanted == ("ps-2", "worker-2")
    assert world.views[-1].proposal is None
    view = world.rounds(lambda view: bool(view.changes))
    assert view.phase is JobPhase.RESIZING
    assert sum(moves(view)) == BLOCKS // 3
    assert max(moves(view)) == 1, "a tenth of twelve blocks"
    assert view.changes[-1].stages[0].workers == ("worker-0", "worker-1", "worker-2")
    assert view.committed < view.changes[-1].number
    row = world.ended("r")
    assert row.state is RequestOutcome.DONE
    assert row.minimum_bytes == BLOCKS // 3 * 4096
    assert row.clock == view.changes[-1].clock
    assert world.status().size == Size(3, 3)


def test_what_moves_in_no_time_moves_at_one_step_however_small_the_model_is() -> None:
    world = World(settings=replace_settings(stage_bytes=BLOCKS // 3 * 4096)).training()
    world.resize("r", 3, 3)
    view = world.rounds(lambda view: bool(view.changes))
    assert moves(view) == [BLOCKS // 3]
    assert not view.changes[-1].barrier
    assert world.ended("r").state is RequestOutcome.DONE


def test_stop_the_world_moves_everything_at_one_step_at_which_workers_wait() -> None:
    world = World().training()
    world.resize("r", 1, 2, mode=ResizeMode.STOP_THE_WORLD)
    view = world.rounds(lambda view: bool(view.changes))
    assert moves(view) == [BLOCKS // 2]
    assert view.changes[-1].barrier
    assert world.ended("r").state is RequestOutcome.DONE


def test_checkpoint_restart_ends_all_tasks_and_begins_with_others() -> None:
    world = World().training()
    world.resize("r", 1, 3, mode=ResizeMode.CHECKPOINT_RESTART)
    view = world.rounds(lambda view: any(change.halt for change in view.changes))
    clock = view.changes[-1].clock
    view = world.rounds(lambda view: view.generation == 2)
    assert view.start_step == clock
    servers, workers = last_plan(view)
    assert not (servers | set(workers)) & {"ps-0", "ps-1", "worker-0", "worker-1"}
    assert world.ended("r").state is RequestOutcome.DONE
    assert world.status().size == Size(1, 3)


def test_victims_go_first_and_are_replaced_where_the_size_stays() -> None:
    world = World().training()
    world.resize("r", 2, 1, victims=("worker-0",))
    world.ended("r")
    assert last_plan(world.views[-1])[1] == ("worker-1",)
    world.resize("q", 2, 1, victims=("ps-0", "worker-1"))
    world.ended("q")
    assert last_plan(world.views[-1]) == ({"ps-1", "ps-2"}, ("worker-2",))
    assert world.resize("q", 2, 1, victims=("worker-1", "ps-0")).state is RequestOutcome.DONE
    with pytest.raises(BadInput, match="was used for something else"):
        world.resize("q", 2, 1, victims=("ps-1",))
    with pytest.raises(BadInput, match="suspends job simulated, which ends all tasks; name no victims"):
        world.resize("s", 0, 0, victims=("ps-1",))


def test_requests_wait_for_each_other_and_nobody_is_lost_between_them() -> None:
    world = World().training()
    for number, (servers, workers) in enumerate([(3, 4), (1, 2), (2, 3), (2, 1)]):
        world.resize(f"r{number}", servers, workers)
    assert [row.state for row in world.status().requests][1:] == [RequestOutcome.QUEUED] * 3
    for number in range(4):
        assert world.ended(f"r{number}").state is RequestOutcome.DONE
    assert all(not view.substitutes for view in world.views)
    assert last_plan(world.views[-1])[1] == ("worker-0",)


def test_the_same_request_id_is_the_same_request_also_after_a_restart() -> None:
    world = World().training()
    world.resize("r", 2, 3)
    world.resize("q", 2, 2)
    world.restart()
    assert world.resize("r", 2, 3).state is RequestOutcome.RUNNING
    assert [row.request_id for row in world.status().requests] == ["r", "q"]
    with pytest.raises(BadInput, match="was used for something else"):
        world.resize("r", 3, 3)
    world.ended("q")
    assert world.resize("r", 2, 3).state is RequestOutcome.DONE
    assert world.status().size == Size(2, 2)


def test_a_resize_to_what_is_there_is_done_at_once() -> None:
    world = World().training()
    world.rounds(lambda view: view.proposal is None and not view.changes)
    assert world.resize("r", 2, 2).state is RequestOutcome.DONE
    assert world.views[-1].proposal is None


@pytest.mark.parametrize(
    ("servers", "workers", "line"),
    [
        (0, 2, "a job needs both; 0 and 0 suspends it"),
        (2, 0, "a job needs both; 0 and 0 suspends it"),
        (1, BATCH + 1, f"cannot share a global batch of {BATCH}"),
        (BLOCKS + 1, 2, f"ask for at most {BLOCKS}"),
        (2, 1, "below job simulated's minimum of 1 PS and 2 workers"),
    ],
)
def test_sizes_that_cannot_be_are_refused_and_not_remembered(servers: int, workers: int, line: str) -> None:
    world = World(settings=replace_settings(minimum_workers=2)).training()
    with pytest.raises(BadInput, match=line):
        world.resize("r", servers, workers)
    assert world.status().requests == ()


def test_a_resize_whose_tasks_do_not_come_is_given_up_and_nothing_has_changed() -> None:
    world = World(settings=replace_settings(new_task_seconds=5.0)).training()
    world.resize("r", 3, 2)
    for _ in range(40):
        for member in list(world.members.values()):
            world.deliver(member)
            world.send(member)
        world.pass_time(0.2)
    row = next(row for row in world.status().requests)
    assert row.state is RequestOutcome.ABORTED
    assert row.detail == "ps-2 did not come within 5 s; nothing changed"
    assert world.views[-1].wanted == ()
    assert world.status().target == Size(2, 2)


def test_a_lost_worker_is_stood_in_for_at_once_and_then_taken_out_and_replaced() -> None:
    world = World().training()
    world.kill(world.members["worker-1"], reported=True)
    view = world.views[-1]
    assert view.substitutes == {"worker-1": "worker-0"}
    assert view.generation == 1
    assert Timeline(view).at(10**9).workers == ("worker-0", "worker-0")
    view = world.rounds(lambda view: last_plan(view)[1] == ("worker-0",))
    view = world.rounds(lambda view: last_plan(view)[1] == ("worker-0", "worker-2"))
    assert view.generation == 1
    assert view.substitutes == {}


def test_a_lost_server_takes_the_job_back_to_the_last_durable_step() -> None:
    world = World(settings=replace_settings(checkpoint_seconds=1.0)).training()
    world.rounds(lambda _: world.status().durable_step > 0)
    durable = world.status().durable_step
    world.kill(world.members["ps-1"], reported=True)
    view = world.views[-1]
    assert (view.phase, view.generation) == (JobPhase.RECOVERING, 1)
    assert "ps-2" in view.wanted
    view = world.rounds(lambda view: view.generation == 2)
    assert (view.start_step, last_plan(view)[0]) == (durable, {"ps-0", "ps-2"})
    world.rounds(lambda view: view.phase is JobPhase.RUNNING)


def test_a_worker_that_had_finished_before_the_job_went_back_is_replaced() -> None:
    world = World().training()
    finished = replace(world.members["worker-0"].report, step=TOTAL_STEPS, finished=True)
    world.kill(world.members["ps-1"], reported=True)
    world.rounds(lambda view: view.generation == 2)
    known, outcome = world.machine.on_report(finished, world.now)
    world.take(outcome)
    del world.members["worker-0"]
    assert not known
    view = world.rounds(lambda view: view.phase is JobPhase.RUNNING and len(last_plan(view)[1]) == 2)
    assert "worker-0" not in last_plan(view)[1]
    world.until(JobPhase.FINISHED)


def test_without_a_replacement_the_other_servers_take_the_blocks_and_give_them_back_later() -> None:
    world = World(settings=replace_settings(replacement_seconds=1.0)).training()
    world.kill(world.members["ps-1"], reported=True)
    world.pass_time(0.5)
    world.pass_time(1.5)
    assert last_plan(world.views[-1])[0] == {"ps-0"}
    world.rounds(lambda view: view.phase is JobPhase.RUNNING and last_plan(view)[0] == {"ps-0", "ps-2"})
    assert world.views[-1].generation == 2


def test_silence_is_death_sooner_if_the_stream_of_views_is_gone_too() -> None:
    world = World().training()
    silent, frozen = world.members["worker-0"], world.members["worker-1"]
    world.take(world.machine.on_stream("worker-1", frozen.incarnation, True, world.now))
    for _ in range(11):
        for task in ("ps-0", "ps-1"):
            world.send(world.members[task])
        world.pass_time(1.0)
    assert world.views[-1].substitutes == {"worker-0": "worker-1"}
    assert world.machine.on_report(silent.report, world.now)[0] is False, "expelled"
    for _ in range(20):
        for task in ("ps-0", "ps-1"):
            world.send(world.members[task])
        world.pass_time(1.0)
    assert world.views[-1].phase is JobPhase.RECOVERING, "no worker is left"


def test_a_late_clock_is_refused_and_proposed_anew() -> None:
    world = World().training()
    world.resize("r", 1, 2)
    view = world.rounds(lambda view: view.proposal is not None)
    proposal = view.proposal
    assert proposal is not None
    member = world.members["worker-0"]
    late = replace(member.report, refused=proposal.number, step=proposal.clock + 3, generation=1)
    world.take(world.machine.on_report(late, world.now)[1])
    again = world.views[-1].proposal
    assert again is not None
    assert again.number > proposal.number
    assert again.clock > proposal.clock + 3


def test_who_does_not_vote_is_taken_for_dead() -> None:
    world = World().training()
    world.resize("r", 1, 2)
    world.rounds(lambda view: view.proposal is not None)
    deaf = world.members["worker-1"]
    for _ in range(20):
        for member in list(world.members.values()):
            if member is not deaf:
                world.deliver(member)
            world.send(member)
        world.pass_time(1.0)
    assert "worker-1" in world.views[-1].substitutes or world.views[-1].changes
    assert world.machine.on_report(deaf.report, world.now)[0] is False


@pytest.mark.parametrize("servers", [2, 3])
def test_what_a_resize_waited_for_its_tasks_is_told_apart_from_what_they_took_to_get_ready(servers: int) -> None:
    world = World().training()
    start = world.start
    world.start = lambda task: None  # type: ignore[method-assign]
    world.resize("r", servers, 3)
    world.pass_time(5.0)
    for task in world.views[-1].wanted:
        start(task)
    for _ in range(4):
        world.pass_time(1.0)  # they load the model, and say nothing
    row = world.ended("r")
    assert row.state is RequestOutcome.DONE
    assert row.start_seconds == pytest.approx(5.0, abs=0.5)
    assert row.registration_seconds == pytest.approx(4.0, abs=0.5)


def test_suspend_checkpoints_releases_everything_and_resume_goes_on() -> None:
    world = World().training()
    world.resize("s", 0, 0)
    world.until(JobPhase.SUSPENDED)
    world.resize("s", 0, 0)  # sent again, as by who waits for it
    assert [row.kind for row in world.status().requests] == ["suspend"]
    step = world.status().durable_step
    assert step > 0
    assert world.status().requests[0].state is RequestOutcome.DONE
    assert (world.status().size, world.views[-1].wanted) == (Size(0, 0), ())
    world.rounds(lambda view: not view.members)
    world.restart()
    world.request(RequestState("again", "resume", target=Size(1, 3)))
    view = world.rounds(lambda view: view.generation == 2)
    assert view.start_step == step
    assert world.ended("again").state is RequestOutcome.DONE
    world.until(JobPhase.FINISHED)


def test_a_suspend_while_a_resume_still_starts_ends_both_and_the_next_resume_goes_on() -> None:
    world = World().training()
    world.resize("s", 0, 0)
    world.until(JobPhase.SUSPENDED)
    world.rounds(lambda view: not view.members)
    world.request(RequestState("r1", "resume", target=Size(1, 1)))
    assert world.views[-1].phase is JobPhase.STARTING
    world.resize("s2", 0, 0)
    rows = {row.request_id: (row.state, row.detail) for row in world.status().requests}
    assert rows["r1"] == (RequestOutcome.ABORTED, "the job was suspended")
    assert rows["s2"] == (RequestOutcome.DONE, "")
    assert world.views[-1].phase is JobPhase.SUSPENDED
    world.request(RequestState("r2", "resume", target=Size(1, 2)))
    assert world.ended("r2").state is RequestOutcome.DONE
    world.until(JobPhase.FINISHED)


def test_a_resume_for_which_nobody_comes_leaves_the_job_suspended() -> None:
    world = World(settings=replace_settings(start_seconds=5.0)).training()
    world.resize("s", 0, 0)
    world.until(JobPhase.SUSPENDED)
    world.request(RequestState("again", "resume", target=Size(1, 1)))
    world.pass_time(1.0)
    world.pass_time(6.0)
    assert world.views[-1].phase is JobPhase.SUSPENDED
    assert world.status().requests[-1].state is RequestOutcome.ABORTED
    assert "only 0 PSs and 0 workers of 1 PS and 1 worker came" in world.status().requests[-1].detail


def test_tasks_that_do_not_come_at_the_start_fail_the_job_with_a_line() -> None:
    world = World(settings=replace_settings(start_seconds=5.0))
    world.start("worker-0")
    world.pass_time(1.0)
    world.pass_time(6.0)
    assert world.views[-1].phase is JobPhase.FAILED
    assert world.views[-1].failure.startswith("only 0 PSs and 1 worker of 2 PSs and 2 workers came within 5 s")


def test_a_script_that_raises_is_restarted_a_few_times_and_then_fails_the_job() -> None:
    world = World(settings=replace_settings(restarts=1)).training()
    for why in ("not yet", "no"):
        world.rounds(lambda view: view.phase is JobPhase.RUNNING and len(last_plan(view)[1]) == 2)
        name = last_plan(world.views[-1])[1][-1]
        failed = replace(world.members.pop(name).report, failure=f"{name}: ValueError: {why}")
        world.take(world.machine.on_report(failed, world.now)[1])
    assert world.views[-1].phase is JobPhase.FAILED
    assert (
        world.views[-1].failure
        == f"{name}: ValueError: no (2 failures, no step durable in between; 1 restart is allowed)"
    )
    with pytest.raises(BadInput, match="has failed"):
        world.resize("r", 1, 1)


def test_tasks_that_come_and_die_in_vain_fail_the_job_in_the_end() -> None:
    world = World(settings=replace_settings(losses=5)).training()
    for _ in range(200):
        for name in world.views[-1].wanted:
            world.start(name)
        for member in [*world.members.values()][:1]:
            world.kill(member, reported=True)
        world.pass_time(0.1)
        if world.views[-1].phase is JobPhase.FAILED:
            break
    assert world.views[-1].failure.startswith("6 tasks were lost and no step became durable since")


@pytest.mark.parametrize(
    ("layout", "training", "line"),
    [
        (LARGE, TRAINING, "another model than its job"),
        (LAYOUT, TRAINING.replace('"seed":0', '"seed":5'), "trains otherwise than its job"),
        ("{}", TRAINING, "brought no model"),
    ],
)
def test_a_worker_with_another_model_or_training_is_refused(layout: str, training: str, line: str) -> None:
    world = World()
    world.start("worker-0")
    refusal, _ = world.machine.on_register(Newcomer("worker-1", TaskRole.WORKER, 99, "{}", layout, training), world.now)
    assert line in refusal
    assert "\n" not in refusal
    assert world.views[-1].member("worker-1") is None


def test_a_name_that_is_not_wanted_or_was_lost_is_refused() -> None:
    world = World().training()
    refusal, _ = world.machine.on_register(Newcomer("ps-9", TaskRole.SERVER, 99, "{}"), world.now)
    assert refusal == "ps-9 is not wanted in job simulated"
    newcomer = Newcomer("ps-1", TaskRole.SERVER, 99, "{}")
    refusal, outcome = world.machine.on_register(newcomer, world.now)
    assert refusal.startswith("ps-1 is not wanted in job simulated")
    world.take(outcome)
    assert world.views[-1].phase is JobPhase.RECOVERING, "its process of before is gone"


def test_a_server_that_all_workers_suspect_is_lost_in_the_end() -> None:
    world = World(settings=replace_settings(checkpoint_seconds=1000.0)).training()
    for _ in range(40):
        for member in list(world.members.values()):
            if member.worker:
                member.report = replace(member.report, suspects=("ps-1",))
            world.send(member)
        world.pass_time(1.0)
        if world.views[-1].phase is JobPhase.RECOVERING:
            break
    assert "ps-1" not in {member.task for member in world.views[-1].members}


def test_a_server_that_only_waiting_workers_suspect_is_not_lost() -> None:
    world = World(settings=replace_settings(checkpoint_seconds=1000.0)).training()
    for _ in range(40):
        for member in list(world.members.values()):
            if member.task == "worker-0":
                member.report = replace(member.report, suspects=("ps-0", "ps-1"))
            world.send(member)
        world.pass_time(1.0)
    assert world.views[-1].phase is JobPhase.RUNNING


def _suspecting(suspects: dict[str, tuple[str, ...]], seconds: int = 40) -> World:
    """A job in which these say for so long that those do not answer, or until something changes."""
    world = World(settings=replace_settings(checkpoint_seconds=1000.0)).training()
    known = {member.task for member in world.views[-1].members}
    for _ in range(seconds):
        for member in list(world.members.values()):
            member.report = replace(member.report, suspects=suspects.get(member.task, ()))
            world.send(member)
        world.pass_time(1.0)
        if known - {member.task for member in world.views[-1].members}:
            break
    return world


EVERY_SERVER = ("ps-0", "ps-1")


@pytest.mark.parametrize(
    ("suspects", "lost"),
    [
        (  # its pushes reach nobody: all wait for the servers, which wait for it
            {"worker-0": EVERY_SERVER, "worker-1": EVERY_SERVER, "ps-0": ("worker-1",), "ps-1": ("worker-1",)},
            "worker-1",
        ),
        (  # only its way to one server is broken
            {"worker-0": ("ps-0",), "worker-1": ("ps-0",), "ps-0": ("worker-1",)},
            "worker-1",
        ),
        (  # nobody reaches this server
            {"worker-0": ("ps-0",), "worker-1": ("ps-0",), "ps-0": ("worker-0", "worker-1")},
            "ps-0",
        ),
        (  # it computes: it waits for no server
            {"worker-0": EVERY_SERVER, "ps-0": ("worker-1",), "ps-1": ("worker-1",)},
            "",
        ),
    ],
)
def test_who_is_cut_off_from_its_peers_is_lost_and_nobody_else(suspects: dict[str, tuple[str, ...]], lost: str) -> None:
    world = _suspecting(suspects)
    left = {member.task for member in world.views[-1].members}
    assert {"worker-0", "worker-1", *EVERY_SERVER} - left == ({lost} if lost else set())
    assert world.views[-1].phase is (JobPhase.RECOVERING if lost == "ps-0" else JobPhase.RUNNING)


def test_changes_that_are_over_are_forgotten() -> None:
    world = World(settings=replace_settings(checkpoint_seconds=0.1)).training()
    world.until(JobPhase.FINISHED)
    assert world.views[-1].changes[-1].number > 3
    assert max(len(view.changes) for view in world.views) <= 3
    assert world.status().durable_step == TOTAL_STEPS
