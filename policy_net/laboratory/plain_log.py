"""Plain log, which an operator writes of any scheduler: an object a decision, of nodes, jobs, and what each got.

Every field but a job's id and type, the time, and the nodes of the first line may be left out; the guide has the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from foundation.text import parse_json, plain_line
from policy_net.domain import (
    MAX_ALLREDUCE_WORKERS,
    MAX_TASKS_PER_ROLE,
    SUSPENDED,
    Allocation,
    CapacityMode,
    ClusterState,
    Job,
    JobKind,
    Node,
    Resources,
)
from policy_net.errors import BadInput
from policy_net.exchange.log_lines import numbered_lines
from policy_net.settings_problems import FileWords, first_problems
from policy_net.strict_yaml import brief

LARGEST_WORK = 1e18
"""Samples of a job: a billion a second for thirty years."""
LATEST_SECONDS = 1e12
"""Thirty thousand years either way."""
_MILLI = 1000
_IN_JSON = FileWords("field", json=True)


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Demand(_Entry):
    """What one task needs."""

    cpus: float = Field(2.0, ge=0.0, le=1e6)
    gpus: int = Field(0, ge=0, le=10_000)

    @property
    def resources(self) -> Resources:
        """As resources."""
        return Resources(round(self.cpus * _MILLI), self.gpus)


class PlainNodes(_Entry):
    """Machines that are alike."""

    count: int = Field(1, ge=1, le=100_000)
    cpus: float = Field(gt=0.0, le=1e6)
    gpus: int = Field(0, ge=0, le=10_000)


class PlainJob(_Entry):
    """One unfinished job, and what it is given from now on."""

    id: str = Field(min_length=1, max_length=512)
    type: str = Field(min_length=1, max_length=128)
    workers: int = Field(0, ge=0, le=100_000)
    ps: int | None = Field(None, ge=0, le=100_000)
    kind: JobKind | None = None
    remaining: float | None = Field(None, ge=0.0, le=LARGEST_WORK)
    total: float | None = Field(None, gt=0.0, le=LARGEST_WORK)
    done: float | None = Field(None, ge=0.0, le=LARGEST_WORK)
    submit_s: float | None = Field(None, ge=-LATEST_SECONDS, le=LATEST_SECONDS)
    requested_workers: int | None = Field(None, ge=1, le=100_000)
    requested_ps: int | None = Field(None, ge=0, le=100_000)
    max_workers: int | None = Field(None, ge=1, le=MAX_ALLREDUCE_WORKERS)
    max_ps: int = Field(MAX_TASKS_PER_ROLE, ge=0, le=MAX_TASKS_PER_ROLE)
    worker: Demand = Demand(gpus=1)
    server: Demand = Demand()


class PlainLine(_Entry):
    """One decision."""

    time_s: float = Field(ge=-LATEST_SECONDS, le=LATEST_SECONDS)
    nodes: tuple[PlainNodes, ...] = ()
    jobs: tuple[PlainJob, ...]

    @field_validator("jobs")
    @classmethod
    def _ids_differ(cls, jobs: tuple[PlainJob, ...]) -> tuple[PlainJob, ...]:
        twice = next((name for name, count in Counter(job.id for job in jobs).items() if count > 1), None)
        if twice is not None:
            raise ValueError(f"two jobs have the id {brief.repr(twice)}; give each its own")
        return jobs


class PlainSnapshots:
    """States and allocations of a plain log, in order."""

    def __init__(self, path: Path, slot_seconds: float) -> None:
        self._path = path
        self._slot_seconds = slot_seconds

    def __iter__(self) -> Iterator[tuple[ClusterState, dict[str, Allocation]]]:
        """Raises BadInput for the first line that cannot be used; a last one that is cut short is passed over."""
        memory = _Memory()
        with self._path.open("rb") as stream:
            for number, raw in numbered_lines(stream, self._path):
                if not raw.strip():
                    continue
                where = f"{self._path}, line {number}"
                try:
                    line = PlainLine.model_validate(parse_json(raw))
                except ValidationError as error:
                    raise BadInput(f"{where}: {plain_line(first_problems(error, PlainLine, _IN_JSON))}") from error
                except ValueError as error:
                    if not raw.endswith(b"\n"):
                        return
                    raise BadInput(f"{where}: no JSON ({error})") from error
                yield memory.next(line, where, self._slot_seconds)


class _Memory:
    """What a line leaves out because lines before it have said it."""

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] = ()
        self._time_seconds: float | None = None
        self._jobs: dict[str, Job] = {}
        self._held: dict[str, Allocation] = {}

    def next(self, line: PlainLine, where: str, slot_seconds: float) -> tuple[ClusterState, dict[str, Allocation]]:
        if line.nodes:
            self._nodes = tuple(
                Node(f"{group}-{index}", Resources(round(nodes.cpus * _MILLI), nodes.gpus))
                for group, nodes in enumerate(line.nodes)
                for index in range(nodes.count)
            )
        if not self._nodes:
            raise BadInput(f"{where}: nodes: the first line must name the machines")
        if self._time_seconds is not None and line.time_s < self._time_seconds:
            raise BadInput(f"{where}: time_s: {line.time_s:g} lies before the line above ({self._time_seconds:g})")
        elapsed = 0.0 if self._time_seconds is None else line.time_s - self._time_seconds
        jobs = [self._job(entry, line.time_s, elapsed, where) for entry in line.jobs]
        jobs.sort(key=lambda job: job.submit_time_seconds)
        self._time_seconds = line.time_s
        self._jobs = {job.job_id: job for job in jobs}
        self._held = {entry.id: Allocation(entry.workers, entry.ps or 0) for entry in line.jobs}
        # The existing scheduler may place otherwise than we would: only the sums are known to fit.
        state = ClusterState(line.time_s, self._nodes, tuple(jobs), slot_seconds, CapacityMode.POOLED)
        return state, {job_id: held for job_id, held in self._held.items() if held != SUSPENDED}

    def _job(self, entry: PlainJob, now: float, elapsed: float, where: str) -> Job:
        before = self._jobs.get(entry.id)
        kind = entry.kind or (before.kind if before is not None else _kind_of(entry))
        if kind is JobKind.ALLREDUCE and entry.ps:
            raise BadInput(f"{where}: job {entry.id}: an allreduce job has no parameter servers, not {entry.ps}")
        if entry.max_workers is not None and entry.max_workers > kind.most_workers:
            raise BadInput(
                f"{where}: job {entry.id}: max_workers is {entry.max_workers}: with parameter servers use at most"
                f" {kind.most_workers}"
            )
        held = self._held.get(entry.id, SUSPENDED)
        asked_workers = _first(
            entry.requested_workers, before.requested.workers if before is not None else None, entry.workers or 1
        )
        known = entry.remaining is not None
        remaining = entry.remaining if entry.remaining is not None else (entry.done or 0.0)
        total = entry.total or max(remaining, before.total_epochs if before is not None else 0.0) or 1.0
        return Job(
            job_id=entry.id,
            job_type=entry.type,
            submit_time_seconds=_first(entry.submit_s, before.submit_time_seconds if before is not None else None, now),
            worker_demand=entry.worker.resources,
            ps_demand=entry.server.resources,
            samples_per_epoch=1.0,
            total_epochs=total if known else 2 * remaining,
            remaining_epochs=remaining,
            requested=Allocation(
                asked_workers,
                _first(
                    entry.requested_ps,
                    before.requested.ps if before is not None else None,
                    entry.ps or int(kind.uses_ps),
                ),
            ),
            max_workers=max(
                entry.max_workers or kind.usual_max_workers(asked_workers), min(entry.workers, kind.most_workers)
            ),
            max_ps=entry.max_ps if kind.uses_ps else 0,
            run_seconds=(before.run_seconds if before is not None else 0.0) + (elapsed if held.workers else 0.0),
            current=held,
            kind=kind,
            min_ps=int(kind.uses_ps),
            work_known=known,
        )


def _kind_of(entry: PlainJob) -> JobKind:
    """A job of which parameter servers are told has some; any other trains without."""
    return JobKind.ALLREDUCE if entry.ps is None else JobKind.PS


def _first(*values: Any) -> Any:
    """The first that is told."""
    return next(value for value in values if value is not None)
