"""A coordinator for the launcher's tests, run as a program: it wants what it was told to, and forgets nothing it said.

Workers that end with 0 are done, and the job with the last of them; a worker that ends otherwise is wanted again under
a new name, up to `--restarts` times. Parameter servers leave when the job is over. State is kept in a file, for a life
after kill -9.
"""

import argparse
import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from elastic_runtime.control.call_check import CallCheck, CallRefused
from elastic_runtime.control.conversions import status_to_message, to_message
from elastic_runtime.control.credentials import SERVER_OPTIONS
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.coordinator.connection_forwarder import ConnectionForwarder
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.generated import elastic_pb2_grpc as rpc
from elastic_runtime.protocol.plan import JobPhase, Member, Plan, TaskRole, View


class Scripted(rpc.MembershipServicer, rpc.JobControlServicer):
    """The state, and all calls."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.file = Path(options.folder) / "scripted.json"
        self.changed = threading.Condition()
        self.options = options
        if self.file.exists():
            self.state = json.loads(self.file.read_text(encoding="utf-8"))
            self.state["number"] += 1000
        else:
            servers = [f"ps-{index}" for index in range(options.servers)]
            workers = [f"worker-{index}" for index in range(options.workers)]
            self.state = {"number": 1, "phase": "running", "wanted": [*servers, *workers], "next": options.workers}
            self.state |= {"ended": [], "failures": 0, "failure": "", "members": [], "calls": []}

    def change(self, **values: object) -> None:
        self.state.update(values)
        self.state["number"] += 1
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.state), encoding="utf-8")
        new.replace(self.file)
        self.changed.notify_all()

    def view(self) -> View:
        members = [Member(task, TaskRole.WORKER, 7, "{}") for task in self.state["members"]]
        phase = JobPhase(self.state["phase"])
        wanted = tuple(self.state["wanted"])
        plan = Plan((), ())
        return View(
            self.state["number"],
            1,
            phase,
            0,
            "",
            plan,
            (),
            None,
            tuple(members),
            wanted=wanted,
            failure=self.state["failure"],
        )

    def Follow(self, request, context):  # noqa: N802
        number = 0
        while context.is_active():
            with self.changed:
                self.changed.wait(0.2)
                view = self.view()
            if view.number > number:
                number = view.number
                yield to_message(view)

    def TaskEnded(self, request, context):  # noqa: N802
        with self.changed:
            state = self.state
            ended = [*state["ended"], [request.task, request.exit_code, request.last_line]]
            wanted = [task for task in state["wanted"] if task != request.task]
            members = [task for task in state["members"] if task != request.task]
            self.change(ended=ended, wanted=wanted, members=members)
            if request.task.startswith("worker") and state["phase"] == "running" and request.task not in members:
                self.worker_ended(request.exit_code, request.task, request.last_line)
        return pb.TaskEndedReply()

    def worker_ended(self, exit_code: int, task: str, line: str) -> None:
        state = self.state
        if exit_code == 0:
            if not any(task.startswith("worker") for task in state["wanted"]):
                self.change(phase="finished", wanted=[])
        elif state["failures"] >= self.options.restarts:
            self.change(phase="failed", failure=f"{task}: {line}", wanted=[])
        else:
            new = f"worker-{state['next']}"
            self.change(failures=state["failures"] + 1, next=state["next"] + 1, wanted=[*state["wanted"], new])

    def Suspend(self, request, context):  # noqa: N802
        with self.changed:
            self.change(phase="suspended", wanted=[], calls=[*self.state["calls"], "suspend"])
        return pb.RequestReply(state="done")

    def Resume(self, request, context):  # noqa: N802
        with self.changed:
            first, last = self.state["next"], self.state["next"] + request.target.workers
            wanted = ["ps-9", *[f"worker-{index}" for index in range(first, last)]]
            self.change(phase="running", wanted=wanted, next=last, calls=[*self.state["calls"], "resume"])
        return pb.RequestReply(state="done")

    def Resize(self, request, context):  # noqa: N802
        with self.changed:
            call = (
                f"resize {request.target.servers} {request.target.workers} {','.join(request.victims)} {request.mode}"
            )
            if request.target.workers > 8:
                raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "at most 8 workers")
            if call not in self.state["calls"]:
                self.change(calls=[*self.state["calls"], call])
                return pb.RequestReply(state="running")
            if request.target.servers == 7:
                return pb.RequestReply(state="aborted", detail="no room for 7")
        return pb.RequestReply(state="done", detail="moved")

    def Status(self, request, context):  # noqa: N802
        with self.changed:
            workers = sum(task.startswith("worker") for task in self.state["wanted"])
            size = Size(len(self.state["wanted"]) - workers, workers)
            target = size if workers else Size(1, 1)
            status = JobStatus(self.options.job, JobPhase(self.state["phase"]), step=12, size=size, target=target)
            return status_to_message(status)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("job", "folder", "checkpoints", "token-file", "address-file", "bind"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--listener", type=int)
    for name in ("servers", "workers", "minimum-servers", "minimum-workers", "restarts", "replicas"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--checkpoint-seconds", type=float, required=True)
    options = parser.parse_args()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    scripted = Scripted(options)
    check = CallCheck(options.job, Path(options.token_file).read_text(encoding="ascii").strip())
    server = grpc.server(ThreadPoolExecutor(16), interceptors=[check], options=SERVER_OPTIONS)
    check.serve_on(server)
    rpc.add_MembershipServicer_to_server(scripted, server)
    rpc.add_JobControlServicer_to_server(scripted, server)
    try:
        own = f"unix-abstract:fedl2-scripted-{os.getpid()}"
        server.add_insecure_port(options.bind if options.listener is None else own)
    except RuntimeError:
        sys.exit(2)  # as a coordinator does that cannot use what it was given
    server.start()
    if options.listener is not None:
        ConnectionForwarder(options.listener, own.partition(":")[2])
    file = Path(options.address_file)
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"address": options.bind, "pid": os.getpid()}), encoding="utf-8")
    new.replace(file)
    while not stopped.wait(0.5):
        pass
    server.stop(0)


if __name__ == "__main__":
    main()
