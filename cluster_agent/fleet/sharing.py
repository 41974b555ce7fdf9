"""Reports to the learner beside heartbeats: the speeds that this cluster has seen, and what kind of work it has.

Each report is in place of the last one. Speeds are `SpeedStatistic`s: job type, kind, PSs, workers, mean log speed,
count; see the guide's page on beliefs. A sketch of the work is made once a day by a process of its own, where the
operator wants it; that it was told is noted in the state directory, so that it can be taken back.
Whatever goes wrong here is logged and tried again later: neither heartbeats nor decisions depend on it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from cluster_agent.fleet.learner_client import LearnerClient
from cluster_agent.settings import SharingSettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.errors import BadInput, LearnerRefused, LearnerUnreachable
from policy_net.exchange.statistics import SpeedStatistic, most_observed
from policy_net.exchange.wire import Registration
from policy_net.exchange.workload_sketch import WorkloadSketch

_log = structlog.get_logger()

Statistics = tuple[SpeedStatistic, ...]


class Sharing:
    """Used by the heartbeat's thread alone; `statistics` (what this cluster has seen) is callable from any thread."""

    def __init__(
        self,
        learner: LearnerClient,
        settings: SharingSettings,
        statistics: Callable[[], Statistics],
        telemetry: AgentTelemetry,
        clock: Callable[[], float],
    ) -> None:
        self._learner = learner
        self._settings = settings
        self._statistics = statistics
        self._telemetry = telemetry
        self._clock = clock
        self._incarnation = 0
        self._revision = 0
        self._reported: Statistics | None = None
        self._due_seconds = 0.0

    def beat(self, registration: Registration, *, last: bool = False) -> None:
        """Tell what there is to tell, if it is time; `last` does not wait for the time."""
        if registration.incarnation != self._incarnation:
            # Perhaps another learner: what was told to this one is not known.
            self._incarnation, self._revision, self._reported = registration.incarnation, 0, None
            self._due_seconds = self._clock()
        if self._clock() < self._due_seconds and not last:
            return
        self._due_seconds = self._clock() + self._settings.every_seconds
        statistics = self._to_report()
        # With sharing off nothing is told once, which takes back what was told before; else there is no hurry to.
        if statistics == self._reported or (not statistics and self._settings.enabled and self._reported is None):
            return
        self._revision += 1
        outcome = "refused"
        try:
            answer = self._learner.share_beliefs(registration, self._revision, statistics)
        except LearnerRefused as error:
            _log.warning("beliefs-not-taken", statistics=len(statistics), error=str(error))
        except LearnerUnreachable as error:
            outcome = "unanswered"
            _log.debug("beliefs-unanswered", error=str(error))
        else:
            outcome = "taken" if answer.taken else "repeated"
            self._reported = statistics
            if answer.left_out:
                _log.warning(
                    "job-types-left-out", count=len(answer.left_out), reason="the fleet's vocabulary has no more room"
                )
        self._telemetry.belief_reports.labels(outcome).inc()

    def _to_report(self) -> Statistics:
        if not self._settings.enabled:
            return ()
        # For a name that cannot be printed the learner would refuse the whole report.
        reported = (entry for entry in self._statistics() if entry.job_type.isprintable())
        return most_observed([entry for entry in reported if self._settings.shares(entry.job_type)])


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
        learner: LearnerClient,
        state_dir: Path,
        enabled: bool,
        clock: Callable[[], float],
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self._learner = learner
        self._state_dir = state_dir
        self._reported_file = state_dir / REPORTED_FILE
        self._enabled = enabled
        self._clock = clock
        self._command = command
        self.process: subprocess.Popen[bytes] | None = None
        self._out = tempfile.TemporaryFile() if enabled else None  # noqa: SIM115  (as long as this)
        self._began_seconds = 0.0
        self._due_seconds = clock()
        self._incarnation = 0

    def beat(self, registration: Registration) -> None:
        """Begin to make a sketch if it is time, or tell one that is made; or have forgotten what was told."""
        if registration.incarnation != self._incarnation:
            # Perhaps another learner: what was told to this one is not known.
            self._incarnation, self._due_seconds = registration.incarnation, self._clock()
        if not self._enabled:
            if self._reported_file.exists() and self._send(registration, None):
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
        if not self._send(registration, sketch):
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

    def _send(self, registration: Registration, sketch: WorkloadSketch | None) -> bool:
        try:
            self._learner.share_sketch(registration, sketch)
        except (LearnerRefused, LearnerUnreachable) as error:
            _log.warning("sketch-not-taken", error=str(error))
            return False
        _log.info("sketch-told" if sketch is not None else "sketch-taken-back")
        return True
