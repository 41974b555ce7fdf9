"""`policyctl rollout` as an operator types it, against a real learner with agents: begin, watch, have a word, undo."""

import json
import threading
from pathlib import Path

import pytest
import yaml
from learner_process import LearnerProcess
from rollout_fleet import TINY_PLAN, living_fleet

from foundation.command_line import run
from global_learner.policyctl import cli as policyctl


@pytest.mark.heavy
def test_an_operator_brings_a_version_and_takes_one_back(tmp_path: Path, capsys, monkeypatch) -> None:  # noqa: PLR0915
    learner = LearnerProcess(
        tmp_path, publish={"every_steps": 1, "auto_assign": False}, rollouts={"period_seconds": 0.05}
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
        asked("promote")

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


def _written(folder: Path, content: object) -> Path:
    path = folder / "bad.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def _live(fleet, ended: threading.Event) -> None:
    while not ended.is_set():
        for agent in fleet.agents:
            agent.beat()
