"""Telling of what kind of work this cluster has, where its operator wants it: once a day, made by a process of its own.

Nothing waits for that process, and it has a deadline. What was told is noted in the state directory, so that an agent
whose operator wants it no longer has it forgotten. Whatever goes wrong is logged, and tried again the next day.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from cluster_agent.fleet.learner_protocol import LearnerCalls
from policy_net.errors import BadInput, LearnerRefused, LearnerUnreachable
from policy_net.exchange.learner_answers import Registration
from policy_net.exchange.workload_sketch import WorkloadSketch

_log = structlog.get_logger()

REPORTED_FILE = "sketch-told"
EVERY_SECONDS = 86_400.0
_EARLY_SECONDS = 600.0
"""Where there is nothing to tell yet, it is looked at again so much later."""
_LONGEST_SECONDS = 1800.0
_COMMAND = (sys.executable, "-m", "cluster_agent.fleet.sketch_making")


class SketchSharing:
    """Used by the heartbeat's thread alone; `command` prints a sketch of the state directory behind it, or null."""

    def __init__(
        self,
        learner: LearnerCalls,
        state_dir: Path,
        wanted: bool,
        clock: Callable[[], float],
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self._learner = learner
        self._state_dir = state_dir
        self._reported_file = state_dir / REPORTED_FILE
        self._wanted = wanted
        self._clock = clock
        self._command = command
        self.process: subprocess.Popen[bytes] | None = None
        self._out = tempfile.TemporaryFile() if wanted else None  # noqa: SIM115  (as long as this)
        self._began_seconds = 0.0
        self._due_seconds = clock()
        self._incarnation = 0

    def beat(self, registration: Registration) -> None:
        """Begin to make a sketch if it is time, or tell one that is made; or have forgotten what was told."""
        if registration.incarnation != self._incarnation:
            # Perhaps another learner: what was told to this one is not known.
            self._incarnation, self._due_seconds = registration.incarnation, self._clock()
        if not self._wanted:
            if self._reported_file.exists() and self._tell(registration, None):
                self._reported_file.unlink(missing_ok=True)
        elif self.process is not None:
            self._poll(registration)
        elif self._clock() >= self._due_seconds:
            self._begin()

    def close(self) -> None:
        """End the process that makes one, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _begin(self) -> None:
        self._began_seconds, self._due_seconds = self._clock(), self._clock() + EVERY_SECONDS
        assert self._out is not None  # noqa: S101  (there wherever it is wanted)
        self._out.seek(0)
        self._out.truncate()
        try:
            self.process = subprocess.Popen(  # noqa: S603  (our own)
                [*self._command, str(self._state_dir)],
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            _log.warning("sketch-not-made", error=str(error))

    def _poll(self, registration: Registration) -> None:
        assert self.process is not None  # noqa: S101  (asked by `beat`)
        code = self.process.poll()
        if code is None:
            if self._clock() - self._began_seconds > _LONGEST_SECONDS:
                self.close()
                _log.warning("sketch-not-made", error=f"it took longer than {_LONGEST_SECONDS:g} s")
            return
        self.process = None
        sketch = self._made(code)
        if sketch is None:
            self._due_seconds = self._clock() + _EARLY_SECONDS
            return
        self._reported_file.touch()  # before it is told: what may have been told can be taken back
        if not self._tell(registration, sketch):
            self._due_seconds = self._clock() + _EARLY_SECONDS

    def _made(self, code: int) -> WorkloadSketch | None:
        assert self._out is not None  # noqa: S101  (there wherever it is wanted)
        self._out.seek(0)
        try:
            content = json.loads(self._out.read()) if code == 0 else None
            return None if content is None else WorkloadSketch.from_json(content)
        except (BadInput, ValueError) as error:
            _log.warning("sketch-not-made", error=str(error))
            return None

    def _tell(self, registration: Registration, sketch: WorkloadSketch | None) -> bool:
        try:
            self._learner.share_sketch(registration, sketch)
        except (LearnerRefused, LearnerUnreachable) as error:
            _log.warning("sketch-not-taken", error=str(error))
            return False
        _log.info("sketch-told" if sketch is not None else "sketch-taken-back")
        return True
