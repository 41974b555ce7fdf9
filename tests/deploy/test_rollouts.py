"""The demo's rollouts: the plan is one, and every ending is told as it was; the whole of it runs in test_demo.py."""

import itertools
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cluster_agent.backend_settings import SimulatedBackendSettings
from cluster_agent.backends.simulated.backend import SNAPSHOT
from cluster_agent.settings_file import read_settings
from deploy.demonstration.display import Display
from deploy.demonstration.frame import DemoLearner, Demonstration, operator, write_yaml
from deploy.demonstration.processes import DemoFailed, Processes
from deploy.local import rollouts
from deploy.local.fleet import CLUSTER_STATE
from deploy.local.plan import FLEETS, DemoPolicy, make_plan, simulated_agent
from deploy.local.rollouts import (
    MOST_PAIRS,
    PLAN,
    RolloutEnd,
    Rollouts,
    contradiction,
    judged,
    why_none,
)
from global_learner.rollout.state import RolloutPhase
from policy_net.exchange.generated import fleet_pb2

STAGES = ("gate", "shadow", "canary", "fleet")


def rollout(phase: str, stage: int = 0, *verdicts: tuple[int, str]) -> fleet_pb2.Rollout:
    message = fleet_pb2.Rollout(number=1, candidate_version=7, phase=phase, stage=stage, stages=STAGES)
    for place, outcome in verdicts:
        message.verdicts.add(stage=place, outcome=outcome, pairs=3, reasons=[f"{STAGES[place]} {outcome}"])
    return message


class Learner:
    """Answers as a learner does whose rollout goes through these states; the last one stays.

    Args:
        decides: whether its clusters decide meanwhile; else all stands still.
    """

    def __init__(self, *states: fleet_pb2.Rollout, decides: bool = False) -> None:
        self.states = list(states)
        self.decides, self.decisions = decides, 0
        self.asked: list[str] = []

    def ask(self, request: object) -> object:
        match request:
            case fleet_pb2.StartRolloutRequest():
                self.asked.append(f"start v{request.version}")
                return fleet_pb2.StartRolloutReply(rollout=rollout("running"))
            case fleet_pb2.GetRolloutRequest():
                state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
                return fleet_pb2.GetRolloutReply(rollout=state)
            case fleet_pb2.ActOnRolloutRequest():
                self.asked.append(request.action)
                self.act()
        return None

    def act(self) -> None:
        self.states = [rollout("rolled-back", 2)]

    def fleet(self) -> fleet_pb2.GetFleetReply:
        reply = fleet_pb2.GetFleetReply()
        for cluster in ("north", "south"):
            acting = 7 if self.states[0].phase == "done" else 1
            status = fleet_pb2.ClusterStatus(acting_version=acting, decisions=self.decisions)
            reply.clusters.add(cluster=cluster, status=status)
        self.decisions += self.decides
        return reply


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "POLL_SECONDS", 0.0)


def run(folder: Path, learner: Learner, foretold: RolloutPhase, step_seconds: float) -> tuple[RolloutEnd, str]:
    said = StringIO()
    display = Display(1200.0, Console(file=said, width=200))
    seconds = itertools.count(0.0, step_seconds)
    course: Any = learner
    demo = Demonstration(folder, Processes(folder), display)
    own = Rollouts(course, ("north", "south"), demo, lambda: next(seconds))
    return own.run(7, foretold), said.getvalue()


def test_the_plan_goes_from_gate_to_fleet() -> None:
    assert tuple(stage.kind for stage in PLAN.stages) == STAGES


def test_a_rollout_is_told_stage_by_stage(tmp_path: Path) -> None:
    passed = [(stage, "pass") for stage in range(4)]
    learner = Learner(rollout("running"), rollout("running", 1, passed[0]), rollout("done", 3, *passed))
    end, said = run(tmp_path, learner, RolloutPhase.DONE, 1.0)
    assert (end.ended, end.acting, end.incumbent, end.is_otherwise) == ("done", 7, 1, False)
    lines = [line.strip() for line in said.splitlines()]
    margin = "(a margin of 10% is the demo's alone, as it has minutes; other plans have 3% unless set)"
    assert lines.pop(3) == margin
    assert lines[:-1] == [f"{kind}: pass; {kind} pass" for kind in STAGES]
    assert asdict(end)["stages"][1] == {"kind": "shadow", "outcome": "pass", "reason": "shadow pass", "pairs": 3}
    assert learner.asked == ["start v7"]


