"""Decisions that any scheduler logged: the state, what every job was given, and how fast jobs trained.

Two formats, told apart by their first line: the agent's own decision log, and the plain log, JSON lines that an
operator can write from any scheduler. What jobs did between two decisions is the log's own report where it has one;
otherwise it follows from the work that was left at one and at the next.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
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
    Progress,
    Resources,
    SpeedModel,
)
from policy_net.errors import BadInput
from policy_net.exchange.state_codec import (
    CHECKPOINT_START,
    DECISION_START,
    JsonObject,
    decode_decision,
    decode_progress,
    decode_state,
    numbered_lines,
    read_lines,
)
from policy_net.settings_problems import FileWords, first_problems
from policy_net.strict_yaml import brief
from policy_net.throughput.parametric import OnlineFit

LARGEST_WORK = 1e18
"""Samples of a job: a billion a second for thirty years."""
LATEST_SECONDS = 1e12
"""Thirty thousand years either way."""
_MILLI = 1000
_IN_JSON = FileWords("field", json=True)
_OPEN_FILE = "decisions.jsonl"
_CLOSED = re.compile(r"^decisions-(\d{6,})\.jsonl$")
_SLOT_SECONDS = 600.0
"""Of plain logs, which do not say it; no speed depends on it."""


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """One decision, with what jobs did (`observed`) since the decision before."""

    state: ClusterState
    allocation: dict[str, Allocation]
    observed: tuple[Progress, ...]

    def of(self, job_id: str) -> Allocation:
        """What a job was given; 0/0 if it is not named."""
        return self.allocation.get(job_id, SUSPENDED)


class DecisionFile:
    """The decisions of one file, in order; can be gone through again and again, one decision in memory at a time."""

    def __init__(self, path: Path, slot_seconds: float) -> None:
        """`slot_seconds` is the unit of time features, for files that do not say it.

        Raises:
            BadInput: the file cannot be read, or is neither format.
        """
        self._path = path
        self._slot_seconds = slot_seconds
        try:
            with path.open("rb") as stream:
                _, first = next(numbered_lines(stream, path), (1, b""))
        except OSError as error:
            raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
        self._is_agents = first.startswith((CHECKPOINT_START.encode(), DECISION_START.encode()))
        if not self._is_agents:
            try:
                parse_json(first)
            except ValueError as error:
                raise BadInput(
                    f"{path}, line 1: no JSON; use a decision log, or lines as the guide shows them"
                ) from error

    def __iter__(self) -> Iterator[LoggedDecision]:
        """All decisions; raises BadInput for the first line that cannot be used."""
        before: LoggedDecision | None = None
        found = self._agents() if self._is_agents else _plain_decisions(self._path, self._slot_seconds)
        for state, allocation, reported in found:
            worked_out = () if before is None else tuple(_trained(before, state))
            before = LoggedDecision(state, allocation, worked_out if reported is None else reported)
            yield before

    def _agents(self) -> Iterator[_Entry]:
        waiting: JsonObject | None = None
        for line in read_lines(self._path):
            if line.content is None or line.is_checkpoint:
                continue
            # Of two lines of one number, before and after the agent was killed, the later one counts.
            if waiting is not None and waiting["number"] != line.content["number"]:
                yield self._entry(waiting)
            waiting = line.content
        if waiting is not None:
            yield self._entry(waiting)

    def _entry(self, content: JsonObject) -> _Entry:
        try:
            observed = tuple(decode_progress(row) for row in content["observed"])
            # Agents before this one wrote it down only where a policy learned from it.
            reported = observed if observed or content["observed_by"] else None
            return decode_state(content["state"]), dict(decode_decision(content).allocation), reported
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{self._path}: decision {content.get('number')} cannot be read ({error!r})") from error


_Entry = tuple[ClusterState, dict[str, Allocation], tuple[Progress, ...] | None]


def _trained(before: LoggedDecision, state: ClusterState) -> Iterator[Progress]:
    """What jobs did from one decision to the next, by the work that was left; those that ended say nothing."""
    seconds = state.time_seconds - before.state.time_seconds
    if seconds <= 0.0:
        return  # another trace began
    earlier = {job.job_id: job for job in before.state.jobs}
    for job in state.jobs:
        old = earlier.get(job.job_id)
        granted = before.of(job.job_id)
        if old is None or granted == SUSPENDED or not _is_same(old, job):
            continue
        left, now_left = old.remaining_epochs, job.remaining_epochs
        # Of unknown work, what is believed to be left is as much as was done.
        epochs = left - now_left if job.work_known else now_left - left
        if epochs >= 0.0:
            yield Progress(job.job_id, job.job_type, granted, seconds, epochs * job.samples_per_epoch, epochs, left)


def _is_same(old: Job, job: Job) -> bool:
    """Whether two jobs of one name are one job; names may come again in another trace."""
    return (old.job_type, old.submit_time_seconds, old.work_known) == (
        job.job_type, job.submit_time_seconds, job.work_known
    )  # fmt: skip


def logged_decisions(path: Path) -> Iterator[LoggedDecision]:
    """All decisions of a log, or of a state directory's logs, in order.

    Raises:
        BadInput: there is none, or a line cannot be used.
    """
    found = False
    for file in _files(path):
        for decision in DecisionFile(file, _SLOT_SECONDS):
            found = True
            yield decision
    if not found:
        raise BadInput(f"{path}: holds no decision; name an agent's state directory, or a decision log of it")


def speeds_of_decisions(path: Path) -> SpeedModel:
    """The speeds that a log shows.

    Raises:
        BadInput: as `logged_decisions`.
    """
    fit = OnlineFit()
    for decision in logged_decisions(path):
        fit.observe(decision.observed)
        fit.introduce(decision.state.jobs)
    return fit


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    closed = sorted(file for file in path.iterdir() if _CLOSED.match(file.name))
    return closed + [file for file in (path / _OPEN_FILE,) if file.exists()]


# The plain log: an object a decision, of nodes, jobs, and what each got. Every field but a job's id and type, the time,
# and the nodes of the first line may be left out; the guide has the table.


class _PlainEntry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Demand(_PlainEntry):
    """What one task needs."""

    cpus: float = Field(2.0, ge=0.0, le=1e6)
    gpus: int = Field(0, ge=0, le=10_000)

    @property
    def resources(self) -> Resources:
        """As resources."""
        return Resources(round(self.cpus * _MILLI), self.gpus)


class PlainNodes(_PlainEntry):
    """Machines that are alike."""

    count: int = Field(1, ge=1, le=100_000)
    cpus: float = Field(gt=0.0, le=1e6)
    gpus: int = Field(0, ge=0, le=10_000)


class PlainJob(_PlainEntry):
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


class PlainLine(_PlainEntry):
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


def _plain_decisions(path: Path, slot_seconds: float) -> Iterator[_Entry]:
    """All decisions of a plain log; a last line that is cut short is left out.

    Raises:
        BadInput: another line cannot be used.
    """
    memory = _PlainMemory()
    with path.open("rb") as stream:
        for number, raw in numbered_lines(stream, path):
            if not raw.strip():
                continue
            where = f"{path}, line {number}"
            try:
                line = PlainLine.model_validate(parse_json(raw))
            except ValidationError as error:
                raise BadInput(f"{where}: {plain_line(first_problems(error, PlainLine, _IN_JSON))}") from error
            except ValueError as error:
                if not raw.endswith(b"\n"):
                    return
                raise BadInput(f"{where}: no JSON ({error})") from error
            yield *memory.next(line, where, slot_seconds), None


class _PlainMemory:
    """What a line leaves out because lines before it have said it."""

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] = ()
        self._time_seconds: float | None = None
        self._jobs: dict[str, Job] = {}
        self._granted: dict[str, Allocation] = {}

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
        self._granted = {entry.id: Allocation(entry.workers, entry.ps or 0) for entry in line.jobs}
        # The existing scheduler may place otherwise than we would: only the sums are known to fit.
        state = ClusterState(line.time_s, self._nodes, tuple(jobs), slot_seconds, CapacityMode.POOLED)
        return state, {job_id: granted for job_id, granted in self._granted.items() if granted != SUSPENDED}

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
        granted = self._granted.get(entry.id, SUSPENDED)
        requested_workers = _first(
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
                requested_workers,
                _first(
                    entry.requested_ps,
                    before.requested.ps if before is not None else None,
                    entry.ps or int(kind.uses_ps),
                ),
            ),
            max_workers=max(
                entry.max_workers or kind.usual_max_workers(requested_workers), min(entry.workers, kind.most_workers)
            ),
            max_ps=entry.max_ps if kind.uses_ps else 0,
            run_seconds=(before.run_seconds if before is not None else 0.0) + (elapsed if granted.workers else 0.0),
            current=granted,
            kind=kind,
            min_ps=int(kind.uses_ps),
            work_known=known,
        )


def _kind_of(entry: PlainJob) -> JobKind:
    """A job of which parameter servers are told has some; any other trains without."""
    return JobKind.ALLREDUCE if entry.ps is None else JobKind.PS


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)
