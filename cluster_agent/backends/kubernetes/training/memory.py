"""Knowledge of a TrainingJob beside its pods: what its coordinator said, and what is remembered between two looks."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from elastic_runtime.control.messages import JobStatus, Size

AGAIN_SECONDS = 60.0
"""A size that a coordinator has given up is asked for again after this."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 10.0, 600.0
_MOST_DOUBLINGS = 10
_MOST = 1e15
"""Of samples and epochs: beyond anything that is trained, and still a whole number to every reader."""
_MOST_SIZE = 250
_FALSE_FROM = 1.01
"""An epoch has no whole number of batches: so much more than there are is no lie."""
_WARNED_AGAIN_SECONDS = 600.0
_GONE_SECONDS = 60.0
"""Longer than anything counts that a coordinator has said."""


@dataclass(frozen=True, slots=True)
class CoordinatorReport:
    """What a job's coordinator said last.

    Attributes:
        at_seconds: when it was asked: what has happened since it may not know.
        went_back: it counts less than it said can never be undone.
    """

    status: JobStatus
    at_seconds: float
    went_back: bool = False

    @property
    def falsehood(self) -> str:
        """What cannot be of what it counts, in a line; empty where all may be."""
        status = self.status
        counted = (status.samples, status.epoch, status.total_epochs, status.samples_per_second)
        sizes = (status.size.workers, status.size.servers, status.target.workers, status.target.servers)
        if all(0 <= each <= _MOST for each in counted) and all(0 <= each <= _MOST_SIZE for each in sizes):  # nor NaN
            return ""
        return (
            f"its coordinator counts {status.samples} samples, {status.epoch} of {status.total_epochs} epochs, "
            f"{status.samples_per_second} samples/s, {status.size}: not believed"
        )

    @property
    def doubt(self) -> str:
        """What is wrong with what it counts, in words that stay the same; empty where nothing is."""
        if self.falsehood:
            return "its coordinator counts what cannot be: nothing of it is believed"
        if self.status.epoch > _FALSE_FROM * self.status.total_epochs > 0.0:
            return "its coordinator counts more epochs than there are: how far it is, nobody knows"
        return "its coordinator counts less than it had counted for good" if self.went_back else ""


def goes_back(status: JobStatus, most: JobStatus) -> bool:
    """Whether a coordinator's count contradicts an earlier one (`most`) of the same coordinator.

    It may go back where it says so, to a checkpoint, and a worker that has come may be behind the others: never behind
    what was durable.
    """
    if status.generation != most.generation:
        return False
    counted = status.mode == "synchronous" and status.samples < most.samples and status.step >= most.step
    return counted or min(status.step, status.durable_step) < most.durable_step


@dataclass(slots=True)
class JobMemory:
    """What is remembered of a job between two polls; forgetting it costs waits only. Monotonic seconds.

    Attributes:
        reported: uids of pods whose ends the coordinator knows.
        seen: tasks whose pods were there at the last poll, or were made since.
        gone_at: when the pods of others were first missed.
        gang_since: since when pods are missing without which it cannot train.
        silent_since: since when its coordinator runs, and does not answer.
        trouble: why it was not heard of, in a line.
        refused: why its first pods did not come.
        forbidden: why the namespace takes no pod like one of its, in a line; holds until the next try.
        counted: uid of the coordinator's pod whose end was counted.
        given_up: id of the request that was given up last, and why.
        target: the size that its coordinator went for when it was last heard of; None before.
        asked: a size that it was asked for since, and when.
        warned_at: when each trouble was reported.
        may_go: it was deleted, and nothing holds it any more.
        too_large: why no node would have capacity for it, in a line, and when that was found.
    """

    reported: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    gone_at: dict[str, float] = field(default_factory=dict)
    ended_since: dict[str, float] = field(default_factory=dict)
    unneeded_since: dict[str, float] = field(default_factory=dict)
    gang_since: float | None = None
    silent_since: float | None = None
    trouble: str = ""
    failed_gangs: int = 0
    not_before_seconds: float = -math.inf
    refused: str = ""
    forbidden: str = ""
    counted: str = ""
    given_up: tuple[str, str] = ("", "")
    asked_again_at: float = -math.inf
    made_again_at: float = -math.inf
    target: Size | None = None
    asked: tuple[Size, float] = (Size(0, 0), -math.inf)
    warned_at: dict[str, float] = field(default_factory=dict)
    may_go: bool = False
    too_large: tuple[str, float] = ("", -math.inf)

    def keep(self, tasks: Collection[str], uids: Collection[str], now: float) -> None:
        """Forget all but these pods, which are there now: a job that runs for months has had many."""
        gone = {task: at for task, at in self.gone_at.items() if task not in tasks and now - at < _GONE_SECONDS}
        self.gone_at = {**gone, **dict.fromkeys(self.seen.difference(tasks), now)}
        self.seen = set(tasks)
        self.reported.intersection_update(uids)
        self.ended_since = {uid: since for uid, since in self.ended_since.items() if uid in uids}
        self.unneeded_since = {task: since for task, since in self.unneeded_since.items() if task in tasks}

    def on_gap(self, now: float) -> None:
        """Give whoever kept it waiting the whole time again: nobody looked for a while."""
        self.gang_since = None if self.gang_since is None else now
        self.silent_since = None if self.silent_since is None else now
        self.ended_since = dict.fromkeys(self.ended_since, now)
        self.unneeded_since = dict.fromkeys(self.unneeded_since, now)

    def is_said_before(self, job_report: CoordinatorReport, task: str) -> bool:
        """Whether a coordinator spoke before a task's pod was gone: it may want the pod that it had, and no other."""
        return job_report.at_seconds <= self.gone_at.get(task, -math.inf)

    def warns(self, trouble: str, now: float) -> bool:
        """Whether to report a trouble: not again at every poll."""
        self.warned_at = {each: at for each, at in self.warned_at.items() if now - at < _WARNED_AGAIN_SECONDS}
        if trouble in self.warned_at:
            return False
        self.warned_at[trouble] = now
        return True

    def on_gang_failed(self, why: str, now: float) -> None:
        """The first pods did not come: another try later, each time more so; long after what would be refused again."""
        pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(self.failed_gangs, _MOST_DOUBLINGS), _LONGEST_PAUSE_SECONDS)
        self.failed_gangs += 1
        pause = _LONGEST_PAUSE_SECONDS if self.forbidden else pause
        self.not_before_seconds, self.gang_since, self.refused = now + pause, None, why

    def on_trains(self) -> None:
        """All that it needs is there."""
        self.gang_since, self.failed_gangs, self.refused, self.not_before_seconds = None, 0, "", -math.inf

    def on_pod_refused(self, now: float) -> None:
        """A pod of a job that runs could not be made: not again at every look."""
        self.made_again_at = now + (_LONGEST_PAUSE_SECONDS if self.forbidden else _FIRST_PAUSE_SECONDS)

    def forbids(self, now: float) -> str:
        """Why the namespace takes no pod like one of its; empty where it does, or where that is to be tried again."""
        return self.forbidden if now < max(self.not_before_seconds, self.made_again_at) else ""

    def on_asked(self, request_id: str, given_up: str, now: float) -> None:
        """A coordinator took a request, or gave it up for a reason."""
        if given_up:
            self.given_up, self.asked_again_at = (request_id, given_up), now + AGAIN_SECONDS
            self.asked = Size(0, 0), now
