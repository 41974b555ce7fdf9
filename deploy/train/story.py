"""Story of a run: what was seen of its jobs and what its records say, as its page and its summary tell it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from cluster_agent.backends.local.scripts.script_folder import ScriptChange, ScriptFolder
from cluster_agent.jobs.client import JobClient
from cluster_agent.jobs.commands import JobLogs
from cluster_agent.recording.log_reading import log_files
from elastic_runtime.launcher.job_folder import JobFolder
from elastic_runtime.launcher.job_status import read_state
from foundation.figures import counted, duration
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
    measured: float
    believed: float


@dataclass(frozen=True, slots=True)
class Acted:
    """One decision: which version took it, and what the guard did."""

    unix_seconds: float
    version: int
    interventions: tuple[str, ...]


def resizes(jobs: Path, names: list[str]) -> list[Resize]:
    """All changes of these jobs' sizes in the order of their beginnings, from what their launchers wrote."""
    found: list[Resize] = []
    for name in names:
        script, folder = ScriptFolder(jobs / name), JobFolder(jobs / name)
        if script.record_file.exists():
            found += [_by_checkpoint(name, change) for change in script.changes()]
        elif folder.record_file.exists():
            found += _by_coordinator(folder)
    found = [resize for resize in found if resize.changes]
    return sorted(found, key=lambda resize: resize.began_unix_seconds)


def _by_coordinator(folder: JobFolder) -> Iterator[Resize]:
    """Of a job with parameter servers; what it was started with is in its record."""
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


def _by_checkpoint(name: str, change: ScriptChange) -> Resize:
    """Of a job without parameter servers; every change is one of a job that ran."""
    times, stall = (change.began_unix_seconds, change.ended_unix_seconds), change.stall_seconds
    return Resize(name, change.workers, 0, change.done, *times, stall, stall, (change.before, 0), by_checkpoint=True)


def decisions(state_dir: Path) -> tuple[list[Acted], list[Speed]]:
    """What the decision log says: who decided, and what jobs did beside what was believed of them before.

    The beliefs are followed from nothing, as the first version knew nothing of these types.

    Raises:
        BadInput: the log is damaged.
    """
    acted: list[Acted] = []
    speeds: list[Speed] = []
    beliefs = SetBeliefs()
    for path in log_files(state_dir):
        for row in read_lines(path):
            if row.content is None or row.is_checkpoint:
                continue
            line = row.content
            shown = [decode_progress(entry) for entry in line["observed"]]
            speeds += [found for entry in shown if (found := _speed(entry, beliefs)) is not None]
            beliefs.observe(shown)
            beliefs.introduce(decode_state(line["state"]).jobs)
            acted.append(Acted(float(line["wall_time_seconds"]), int(line["version"]), tuple(line["interventions"])))
    return acted, speeds


def _speed(entry: Progress, beliefs: SetBeliefs) -> Speed | None:
    size = entry.allocation
    if entry.seconds < _SHORTEST_SECONDS or entry.samples <= 0 or not size.workers:
        return None
    believed = speed_at(beliefs.grid(entry.job_type), size.ps, size.workers)
    measured = entry.samples / entry.seconds
    return Speed(entry.job_id, entry.job_type, size.workers, size.ps, measured, believed)


_SAID = re.compile(r"epoch +\d+ .*?loss (?P<loss>[\d.]+)(?:.*?test accuracy (?P<accuracy>[\d.]+))?")


@dataclass(frozen=True, slots=True)
class Said:
    """One line of a script about its training; seconds are from the beginning to when it was seen."""

    seconds: float
    loss: float
    accuracy: float | None


