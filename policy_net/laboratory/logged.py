"""Decisions that somebody logged, whoever it was: the state, what every job was given, and how fast jobs trained.

Two formats, told apart by their first line: the agent's own decision log, and plain JSON lines that an operator can
write from any scheduler (`plain_log.py`). What jobs did between two decisions is the log's own report where it has one;
otherwise it follows from the work that was left at one and at the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foundation.text import parse_json
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Job, Progress
from policy_net.errors import BadInput
from policy_net.exchange.log_lines import CHECKPOINT_START, DECISION_START, numbered_lines, read_lines
from policy_net.exchange.state_codec import JsonObject, decode_decision, decode_progress, decode_state
from policy_net.laboratory.plain_log import PlainSnapshots


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """One decision.

    Attributes:
        observed: what jobs did since the decision before.
    """

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
        for state, allocation, reported in self._agents() if self._is_agents else self._plain():
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

    def _plain(self) -> Iterator[_Entry]:
        for state, allocation in PlainSnapshots(self._path, self._slot_seconds):
            yield state, allocation, None


_Entry = tuple[ClusterState, dict[str, Allocation], tuple[Progress, ...] | None]


def _trained(before: LoggedDecision, state: ClusterState) -> Iterator[Progress]:
    """What jobs did from one decision to the next, by the work that was left; those that ended say nothing."""
    seconds = state.time_seconds - before.state.time_seconds
    if seconds <= 0.0:
        return  # another trace began
    earlier = {job.job_id: job for job in before.state.jobs}
    for job in state.jobs:
        old = earlier.get(job.job_id)
        held = before.of(job.job_id)
        if old is None or held == SUSPENDED or not _is_same(old, job):
            continue
        left, now_left = old.remaining_epochs, job.remaining_epochs
        # Of unknown work, what is believed to be left is as much as was done.
        epochs = left - now_left if job.work_known else now_left - left
        if epochs >= 0.0:
            yield Progress(job.job_id, job.job_type, held, seconds, epochs * job.samples_per_epoch, epochs, left)


def _is_same(old: Job, job: Job) -> bool:
    """Whether two jobs of one name are one job; names may come again in another trace."""
    return (old.job_type, old.submit_time_seconds, old.work_known) == (
        job.job_type, job.submit_time_seconds, job.work_known
    )  # fmt: skip
