"""Frame of a demonstration: its folders, processes and display, what it waits for and leaves, and its learner."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from types import FrameType
from typing import Any

import yaml
from rich.console import Console, RenderableType

from deploy.demonstration.display import Display
from deploy.demonstration.processes import DemoFailed, Processes, end_leftovers
from foundation.files import write_whole
from foundation.locks import FileLock, LockHeld
from global_learner.errors import LearnerError, Unknown, Unreachable
from global_learner.policyctl.client import AdminClient, TlsFiles
from policy_net.errors import BadInput
from policy_net.exchange.enrolled_identity import EnrollmentFile
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.policy_file import PolicyFile, write_policy_file
from policy_net.laboratory.report import check_folder, prepare_folder
from policy_net.set_policy.policy import default_set_file

LONGEST_SECONDS = 3600.0
"""Of any wait: twenty times what a whole demonstration takes on two idle cores."""
START_SECONDS = 120.0
"""How long a program that starts may use not a second of the processor; it takes two to four on an idle machine."""
CALL_SECONDS = 30.0
"""Deadline of one question; the learner answers in milliseconds unless the machine is overloaded."""
_POLL_SECONDS = 0.1


class ProgressDeadline:
    """Deadline that any progress puts off, up to a last one, so that it holds on a busy machine.

    Args:
        still_seconds: without progress, until it has passed.
        longest_seconds: until it has passed whatever goes on.
    """

    def __init__(
        self,
        still_seconds: float,
        longest_seconds: float = LONGEST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._still_seconds, self._longest_seconds, self._clock = still_seconds, longest_seconds, clock
        self._began = self._latest = clock()
        self._progress: Hashable = None

    def passed(self, progress: Hashable) -> bool:
        """Whether it has passed; `progress` is another value after each step forward."""
        now = self._clock()
        if progress != self._progress:
            self._progress, self._latest = progress, now
        return now - self._latest > self._still_seconds or now - self._began > self._longest_seconds

    @property
    def waited_seconds(self) -> float:
        """Since it was made."""
        return self._clock() - self._began


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What a running demonstration has; its folder is of configurations, logs and state."""

    folder: Path
    processes: Processes
    display: Display

    def polls(self, every_seconds: float = _POLL_SECONDS) -> Iterator[float]:
        """Seconds since the first poll, again and again for as long as no process has failed.

        Raises:
            DemoFailed: a process ended with an error.
        """
        began = time.monotonic()
        while True:
            self.processes.check()
            yield time.monotonic() - began
            time.sleep(every_seconds)

    def wait_until(self, ready: Callable[[], bool], what: str = "learner") -> None:
        """Wait for what the process of this name is to bring about.

        Raises:
            DemoFailed: a process ended with an error, or it took too long.
        """
        deadline = ProgressDeadline(START_SECONDS)
        for _ in self.polls():
            if ready():
                return
            if deadline.passed(int(self.processes.cpu_seconds())):
                waited, log = f"{deadline.waited_seconds:.0f} s", self.processes.log_of(what)
                raise DemoFailed(f"the {what} did not answer within {waited} (see {log})")

    def leave(self, folder: Path, files: Mapping[str, str], *shown: RenderableType) -> list[Path]:
        """Write the report's files, and print what there is to say and where they are; their paths.

        Raises:
            BadInput: they cannot be written there.
        """
        prepare_folder(folder, 1)
        paths = [folder / name for name in files]
        for path, content in zip(paths, files.values(), strict=True):
            write_whole(path, content, durable=False)
        for each in (*shown, "written: " + ", ".join(map(str, paths))):
            self.display.console.print(each, soft_wrap=isinstance(each, str), markup=False, highlight=False)
        return paths


@contextmanager
def demonstration(
    run_folder: Path, report_folder: Path, pages: int = 1, slot_seconds: float = 1.0
) -> Iterator[Demonstration]:
    """A demonstration, whose report has so many pages; its processes end with it.

    Raises:
        BadInput: a folder cannot be used; nothing has been started then.
    """
    console = Console() if sys.stdout.isatty() else Console(width=120)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupt)
    check_folder(report_folder, pages)  # or it is found out after all has run
    with own_folder(run_folder) as folder, Processes(folder) as processes, Display(slot_seconds, console) as display:
        yield Demonstration(folder, processes, display)


