"""Records of a run: resizes of jobs, what was believed and what was measured of speeds, gradients, acting versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_agent.backends.local.scripts.script_folder import ScriptFolder
from cluster_agent.recording.decision_log import log_files
from elastic_runtime.launcher.job_folder import JobFolder
from elastic_runtime.launcher.job_status import read_state
from global_learner.storage.receipts import Receipt, read_receipts
from policy_net.domain import Progress, speed_at
from policy_net.exchange.policy_file import read_policy_file
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


def gradients(learner: Path, policy: Path) -> list[Receipt]:
    """The updates that the learner applied.

    Raises:
        StateUnusable: a record is damaged.
    """
    spec = read_policy_file(policy).spec.digest
    return [receipt for receipt in read_receipts(learner, spec) if receipt.kind == "update"]


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
