"""`policyctl rollout watch`: a line for every change, patience while the learner is away, and how it ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import yaml
from learner_process import DEADLINE_SECONDS, LearnerProcess
from rollout_fleet import TINY_PLAN, living_fleet

from foundation.command_line import run
from global_learner.errors import LearnerError, RolledBack, Unknown, Unreachable
from global_learner.policyctl import cli as policyctl
from global_learner.policyctl import rollout_commands
from global_learner.policyctl.rollout_commands import WatchPatience, watch_to_end
from policy_net.exchange.generated import fleet_pb2 as pb

AWAY = Unreachable("no learner answers at 127.0.0.1:7070 within 5 s")


def rollout(phase: str = "running", stage: int = 0, reason: str = "") -> pb.Rollout:
    stages = ["gate", "canary", "fleet"]
    return pb.Rollout(number=3, candidate_version=12, phase=phase, stage=stage, stages=stages, reason=reason)


class Watched:
    """A learner that answers so, one look after the other; the last answer again and again."""

    def __init__(self, *answers: pb.Rollout | Exception) -> None:
        self.answers = list(answers)
        self.now = 0.0
        self.lines: list[str] = []
        self.remarks: list[str] = []
        self.waits: list[float] = []

    def ask(self) -> pb.Rollout:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.waits.append(seconds)

    def watch(self, first: pb.Rollout, away_seconds: float = 600.0, days: float | None = None) -> None:
        patience = WatchPatience(5.0, away_seconds, days)
        say, remark = self.lines.append, self.remarks.append
        watch_to_end(first, self.ask, patience, say, remark, clock=lambda: self.now, sleep=self.sleep, seed=1)


def test_a_line_for_every_change_and_none_for_the_same() -> None:
    same = rollout(stage=1)
    learner = Watched(rollout(), same, same, same, rollout("asking", 1, "few pairs"), rollout("done", 2))
    learner.watch(rollout())
    assert learner.lines == [
        "rollout 3 of v12: running, stage 1/3 gate ()",
        "rollout 3 of v12: running, stage 2/3 canary ()",
        "rollout 3 of v12: asking, stage 2/3 canary (); few pairs",
        "rollout 3 of v12: done, stage 3/3 fleet ()",
    ]
    assert learner.remarks == []
    assert set(learner.waits) == {5.0}


def test_an_absence_is_said_once_and_waited_for_with_growing_pauses() -> None:
    learner = Watched(*(8 * [AWAY]), rollout(), rollout(stage=1), AWAY, rollout("done", 2))
    learner.watch(rollout())
    assert len(learner.lines) == 3
    first = "no learner answers; waiting for one, for 10 minutes at most"
    assert learner.remarks == 2 * [first, "a learner answers again"]
    pauses = learner.waits[1:9]
    assert max(pauses) <= 15.0
    assert sum(pauses[4:]) > sum(pauses[:4])


def test_who_is_away_for_too_long_is_given_up_with_what_was_known_last() -> None:
    learner = Watched(AWAY)
    with pytest.raises(Unreachable, match="rollout 3 of v12 was running when last seen; no learner answers") as caught:
        learner.watch(rollout(), away_seconds=60.0)
    assert caught.value.exit_code == 3
    assert learner.now == pytest.approx(5.0 + 60.0)
    assert len(learner.remarks) == 1
    at_once = Watched(AWAY)
    with pytest.raises(Unreachable):
        at_once.watch(rollout(), away_seconds=0.0)
    assert (at_once.remarks, at_once.waits) == ([], [5.0])


@pytest.mark.parametrize(
    ("last", "kind", "said", "code"),
    [
        (rollout("rolled-back", 1, "v12 is gone"), RolledBack, "rollout 3 of v12 was rolled back: v12 is gone", 1),
        (Unknown("there is no rollout 3"), Unknown, "no longer knows rollout 3 of v12, which was running", 2),
    ],
)
def test_how_it_ended_is_said_with_the_right_exit_code(
    last: pb.Rollout | Exception, kind: type[LearnerError], said: str, code: int
) -> None:
    with pytest.raises(kind, match=said) as caught:
        Watched(rollout(), last).watch(rollout())
    assert caught.value.exit_code == code


def test_days_that_are_over_end_the_watching_and_not_the_rollout() -> None:
    with pytest.raises(LearnerError, match="rollout 3 is running after 1 days; it goes on"):
        Watched(rollout()).watch(rollout(), days=1.0)


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(policyctl.app, "policyctl", ["rollout", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def said_by(monkeypatch: pytest.MonkeyPatch, name: str, text: str = "") -> threading.Event:
    """Set as soon as the command prints a line of one kind that holds a text."""
    said, prints = threading.Event(), getattr(rollout_commands, name)

    def saying(line: str) -> None:
        prints(line)
        if text in line:
            said.set()

    monkeypatch.setattr(rollout_commands, name, saying)
    return said


@pytest.mark.heavy
def test_a_learner_that_is_killed_and_comes_back_is_waited_for_and_a_version_whose_file_is_gone_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = LearnerProcess(
        tmp_path, publish={"every_steps": 1, "auto_assign": False}, rollouts={"period_seconds": 0.05}
    )
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump(TINY_PLAN))
    monkeypatch.setenv("FEDL2_LEARNER", learner.operator_address)
    with living_fleet(learner) as fleet:
        fleet.publish()
        assert typed(capsys, "start", "v2", "--plan", str(plan), "--reason", "a test")[0] == 0
        fleet.live_until(lambda found: found.phase == "asking")
        digest = fleet.admin("ShowVersion", pb.ShowVersionRequest(version=2)).card.digest
        ended: list[tuple[int, str, str]] = []
        seen, missed = said_by(monkeypatch, "_say"), said_by(monkeypatch, "remark")
        paused = said_by(monkeypatch, "_say", ": paused")
        patience = ("--every", "0.1", "--away", str(DEADLINE_SECONDS / 60.0))
        watching = threading.Thread(target=lambda: ended.append(typed(capsys, "watch", *patience)))
        watching.start()
        assert seen.wait(DEADLINE_SECONDS)
        learner.kill()
        assert missed.wait(DEADLINE_SECONDS)
        learner.start()
        (learner.state_dir / "policies" / f"{digest}.safetensors").unlink()
        fleet.live_until(lambda _: paused.is_set())  # until somebody puts the file back, or ends the rollout
        fleet.act("abort")
        while watching.is_alive():
            for agent in fleet.agents:
                agent.beat()
            watching.join(0.05)
        ((code, out, err),) = ended
        lines = out.splitlines()
        assert code == 1
        assert any("v2: its policy file is damaged or gone; put a copy back" in line for line in lines)
        assert lines[-1].startswith("rollout 1 of v2: rolled-back")
        assert "was rolled back: aborted by an operator" in err
        assert len(set(lines)) == len(lines)
        assert err.splitlines()[0].startswith("no learner answers; waiting for one")
        assert err.splitlines()[1] == "a learner answers again"
        assert err.count("\n") == 3
