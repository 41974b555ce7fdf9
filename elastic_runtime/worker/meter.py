"""What a worker tells the coordinator of its progress: samples, loss, speed, traffic; not too often."""

from __future__ import annotations

from elastic_runtime.member.outbox import traffic_bytes
from elastic_runtime.worker.membership import Membership

_REPORT_SECONDS = 0.25
"""Between two reports of progress; votes and news go at once."""
_NEWEST_COUNTS = 0.1
"""The share of the newest step in the average step time."""


class Meter:
    """One worker's progress.

    Args:
        member: this worker.
    """

    def __init__(self, member: Membership) -> None:
        self._member = member
        self._clock = member.clock
        self._loss: float | None = None
        self._samples = 0
        self._step_seconds = 0.0
        self._reported_seconds = self._began_seconds = member.clock()

    def computed(self, loss: float, samples: int) -> None:
        """A batch was computed."""
        self._loss = loss
        self._samples += samples

    def begin(self) -> None:
        """The time of a step counts from now."""
        self._began_seconds = self._clock()

    def stepped(self) -> None:
        """A step ends here, and the next one begins."""
        now = self._clock()
        seconds, self._began_seconds = now - self._began_seconds, now
        newest = _NEWEST_COUNTS * (seconds - self._step_seconds)
        self._step_seconds += newest if self._step_seconds else seconds

    def per_second(self, samples_per_step: float) -> float:
        """Samples a second, if a step has so many; 0 before the first step has ended."""
        return samples_per_step / self._step_seconds if self._step_seconds else 0.0

    @property
    def due(self) -> bool:
        """Whether the last report is so old that progress is to be told anew."""
        return self._clock() - self._reported_seconds >= _REPORT_SECONDS

    def report(self, **progress: float) -> None:
        """Tell how far this worker is; the arguments are further fields of `MemberReport`."""
        self._reported_seconds = self._clock()
        sent, received = traffic_bytes(self._member.endpoint)
        self._member.link.report(
            loss=self._loss,
            samples=self._samples,
            step_seconds=self._step_seconds,
            bytes_sent=sent,
            bytes_received=received,
            **progress,
        )
