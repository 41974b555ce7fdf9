"""Replays of this cluster's last days, as the learner is told of them: means and sums, and no job by itself.

It is kept in the state directory, so that an agent that was restarted tells it at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cluster_agent.recording.load_history import LoadCurve
from cluster_agent.recording.state_files import read_json, write_json
from foundation.text import with_checksum, without_checksum

KEPT = "replayed-past.json"


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
        write_json(state_dir / KEPT, with_checksum(self.to_json()))

    @classmethod
    def kept(cls, state_dir: Path) -> ReplayedPast | None:
        """What was written down last, if anything.

        Raises:
            StateDamaged, KeyError, TypeError, ValueError: it cannot be used.
        """
        content = read_json(state_dir / KEPT)
        return None if content is None else cls.from_json(without_checksum(content))


def _curve(content: Mapping[str, Any]) -> LoadCurve:
    used, waiting, gpus = (tuple(map(float, content[name])) for name in ("gpus_used", "jobs_waiting", "gpus"))
    if len({len(used), len(waiting), len(gpus)}) > 1 or not all(map(math.isfinite, (*used, *waiting, *gpus))):
        raise ValueError("a curve in it has rows of several lengths, or a number that is not finite")
    begin, step = (float(content[name]) for name in ("begin_seconds", "step_seconds"))
    return LoadCurve(begin, step, used, waiting, gpus, str(content["policy"]))
