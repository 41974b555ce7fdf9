"""Story of a run: what was seen of its jobs and what its records say, as its page and its summary tell it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from cluster_agent.backends.local.scripts.script_folder import ScriptFolder
from cluster_agent.jobs.client import JobClient
from cluster_agent.jobs.commands import JobLogs
from cluster_agent.recording.log_reading import log_files
from elastic_runtime.launcher.job_folder import JobFolder
from elastic_runtime.launcher.job_status import read_state
from foundation.figures import counted, duration
from global_learner.storage.receipts import Receipt
from policy_net.domain import Progress, speed_at
from policy_net.exchange.state_codec import decode_progress, decode_state, read_lines
from policy_net.set_policy.beliefs import SetBeliefs

_SHORTEST_SECONDS = 1.0
"""A speed that was measured for less says little."""


@dataclass(frozen=True, slots=True)
class Resize:
    """One change of a running job's size that was asked for; times are Unix seconds.

    Attributes:
        workers: afterwards, as `ps`; 0 is a suspension.
        before: workers and PSs until then; 0 and 0: it was resumed.
        by_checkpoint: whether all its processes ended, and others went on: the price of all-reduce.
        stall_seconds: the longest wait of any worker; by a checkpoint, from the last step before to the first after.
    """

    job: str
    workers: int
    ps: int
    done: bool
    began_unix_seconds: float
    ended_unix_seconds: float
    stall_seconds: float
    start_seconds: float
    before: tuple[int, int] = (0, 0)
    by_checkpoint: bool = False

    @property
    def suspends(self) -> bool:
        """Whether it gave back all that the job had."""
        return not self.workers

    @property
    def changes(self) -> bool:
        """Whether anything came of it: another size, a suspension of what ran, a resumption."""
        if self.suspends:
            return self.before[0] > 0
        return self.live or (self.done and not self.before[0])

    @property
    def live(self) -> bool:
        """Whether the job trained before and after, with another size."""
        return self.before[0] > 0 and self.workers > 0 and self.before != (self.workers, self.ps)


@dataclass(frozen=True, slots=True)
class Speed:
    """A measured speed, and what was believed of it right before, in samples/s."""

    job: str
    job_type: str
    workers: int
    ps: int
    seconds: float
    measured: float
    believed: float
    unix_seconds: float


@dataclass(frozen=True, slots=True)
class Acted:
    """One decision: which version took it, and what the guard did."""

    number: int
    unix_seconds: float
    version: int
    trigger: str
    interventions: tuple[str, ...]


def resizes(jobs: Path, names: list[str]) -> list[Resize]:
    """All changes of these jobs' sizes in the order of their beginnings, from what their launchers wrote."""
    found: list[Resize] = []
    for name in names:
        script = ScriptFolder(jobs / name)
        rows = _by_checkpoint(name, script) if script.record_file.exists() else _by_coordinator(JobFolder(jobs / name))
        found += [row for row in rows if row.changes]
    return sorted(found, key=lambda resize: resize.began_unix_seconds)


def _by_coordinator(folder: JobFolder) -> Iterator[Resize]:
    """Of a job with parameter servers; what it was started with is in its record."""
    if not folder.record_file.exists():
        return
    started = folder.record()
    before = (int(started["workers"]), int(started["servers"]))
    for row in read_state(folder).get("requests", []):
        if not row["began_unix_seconds"]:
            continue
        after, done = (int(row["target"]["workers"]), int(row["target"]["ps"])), row["state"] == "done"
        times = (float(row["began_unix_seconds"]), float(row["ended_unix_seconds"]))
        yield Resize(
            folder.name, *after, done, *times, float(row["stall_seconds"]), float(row["start_seconds"]), before
        )  # fmt: skip
        before = after if done else before


def _by_checkpoint(name: str, folder: ScriptFolder) -> Iterator[Resize]:
    """Of a job without parameter servers; every change is one of a job that ran."""
    for change in folder.changes():
        yield Resize(
            name,
            change.workers,
            0,
            change.done,
            change.began_unix_seconds,
            change.ended_unix_seconds,
            change.stall_seconds,
            change.stall_seconds,
            (change.before, 0),
            by_checkpoint=True,
        )