@dataclass(slots=True)
class Life:
    """One job, as it was seen.

    Attributes:
        sizes: from when on it held how many workers and PSs, and in which state; each differs from the one before.
        facts: what the agent said of it last.
    """

    name: str
    submitted_seconds: float
    sizes: list[tuple[float, int, int, str]] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    logs: JobLogs | None = None

    @property
    def ended(self) -> bool:
        """Whether the agent has said so."""
        return bool(self.facts.get("ended"))


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
            if size != (life.sizes[-1][1:] if life.sizes else (0, 0, "queued")):
                life.sizes.append((now, *size))
            life.logs = life.logs or JobLogs(Path(facts["log"]), Path(facts["logs"]))
            for line in life.logs.read(last=life.ended):
                found = _SAID.search(line.decode("utf-8", errors="replace"))
                if found is None:
                    continue
                accuracy = None if found["accuracy"] is None else float(found["accuracy"])
                life.said.append(Said(now, float(found["loss"]), accuracy))


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
    gradients: int
    versions: Sequence[int]
    cores: int

    @property
    def carried_out(self) -> list[Resize]:
        """The resizes that came about."""
        return [resize for resize in self.resizes if resize.done]

    @property
    def live(self) -> list[Resize]:
        """Those that changed the size of a job with parameter servers, which trained on meanwhile."""
        return [resize for resize in self.carried_out if resize.live and not resize.by_checkpoint]

    def to_json(self) -> dict[str, Any]:
        """The content of `summary.json`.

        `belief_factor`s are the median factors by which beliefs of speeds were off, over the first third of what was
        measured and the last; `longest_stall_seconds` is of any worker in a resize of a job that trained on, and
        `stall_share` of all time in which such jobs trained.
        """
        carried_out, live, third = self.carried_out, self.live, max(1, len(self.speeds) // 3)
        trained = math.fsum(life.facts["runSeconds"] for life in self.lives if life.facts["kind"] == "ps")
        return {
            "jobs": [
                {
                    "name": life.name,
                    "model_type": life.facts["modelType"],
                    "state": life.facts["state"],
                    "submitted_seconds": life.submitted_seconds,
                    "jct_seconds": life.facts["ageSeconds"],
                    "run_seconds": life.facts["runSeconds"],
                    "samples": life.facts.get("samples", 0),
                    "stall_seconds": sum(found.stall_seconds for found in carried_out if found.job == life.name),
                    "resizes": sum(found.job == life.name for found in carried_out),
                    "loss": life.said[-1].loss if life.said else None,
                    "accuracy": life.said[-1].accuracy if life.said else None,
                }
                for life in self.lives
            ],
            "resizes": len(live),
            "resizes_by_checkpoint": sum(resize.live and resize.by_checkpoint for resize in carried_out),
            "suspensions": sum(resize.suspends for resize in carried_out),
            "longest_stall_seconds": max((resize.stall_seconds for resize in live), default=0.0),
            "stall_share": math.fsum(resize.stall_seconds for resize in live) / trained if trained else 0.0,
            "decisions": len(self.acted),
            "acting_versions": list(dict.fromkeys(acted.version for acted in self.acted)),
            "interventions": sum(bool(acted.interventions) for acted in self.acted),
            "gradients": self.gradients,
            "versions": list(self.versions),
            "belief_factor_early": _median_factor(self.speeds[:third]),
            "belief_factor_late": _median_factor(self.speeds[-third:]),
            "wall_seconds": self.seconds,
        }


def sentence(summary: Mapping[str, Any]) -> str:
    """All of a run in one sentence, from its summary."""
    done = sum(job["state"] == "done" for job in summary["jobs"])
    stall = f", the longest stall {1000 * summary['longest_stall_seconds']:.2g} ms" if summary["resizes"] else ""
    by_checkpoint = summary["resizes_by_checkpoint"]
    others = f", {by_checkpoint} by a checkpoint (all-reduce)" if by_checkpoint else ""
    return (
        f"{done} of {counted(len(summary['jobs']), 'job')} done in {duration(summary['wall_seconds'])}; "
        f"{counted(summary['resizes'], 'resize')} of jobs that trained on{stall}{others}, "
        f"{counted(summary['suspensions'], 'suspension')}; "
        f"{counted(summary['gradients'], 'gradient')} to the learner, {counted(len(summary['versions']), 'version')}, "
        f"decided by {', '.join(f'v{version}' for version in summary['acting_versions'])}"
    )


def _median_factor(speeds: Sequence[Speed]) -> float | None:
    """1 is right; 2 is twice, or half; None where nothing was believed."""
    logs = [abs(math.log(speed.believed / speed.measured)) for speed in speeds if speed.believed > 0]
    return math.exp(median(logs)) if logs else None
