"""Place of an all-reduce process among pods: told to stop by SIGTERM, asked how far it is, and heard once at its end.

On one machine a launcher shares a folder with its processes. Who made these as pods shares nothing with them: the
first process serves what it knows, with the job's token; SIGTERM in any of them has all stop after a common step; and
each says in a file how it ended, which whoever runs containers reads.

    ELASTIC_RANKS_BIND          `host:port` where the first process serves; with it the rest of this holds
    ELASTIC_JOB, ELASTIC_TOKEN_FILE, ELASTIC_CERTIFICATE_FILE, ELASTIC_KEY_FILE    of the job, as its coordinator has
    ELASTIC_END_FILE            where each process says how it ended; without it, nowhere
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

import grpc
import structlog

from elastic_runtime.checkpoint.rank_files import FOLDER_VARIABLE, RankProgress
from elastic_runtime.control.call_check import CallCheck, CallRefused
from elastic_runtime.control.checks import check_host_and_port, check_job
from elastic_runtime.control.conversions import status_to_message
from elastic_runtime.control.credentials import SERVER_OPTIONS, ServerCredentials, bind, read_pem, read_token
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.errors import BadInput, ProtocolError
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.generated.elastic_pb2_grpc import JobControlServicer, add_JobControlServicer_to_server
from elastic_runtime.protocol.plan import JobPhase
from foundation.followed_files import FollowedFiles
from foundation.text import plain_line

_log = structlog.get_logger()

BIND_VARIABLE = "ELASTIC_RANKS_BIND"
END_FILE_VARIABLE = "ELASTIC_END_FILE"
STOPPED = "stopped"
"""How what a process says at its end begins, when there is more to train; else it begins with `finished`."""
_JOB = "ELASTIC_JOB"
_FILES = ("ELASTIC_TOKEN_FILE", "ELASTIC_CERTIFICATE_FILE", "ELASTIC_KEY_FILE")
_CLOSE_SECONDS = 1.0
_CALLS = 4
"""At once; one agent asks once a second, and a person now and then."""


class RankService(JobControlServicer):
    """Service of an all-reduce job's first process: how the job is doing, to who has its token.

    It is the service that a coordinator has, so that whoever asks coordinators asks this one in the same way. What
    changes a job is refused: its processes are stopped, and others started, by whoever made them.
    """

    def __init__(self, status: Callable[[], JobStatus]) -> None:
        self._status = status

    def Status(self, _request: pb.StatusRequest, _context: grpc.ServicerContext) -> pb.JobStatus:  # noqa: N802
        """How the job is doing."""
        return status_to_message(self._status())

    def Resize(self, _request: object, _context: grpc.ServicerContext) -> NoReturn:  # noqa: N802
        """Refused, and so are `Suspend` and `Resume`."""
        raise CallRefused(
            grpc.StatusCode.FAILED_PRECONDITION,
            "an all-reduce job is resized by a checkpoint, by whoever started its processes; it takes no requests "
            "itself",
        )

    Suspend = Resume = Resize


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where a process is.

    Attributes:
        end_file: where it says how it ended; None: nowhere.
    """

    address: str
    job: str
    credentials: ServerCredentials
    end_file: Path | None

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> RankPlace | None:
        """From a process's environment; None where it is no pod's. Makes the job's folder if it is not there.

        Raises:
            BadInput: a variable is missing or cannot be used.
        """
        address = environment.get(BIND_VARIABLE)
        if not address:
            return None
        missing = [name for name in (_JOB, *_FILES) if not environment.get(name)]
        if missing:
            raise BadInput(f"{', '.join(missing)} not set, and {BIND_VARIABLE} is; leave them to who makes the pods")
        try:
            check_host_and_port(address)
        except (BadInput, ProtocolError) as error:
            raise BadInput(plain_line(f"{BIND_VARIABLE} = {address}: {error}")) from error
        try:
            job = check_job(environment[_JOB])
        except (BadInput, ProtocolError) as error:
            raise BadInput(plain_line(f"{_JOB}: {error}")) from error
        token, certificate, key = (Path(environment[name]) for name in _FILES)
        # Read once, and tried by the first process alone: a pair that cannot serve stops no training.
        pair = read_pem(certificate, "certificate"), read_pem(key, "certificate's key")
        credentials = ServerCredentials(read_token(token), pair=FollowedFiles(lambda _: pair))
        _make_folder(environment.get(FOLDER_VARIABLE))
        end_file = environment.get(END_FILE_VARIABLE)
        return cls(address, job, credentials, Path(end_file) if end_file else None)


