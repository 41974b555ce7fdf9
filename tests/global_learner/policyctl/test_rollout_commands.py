"""`policyctl rollout` as an operator types it, against a real learner with agents: begin, watch, have a word, undo."""

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from learner_process import LearnerProcess
from rollout_fleet import TINY_PLAN, living_fleet

from foundation.command_line import run
from global_learner.policyctl import cli as policyctl
from policy_net.exchange.generated import fleet_pb2 as pb


@pytest.mark.heavy
def test_an_operator_brings_a_version_and_takes_one_back(tmp_path: Path, capsys, monkeypatch) -> None:  # noqa: PLR0915
    learner = LearnerProcess(
        tmp_path,
        publish={"every_steps": 1, "auto_assign": False},
        rollouts={"period_seconds": 0.05, "real_time_factor": 1e9},
    )
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump(TINY_PLAN))
    monkeypatch.setenv("FEDL2_LEARNER", learner.operator_address)

    def typed(*words: str) -> tuple[int, str, str]:
        code = run(policyctl.app, "policyctl", ["rollout", *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    def asked(*words: str):
        code, out, err = typed(*words, "-o", "json")
        assert (code, err) == (0, "")
        return json.loads(out)

    def refused(said: str, *words: str) -> None:
        code, out, err = typed(*words)
        assert (code, out) == (2, "")
        assert said in err
        assert err.count("\n") == 1

    with living_fleet(learner) as fleet:
        fleet.publish()
        refused("no rollout yet", "status")
        refused("there is no version v9", "start", "v9")
        refused("did you mean stages", "start", "v2", "--plan", str(_written(tmp_path, {"stage": []})))

        said = asked("start", "v2", "--plan", str(plan), "--reason", "first try", "--dry-run")
        assert said["changes"] == ["rollout-started rollout 1: v2, stage gate: first try"]
        assert asked("history") == []
        begun = asked("start", "latest", "--plan", str(plan), "--reason", "as a test")
        assert (begun["number"], begun["why"], begun["stage"]) == (1, "as a test", "gate")
        assert run(policyctl.app, "policyctl", ["audit", "-o", "json"]) == 0
        details = [line["detail"] for line in json.loads(capsys.readouterr().out)]
        assert "v2, stage gate: as a test" in details
        code, out, _ = typed("status")
        assert out.count("as a test") == 2  # who began it and why, and the event
        refused("rollout 1 of v2 is", "start", "v2")
        fleet.live_until(lambda rollout: rollout.phase == "asking")
        refused("does not apply", "resume")
        refused("knows no cluster 'nowhere'", "pin", "nowhere")
        asked("pin", "cluster-3")
        assert asked("promote", "--dry-run")["changes"]
        refused("(gate) of rollout 1 of v2 without its verdict and begin stage 1 (shadow), add --from 0:", "promote")
        refused("in stage 0 (gate) by now, not in stage 1; nothing was changed", "promote", "--from", "1")
        assert asked("status")["stage_number"] == 0
        asked("promote", "--from", "0")

        ended = threading.Event()
        agents = threading.Thread(target=_live, args=(fleet, ended))
        agents.start()
        code, out, err = typed("watch", "--every", "0.1")
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert lines[-1].startswith("rollout 1 of v2: done")
        assert len(set(lines)) == len(lines)

        for agent in fleet.agents:
            agent.loss, agent.block = 1.0, 0
        ended.set()
        agents.join(60)
        assert [entry["role"] for entry in asked("status")["clusters"]] == [*3 * ["candidate"], "pinned"]
        code, out, _ = typed("status")
        assert (code, "cluster-3" in out) == (0, True)

        second = asked("start", "v1", "--plan", str(plan), "--reason", "back again")
        assert second["number"] == 2
        asked("abort")
        fleet.live_until(lambda rollout: rollout.phase == "rolled-back")
        code, out, err = typed("watch")
        assert code == 1
        assert out.startswith("rollout 2 of v1: rolled-back")
        assert "rollout 2 of v1 was rolled back: aborted by an operator" in err
        assert [entry["phase"] for entry in asked("history")] == ["done", "rolled-back"]
        code, out, _ = typed("history", "-o", "yaml")
        assert [entry["number"] for entry in yaml.safe_load(out)] == [1, 2]


class Terminal(io.StringIO):
    """A terminal on which somebody answers, after what happens while the question stands there."""

    def __init__(self, answer: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(f"{answer}\n")
        self._meanwhile = meanwhile

    def isatty(self) -> bool:
        return True

    def readline(self, *size: int) -> str:
        self._meanwhile()
        return super().readline(*size)


@pytest.mark.heavy
def test_what_somebody_is_asked_about_is_compared_with_what_is_so_when_he_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Evidence is judged so seldom that only operators move the rollout.
    learner = LearnerProcess(
        tmp_path, publish={"every_steps": 1, "auto_assign": False}, rollouts={"period_seconds": 3600.0}
    )
    monkeypatch.setenv("FEDL2_LEARNER", learner.operator_address)

    def typed(*words: str, terminal: Terminal | None = None) -> tuple[int, str, str]:
        with monkeypatch.context() as patched:
            if terminal is not None:
                patched.setattr("sys.stdin", terminal)
            code = run(policyctl.app, "policyctl", ["rollout", *words])
        shown = capsys.readouterr()
        return code, shown.out.strip(), shown.err  # what asks leaves a blank on standard output

    def stage() -> int:
        return fleet.rollout().stage

    with living_fleet(learner) as fleet:
        fleet.publish()
        code, out, said = typed("start", "v2")
        assert (code, out) == (2, "")
        assert "stage 3, canary: 2 of 4 clusters, at most 14 days" in said
        assert "by the built-in plan, which may take 43 days, add --yes, or name your own plan with --plan FILE" in said
        code, out, said = typed("start", "v2", terminal=Terminal("n"))
        assert (code, out) == (2, "")
        assert "which may take 43 days? [y/N]" in said
        assert not fleet.admin("ListRollouts", pb.ListRolloutsRequest()).rollouts
        assert typed("start", "v2", terminal=Terminal("y"))[0] == 0

        assert typed("promote", terminal=Terminal("n"))[0] == 2
        assert stage() == 0
        code, out, said = typed("promote", terminal=Terminal("y", lambda: fleet.act("promote")))
        assert (code, out) == (2, "")
        assert "leave stage 0 (gate) of rollout 1 of v2 without its verdict and begin stage 1 (shadow)?" in said
        assert "rollout 1 of v2 went on since you looked, so nothing was changed" in said
        assert stage() == 1  # and not 2: the shadow stage was not passed over
        assert typed("promote", terminal=Terminal("y"))[0] == 0
        assert stage() == 2
        code, _, said = typed("abort", "--from", "1")
        assert (code, "is running in stage 2 (canary) by now, not in stage 1" in said) == (2, True)
        code, _, said = typed("pause", "--number", "7")
        assert (code, "there is no rollout 7" in said) == (2, True)
        assert typed("abort", "--from", "2", "--number", "1")[0] == 0
        assert typed("start", "v2", "--yes")[0] == 2  # the first is on its way back
        fleet.live_until(lambda rollout: rollout.phase in ("rolling-back", "rolled-back"))


def _written(folder: Path, content: object) -> Path:
    path = folder / "bad.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def _live(fleet, ended: threading.Event) -> None:
    while not ended.is_set():
        for agent in fleet.agents:
            agent.beat()
