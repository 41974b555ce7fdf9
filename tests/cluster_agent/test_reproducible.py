"""What the log is for: every decision can be made again, bit for bit, from its line and its policy file."""

import threading
from pathlib import Path

import pytest
from agent_fakes import SPEC, WEIGHTS, policy_bytes

from cluster_agent.agent import run_agent
from cluster_agent.recording.log_reading import CURRENT, read_log, state_of
from cluster_agent.settings import AgentSettings
from policy_net.dl2.policy import ActingMode, JobAwareExploration, LearnedPolicy
from policy_net.domain import Trigger
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.state_codec import decode_decision


@pytest.mark.parametrize(("mode", "exploration"), [("greedy", 0.0), ("sample", 0.0), ("sample", 0.4)])
def test_a_logged_decision_can_be_made_again(tmp_path: Path, mode: str, exploration: float) -> None:
    (tmp_path / "policy.safetensors").write_bytes(policy_bytes())
    settings = AgentSettings.model_validate(
        {
            "cluster": "alpha",
            "state_dir": tmp_path / "state",
            "backend": {"workloads": [{"source": "dl2:jobs=6,seed=3"}], "environment": {"nodes": 8}},
            "policy": {
                "initial": str(tmp_path / "policy.safetensors"),
                "mode": mode,
                "exploration": exploration,
                "seed": 11,
            },
        }
    )
    run_agent(settings, threading.Event())
    lines = list(read_log(tmp_path / "state" / CURRENT))
    assert len(lines) > 20
    for line in lines[:: len(lines) // 20]:
        assert line["digest"] == digest_of(policy_bytes())
        explorer = JobAwareExploration(line["exploration"]) if line["exploration"] else None
        policy = LearnedPolicy(SPEC, WEIGHTS, seed=line["seed"], mode=ActingMode(line["mode"]), explorer=explorer)
        policy.decision_index = line["number"]
        decision, samples = policy.decide_recorded(state_of(line), Trigger(line["trigger"]))
        assert line["interventions"] or decision == decode_decision(line)
        assert samples.actions_M.tolist() == line["actions"]
        assert samples.behaviour_M.tolist() == line["behaviour"]
