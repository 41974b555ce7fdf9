"""Comparisons of a cluster's last days with other schedulers: by replays that are believed, in turn with lessons."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from agent_fakes import Clock
from log_worlds import live, make_tape

from cluster_agent.active_policy import CandidateFactory
from cluster_agent.backends.local.job_file import JobFile
from cluster_agent.backends.local.job_table import SUBMITTED, JobState, JobTable
from cluster_agent.learning import comparison_process, own_past
from cluster_agent.learning.comparing import EVERY_SECONDS, PastComparer, comparer_of, comparison_command
from cluster_agent.learning.comparison_process import MOST_JOBS, STEPS, USUAL, answer, compared
from cluster_agent.learning.learning_source import LessonBudget
from cluster_agent.recording.load_history import KEPT_PAST, ReplayedPast
from cluster_agent.settings import AgentSettings, PolicySettings
from policy_net.domain import PolicyContext, Resources
from policy_net.exchange.wire import MOST_TIMES_OFF
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.twin_windows import LastDays, TwinMachines, environment_of, last_days_of
from policy_net.laboratory.workloads.decided import RecordedJobs
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadOptions
from policy_net.policy import SchedulerPolicy, build_policy
from policy_net.throughput.parametric import OnlineFit

MACHINES = TwinMachines((Resources(8000, 2),) * 6, 1200.0)
WORKLOAD = load_workload("dl2:jobs=60,seed=3", WorkloadOptions())
DEADLINE_SECONDS = 60.0
BEGAN_SECONDS = 1_795_000_000.0


class TrueSpeeds(OnlineFit):
    """A log that shows the very speeds of the simulator."""

    def grid(self, job_type: str) -> object:  # type: ignore[override]
        return default_speeds().grid(job_type)


def scheduler(name: str) -> SchedulerPolicy:
    return build_policy(name, PolicyContext())


def simulated(name: str) -> dict[str, float]:
    result = replay(WORKLOAD, environment_of(MACHINES), scheduler(name), default_speeds())
    return {one.job_id: one.jct_seconds for one in result.outcomes if one.jct_seconds is not None}


def recorded(jct_seconds: Mapping[str, float]) -> RecordedJobs:
    end = max(job.submit_time_seconds + jct_seconds[job.job_id] for job in WORKLOAD.jobs)
    capacities = {MACHINES.nodes: end}
    return RecordedJobs(WORKLOAD, BEGAN_SECONDS, jct_seconds, capacities, TrueSpeeds(), 1200.0, BEGAN_SECONDS + end, 0)


def days_of(jct_seconds: Mapping[str, float], days: float = 1000.0, most_jobs: int = MOST_JOBS) -> LastDays:
    found = last_days_of(recorded(jct_seconds), MACHINES, days, most_jobs)
    assert found is not None
    return found


def nothing() -> None:
    pass


def test_the_last_days_under_other_schedulers_are_what_a_simulation_of_them_says() -> None:
    under_drf = simulated("drf")
    rests: list[int] = []
    past = compared(days_of(under_drf), scheduler("drf"), "tetris", lambda: rests.append(1))
    assert past.jobs == len(WORKLOAD.jobs)
    assert past.avg_jct_seconds == pytest.approx(math.fsum(under_drf.values()) / past.jobs)
    assert past.twin_jct_seconds == pytest.approx(past.avg_jct_seconds)
    assert set(past.baselines) == {USUAL, "tetris"}
    for name, seconds in past.baselines.items():
        assert seconds == pytest.approx(math.fsum(simulated(name).values()) / past.jobs)
    assert rests, "it may rest between simulated decisions"
    assert [curve.policy for curve in past.load] == ["", USUAL, "tetris"]
    assert past.begin_seconds == BEGAN_SECONDS + WORKLOAD.jobs[0].submit_time_seconds
    for curve in past.load:
        assert len(curve.gpus_used) == len(curve.jobs_waiting) == len(curve.gpus) == STEPS
        assert curve.begin_seconds + STEPS * curve.step_seconds == pytest.approx(past.end_seconds)
        assert 0.0 < max(curve.gpus_used) <= 12.0 + 1e-6
    waiting = {curve.policy: sum(curve.jobs_waiting) for curve in past.load}
    assert waiting[USUAL] > waiting[""], "whoever keeps requested sizes lets others wait"


def test_a_twin_that_is_too_far_from_what_happened_is_asked_about_no_other_scheduler() -> None:
    under_drf = simulated("drf")
    for factor in (1.05 * MOST_TIMES_OFF, 0.95 / MOST_TIMES_OFF):
        past = compared(
            days_of({name: factor * each for name, each in under_drf.items()}), scheduler("drf"), "drf", nothing
        )
        assert (past.baselines, past.load) == ({}, ())
        assert past.twin_jct_seconds / past.avg_jct_seconds == pytest.approx(1.0 / factor, rel=0.05)


def test_a_fallback_that_acts_is_no_other_scheduler() -> None:
    past = compared(days_of(simulated("drf")), scheduler("drf"), "drf", nothing)
    assert list(past.baselines) == [USUAL]


def test_of_very_many_jobs_the_newest_are_replayed_and_the_days_are_fewer() -> None:
    every, newest = (days_of(simulated("drf"), most_jobs=count) for count in (60, 50))
    assert len(newest.window.workload.jobs) == 50
    assert newest.zero_seconds + newest.begin_seconds > every.zero_seconds + every.begin_seconds
    assert newest.compared < every.compared


def test_days_are_counted_from_the_end_and_what_came_before_is_replayed_with_them() -> None:
    ends = sorted(job.submit_time_seconds + simulated("drf")[job.job_id] for job in WORKLOAD.jobs)
    days = (ends[-1] - ends[-25] + 1.0) / 86_400.0
    last = days_of(simulated("drf"), days)
    assert len(last.compared) == 25
    assert last.end_seconds - last.begin_seconds == pytest.approx(days * 86_400.0)
    past = compared(last, scheduler("drf"), "tetris", nothing)
    assert past.jobs == 25
    assert past.load[0].gpus_used[0] > 0.0, "the cluster is not empty when these days begin"


def test_before_enough_jobs_have_ended_it_is_said_why_there_is_none(tmp_path: Path) -> None:
    assert answer(tmp_path, "drf", nothing) == "nothing was decided here yet"
    live(tmp_path, make_tape(4), CandidateFactory(PolicySettings()).from_name_or_file("set"))
    said = answer(tmp_path, "drf", nothing)
    assert isinstance(said, str)
    assert "no 20 jobs have ended here" in said


def test_a_log_of_an_agent_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live(tmp_path, make_tape(4), CandidateFactory(PolicySettings()).from_name_or_file("set"))
    monkeypatch.setattr(comparison_process, "log_of", lambda _: recorded(simulated("drf")))
    monkeypatch.setattr(comparison_process, "acting_of", lambda *_: scheduler("drf"))
    monkeypatch.setattr(
        comparison_process, "last_days_of", lambda *_, most_jobs: days_of(simulated("drf"), 1000.0, most_jobs)
    )
    found = answer(tmp_path, "drf", nothing)
    assert isinstance(found, ReplayedPast)
    assert ReplayedPast.from_json(json.loads(json.dumps(found.to_json()))) == found
    monkeypatch.setattr(comparison_process, "acting_of", lambda *_: None)
    said = answer(tmp_path, "drf", nothing)
    assert isinstance(said, str)
    assert "is not at hand" in said


def test_ends_that_this_machines_agent_has_not_logged_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    took = simulated("drf")
    logged = replace(recorded(took), jct_seconds={})
    monkeypatch.setattr(own_past, "read_recorded", lambda _: logged)
    unended = own_past.log_of(tmp_path)
    assert unended is not None
    assert not unended.jct_seconds
    table = JobTable(tmp_path / SUBMITTED)
    for job in WORKLOAD.jobs[:30]:
        submitted = BEGAN_SECONDS + job.submit_time_seconds
        content = {"name": job.job_id.lower(), "modelType": "resnet", "script": "train.py", "elastic": True}
        table.add(JobFile.model_validate(content), submitted)
        table.change(content["name"], state=JobState.DONE, ended_unix_seconds=submitted + took[job.job_id])
    found = own_past.log_of(tmp_path)
    assert found is not None
    assert found.jct_seconds == pytest.approx({job.job_id: took[job.job_id] for job in WORKLOAD.jobs[:30]})


PAST = ReplayedPast(1000.0, 2000.0, 40, 300.0, 310.0, {USUAL: 400.0})


def comparer(folder: Path, program: str, clock: Clock | None = None, first_seconds: float = 0.0) -> PastComparer:
    budget = LessonBudget(5.0)
    return PastComparer(folder, budget, (sys.executable, "-c", program), first_seconds, clock or Clock())


def printed(past: ReplayedPast | str) -> str:
    content = {"reason": past} if isinstance(past, str) else past.to_json()
    return f"print({json.dumps(content)!r})"


def test_what_was_compared_is_kept_and_told_after_a_restart(tmp_path: Path) -> None:
    first = comparer(tmp_path, printed(PAST))
    assert first.latest is None
    assert first.compare() == EVERY_SECONDS
    assert first.latest == comparer(tmp_path, printed("none")).latest == PAST


def test_a_comparison_that_took_long_is_followed_by_a_longer_rest(tmp_path: Path) -> None:
    clock = Clock()
    slow = comparer(tmp_path, printed(PAST), clock)
    ask = slow.budget.ask

    def slowly(*arguments: object) -> bytes:
        clock.now += 1000.0
        return ask(*arguments)  # type: ignore[arg-type]

    for program in (printed(PAST), printed("too few jobs have ended"), "raise SystemExit('out of luck')"):
        slow._command = (sys.executable, "-c", program)
        slow.budget.ask = slowly  # type: ignore[method-assign]
        assert slow.compare() == pytest.approx(9000.0), "whatever came of it"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise SystemExit('out of luck')", "out of luck"),
        ("print('no answer')", "Expecting value"),
        ("print('{}')", "begin_seconds"),
        (printed(replace(PAST, avg_jct_seconds=math.inf)).replace("Infinity", "1e999"), "not finite"),
        (printed("no past"), "no past"),
    ],
)
def test_whatever_goes_wrong_costs_a_comparison_and_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: str, said: str
) -> None:
    (tmp_path / KEPT_PAST).write_text(json.dumps(PAST.to_json()))
    broken = comparer(tmp_path, program)
    for _ in range(2):
        assert broken.compare() > 0.0
    assert broken.latest == PAST, "what was compared before is as true as it was"
    out = capsys.readouterr().out
    assert said in out
    assert out.count("nothing-compared") == 1


CURVE = {
    "begin_seconds": 0.0,
    "step_seconds": 60.0,
    "gpus_used": [1.0],
    "jobs_waiting": [0.0],
    "gpus": [2.0],
    "policy": "",
}


@pytest.mark.parametrize(
    "changes",
    [
        {"jobs": -1},
        {"end_seconds": 1000.0},
        {"load": [{**CURVE, "gpus": [2.0, 2.0]}]},
        {"load": [{**CURVE, "gpus_used": [math.inf]}]},
    ],
)
def test_what_no_learner_would_take_is_not_kept_as_a_comparison(changes: dict[str, object]) -> None:
    assert ReplayedPast.from_json({**PAST.to_json(), "load": [CURVE]}).load
    with pytest.raises(ValueError, match=r"it has fewer|a curve in it"):
        ReplayedPast.from_json({**PAST.to_json(), **changes})


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"begin_seconds": 1, "baselines": 3}'])
def test_a_kept_comparison_that_is_damaged_is_said_and_made_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (tmp_path / KEPT_PAST).write_text(content)
    again = comparer(tmp_path, printed(PAST))
    assert again.latest is None
    assert "comparison-begins-anew" in capsys.readouterr().out
    again.compare()
    assert again.latest == PAST


def test_an_agent_that_ends_waits_for_no_comparison(tmp_path: Path) -> None:
    hanging = comparer(tmp_path, "import time; time.sleep(100000)")
    hanging.start()
    hanging.finish(DEADLINE_SECONDS)
    assert not hanging._thread.is_alive()


def test_one_process_at_a_time_and_whoever_asked_first_is_first(tmp_path: Path) -> None:
    budget = LessonBudget(5.0)
    go, order = tmp_path / "go", tmp_path / "order"
    program = (
        "import pathlib, sys, time\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
        "with open(sys.argv[2], 'a') as file: file.write(sys.argv[3] + ' begins\\n')\n"
        "time.sleep(0.05)\n"
        "with open(sys.argv[2], 'a') as file: file.write(sys.argv[3] + ' ends\\n')\n"
    )
    threads = []
    for count, name in enumerate("abc", start=1):
        command = (sys.executable, "-c", program, str(go), str(order), name)
        thread = threading.Thread(target=budget.ask, args=(command, bytes, DEADLINE_SECONDS, lambda: False))
        thread.start()
        threads.append(thread)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(budget.waiting) < count:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    go.touch()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
    assert order.read_text().split("\n")[:6] == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


def test_who_waits_for_a_turn_ends_with_the_agent_and_a_failure_frees_the_turn() -> None:
    budget = LessonBudget(5.0)
    with pytest.raises(ValueError, match="ended with 3"):
        budget.ask((sys.executable, "-c", "raise SystemExit(3)"), bytes, DEADLINE_SECONDS, lambda: False)
    budget.waiting.append(object())
    with pytest.raises(TimeoutError, match="the agent ends"):
        budget.ask((sys.executable, "-c", ""), bytes, DEADLINE_SECONDS, lambda: True)
    assert len(budget.waiting) == 1


LOCAL = {"kind": "local", "slot_seconds": 10.0}
LEARNER = {"address": "localhost:1"}


@pytest.mark.parametrize(
    ("changes", "compares"),
    [
        ({}, True),
        ({"learner": None, "policy": {"initial": "drf"}}, False),
        ({"learner": {**LEARNER, "tell_load": False}}, False),
        ({"learner": {**LEARNER, "tell_baselines": False}}, False),
        ({"decision_log": {"enabled": False}}, False),
        ({"backend": {"kind": "simulated", "workloads": [{"source": "dl2:jobs=3"}]}}, False),
    ],
)
def test_a_real_cluster_whose_operator_lets_it_is_compared(
    tmp_path: Path, changes: dict[str, object], compares: bool
) -> None:
    content = {"cluster": "north", "state_dir": tmp_path, "learner": LEARNER, "backend": LOCAL, **changes}
    settings = AgentSettings.model_validate(content)
    assert (comparer_of(settings, LessonBudget(5.0)) is not None) is compares


def test_the_process_is_told_its_share_its_agent_and_where_to_look(tmp_path: Path) -> None:
    *_, percent, agent, folder, fallback = comparison_command(5.0, tmp_path, "drf")
    assert (float(percent), folder, fallback) == (5.0, str(tmp_path.resolve()), "drf")
    assert int(agent) > 0
