"""A root, regions below it and simulated clusters below these: real learners, mutual TLS all the way."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from learner_makers import SPEC, vector
from learner_process import DEADLINE_SECONDS, LearnerProcess

from cluster_agent.backends.base import BackendStatus
from cluster_agent.fleet.learner_client import AgentStatus, LearnerClient
from cluster_agent.settings import LearnerConnectionSettings
from global_learner.storage.receipts import Receipt, read_receipts
from policy_net.errors import LearnerRefused, LearnerUnreachable
from policy_net.exchange.enrolled_identity import EnrollmentFile
from policy_net.exchange.fleet_trust import FleetTrust
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.wire import GradientUpdate, PushOutcome

QUICK = {"push_seconds": 0.2, "heartbeat_seconds": 0.05, "call_seconds": 5.0}
LOOSE = {"ingest": {"max_staleness_steps": 100_000}, "telemetry": {"http_listen": "127.0.0.1:0", "log_level": "info"}}


def wait_for(condition: Callable[[], object], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found


def invite(learner: LearnerProcess, name: str, path: Path) -> Path:
    """What `policyctl cluster enroll` does, by the operators' socket."""
    with learner.operators() as channel:
        reply = rpc.AdminStub(channel).EnrollCluster(pb.EnrollClusterRequest(cluster=name), timeout=60)
    EnrollmentFile(name, reply.token, reply.enroll_port, reply.expires_unix_seconds, reply.authority.decode()).write(
        path
    )
    return path


def new_learner(folder: Path, **sections: Any) -> LearnerProcess:
    folder.mkdir(parents=True)
    return LearnerProcess(folder, **{"identity": {"enroll_port": 0}, **LOOSE, **sections})


def new_region(folder: Path, above: LearnerProcess, name: str, **sections: Any) -> LearnerProcess:
    """A region that is invited, and not started yet."""
    region = new_learner(folder, **sections)
    file = invite(above, name, folder / "region.enrollment")
    region.sections["upstream"] = {"address": above.address, "name": name, "enrollment_file": str(file), **QUICK}
    return region


class Cluster:
    """One cluster: learns without pause until stopped, offering each update until it is answered."""

    def __init__(self, learner: LearnerProcess, name: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        settings = LearnerConnectionSettings(
            address=learner.address,
            enrollment_file=invite(learner, name, folder / "token"),
            retry={"call_seconds": 5.0},
        )
        self.trust = FleetTrust(folder, name, False, time.time)
        self.client = LearnerClient(
            settings, name, lambda _method, _outcome: None, folder / "identity", on_enrolled=self.trust.on_enrolled
        )
        self.name = name
        self.samples = 0
        self.acknowledged = 0
        self.refused = 0
        self.error: BaseException | None = None
        self._random = random.Random(name)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()
        assert self.error is None, self.error

    def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                return method(*arguments)
            except LearnerUnreachable:
                assert time.monotonic() < deadline, "the learner does not come back"
                time.sleep(0.02)

    def register(self) -> Any:
        self.registration = self.call(self.client.register, SPEC.digest, ())
        return self.registration

    def head(self) -> Any:
        return self.call(self.client.pull_head, self.registration, None)

    def beat(self) -> Any:
        jobs = BackendStatus(
            time_seconds=1.0, jobs_running=1, jobs_waiting=0, jobs_done=2, avg_jct_seconds=3.0, jobs_total=3
        )
        status = AgentStatus(jobs, decisions=1, acting_version=1, learning_step=0)
        return self.call(self.client.heartbeat, self.registration.incarnation, status)

    def _run(self) -> None:
        try:
            self._learn()
        except BaseException as error:
            self.error = error

    def _learn(self) -> None:
        registration = self.register()
        head = self.head()
        sequence = 0
        while not self._stop.is_set():
            sequence += 1
            samples = self._random.randrange(1, 1000)
            update = GradientUpdate(
                self.name,
                registration.incarnation,
                sequence,
                head.step,
                SPEC.digest,
                vector(self._random.randrange(1 << 30)),
                samples,
                float(samples),
                replayed=True,
            )
            answer = self.call(self.client.push, update, registration.spec)
            if answer.outcome is PushOutcome.REJECTED:
                self.refused += 1
            else:
                self.samples += samples
                self.acknowledged += 1
            head = answer.head or head
            time.sleep(0.005)  # a cluster that decides


def samples_by_name(learner: LearnerProcess) -> dict[str, int]:
    """Samples of applied updates, by who sent them; of a learner that was ended."""
    found: dict[str, int] = {}
    for receipt in updates_of(learner):
        found[receipt.cluster] = found.get(receipt.cluster, 0) + receipt.samples
    return found


def updates_of(learner: LearnerProcess) -> list[Receipt]:
    return [receipt for receipt in read_receipts(learner.state_dir, SPEC.digest) if receipt.kind == "update"]


def lines_of(learner: LearnerProcess, event: str) -> list[dict[str, Any]]:
    """Lines of a learner's log about an event."""
    lines = [json.loads(line) for line in learner.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def events_of(learner: LearnerProcess) -> set[str]:
    return {json.loads(line)["event"] for line in learner.log.read_text().splitlines() if line.startswith("{")}


__all__ = [
    "LOOSE",
    "QUICK",
    "Cluster",
    "LearnerRefused",
    "events_of",
    "invite",
    "lines_of",
    "new_learner",
    "new_region",
    "samples_by_name",
    "updates_of",
    "wait_for",
]
