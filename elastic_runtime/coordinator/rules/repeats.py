"""Failures that repeat: tasks that end alike at the same step would do so however often they are started again.

A script that raises is started again a few times, as some failures pass. It is not where every worker of the job has
raised the same at the same step and none is left, or the only one has twice. What kills processes may be the machine's
doing: each worker may be killed at one step as often as a script may fail. All of it is forgotten with the coordinator,
and counted anew.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.protocol.plan import TaskRole
from foundation.text import describe_end

_NUMBER = re.compile(r"\d+")
_LEAST_ALIKE = 2
"""One failure is no repetition."""


@dataclass
class Repeats:
    """What ended last, at which step, and how many tasks have ended so one after the other.

    Attributes:
        last: the newest end in words, for a line about all of them.
    """

    what: str = ""
    step: int = -1
    count: int = 0
    last: str = ""

    def add(self, job: CoordinatedJob, name: str, words: str, step: int, hint: str = "") -> None:
        """A worker ended; `words` say how, `hint` why. Numbers in them, such as the size of a slice, may differ."""
        what = _NUMBER.sub("#", words.replace(name, ""))
        self.count = self.count + 1 if (what, step) == (self.what, self.step) else 1
        self.what, self.step = what, step
        self.last = f"{name} {words} {at_step(job, step)}{hint}"


def newest_step(job: CoordinatedJob, name: str) -> int:
    """The step that a worker was at, or that others say that the job is at: a task that is killed says nothing."""
    steps = [job.report(task.name).step for task in job.tasks()]
    return max([job.report(name).step, job.state.generation.start_step, *steps])


def at_step(job: CoordinatedJob, step: int) -> str:
    """Where in the job that is, in words."""
    total = job.total_steps()
    return f"at step {step}" + (f" of {total}" if total else "")


def note_failure(job: CoordinatedJob, name: str, line: str, step: int) -> None:
    """A worker failed, by its script's fault as far as is known."""
    job.own(Repeats).add(job, name, f"failed ({line})", step)


def note_death(job: CoordinatedJob, name: str, exit_code: int, step: int) -> None:
    """A worker was killed; of a process that is killed without a word the kernel is the usual killer."""
    hint = ", most likely as memory ran out" if -exit_code == signal.SIGKILL else ""
    job.own(Repeats).add(job, name, describe_end(exit_code), step, hint)


def repeated_failure(job: CoordinatedJob) -> str:
    """Why it is in vain to start workers again whose script failed; empty if it may help."""
    repeats, workers = job.own(Repeats), job.state.course.target.workers
    if repeats.count < max(_LEAST_ALIKE, workers) or job.live(TaskRole.WORKER):
        return ""
    who = f"all {workers} workers" if workers > 1 else f"{repeats.count} tries"
    return f" ({who} failed alike {at_step(job, repeats.step)})"


def repeated_death(job: CoordinatedJob) -> str:
    """Why it is in vain to start workers again that are killed; empty if it may help."""
    repeats = job.own(Repeats)
    allowed = job.settings.restarts * max(1, job.state.course.target.workers)
    if repeats.count < max(_LEAST_ALIKE, allowed + 1):
        return ""
    return f"{repeats.last}; {repeats.count} workers ended so at that step"
