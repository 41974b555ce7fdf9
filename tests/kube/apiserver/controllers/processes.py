"""Containers as real processes of this machine: each pod's first container, in a process group of its own.

Deviation from a node: no image is pulled and no namespace made. A pod without a `command` runs what is registered for
its image; it starts in a folder of its own, with the packages of this checkout; `python` is the one that runs the test.
Paths and names are rewritten as `environment` says. Every process dies with the process that started the cluster, and a
guard ends what they have started in turn, and takes the folder away.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apiserver.controllers.addresses import Addresses
from apiserver.controllers.environment import environment_of, expanded, rewriting
from apiserver.controllers.kubelet import CannotStart
from apiserver.controllers.stepping import pair_of
from apiserver.controllers.volumes import Volumes
from apiserver.store import Store
from elastic_runtime.launcher import parent_death
from foundation.kinship import end_marked

Json = dict[str, Any]
MARK = "FEDL2_TEST_CLUSTER"
_LONGEST_WORDS, _LOG_END_CHARACTERS = 4096, 2048
_CHECKOUT = Path(__file__).parents[4]
_GUARD = """
import shutil, sys
from foundation.kinship import end_marked
sys.stdin.read()
end_marked(*sys.argv[1:3])
shutil.rmtree(sys.argv[3], ignore_errors=True)
"""


@dataclass(slots=True)
class _Run:
    process: subprocess.Popen[bytes]
    handle: int
    code: int | None = None

    def exit_code(self) -> int | None:
        """As a container's, with 128 and the signal; with its first process goes all that is in a container."""
        if self.code is None and os.waitid(os.P_PIDFD, self.handle, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            os.killpg(self.process.pid, signal.SIGKILL)  # not reaped yet: the number is still that of its group
            code = self.process.wait()
            self.code = code if code >= 0 else 128 - code
        return self.code


class Processes:
    """A runtime of processes; to be closed. Used in the thread of the loop, on which the processes' lives depend.

    Args:
        root: folder of volumes and logs; gone after `close`.
        images: entry points of images, which a pod without a `command` runs.
        variables: of the environment, for every process.
    """

    def __init__(
        self,
        root: Path,
        store: Store,
        addresses: Addresses,
        images: Mapping[str, Sequence[str]] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._root, self._store, self._addresses = root, store, addresses
        self._images, self._variables = dict(images or {}), dict(variables or {})
        self.volumes = Volumes(root, store)
        self._runs: dict[str, _Run] = {}
        self._mark = uuid.uuid4().hex
        self._guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, MARK, self._mark, str(root)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd=_CHECKOUT,
        )

    def close(self) -> None:
        """Kill whatever is left, with all that it started."""
        for uid in list(self._runs):
            self.send(uid, signal.SIGKILL)
            self.forget(uid)
        end_marked(MARK, self._mark)
        self._guard.communicate(timeout=60)

    def start(self, pod: Json, address: str, ended: Callable[[], None]) -> None:
        container, uid = pod["spec"]["containers"][0], pod["metadata"]["uid"]
        command = list(container.get("command") or self._images.get(container.get("image", ""), ()))
        if not command:
            text = f'image "{container.get("image", "")}" is not registered here, and the container has no command'
            raise CannotStart("ImagePullBackOff", text)
        last_words = self.volumes.pod_folder(uid) / "termination-log"
        last_words.write_bytes(b"")
        folders = self.volumes.folders(pod, container) | {_last_words_path(pod): last_words}
        rewrite = rewriting(folders, self._store, self._addresses, _address_of)
        self.volumes.fill(pod, address, rewrite)
        variables = environment_of(pod, container, address, self._store)
        words = [rewrite(expanded(word, variables)) for word in (*command, *(container.get("args") or ()))]
        folder = self.volumes.pod_folder(uid)
        environment = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(_CHECKOUT),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
            **self._variables,
            **{name: rewrite(value) for name, value in variables.items()},
            MARK: self._mark,
        }
        tied = [sys.executable, "-I", "-S", str(parent_death.__file__), str(os.getpid()), *words]
        self._release(uid)
        with self.log_path(pod).open("ab") as log:
            process = subprocess.Popen(
                tied,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        handle = os.pidfd_open(process.pid)
        self._runs[uid] = _Run(process, handle)

        def tell() -> None:
            loop.remove_reader(handle)
            ended()

        loop = asyncio.get_running_loop()
        loop.add_reader(handle, tell)

    def log_path(self, pod: Json) -> Path:
        """The file with what a pod's process says."""
        namespace, name = pair_of(pod)
        folder = self._root / "logs" / f"{namespace}_{name}_{pod['metadata']['uid']}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "log"

    def exit_code(self, uid: str) -> int | None:
        run = self._runs.get(uid)
        return 137 if run is None else run.exit_code()

    def last_words(self, pod: Json) -> str:
        """What its process left in its file for that; or, if it failed and the pod says so, the end of its log."""
        path = self.volumes.pod_folder(pod["metadata"]["uid"]) / "termination-log"
        said = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        policy = pod["spec"]["containers"][0].get("terminationMessagePolicy")
        if not said and policy == "FallbackToLogsOnError" and self.exit_code(pod["metadata"]["uid"]):
            said = self.log_path(pod).read_text(encoding="utf-8", errors="replace")[-_LOG_END_CHARACTERS:]
        return said[-_LONGEST_WORDS:]

    def due(self, uid: str) -> float | None:
        del uid
        return None

    def send(self, uid: str, number: signal.Signals) -> None:
        run = self._runs.get(uid)
        if run is None or run.exit_code() is not None:
            return
        if number == signal.SIGKILL:
            os.killpg(run.process.pid, number)
            os.waitid(os.P_PIDFD, run.handle, os.WEXITED | os.WNOWAIT)
        else:
            # As in a container, whose first process alone is told to end.
            run.process.send_signal(number)

    def process_of(self, uid: str) -> subprocess.Popen[bytes] | None:
        """The process of a pod, for tests that stop or kill it."""
        run = self._runs.get(uid)
        return None if run is None else run.process

    def forget(self, uid: str) -> None:
        self._release(uid)
        self.volumes.forget(uid)

    def _release(self, uid: str) -> None:
        run = self._runs.pop(uid, None)
        if run is not None:
            asyncio.get_running_loop().remove_reader(run.handle)
            run.exit_code()
            os.close(run.handle)


def _last_words_path(pod: Json) -> str:
    return str(pod["spec"]["containers"][0].get("terminationMessagePath") or "/dev/termination-log")


def _address_of(pod: Json) -> str:
    return str((pod.get("status") or {}).get("podIP", ""))