@contextmanager
def own_folder(folder: Path) -> Iterator[Path]:
    """The run folder, emptied of an earlier demo's files, and held so that no second demo empties this one's."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
    except LockHeld as error:
        raise BadInput(f"{folder}: another demo is running in this folder; wait for it or stop it") from error
    except OSError as error:
        raise BadInput(
            f"run folder {str(folder)[:200]!r} cannot be written to ({error.strerror}); name another"
        ) from error
    with lock:
        left = end_leftovers(folder)
        if left:
            print(
                f"an earlier demo in {folder} was killed: ended what it had left running ({left} processes)", flush=True
            )
        for pattern in ("*.yaml", "*.log", "*.enrollment", "v1.safetensors"):
            for file in folder.glob(pattern):
                file.unlink()
        whole = [folder / name for name in ("learner", "versions", "lessons", "agent")]
        for old in (*whole, *folder.glob("agent-*")):
            if old.is_dir():
                shutil.rmtree(old)
        yield folder


def interrupt(number: int, frame: FrameType | None) -> None:
    """End on SIGTERM as on Ctrl-C, also where a shell had Ctrl-C ignored: the fleet first."""
    del number, frame
    raise KeyboardInterrupt


class LearnerWatch(AdminClient):
    """An operator's client, to which a learner may be away for a while; plain text without an identity."""

    def __init__(self, address: str, identity_file: Path | None = None) -> None:
        super().__init__(address, TlsFiles(certificate=identity_file), CALL_SECONDS)

    def now(self) -> fleet_pb2.GetFleetReply | None:
        """The fleet as it is; None if the learner does not answer, so that a restarted one only pauses the display."""
        try:
            return self.fleet()
        except Unreachable:
            return None

    def policy(self, version: int) -> PolicyFile:
        """A version's policy file.

        Raises:
            Unknown: the learner does not keep it any more.
        """
        content = self.policy_file(self.ask(fleet_pb2.ShowVersionRequest(version=version)).card)
        if content is None:
            raise Unknown(f"version {version} is not kept any more")
        return content


@contextmanager
def operator(address: str, identity: Path | None) -> Iterator[LearnerWatch]:
    """A client with the administrator's identity.

    Raises:
        DemoFailed: the learner refuses what is asked within, or does not answer.
    """
    client = LearnerWatch(address, identity)
    try:
        yield client
    except LearnerError as error:
        raise DemoFailed(f"the learner: {error}") from error
    finally:
        client.close()


class DemoLearner:
    """The learner of a demonstration at ports of its own, and its agents; the folder has their settings and state."""

    def __init__(self, demo: Demonstration, folder: Path, name: str = "learner") -> None:
        self._demo, self._name = demo, name
        self.folder = folder
        self.enroll_port = demo.processes.port()
        self.address, self.page = (f"127.0.0.1:{demo.processes.port()}" for _ in range(2))
        self.administrator = folder / "learner" / "identity" / "admin.pem"

    @contextmanager
    def running(self, content: dict[str, Any]) -> Iterator[LearnerWatch]:
        """A learner of this configuration that answers, and its administrator's client; it ends after what is within.

        Raises:
            DemoFailed: it never answers, or refuses what is asked within.
        """
        self.start(content)
        self._demo.wait_until(self.administrator.exists, self._name)
        with operator(self.address, self.administrator) as watch:
            self._demo.wait_until(lambda: watch.now() is not None, self._name)
            yield watch
        self._demo.processes.stop([self._name])

    def start(self, content: dict[str, Any]) -> None:
        """Start it."""
        config = write_yaml(self.folder / "learner.yaml", content)
        self._demo.processes.start(self._name, "global_learner.cli", ["serve", "--config", str(config)])

    @contextmanager
    def away(self, content: dict[str, Any], watch: LearnerWatch) -> Iterator[None]:
        """While it is away its state may be changed; then it answers again, with another configuration."""
        self._demo.processes.stop([self._name])
        yield
        self.start(content)
        self._demo.wait_until(lambda: watch.now() is not None, self._name)

    def enroll(self, clusters: Sequence[str], watch: AdminClient) -> None:
        """Invite every cluster, as its platform's owner would; its agent does the rest.

        Raises:
            LearnerError: the learner invites nobody.
        """
        for cluster in clusters:
            reply = watch.ask(fleet_pb2.EnrollClusterRequest(cluster=cluster))
            authority = reply.authority.decode()
            invited = EnrollmentFile(cluster, reply.token, reply.enroll_port, reply.expires_unix_seconds, authority)
            invited.write(enrollment_file(self.folder, cluster))

    def start_agent(self, name: str, content: dict[str, Any]) -> None:
        """Start an agent under a name."""
        config = write_yaml(self.folder / f"{content['state_dir']}.yaml", content)
        self._demo.processes.start(name, "cluster_agent.cli", ["run", "--config", str(config)])


def enrollment_file(folder: Path, cluster: str) -> Path:
    """Where a cluster's agent looks for its token."""
    return folder / f"{cluster}.enrollment"


def write_yaml(path: Path, content: dict[str, Any]) -> Path:
    """A configuration file; returns its path."""
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def filled(path: Path, **words: object) -> list[dict[str, Any]]:
    """Documents of a YAML file, with its ${words} filled in."""
    return list(yaml.safe_load_all(Template(path.read_text(encoding="utf-8")).substitute(words)))


def shipped_start(demo: Demonstration) -> Path:
    """Let v1 be the `set` policy that ships with fedl2, without its speeds.

    They were observed on the very types of jobs that the demo's clusters run, which no cluster of one's own would find
    there. All that the last version knows of speeds, this fleet has observed.

    Raises:
        PolicyFileError: it is missing, or cannot be written.
    """
    demo.display.phase("v1 is the set policy that ships with fedl2, without the speeds of these types of jobs")
    out = demo.folder / "v1.safetensors"
    shipped = default_set_file()
    write_policy_file(out, PolicyFile(shipped.spec, shipped.weights, {"source": "as shipped, without priors"}))
    return out