def test_a_rollout_that_gets_on_slowly_is_waited_for(tmp_path: Path) -> None:
    passed = [(stage, "pass") for stage in range(4)]
    slow = [rollout("running", 2, *passed[:2]) for _ in range(20)]
    learner = Learner(*slow, rollout("done", 3, *passed), decides=True)
    end, said = run(tmp_path, learner, RolloutPhase.DONE, 40.0)
    assert end.seconds > 600.0, "longer than the demo waits where nothing happens at all"
    assert (end.ended, learner.asked) == ("done", ["start v7"])
    assert "so the demo aborts" not in said


def test_what_as_many_pairs_as_that_do_not_decide_is_aborted(tmp_path: Path) -> None:
    waits = rollout("running", 2, (0, "pass"), (1, "pass"))
    for cluster, blocks in (("north", 2 * MOST_PAIRS + 10), ("south", 2 * MOST_PAIRS - 10)):
        waits.members.add(cluster=cluster, role="alternating", blocks=blocks)
    learner = Learner(waits, decides=True)
    end, said = run(tmp_path, learner, RolloutPhase.DONE, 1.0)
    assert learner.asked == ["start v7", "abort"]
    assert (end.ended, end.word) == ("inconclusive", "not decided")
    assert f"s and {MOST_PAIRS} pairs of blocks, so the demo aborts the rollout" in said


def test_without_a_verdict_it_is_aborted_and_inconclusive(tmp_path: Path) -> None:
    waits = rollout("asking", 2, (0, "pass"), (1, "pass"), (2, "inconclusive"))
    learner = Learner(waits)
    end, said = run(tmp_path, learner, RolloutPhase.DONE, 40.0)
    assert learner.asked == ["start v7", "abort"]
    assert (end.ended, end.acting, end.is_otherwise) == ("inconclusive", 1, False)
    assert "canary: no verdict after" in said
    assert "not decided: v1 acts in all clusters" in said
    assert contradiction([end]) == ""


def test_a_verdict_against_what_was_foretold_is_one_line(tmp_path: Path) -> None:
    learner = Learner(rollout("rolled-back", 0, (0, "fail")))
    end, _ = run(tmp_path, learner, RolloutPhase.DONE, 1.0)
    assert end.is_otherwise
    assert contradiction([end]) == "the rollout of v7 was to end done and ended rolled-back"


def test_a_rollout_that_does_not_even_abort_ends_the_demo(tmp_path: Path) -> None:
    learner = Learner(rollout("running", 2))
    learner.act = lambda: None  # type: ignore[method-assign]
    with pytest.raises(DemoFailed, match="rollout 1 of v7 is running, and does not end"):
        run(tmp_path, learner, RolloutPhase.DONE, 40.0)


def test_a_learner_that_is_not_there_ends_the_demo_in_one_line() -> None:
    with (
        pytest.raises(DemoFailed, match="the learner: no learner answers"),
        operator("127.0.0.1:1", None) as client,
    ):
        client.fleet()


def test_only_what_ended_a_stage_is_told_of_it() -> None:
    found = judged(rollout("running", 2, (0, "pass"), (1, "inconclusive"), (1, "pass"), (2, "wait")))
    assert [(stage.kind, stage.outcome) for stage in found] == [("gate", "pass"), ("shadow", "pass")]


def test_a_fleet_that_can_have_no_rollout_is_told_why() -> None:
    assert why_none(["north", "south"], 2, True) == ""
    assert "2 clusters" in why_none(["north"], 9, True)
    assert "no version of its own" in why_none(["north", "south"], 1, True)
    assert "through with their work" in why_none(["north", "south"], 2, False)


def test_while_versions_are_judged_a_cluster_schedules_as_a_real_one_and_waits_for_its_twin(tmp_path: Path) -> None:
    (cluster,) = make_plan(None, ("mixed",), seed=0, jobs=None)
    found = {}
    with Processes(tmp_path) as processes:
        learner = DemoLearner(Demonstration(tmp_path, processes, Display(1200.0)), tmp_path)
    for by_rollouts in (False, True):
        content = simulated_agent(cluster, learner, FLEETS[DemoPolicy.SET], by_rollouts=by_rollouts)
        found[by_rollouts] = read_settings(write_yaml(tmp_path / "agent.yaml", content))
    before, then = found[False], found[True]
    assert isinstance(before.backend, SimulatedBackendSettings)
    assert isinstance(then.backend, SimulatedBackendSettings)
    assert before.learner is not None
    assert then.learner is not None
    assert (before.backend.wait_for_twin, before.learner.twin_cpu_percent, before.learns) == (False, 0.0, True)
    assert (then.backend.wait_for_twin, then.learner.twin_cpu_percent, then.learns) == (True, 100.0, False)
    assert then.policy.exploration == 0.0
    assert then.state_dir == before.state_dir
    assert CLUSTER_STATE == SNAPSHOT, "what an agent of other jobs would refuse is removed by its name"