def decisions(state_dir: Path) -> tuple[list[Acted], list[Speed]]:
    """What the decision log says: who decided, and what jobs did beside what was believed of them before.

    The beliefs are followed from nothing, as the first version knew nothing of these types.

    Raises:
        BadInput: the log is damaged.
    """
    acted: list[Acted] = []
    speeds: list[Speed] = []
    beliefs = SetBeliefs()
    for line in _lines(state_dir):
        at = float(line["wall_time_seconds"])
        shown = [decode_progress(row) for row in line["observed"]]
        speeds += [found for entry in shown if (found := _speed(entry, beliefs, at)) is not None]
        beliefs.observe(shown)
        beliefs.introduce(decode_state(line["state"]).jobs)
        guard = tuple(line["interventions"])
        acted.append(Acted(int(line["number"]), at, int(line["version"]), str(line["trigger"]), guard))
    return acted, speeds


def _lines(state_dir: Path) -> Iterator[dict[str, Any]]:
    for path in log_files(state_dir):
        for line in read_lines(path):
            if line.content is not None and not line.is_checkpoint:
                yield line.content


def _speed(entry: Progress, beliefs: SetBeliefs, at: float) -> Speed | None:
    if entry.seconds < _SHORTEST_SECONDS or entry.samples <= 0 or not entry.allocation.workers:
        return None
    grid = beliefs.grid(entry.job_type)
    size = entry.allocation
    believed = speed_at(grid, size.ps, size.workers)
    measured = entry.samples / entry.seconds
    return Speed(entry.job_id, entry.job_type, size.workers, size.ps, entry.seconds, measured, believed, at)


_SAID = re.compile(r"epoch +(?P<epoch>\d+) .*?loss (?P<loss>[\d.]+)(?:.*?test accuracy (?P<accuracy>[\d.]+))?")


@dataclass(frozen=True, slots=True)
class Said:
    """One line of a script about its training; seconds are from the beginning to when it was seen."""

    seconds: float
    epoch: int
    loss: float
    accuracy: float | None


@dataclass(slots=True)
class Life:
    """One job, as it was seen.

    Attributes:
        held: from when on it held how many workers and PSs, and in which state; each differs from the one before.
        facts: what the agent said of it last.
    """

    name: str
    submitted_seconds: float
    held: list[tuple[float, int, int, str]] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    logs: JobLogs | None = None

    @property
    def ended(self) -> bool:
        """Whether the agent has said so."""
        return bool(self.facts.get("ended"))

    @property
    def ended_seconds(self) -> float:
        """When it ended, or was seen last."""
        return self.submitted_seconds + float(self.facts.get("ageSeconds", 0.0))


class JobWatch:
    """Asks the agent after all jobs; times are from the beginning on."""

    def __init__(self, client: JobClient, began_unix_seconds: float) -> None:
        self.lives: dict[str, Life] = {}
        self._client = client
        self._began = began_unix_seconds

    def poll(self, now_unix_seconds: float) -> None:
        """See how all jobs are now.

        Raises:
            AgentUnreachable: the agent does not answer.
        """
        now = now_unix_seconds - self._began
        for facts in self._client.call("jobs", {})["jobs"]:
            submitted = facts["submittedUnixSeconds"] - self._began
            life = self.lives.setdefault(facts["name"], Life(facts["name"], submitted))
            life.facts = facts
            size = (facts["workers"], facts["ps"], facts["state"])
            if size != (life.held[-1][1:] if life.held else (0, 0, "queued")):
                life.held.append((now, *size))
            self._read(life, now)

    def _read(self, life: Life, now: float) -> None:
        if life.logs is None:
            life.logs = JobLogs(Path(life.facts["log"]), Path(life.facts["logs"]))
        for line in life.logs.read(last=life.ended):
            found = _SAID.search(line.decode("utf-8", errors="replace"))
            if found is not None:
                accuracy = None if found["accuracy"] is None else float(found["accuracy"])
                life.said.append(Said(now, int(found["epoch"]), float(found["loss"]), accuracy))