class RankPod:
    """One process's place, from when it has joined the others.

    Args:
        unix_clock: the time of day in seconds; a later run of the job has a later one.

    Attributes:
        port: where it serves; 0: it does not.
    """

    def __init__(
        self,
        place: RankPlace,
        rank: int,
        processes: int,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self._place, self._clock = place, clock
        size = Size(0, processes)
        self.status = JobStatus(place.job, JobPhase.STARTING, generation=int(unix_clock()), size=size, target=size)
        self._began: tuple[float, int] | None = None
        self.stop_requested = False
        self._end_line = ""
        self._take_signal()
        self.port = self._serve() if rank == 0 else 0

    def report(self, progress: RankProgress, total_steps: int, *, stopped: bool = False) -> None:
        """Take how far the job is; at its end, or when all stop, after the checkpoint is written."""
        began, self._began = self._began, self._began or (self._clock(), progress.samples)
        seconds = self._clock() - began[0] if began is not None else 0.0
        going = JobPhase.SUSPENDING if self.stop_requested or stopped else JobPhase.RUNNING
        phase = JobPhase.STARTING if began is None else going
        self.status = replace(
            self.status,
            phase=JobPhase.FINISHED if progress.finished else phase,
            step=progress.step,
            total_steps=total_steps,
            epoch=progress.epoch,
            total_epochs=progress.total_epochs,
            samples=progress.samples,
            samples_per_second=(progress.samples - began[1]) / seconds if began is not None and seconds > 0.0 else 0.0,
        )
        if progress.finished or stopped:
            word = JobPhase.FINISHED.value if progress.finished else STOPPED
            self._write_end(f"{word}: {progress.epoch:g} epochs, {progress.samples} samples")

    def _serve(self) -> int:
        place = self._place
        check = CallCheck(place.job, place.credentials.token)
        server = grpc.server(
            ThreadPoolExecutor(_CALLS, thread_name_prefix="rank-calls"),
            interceptors=[check],
            options=SERVER_OPTIONS,
            maximum_concurrent_rpcs=_CALLS,
        )
        check.serve_on(server)
        add_JobControlServicer_to_server(RankService(lambda: self.status), server)
        try:
            port = bind(server, place.address, place.credentials)
        except BadInput as error:  # such as a port that another job's process has on this host: it trains all the same
            _log.warning("progress-not-served", error=str(error))
            return 0
        server.start()
        # What a script does with its model takes as long as it takes, and is asked about too.
        atexit.register(lambda: server.stop(None).wait(_CLOSE_SECONDS))
        return port

    def _write_end(self, line: str) -> None:
        """Written in its place: who reads the file has mounted it."""
        if self._place.end_file is None or line == self._end_line:
            return
        self._end_line = line
        try:
            self._place.end_file.write_text(line, encoding="utf-8")
        except OSError as error:  # whoever looks after the job sees the exit code all the same
            _log.warning("end-not-said", file=str(self._place.end_file), error=error.strerror)

    def _take_signal(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            _log.warning("not-stopped-by-signals", advice="join in the script's main thread")
            return
        before = signal.getsignal(signal.SIGTERM)

        def on_signal(number: int, frame: FrameType | None) -> None:
            self.stop_requested = True
            if callable(before):
                if not self._end_line:  # it may end this process before all have stopped: that is no end of the job's
                    self._write_end(f"{STOPPED}: it was told to end")
                before(number, frame)

        signal.signal(signal.SIGTERM, on_signal)


def _make_folder(folder: str | None) -> None:
    """A volume that all mount is empty at first; whichever process comes first makes the job's folder in it."""
    if folder:
        try:
            os.makedirs(folder, mode=0o770, exist_ok=True)  # noqa: PTH103  (a name that is too long is none either)
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise BadInput(plain_line(f"{FOLDER_VARIABLE} = {folder}: cannot be made ({reason})")) from error
