"""Load of a cluster over its own time, and replays of its last days: what the learner's report is told of them.

A load is GPUs in use, GPUs that there are and jobs that wait.

It is bounded: so many steps of one length, of each its means. When all are full, two become one; a step that is as long
as it may be stays so, and the oldest go. What is kept says of no job whose it is, how long it is or what it is called.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import structlog

from cluster_agent.errors import StateDamaged
from cluster_agent.recording.state_files import read_json, write_json
from foundation.text import with_checksum, without_checksum
from policy_net.domain import SUSPENDED, ClusterState, Job, Progress
from policy_net.exchange.state_codec import JsonObject

MOST_STEPS = 168
"""A week by the hour; a message of 2 kB."""
FIRST_STEP_SECONDS = 60.0
LONGEST_STEP_SECONDS = 3600.0
UNKNOWN = -1.0
"""In place of a mean of which nothing is known."""
KEPT = "load.json"
_KEEP_SECONDS = 60.0
"""Between two writings: what an agent that is killed loses of a week is a minute."""
_MOST = 1e7
"""No cluster has more GPUs, or more jobs that wait."""
_FORMAT = "fedl2-load-1"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """Means over steps of one length.

    Attributes:
        policy: the scheduler that this is a simulation of, or `recorded`; empty: as the cluster ran.
        begin_seconds: of the cluster's own time.
        gpus_used, jobs_waiting, gpus: one a step; `UNKNOWN` where nothing is known.
        ended: all jobs were done at its end.
        nearly_done_seconds: when 95% of the jobs were done; 0 where it did not end.
    """

    begin_seconds: float
    step_seconds: float
    gpus_used: tuple[float, ...]
    jobs_waiting: tuple[float, ...]
    gpus: tuple[float, ...]
    policy: str = ""
    ended: bool = False
    nearly_done_seconds: float = 0.0


@dataclass(slots=True)
class _Step:
    """Sums over what is known of one step, each in units times seconds."""

    known_seconds: float = 0.0
    used: float = 0.0
    waiting: float = 0.0
    gpus: float = 0.0

    def add(self, seconds: float, used: float, waiting: float, gpus: float) -> None:
        self.known_seconds += seconds
        self.used += used * seconds
        self.waiting += waiting * seconds
        self.gpus += gpus * seconds

    def merged(self, other: _Step) -> _Step:
        return _Step(
            self.known_seconds + other.known_seconds,
            self.used + other.used,
            self.waiting + other.waiting,
            self.gpus + other.gpus,
        )

    @property
    def is_sound(self) -> bool:
        amounts = (self.used, self.waiting, self.gpus)
        return self.known_seconds >= 0.0 and all(0.0 <= amount <= _MOST * self.known_seconds for amount in amounts)

    def mean(self, amount: float) -> float:
        return amount / self.known_seconds if self.known_seconds > 0.0 else UNKNOWN


class LoadHistory:
    """Written by the decision loop, read by any thread.

    Args:
        longest_step_seconds: steps become no longer than this; the oldest go instead.
        file: where it is kept, so that it goes on after a restart; None to keep it in memory alone. A file that cannot
            be read or written is reported, and costs the curve, not the cluster.
    """

    def __init__(self, longest_step_seconds: float = LONGEST_STEP_SECONDS, file: Path | None = None) -> None:
        self._longest_seconds = longest_step_seconds
        self._file = file
        self._lock = threading.Lock()
        self._reported: float = -math.inf
        self._clear()
        if file is not None:
            self._resume(file)
        self._kept_seconds = self._until

    def on_interval(self, state: ClusterState, progress: Sequence[Progress], seconds: float) -> None:
        """Note what the jobs of a state held for so many seconds from its time on."""
        begin = state.time_seconds
        with self._lock:
            if begin < self._reported:  # another run of the cluster, or a clock that was set back
                self._clear()
            self._rest_until(begin)
            end = begin + seconds
            # `curve` may have rested beyond its beginning: a job's first interval is told once it is over.
            if end > self._until:
                used, waiting = _in_use(state, progress, seconds)
                self._gpus = float(state.total.gpu)
                self._add(max(begin, self._until), end, used, waiting)
            self._reported = end
            self._idle = {job.job_id for job in state.jobs} <= {entry.job_id for entry in progress if entry.finished}
            self._keep()

    def curve(
        self, now_seconds: float | None = None, *, nobody: bool = False, nearly_done_seconds: float = 0.0
    ) -> LoadCurve | None:
        """What is known; None where nothing is.

        Until `now_seconds` nothing was held if no job was left, or there is `nobody` now, as after the last one failed.
        """
        with self._lock:
            self._idle = self._idle or (nobody and bool(self._steps))
            if now_seconds is not None:
                self._rest_until(now_seconds)
            if not self._steps:
                return None
            return LoadCurve(
                self._begin,
                self._step_seconds,
                tuple(step.mean(step.used) for step in self._steps),
                tuple(step.mean(step.waiting) for step in self._steps),
                tuple(step.mean(step.gpus) for step in self._steps),
                ended=nearly_done_seconds > 0.0,
                nearly_done_seconds=nearly_done_seconds,
            )

    def _clear(self) -> None:
        self._steps: list[_Step] = []
        self._step_seconds = min(FIRST_STEP_SECONDS, self._longest_seconds)
        self._begin = 0.0
        self._until = -math.inf
        self._reported = -math.inf
        self._gpus = 0.0
        self._idle = False

    def _rest_until(self, seconds: float) -> None:
        """A cluster whose jobs were all done stood idle since; of one with jobs, and no decision, nothing is known."""
        if self._idle and seconds > self._until:
            self._add(self._until, seconds, 0.0, 0.0)

    def _add(self, begin: float, end: float, used: float, waiting: float) -> None:
        if not self._steps:
            self._begin = math.floor(begin / self._step_seconds) * self._step_seconds
        self._thin_out(end)
        begin = max(begin, self._begin)
        last = math.ceil((end - self._begin) / self._step_seconds) - 1
        self._steps += [_Step() for _ in range(last + 1 - len(self._steps))]
        for index in range(max(math.floor((begin - self._begin) / self._step_seconds), 0), last + 1):
            start = self._begin + index * self._step_seconds
            overlap = min(end, start + self._step_seconds) - max(begin, start)
            if overlap > 0.0:
                self._steps[index].add(overlap, used, waiting, self._gpus)
        self._until = end

    def _thin_out(self, end: float) -> None:
        while end - self._begin > MOST_STEPS * self._step_seconds:
            if 2 * self._step_seconds <= self._longest_seconds:
                self._double()
            else:
                gone = math.ceil((end - self._begin) / self._step_seconds) - MOST_STEPS
                self._steps = self._steps[gone:]
                self._begin += gone * self._step_seconds
                return

    def _double(self) -> None:
        """Two steps become one; they begin at multiples of their length."""
        self._step_seconds *= 2
        begin = math.floor(self._begin / self._step_seconds) * self._step_seconds
        steps = ([_Step()] if begin < self._begin else []) + self._steps
        steps += [_Step()] * (len(steps) % 2)
        self._steps = [one.merged(other) for one, other in zip(steps[::2], steps[1::2], strict=True)]
        self._begin = begin

    def _keep(self) -> None:
        if self._file is None or self._until - self._kept_seconds < _KEEP_SECONDS:
            return
        self._kept_seconds = self._until
        steps = [[step.known_seconds, step.used, step.waiting, step.gpus] for step in self._steps]
        content: JsonObject = {
            "format": _FORMAT,
            "begin_seconds": self._begin,
            "step_seconds": self._step_seconds,
            "until_seconds": self._until,
            "steps": steps,
        }
        try:
            write_json(self._file, with_checksum(content))
        except OSError as error:
            _log.warning("load-not-kept", file=str(self._file), error=str(error))

    def _resume(self, file: Path) -> None:
        try:
            saved = read_json(file)
            if saved is None:
                return
            saved = without_checksum(saved)
            steps = [
                _Step(float(known), float(used), float(waiting), float(gpus))
                for known, used, waiting, gpus in saved["steps"]
            ]
            names = ("begin_seconds", "step_seconds", "until_seconds")
            begin, step_seconds, until = (float(saved[name]) for name in names)
            is_ours = saved["format"] == _FORMAT
        except (StateDamaged, KeyError, TypeError, ValueError) as error:
            _log.warning("load-begins-anew", file=str(file), error=repr(error))
            return
        is_sound = (
            is_ours
            and math.isfinite(begin)
            and FIRST_STEP_SECONDS <= step_seconds <= LONGEST_STEP_SECONDS
            and 0 < len(steps) <= MOST_STEPS
            and begin <= until <= begin + (len(steps) + 1) * step_seconds
            and all(step.is_sound for step in steps)
        )
        if not is_sound:
            _log.warning("load-begins-anew", file=str(file), error="holds what no agent writes")
            return
        self._steps, self._begin, self._step_seconds = steps, begin, step_seconds
        self._until = self._reported = until


def _in_use(state: ClusterState, progress: Sequence[Progress], seconds: float) -> tuple[float, int]:
    """GPUs in use on average over an interval, and the jobs that held nothing in it."""
    done = {entry.job_id: entry for entry in progress}
    used, waiting = 0.0, 0
    for job in state.jobs:
        entry = done.get(job.job_id)
        if entry is None or entry.allocation == SUSPENDED:
            waiting += 1
        else:
            trained = entry.paused_seconds + entry.seconds
            used += _gpus(job, entry) * (min(trained / seconds, 1.0) if entry.finished else 1.0)
    return used, waiting


def _gpus(job: Job, entry: Progress) -> int:
    size = entry.allocation
    return size.workers * job.worker_demand.gpu + size.ps * job.ps_demand.gpu


KEPT_PAST = "replayed-past.json"


@dataclass(frozen=True, slots=True)
class ReplayedPast:
    """The last days of a cluster under what acts there, and under other schedulers.

    Attributes:
        begin_seconds, end_seconds: of these days, on the cluster's clock.
        jobs: that ended in them, of which the average times are.
        avg_jct_seconds: as they really took.
        twin_jct_seconds: in a replay under what acts there.
        baselines: scheduler to the average time in a replay under it; empty where the replay above is far off.
        load: of these replays; of an empty policy: under what acts there.
    """

    begin_seconds: float
    end_seconds: float
    jobs: int
    avg_jct_seconds: float
    twin_jct_seconds: float
    baselines: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    load: tuple[LoadCurve, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "begin_seconds": self.begin_seconds,
            "end_seconds": self.end_seconds,
            "jobs": self.jobs,
            "avg_jct_seconds": self.avg_jct_seconds,
            "twin_jct_seconds": self.twin_jct_seconds,
            "baselines": dict(self.baselines),
            "load": [asdict(curve) for curve in self.load],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ReplayedPast:
        """Read it back.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        past = cls(
            float(content["begin_seconds"]),
            float(content["end_seconds"]),
            int(content["jobs"]),
            float(content["avg_jct_seconds"]),
            float(content["twin_jct_seconds"]),
            {str(policy): float(seconds) for policy, seconds in content["baselines"].items()},
            tuple(_curve(curve) for curve in content["load"]),
        )
        times = (past.begin_seconds, past.end_seconds, past.avg_jct_seconds, past.twin_jct_seconds)
        if not all(map(math.isfinite, (*times, *past.baselines.values()))):
            raise ValueError("a time in it is not finite")
        if past.jobs < 0 or past.end_seconds <= past.begin_seconds:
            raise ValueError("it has fewer jobs than none, or days that end before they begin")
        return past

    def keep(self, state_dir: Path) -> None:
        """Write it down; an OSError where that fails."""
        write_json(state_dir / KEPT_PAST, with_checksum(self.to_json()))

    @classmethod
    def kept(cls, state_dir: Path) -> ReplayedPast | None:
        """What was written down last, if anything.

        Raises:
            StateDamaged, KeyError, TypeError, ValueError: it cannot be used.
        """
        content = read_json(state_dir / KEPT_PAST)
        return None if content is None else cls.from_json(without_checksum(content))


def _curve(content: Mapping[str, Any]) -> LoadCurve:
    used, waiting, gpus = (tuple(map(float, content[name])) for name in ("gpus_used", "jobs_waiting", "gpus"))
    if len({len(used), len(waiting), len(gpus)}) > 1 or not all(map(math.isfinite, (*used, *waiting, *gpus))):
        raise ValueError("a curve in it has rows of several lengths, or a number that is not finite")
    begin, step = (float(content[name]) for name in ("begin_seconds", "step_seconds"))
    return LoadCurve(begin, step, used, waiting, gpus, str(content["policy"]))
