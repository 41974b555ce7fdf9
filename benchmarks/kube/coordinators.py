"""Coordinators of many TrainingJobs in one process: they say how their jobs are doing, and take requests.

`python -m benchmarks.kube.coordinators` reads lines of JSON: a coordinator is to serve, a task's process runs, a job is
over. It writes lines of JSON: a coordinator serves, a task was told to leave and has ended. Each answers at an address
of its own, with its own certificate and token, as the real one does. What they count is made up: each worker trains so
many samples a second, and tasks join as soon as they run. Each new size is told as a line, too.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TextIO

import grpc

from elastic_runtime.control.calls import SESSION_KEY, UNKNOWN
from elastic_runtime.control.conversions import size_from_message, status_to_message
from elastic_runtime.control.credentials import SERVER_OPTIONS, ServerCredentials, bind
from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, Size, TaskStatus
from elastic_runtime.control.sessions import CoordinatorSessions, UnknownSession, Unproven, session_of
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.protocol.plan import JobPhase, TaskRole
from foundation.followed_files import Content, FollowedFiles

Json = dict[str, Any]
_SAMPLES_A_SECOND = 1000.0
"""Of each worker."""
_TOTAL_EPOCHS, _EPOCH_SAMPLES = 1000.0, 1_000_000
_THREADS = 8
_GATHER_SECONDS = 0.05
"""One server answers for all coordinators that begin within this; gRPC takes no addresses later."""
_ROLES = {"ps": TaskRole.SERVER, "worker": TaskRole.WORKER}


@dataclass(slots=True)
class Coordinator:
    """One job's.

    Attributes:
        runtime: the job's name to its tasks and its agent.
        tasks: wanted, member or leaving, by name.
    """

    runtime: str
    sessions: CoordinatorSessions
    target: Size
    phase: JobPhase = JobPhase.STARTING
    tasks: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=lambda: {"ps": 0, "worker": 0})
    rows: dict[str, RequestState] = field(default_factory=dict)
    trained: float = 0.0
    """Samples, until `counted_seconds`."""
    counted_seconds: float | None = None

    def fit(self) -> list[str]:
        """Want what is missing; those that were told to leave."""
        left = []
        for role, count in (("ps", self.target.servers), ("worker", self.target.workers)):
            here = self._of(role, "wanted", "member")
            for task in here[count:]:
                if self.tasks.pop(task) == "member":
                    self.tasks[task] = "leaving"
                    left.append(task)
            for _ in range(count - len(here)):
                self.tasks[f"{role}-{self.numbers[role]}"] = "wanted"
                self.numbers[role] += 1
        self.settle()
        return left

    def settle(self) -> None:
        """All that is wanted has come: it trains."""
        self.count()
        if "wanted" in self.tasks.values():
            return
        self.phase = JobPhase.RUNNING
        for name, row in self.rows.items():
            self.rows[name] = row if row.ended else replace(row, state=RequestOutcome.DONE)

    def count(self) -> None:
        """Count what was trained until now: at each change of size, and whenever somebody asks."""
        now, workers = time.monotonic(), len(self._of("worker", "member"))
        if self.counted_seconds is not None and self.phase is not JobPhase.STARTING:
            self.trained += (now - self.counted_seconds) * workers * _SAMPLES_A_SECOND
        self.counted_seconds = now

    def resize(self, request_id: str, target: Size) -> tuple[RequestState, list[str]]:
        """Go for another size; the request's row, and who was told to leave."""
        known = self.rows.get(request_id)
        if known is not None:
            return known, []
        row = RequestState(request_id, "resize", RequestOutcome.RUNNING, target=target, began_unix_seconds=time.time())
        self.rows[request_id] = row
        self.target, self.phase = target, JobPhase.RESIZING
        return row, self.fit()

    def status(self) -> JobStatus:
        """As the real one says it."""
        self.count()
        samples, workers = int(self.trained), len(self._of("worker", "member"))
        return JobStatus(
            self.runtime,
            self.phase,
            step=samples // 100,
            epoch=samples / _EPOCH_SAMPLES,
            total_epochs=_TOTAL_EPOCHS,
            size=Size(len(self._of("ps", "member")), workers),
            target=self.target,
            tasks=tuple(TaskStatus(task, _ROLES[_role(task)], state) for task, state in self.tasks.items()),
            requests=tuple(self.rows.values()),
            samples_per_second=workers * _SAMPLES_A_SECOND,
            samples=samples,
            wanted=tuple(self._of("", "wanted")),
            leaving=tuple(self._of("", "leaving")),
        )

    def _of(self, role: str, *states: str) -> list[str]:
        return [task for task, state in self.tasks.items() if state in states and role in ("", _role(task))]


def _role(task: str) -> str:
    return task.rpartition("-")[0]