@dataclass(frozen=True, slots=True)
class Story:
    """One run.

    Attributes:
        began_unix_seconds: the beginning of all times.
        lives: the jobs, in the order in which they came.
        versions: all that were published.
    """

    began_unix_seconds: float
    seconds: float
    lives: Sequence[Life]
    resizes: Sequence[Resize]
    acted: Sequence[Acted]
    speeds: Sequence[Speed]
    gradients: Sequence[Receipt]
    versions: Sequence[int]
    cores: int

    @property
    def carried_out(self) -> list[Resize]:
        """The resizes that came about."""
        return [resize for resize in self.resizes if resize.done]

    @property
    def suspensions(self) -> int:
        """How often a job gave back all that it had, to go on later."""
        return sum(resize.suspends for resize in self.carried_out)

    @property
    def live(self) -> list[Resize]:
        """Those that changed the size of a job with parameter servers, which trained on meanwhile."""
        return [resize for resize in self.carried_out if resize.live and not resize.by_checkpoint]

    @property
    def checkpointed(self) -> list[Resize]:
        """Those of all-reduce jobs, whose processes ended and began anew."""
        return [resize for resize in self.carried_out if resize.live and resize.by_checkpoint]

    @property
    def done(self) -> list[Life]:
        """The jobs that came to their end."""
        return [life for life in self.lives if life.facts["state"] == "done"]

    @property
    def longest_stall_seconds(self) -> float:
        """Of any worker in any resize of a job that trained on."""
        return max((resize.stall_seconds for resize in self.live), default=0.0)

    @property
    def stall_share(self) -> float:
        """Of all time in which these jobs trained."""
        trained = math.fsum(life.facts["runSeconds"] for life in self.lives if life.facts["kind"] == "ps")
        return math.fsum(resize.stall_seconds for resize in self.live) / trained if trained else 0.0

    @property
    def acting_versions(self) -> list[int]:
        """Those that took decisions, in their order."""
        return list(dict.fromkeys(acted.version for acted in self.acted))

    def belief_errors(self) -> tuple[float, float]:
        """The median factor by which beliefs were off: over the first third of what was measured, and the last."""
        third = max(1, len(self.speeds) // 3)
        return _median_factor(self.speeds[:third]), _median_factor(self.speeds[-third:])

    @property
    def sentence(self) -> str:
        """All of it in one."""
        stall = f", the longest stall {1000 * self.longest_stall_seconds:.2g} ms" if self.live else ""
        others = f", {len(self.checkpointed)} by a checkpoint (all-reduce)" if self.checkpointed else ""
        return (
            f"{len(self.done)} of {counted(len(self.lives), 'job')} done in {duration(self.seconds)}; "
            f"{counted(len(self.live), 'resize')} of jobs that trained on{stall}{others}, "
            f"{counted(self.suspensions, 'suspension')}; "
            f"{counted(len(self.gradients), 'gradient')} to the learner, {counted(len(self.versions), 'version')}, "
            f"decided by {', '.join(f'v{version}' for version in self.acting_versions)}"
        )

    def to_json(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        early, late = self.belief_errors() if self.speeds else (None, None)
        return {
            "jobs": [
                {
                    "name": life.name,
                    "model_type": life.facts["modelType"],
                    "state": life.facts["state"],
                    "submitted_seconds": life.submitted_seconds,
                    "jct_seconds": life.facts["ageSeconds"],
                    "run_seconds": life.facts["runSeconds"],
                    "samples": life.facts["samples"],
                    "stall_seconds": sum(found.stall_seconds for found in self.carried_out if found.job == life.name),
                    "resizes": sum(found.job == life.name for found in self.carried_out),
                    "loss": life.said[-1].loss if life.said else None,
                    "accuracy": life.said[-1].accuracy if life.said else None,
                }
                for life in self.lives
            ],
            "resizes": len(self.live),
            "resizes_by_checkpoint": len(self.checkpointed),
            "suspensions": self.suspensions,
            "longest_stall_seconds": self.longest_stall_seconds,
            "stall_share": self.stall_share,
            "decisions": len(self.acted),
            "acting_versions": self.acting_versions,
            "interventions": sum(bool(acted.interventions) for acted in self.acted),
            "gradients": len(self.gradients),
            "versions": list(self.versions),
            "belief_factor_early": early,
            "belief_factor_late": late,
            "wall_seconds": self.seconds,
        }


def _median_factor(speeds: Sequence[Speed]) -> float:
    """1 is right; 2 is twice, or half."""
    return math.exp(median(abs(math.log(speed.believed / speed.measured)) for speed in speeds if speed.believed > 0))
