"""What members said last, and when: all that a coordinator forgets at its own end, as they say it again."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_runtime.control.messages import MemberReport


@dataclass
class Heard:
    """One member, as it was heard last."""

    report: MemberReport
    seconds: float
    reported: bool = False
    streams: int = 0


class Reports:
    """The newest report of each live task."""

    def __init__(self) -> None:
        self._heard: dict[str, Heard] = {}

    def begin(self, task: str, incarnation: int, now: float) -> None:
        """A task registered, or the coordinator began with it: it has the whole time to report."""
        self._heard[task] = Heard(MemberReport(task, incarnation), now)

    def take(self, report: MemberReport, now: float) -> None:
        """A report came."""
        heard = self._heard[report.task]
        heard.report, heard.seconds, heard.reported = report, now, True

    def following(self, task: str, following: bool, now: float) -> None:
        """A task's stream of views was opened or closed."""
        heard = self._heard.get(task)
        if heard is not None:
            # A stream that broke may be noticed after the next one was opened.
            heard.streams = max(0, heard.streams + (1 if following else -1))
            if following:
                heard.seconds = now

    def forget(self, task: str) -> None:
        """The task is gone."""
        self._heard.pop(task, None)

    def silent_seconds(self, task: str, now: float) -> float:
        """Seconds since it was heard."""
        return now - self._heard[task].seconds

    def heard(self, task: str) -> Heard:
        """The newest of a live task."""
        return self._heard[task]

    def of(self, task: str) -> MemberReport:
        """The newest report; an empty one if there is none yet."""
        heard = self._heard.get(task)
        return heard.report if heard is not None else MemberReport(task, 0)
