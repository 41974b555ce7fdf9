"""The benchmark of inferences: which decisions it counts, and what it says."""

import json

import pytest

from benchmarks import inference
from benchmarks.inference import CROWD_NODES, decide_seconds, decisions, main
from foundation.errors import DONE
from policy_net.baselines.fifo import FifoPolicy
from policy_net.domain import ClusterState, Decision, Trigger


class Counting(FifoPolicy):
    """Remembers how many jobs every decision was about."""

    def __init__(self) -> None:
        super().__init__("counting")
        self.jobs: list[int] = []

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        self.jobs.append(len(state.jobs))
        return super().decide(state, trigger)


def test_only_decisions_count_at_which_most_jobs_are_there() -> None:
    policy = Counting()
    found = decide_seconds(policy, 20, 4, seed=1)
    assert len(found) == len(policy.jobs) > 1
    assert policy.jobs[0] == 20
    assert min(policy.jobs) >= 18
    assert all(seconds > 0.0 for seconds in found)


def test_workloads_follow_each_other_until_there_are_enough() -> None:
    assert len(decisions(10, CROWD_NODES, 4)) >= 4


def test_all_figures_are_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(inference, "CROWD_NODES", 40)
    assert main(["-o", "json", "--decisions", "1"]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert {"inference_j40_p50_us", "slot_200_jobs_500_nodes_p99_ms", "slot_1000_jobs_p99_ms"} <= set(found)
    assert all(value > 0 for value in found.values())


def test_no_decisions_are_none_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--decisions", "0"])
    assert ended.value.code == 2
    assert "use 1 or more" in capsys.readouterr().err
