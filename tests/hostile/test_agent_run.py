"""A whole agent beside a broken or hostile learner: it schedules all its jobs with what it has, and says why."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
import structlog
from agent_fakes import policy_bytes
from hostile_server import FLEET, HostileServer

from cluster_agent.agent import Agent
from cluster_agent.settings import AgentSettings
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.policy_file import digest_of

pytestmark = pytest.mark.heavy

MOST_LINES = 60


def cut(request: bytes, context: grpc.ServicerContext) -> bytes:
    context.abort(grpc.StatusCode.UNKNOWN, "\x1b[31mcut\n" * 1000)
    return b""


def everything(server: HostileServer, answer: object) -> None:
    server.answers = {method.name: answer for method in FLEET.methods}  # type: ignore[misc]


def bad_version(server: HostileServer) -> None:
    data = policy_bytes()[:-50]
    reply = pb.FetchPolicyReply(version=2, policy_file=data, digest=digest_of(data))
    server.answers = {"FetchPolicy": reply.SerializeToString()}


def other_version(server: HostileServer) -> None:
    reply = pb.FetchPolicyReply(version=2, policy_file=policy_bytes(), digest="0" * 64)
    server.answers = {"FetchPolicy": reply.SerializeToString()}


LEARNERS: dict[str, Callable[[HostileServer], None]] = {
    "answers-garbage": lambda server: everything(server, b"\xff\xff\xff"),
    "answers-nothing": lambda server: everything(server, b""),
    "hangs": lambda server: everything(server, server.hang),
    "fails": lambda server: everything(server, cut),
    "is-gone": lambda server: server.close(),
    "assigns-a-broken-version": bad_version,
    "assigns-a-version-of-another-digest": other_version,
}


def settings_of(folder: Path, server: HostileServer, call_seconds: float, flush_seconds: float) -> AgentSettings:
    """Four jobs, beside this learner."""
    return AgentSettings.model_validate(
        {
            "cluster": "alpha",
            "state_dir": folder / "state",
            "learner": {
                "address": f"127.0.0.1:{server.port}",
                "heartbeat_seconds": 0.02,
                "retry": {"initial_seconds": 0.02, "maximum_seconds": 0.1, "call_seconds": call_seconds},
            },
            "backend": {
                "workloads": [{"source": "dl2:jobs=4,seed=3"}],
                "environment": {"nodes": 6},
                "pace": {"kind": "scaled", "speedup": 1200.0 / 0.01},
                "baseline": False,
            },
            "policy": {"initial": "drf"},
            "learning": {"source": "live", "flush_seconds": flush_seconds},
        }
    )


def test_an_agent_that_ends_by_itself_waits_until_its_learner_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster_agent.agent._PROMPT_SECONDS", 0.0)  # what it has after a signal
    server = HostileServer()
    sound, finished = server.sound("Heartbeat"), threading.Event()

    def hear(request: bytes, context: grpc.ServicerContext) -> bytes:
        if pb.HeartbeatRequest.FromString(request).status.finished:
            finished.set()
        return sound

    server.answers = {"Heartbeat": hear}
    try:
        Agent(settings_of(tmp_path, server, 60.0, 60.0), threading.Event()).run()
    finally:
        server.close()
    assert finished.is_set()


@pytest.mark.parametrize("case", LEARNERS)
def test_an_agent_schedules_to_the_end(case: str, tmp_path: Path) -> None:
    server = HostileServer()
    LEARNERS[case](server)
    settings = settings_of(tmp_path, server, 0.3, 0.1)
    try:
        with structlog.testing.capture_logs() as said:
            agent = Agent(settings, threading.Event())
            agent.run()
    finally:
        server.close()
    assert agent.status().finished
    assert agent.status().cluster.jobs_done == 4
    assert agent.status().acting_version == 0
    assert not [line for line in said if "exc_info" in line], said
    complaints = [line for line in said if line["log_level"] in ("warning", "error")]
    assert 1 <= len(complaints) <= MOST_LINES
    for line in complaints:
        assert str(line.get("error", "")).isprintable()
        assert len(str(line.get("error", ""))) < 700
