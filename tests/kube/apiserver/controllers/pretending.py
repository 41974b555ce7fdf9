"""Containers that nothing runs: they start, end and hang as a test says."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apiserver.controllers.kubelet import CannotStart

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a pod's containers.

    Attributes:
        pulls: whether the image is there; else the pod stays Pending.
        run_seconds: until they end by themselves; None: they run until they are told to end.
        exit_code: with which they then end.
        obeys: whether they end at SIGTERM; else they are killed when their grace is over.
    """

    pulls: bool = True
    run_seconds: float | None = None
    exit_code: int = 0
    obeys: bool = True


@dataclass(slots=True)
class _Run:
    fate: Fate
    ends_at: float | None
    ended: Callable[[], None]
    code: int | None = None


class Pretending:
    """A runtime without processes.

    Args:
        clock: seconds, the store's.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self.fate: Callable[[Json], Fate] = lambda pod: Fate()
        """Of a pod; asked whenever its containers start."""

    def end(self, uid: str, exit_code: int = 0) -> None:
        """Have a run end now, in the store's thread."""
        self._runs[uid].code = exit_code
        self._runs[uid].ended()

    def start(self, pod: Json, address: str, ended: Callable[[], None]) -> None:
        del address
        fate = self.fate(pod)
        if not fate.pulls:
            image = pod["spec"]["containers"][0].get("image", "")
            raise CannotStart("ImagePullBackOff", f'Back-off pulling image "{image}"')
        ends_at = None if fate.run_seconds is None else self._clock() + fate.run_seconds
        self._runs[pod["metadata"]["uid"]] = _Run(fate, ends_at, ended)

    def exit_code(self, uid: str) -> int | None:
        run = self._runs[uid]
        if run.code is None and run.ends_at is not None and self._clock() >= run.ends_at:
            run.code = run.fate.exit_code
        return run.code

    def last_words(self, pod: Json) -> str:
        del pod
        return ""

    def due(self, uid: str) -> float | None:
        return self._runs[uid].ends_at

    def send(self, uid: str, number: signal.Signals) -> None:
        run = self._runs.get(uid)
        if run is not None and run.code is None and (run.fate.obeys or number == signal.SIGKILL):
            run.code = 128 + number

    def forget(self, uid: str) -> None:
        self._runs.pop(uid, None)
