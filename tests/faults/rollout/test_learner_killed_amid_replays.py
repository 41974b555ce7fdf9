"""kill -9 of the learner while its gate replays clusters' own work: the next life goes on behind what is on disk."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learner_makers import update
from learner_process import DEADLINE_SECONDS, LearnerProcess
from rollout_fleet import FakeFleet, living_fleet

from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.wire import push_request
from policy_net.set_policy.policy import DEFAULT_SET_FILE, default_set_file

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc, and no other system ends them"),
]

CLUSTERS = 4
REPLAYS = "global_learner.scores"


def sketch(nodes: int) -> pb.WorkloadSketch:
    """By its number of nodes a replay's process can be told from the others."""
    lengths = [900.0 * 2**step for step in range(5)]
    kind = pb.KindSketch(kind="ps", share=1.0, run_seconds=lengths, workers=[1, 1, 2, 2, 4], ps=[1] * 5)
    return pb.WorkloadSketch(nodes=nodes, gpus_per_node=2, cpus_per_node=8, jobs_a_day=60.0, kinds=[kind])


def children_of(parent: int) -> dict[int, list[str]]:
    """Command lines of the processes that a process has started, and that still run."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            state, ppid = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except (OSError, ValueError):
            continue  # it has ended meanwhile, or is no process
        if int(ppid) == parent and state != "Z":
            found[int(folder.name)] = words
    return found


def replayed_by(children: dict[int, list[str]]) -> set[int]:
    """The nodes of the sketches that processes replay."""
    asked = [json.loads(words[words.index(REPLAYS) + 1]) for words in children.values() if REPLAYS in words]
    return {question["sketch"]["nodes"] for question in asked if "sketch" in question}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0] != "Z"
    except OSError:
        return False


def until(holds: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.005)
    return found


def published(fleet: FakeFleet) -> None:
    """A second version, out of an update of the shipped policy's."""
    first, shipped = fleet.agents[0], default_set_file()
    made = update(1, cluster=first.cluster, incarnation=first.incarnation, spec_digest=shipped.spec.digest,
                  gradient=np.ones_like(shipped.weights))  # fmt: skip
    rpc.FleetStub(fleet.channel).Push(push_request(made, False), timeout=DEADLINE_SECONDS)
    until(lambda: fleet.learner.fleet().latest_version == 2, "v2 is published")


def test_the_next_life_replays_what_is_missing_and_nothing_twice(tmp_path: Path) -> None:
    learner = LearnerProcess(
        tmp_path,
        publish={"every_steps": 1, "auto_assign": False},
        rollouts={"period_seconds": 0.05},
        scores={"enabled": True, "nice": 0},
        optimizer={"units": "weights"},
    )
    shutil.copy(DEFAULT_SET_FILE, tmp_path / "v1.safetensors")
    with living_fleet(learner, CLUSTERS) as fleet:
        published(fleet)
        nodes = {agent.cluster: 4 + number for number, agent in enumerate(fleet.agents)}
        for agent in fleet.agents:
            said = pb.ShareSketchRequest(
                cluster=agent.cluster, incarnation=agent.incarnation, sketch=sketch(nodes[agent.cluster])
            )
            assert agent.call("ShareSketch", said).taken
        fleet.start(2)

        def amid() -> tuple[pb.Rollout, dict[int, list[str]]] | None:
            rollout = fleet.rollout()
            states = Counter(entry.state for entry in rollout.sketches)
            children = children_of(learner.pid)
            return (rollout, children) if states["replayed"] and replayed_by(children) else None

        rollout, children = until(amid, "a replay is under way, and one is done")
        waiting = {entry.cluster for entry in rollout.sketches if entry.state == "waiting"}
        learner.kill()
        assert waiting, "the kill came too late"
        until(lambda: not any(is_alive(pid) for pid in children), "no process is left behind")

        learner.start()
        kept = {entry.cluster: entry for entry in fleet.rollout().sketches if entry.state == "replayed"}
        before = {entry.cluster: entry for entry in rollout.sketches if entry.state == "replayed"}
        assert {cluster: kept[cluster] for cluster in before} == before
        again: set[int] = set()

        def judged() -> pb.Rollout | None:
            again.update(replayed_by(children_of(learner.pid)))
            now = fleet.rollout()
            return now if any(verdict.stage == 0 for verdict in now.verdicts) else None

        after = until(judged, "the gate has said something")
        assert again
        assert again.isdisjoint(nodes[cluster] for cluster in kept)
        assert {entry.state for entry in after.sketches} == {"replayed"}
        assert {entry.cluster: entry for entry in after.sketches if entry.cluster in kept} == kept
        verdicts = [verdict for verdict in after.verdicts if verdict.stage == 0]
        assert len(verdicts) == 1
        assert any(f"own work of {CLUSTERS} clusters" in reason for reason in verdicts[0].reasons)
        lines = Counter((entry.action, entry.subject, entry.detail) for entry in fleet.audit())
        assert max(lines.values()) == 1
        assert sum(action == "rollout-verdict" and "stage gate" in detail for action, _, detail in lines) == 1