class Coordinators(grpc.GenericRpcHandler):
    """All of them; `heed` is called by one thread, calls come in others."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._lock = out, threading.RLock()
        self._by_runtime: dict[str, Coordinator] = {}
        self._by_session: dict[bytes, Coordinator] = {}
        self._servers: dict[str, grpc.Server] = {}
        self._pool = ThreadPoolExecutor(_THREADS)

    def heed(self, commands: list[Json]) -> None:
        """Do what was asked for."""
        begun = [command for command in commands if command["do"] == "serve"]
        if begun:
            self._serve(begun)
        with self._lock:
            for command in commands:
                found = self._by_runtime.get(command["job"])
                if found is None:
                    continue
                if command["do"] == "runs" and command["task"] in found.tasks:
                    found.count()
                    found.tasks[command["task"]] = "member"
                    found.settle()
                elif command["do"] == "end":
                    self._end(command["job"])

    def service(self, details: Any) -> Any:
        """See `grpc.GenericRpcHandler`."""
        method = details.method.rpartition("/")[2]
        if method == "Open":
            return grpc.unary_unary_rpc_method_handler(
                self._open, pb.OpenRequest.FromString, pb.OpenReply.SerializeToString
            )
        answer = {"Status": self._status, "Resize": self._resize, "TaskEnded": self._task_ended}.get(method)
        if answer is None:
            return None

        def sealed(data: bytes, context: Any) -> bytes:
            with self._lock:
                try:
                    found = self._by_session[session_of(data)]
                    call = found.sessions.take(details.method, data)
                except (KeyError, UnknownSession, Unproven) as error:
                    context.set_trailing_metadata(((SESSION_KEY, UNKNOWN),))
                    context.abort(grpc.StatusCode.UNAUTHENTICATED, f"a call of no session that is known: {error!r}")
                return call.answer(answer(found, call.payload).SerializeToString())

        return grpc.unary_unary_rpc_method_handler(sealed)

    def close(self) -> None:
        """Answer nobody any more."""
        for server in set(self._servers.values()):
            server.stop(None)

    def _serve(self, commands: list[Json]) -> None:
        server = grpc.server(self._pool, handlers=[self], options=SERVER_OPTIONS)
        for command in commands:
            pair = (command["certificate"].encode(), command["key"].encode())
            followed = FollowedFiles(partial(_unchanging, pair))
            bind(server, command["address"], ServerCredentials(command["token"], pair=followed))
            with self._lock:
                sessions = CoordinatorSessions(command["job"], command["token"], time.monotonic)
                size = Size(command["servers"], command["workers"])
                found = self._by_runtime[command["job"]] = Coordinator(command["job"], sessions, size)
                found.fit()
                self._servers[command["job"]] = server
        server.start()
        for command in commands:
            self._say({"serves": command["job"]})

    def _end(self, runtime: str) -> None:
        found = self._by_runtime.pop(runtime)
        self._by_session = {name: each for name, each in self._by_session.items() if each is not found}
        server = self._servers.pop(runtime)
        if server not in self._servers.values():
            server.stop(None)

    def _open(self, request: pb.OpenRequest, context: Any) -> pb.OpenReply:
        with self._lock:
            found = self._by_runtime.get(request.job)
            if found is None:
                context.abort(grpc.StatusCode.NOT_FOUND, f"no coordinator of job {request.job} is here")
                raise AssertionError("abort returned")
            opening = found.sessions.open(request.number)
            self._by_session[opening.session] = found
        return pb.OpenReply(session=opening.session, number=opening.number, proof=opening.proof)

    def _status(self, found: Coordinator, _: bytes) -> pb.JobStatus:
        return status_to_message(found.status())

    def _resize(self, found: Coordinator, payload: bytes) -> pb.RequestReply:
        request = pb.ResizeRequest.FromString(payload)
        if request.request_id not in found.rows:
            self._say({"resized": found.runtime})
        row, left = found.resize(request.request_id, size_from_message(request.target))
        for task in left:
            self._say({"left": task, "job": found.runtime})
        return pb.RequestReply(state=row.state.value, detail=row.detail)

    def _task_ended(self, found: Coordinator, payload: bytes) -> pb.TaskEndedReply:
        found.tasks.pop(pb.TaskEndedRequest.FromString(payload).task, None)
        found.fit()
        return pb.TaskEndedReply()

    def _say(self, content: Json) -> None:
        with self._lock:
            print(json.dumps(content), file=self._out, flush=True)


def _unchanging(pair: tuple[bytes, bytes], _content: Content) -> tuple[bytes, bytes]:
    return pair


def main() -> int:
    """Entry point."""
    commands: queue.SimpleQueue[Json | None] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(json.loads(line))
        commands.put(None)

    threading.Thread(target=read, daemon=True).start()
    coordinators = Coordinators(sys.stdout)
    while (first := commands.get()) is not None:
        time.sleep(_GATHER_SECONDS)
        gathered = [first]
        while not commands.empty():
            command = commands.get()
            if command is None:
                coordinators.close()
                return 0
            gathered.append(command)
        coordinators.heed(gathered)
    coordinators.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
