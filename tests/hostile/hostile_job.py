"""An elastic job that is attacked: a real coordinator in this process, and members that only say what they have to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from elastic_runtime.control.calls import SealedChannel
from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials, ServerCredentials
from elastic_runtime.control.messages import JobStatus
from elastic_runtime.control.sessions import CallerSession
from elastic_runtime.coordinator.checkpoint_store import CheckpointStore
from elastic_runtime.coordinator.journal import Journal
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, begin
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.coordinator.runner import CoordinatorRunner
from elastic_runtime.coordinator.service import start_server
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.generated import elastic_pb2_grpc as rpc
from elastic_runtime.launcher.job_folder import JobFolder, JobLock, create, write_json
from elastic_runtime.launcher.job_spec import JobSpec
from elastic_runtime.model.layout import TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.plan import JobPhase
from foundation.clocks import AwakeClock

LAYOUT = build_layout([TensorSpec("weight", (16, 1024), "float32")], []).to_json()
BATCH = 8
INCARNATION = 7
CALL_SECONDS = 60.0
Seal = Callable[[str, bytes], bytes]
"""Makes of a method and a request what is sent."""
PATIENT = dict.fromkeys(
    ("lost_seconds", "silent_seconds", "vote_seconds", "new_task_seconds", "checkpoint_seconds", "leave_seconds"), 1e6
)
"""Members here say nothing of their own accord, and are not to be missed for it."""


def terms(asynchronous: bool = False) -> bytes:
    """How the job trains, as its worker tells the coordinator."""
    worker_batch = BATCH if asynchronous else None
    training = Training(
        optimizer=SGD(lr=0.1),
        samples=100 * BATCH,
        global_batch=BATCH,
        epochs=3,
        synchronous=not asynchronous,
        worker_batch=worker_batch,
    )
    return training.to_json()


def make_job(jobs: Path, script: Path, name: str) -> JobFolder:
    """A job's folder, as `elastic-run` makes it; nothing of it runs."""
    spec = JobSpec(script=script, python="python", working_folder=jobs.parent, servers=1, workers=2)
    return create(jobs, name, script, spec.record())


class HostileJob:
    """A job that runs as far as commands and callers can tell; its launcher is this process.

    Args:
        folder: of the job.
        asynchronous: whether samples are leased.
    """

    def __init__(self, folder: JobFolder, asynchronous: bool = False) -> None:
        self.folder = folder
        self.name = folder.name
        settings = CoordinatorSettings.model_validate({"job": self.name, "servers": 1, "workers": 2, **PATIENT})
        self._lock = JobLock(folder.path)
        self.journal = Journal(folder.journal_folder, self.name)
        machine = CoordinatorMachine(settings, time.monotonic(), begin(settings), time.time)
        self.runner = CoordinatorRunner(
            machine, self.journal, CheckpointStore(folder.checkpoint_folder, 3), AwakeClock(60.0)
        )
        token = folder.token()
        self._server, port = start_server(self.runner, self.name, "127.0.0.1:0", ServerCredentials(token), 1.0)
        self.address = f"127.0.0.1:{port}"
        write_json(folder.address_file, {"address": self.address, "pid": os.getpid()})
        self.channel = grpc.insecure_channel(self.address, [("grpc.max_send_message_length", -1)])
        self.session = self.open(token)
        self._sealed = SealedChannel(self.address, self.name, ClientCredentials(token))
        self.members = rpc.MembershipStub(self._sealed)
        self.client = ControlClient(self.address, self.name, ClientCredentials(token), CALL_SECONDS)
        self._begin(asynchronous)

    def close(self) -> None:
        self.client.close()
        self._sealed.close()
        self.channel.close()
        self._server.stop(None).wait()
        self.runner.close()
        self.journal.close()
        self._lock.release()

    def _begin(self, asynchronous: bool) -> None:
        """All members come, and the job runs."""
        for task in ("worker-0", "worker-1", "ps-0"):
            assert not self.register(task, asynchronous).refusal
        self.tell("worker-0", initialised=True)
        self.tell("ps-0", generation=1, ready=True)
        assert self.client.status().phase is JobPhase.RUNNING

    def open(self, token: str) -> CallerSession:
        """A session of whoever has this token."""
        number = CallerSession.draw()
        request = pb.OpenRequest(job=self.name, number=number)
        reply = rpc.SessionsStub(self.channel).Open(request, timeout=CALL_SECONDS)
        return CallerSession(token, self.name, number, reply, time.monotonic)

    def seal(self, path: str, data: bytes) -> bytes:
        """A request as a member sends it."""
        return self.session.seal(path, data)[1]

    def register(self, task: str, asynchronous: bool = False) -> pb.RegisterReply:
        worker = task.startswith("worker")
        request = pb.RegisterRequest(
            task=task,
            role=pb.ROLE_WORKER if worker else pb.ROLE_SERVER,
            incarnation=INCARNATION,
            address_json="{}",
            layout_json=LAYOUT if worker else b"",
            training_json=terms(asynchronous) if worker else b"",
        )
        reply: pb.RegisterReply = self.members.Register(request, timeout=CALL_SECONDS)
        return reply

    def tell(self, task: str, **fields: Any) -> pb.ReportReply:
        """A member's report."""
        request = pb.ReportRequest(task=task, incarnation=INCARNATION, **fields)
        reply: pb.ReportReply = self.members.Report(request, timeout=CALL_SECONDS)
        return reply

    def send(
        self,
        path: str,
        request: Message | bytes,
        reply: type[Message],
        stream: bool = False,
        seal: Seal | None = None,
    ) -> Any:
        """Any call with any bytes; the answer, or the first of a stream's. Without `seal`: as a member sends it.

        Raises:
            grpc.RpcError: it was refused.
        """
        data = request if isinstance(request, bytes) else request.SerializeToString()
        data = (seal or self.seal)(path, data)
        if not stream:
            unary = self.channel.unary_unary(path, response_deserializer=reply.FromString)
            return unary(data, timeout=CALL_SECONDS)
        answers = self.channel.unary_stream(path, response_deserializer=reply.FromString)(data, timeout=CALL_SECONDS)
        try:
            return next(answers)
        finally:
            answers.cancel()

    def shown(self) -> JobStatus:
        """What a scheduler sees of the job, but for what changes with time."""
        status = self.client.status()
        return replace(
            status, tasks=tuple(replace(task, report_age_seconds=0.0, step_age_seconds=0.0) for task in status.tasks)
        )
