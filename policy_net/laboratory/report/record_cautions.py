"""Cautions where today's queue, simulated, has other waits and completion times than were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foundation.figures import duration, percent, unit_for
from policy_net.laboratory.report.comparison import NOTICEABLE_SECONDS, Comparison
from policy_net.laboratory.report.policies import label

FAR = 0.25
"""A simulation that is further from the record is to be believed less."""
WAITS_APART = 3.0
"""Waits are far apart when one is so many times the other, and they differ noticeably."""
_MORE_THAN_RECORDED = (
    "machines are missing here, your queue lets more jobs pass, or jobs did not have the sizes that they asked for"
)
_LESS_THAN_RECORDED = "other work ran there besides, there are more machines here, or other rules held jobs back"
_NOT_BY_WAITS = "not by their waits, but because they run at other sizes than they had there, or are stopped amid it"
_MORE_ON_FEWER_GPUS = "besides, your queue may let more jobs pass, or jobs did not have the sizes that they asked for"
_LESS_ON_FEWER_GPUS = "other work ran there besides, or other rules held jobs back"


@dataclass(frozen=True, slots=True)
class _Gap:
    """Distance of today's queue, simulated, from the record.

    Attributes:
        today: the policy's name.
        wait_seconds, really_seconds: average wait for the first start, simulated and recorded; both or neither.
        share: simulated completion time over the recorded one, less 1; None where it is not recorded.
        recorded: completion time, in words.
    """

    today: str
    wait_seconds: float | None
    really_seconds: float | None
    share: float | None
    recorded: str

    @property
    def apart_seconds(self) -> float:
        """Simulated wait less the recorded one; 0 where it is not known."""
        if self.wait_seconds is None or self.really_seconds is None:
            return 0.0
        return self.wait_seconds - self.really_seconds

    @property
    def waits_apart(self) -> bool:
        """Whether the waits are far apart."""
        if self.wait_seconds is None or self.really_seconds is None:
            return False
        shorter, longer = sorted((self.wait_seconds, self.really_seconds))
        return longer > WAITS_APART * shorter and longer - shorter > NOTICEABLE_SECONDS

    @property
    def far(self) -> str:
        """Difference of the completion times in words, if it is far; else empty."""
        if self.share is None or abs(self.share) <= FAR:
            return ""
        return f"{percent(abs(self.share))} {'less' if self.share < 0 else 'more'} time than was recorded"

    @property
    def by_waits(self) -> bool:
        """Whether the waits differ in the same direction, and may explain the completion times."""
        if self.wait_seconds is None or self.share is None:
            return True
        return self.apart_seconds * self.share > 0 and abs(self.apart_seconds) > NOTICEABLE_SECONDS

    @property
    def against_the_record(self) -> str:
        """A sentence on what simulated waits mean for the answer."""
        beside = f"; beside your record the saving is {'larger' if self.share < 0 else 'smaller'}" if self.share else ""
        return f"The answer compares with the simulated waits{beside}."

    def waits(self, between: str) -> str:
        """Both waits in one unit, with words between the simulated and the recorded one; empty where not known."""
        if self.wait_seconds is None or self.really_seconds is None:
            return ""
        unit = unit_for(self.wait_seconds, self.really_seconds)
        return f"{unit.text(self.wait_seconds)} on average{between} {unit.text(self.really_seconds)}"


def unlike_the_record(comparison: Comparison) -> Iterator[str]:
    """Cautions of a sentence or more; where machines of the record are missing, one for all of it."""
    recorded = comparison.recorded
    if recorded is None:
        return
    wait, _ = comparison.simulated_like_recorded(comparison.today)
    really = recorded.avg_wait_seconds
    known = wait is not None and really is not None
    gap = _Gap(
        label(comparison.today.policy),
        wait if known else None,
        really if known else None,
        comparison.change_against_record(comparison.today),
        duration(recorded.avg_jct_seconds or 0.0),
    )
    if comparison.gpus and comparison.recorded_peak_gpus > comparison.gpus:
        yield _on_fewer_gpus(gap, comparison.recorded_peak_gpus, comparison.gpus)
        return
    if gap.far and gap.share is not None:
        why = _LESS_THAN_RECORDED if gap.share < 0 else _MORE_THAN_RECORDED
        yield (
            f"Simulated under {gap.today}, the jobs are done in {gap.far} ({gap.recorded}):"
            f" {why if gap.by_waits else _NOT_BY_WAITS}. Believe the change less than that difference, and look for"
            " what is missing."
        )
    if gap.waits_apart:
        why = _LESS_THAN_RECORDED if gap.apart_seconds < 0 else _MORE_THAN_RECORDED
        waits = gap.waits(" for their first start; really they waited")
        yield f"Simulated under {gap.today}, jobs wait {waits}: {why}. {gap.against_the_record}"


def _on_fewer_gpus(gap: _Gap, peak_gpus: int, gpus: int) -> str:
    """Caution where there are fewer GPUs than were in use at once, by the recorded waits."""
    sentences = [
        f"At its busiest the log has {peak_gpus:,} GPUs in use at once, and there are {gpus:,} here: {_verdict(gap)}"
    ]
    by_waits = _LESS_ON_FEWER_GPUS if gap.apart_seconds < 0 else _MORE_ON_FEWER_GPUS
    causes = []
    if gap.far:
        sentences.append(f"The jobs are done in {gap.far} ({gap.recorded}).")
        causes.append(by_waits if gap.by_waits else _NOT_BY_WAITS)
    if gap.waits_apart:
        causes.append(by_waits)
    sentences += [f"{cause[0].upper()}{cause[1:]}." for cause in dict.fromkeys(causes)]
    if gap.waits_apart:
        sentences.append(gap.against_the_record)
    believe = "Believe the change less than that difference, and give" if gap.far else "Give"
    return " ".join([*sentences, f"{believe} the machines that ran these jobs."])


def _verdict(gap: _Gap) -> str:
    waits = gap.waits(" for their first start, really")
    if not waits:
        return "machines are missing, and what jobs wait for them here they did not wait there."
    beside = f"(simulated under {gap.today} {waits})"
    if gap.apart_seconds > NOTICEABLE_SECONDS:
        return f"machines are missing, and jobs wait longer here than they did {beside}, so there is more to save."
    return f"these are not the machines of the log, though jobs do not wait longer here than they did {beside}."
