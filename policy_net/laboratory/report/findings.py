"""Findings of a report, in sentences: the headline and what a reader would ask next, good or bad."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foundation.figures import counted, duration, hours, percent, shown, unit_for
from policy_net.laboratory.report.comparison import TODAY, Comparison, PairedJobs, best_of, gpu_use
from policy_net.laboratory.report.policies import label
from policy_net.laboratory.simulation.replay import ReplayResult
from policy_net.policy import DEFAULT_POLICY

SAME = 0.01
"""Averages closer than this are called the same: another draw of the models would move them further."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of the report, and the words that stand in front of it."""

    topic: str
    text: str


def headline(comparison: Comparison) -> str:
    """The answer in one sentence."""
    count = len(comparison.workload.jobs)
    if comparison.workload.slotted:  # generated or published: nobody's own
        jobs = "This job" if count == 1 else f"These {count:,} jobs"
    else:
        jobs = "Your job" if count == 1 else f"Your {count:,} jobs"
    gpus = counted(comparison.gpus, "GPU") if comparison.gpus else counted(comparison.environment.nodes, "machine")
    after = comparison.avg_jct_seconds(comparison.proposed)
    if not comparison.compares:
        return f"{jobs} would have been done in {duration(after)} on average, on {gpus}."
    before = comparison.avg_jct_seconds(comparison.today)
    if abs(after / before - 1) < SAME:
        these = "this" if gpus.startswith("1 ") else "these"
        return f"{jobs} would have been done in {duration(after)} on average either way: no gain on {these} {gpus}."
    unit = unit_for(before, after)
    return (
        f"{jobs} would have been done in {unit.text(after)} instead of {unit.text(before)} on average:"
        f" {change(after, before)}, on the same {gpus}."
    )


def subline(comparison: Comparison) -> str:
    """What was compared with what."""
    proposed, today = label(comparison.proposed.policy), label(comparison.today.policy)
    if not comparison.compares:
        return f"From submission to end, waiting included, under {proposed}; simulated."
    default = ", the default policy," if comparison.proposed.policy == DEFAULT_POLICY else ""
    what = " (first come, first served, at the requested size)" if comparison.today.policy == TODAY else ""
    return (
        f"From submission to end, waiting included: {proposed}{default} against {today}{what}. Both are simulated with"
        " the same jobs and machines."
    )


def change(after: float, before: float) -> str:
    """A change in words: 74% less, 3% more, the same."""
    share = after / before - 1
    if abs(share) < SAME:
        return "the same"
    return f"{percent(abs(share))} {'less' if share < 0 else 'more'}"


def findings(comparison: Comparison) -> tuple[Finding, ...]:
    """What a reader would ask next; empty if there is nothing to compare."""
    return tuple(_findings(comparison)) if comparison.compares else ()


def _findings(comparison: Comparison) -> Iterator[Finding]:
    every = comparison.all_jobs
    yield Finding("Time", _time_in_all(every))
    yield Finding("Who gains, who loses", _gains_and_losses(every, label(comparison.today.policy)))
    yield from _losing_classes(comparison)
    tail = comparison.without_tail
    if tail is not None:
        unit = unit_for(tail.before_seconds, tail.after_seconds)
        left_out = len(every.pairs) - len(tail.pairs)
        longest = "the job that takes longest" if left_out == 1 else f"the {left_out:,} jobs that take longest"
        yield Finding(
            "Not only the longest jobs",
            f"Without {longest} under either policy (1% of each), the average is {unit.text(tail.after_seconds)}"
            f" instead of {unit.text(tail.before_seconds)}: {change(tail.after_seconds, tail.before_seconds)}.",
        )
    yield Finding("Starved jobs", _starved(comparison))
    if comparison.today.counters.gpu_seconds:
        yield Finding("GPU time", _gpu_time(comparison))
    yield from _best(comparison)


def _time_in_all(every: PairedJobs) -> str:
    total = sum(pair.delay_seconds for pair in every.pairs)
    word = "less" if total < 0 else "more"
    return f"Together the jobs spend {hours(abs(total))} job-hours {word} between submission and end."


def _gains_and_losses(every: PairedJobs, today: str) -> str:
    text = (
        f"{percent(every.earlier_share)} of the jobs are done earlier than under {today}, {percent(every.later_share)}"
        " later, by more than a minute."
    )
    worst = every.worst
    if not every.later_share:
        return text
    workers = counted(worst.job.workers, "GPU")
    alone = "" if worst.job.alone_seconds is None else f", {duration(worst.job.alone_seconds)} alone"
    unit = unit_for(worst.before_seconds, worst.after_seconds)
    return (
        f"{text} Job {shown(worst.job.job_id)} ({workers} requested{alone}) loses most: it is done after"
        f" {unit.text(worst.after_seconds)} instead of {unit.text(worst.before_seconds)}."
    )


def _losing_classes(comparison: Comparison) -> Iterator[Finding]:
    """Sizes of jobs of which more are done later than earlier."""
    losing = [group for group in comparison.size_classes if group.later_share > group.earlier_share]
    if losing and len(comparison.size_classes) > 1:
        parts = [
            f"of {counted(len(group.pairs), 'job')} that asked for {group.name}, {percent(group.later_share)} are done"
            f" later (their average: {change(group.after_seconds, group.before_seconds)})"
            for group in losing
        ]
        yield Finding("Sizes that lose", f"{'; '.join(parts)}.".replace("of", "Of", 1))


def _starved(comparison: Comparison) -> str:
    after, before = (
        sum(job.starved for job in result.job_results) for result in (comparison.proposed, comparison.today)
    )
    if not before and not after:
        return "Under neither does a job wait at a stretch for more than ten times its duration and more than an hour."
    return (
        f"{counted(after, 'job').capitalize()}, instead of {before:,} under {label(comparison.today.policy)}, had to"
        f" wait at a stretch for more than ten times {'its' if after <= 1 else 'their'} duration and more than an hour."
    )


def _gpu_time(comparison: Comparison) -> str:
    after, before = (result.counters.gpu_seconds for result in (comparison.proposed, comparison.today))
    return (
        f"The same work holds GPUs for {hours(after)} GPU-hours instead of {hours(before)} ({change(after, before)})."
        f"{_idle(comparison)}"
    )


def _idle(comparison: Comparison) -> str:
    after, before = (idle_gpu_seconds(comparison, result) for result in (comparison.proposed, comparison.today))
    if after is None or before is None:
        return ""
    return f" While jobs wait with nothing, {hours(after)} GPU-hours idle instead of {hours(before)}."


def _best(comparison: Comparison) -> Iterator[Finding]:
    """What else would have done better, if anything."""
    best = best_of(comparison, comparison.results)
    if comparison.avg_jct_seconds(best) < (1 - SAME) * comparison.avg_jct_seconds(comparison.proposed):
        yield Finding(
            "Better still",
            f"{label(best.policy)} would have been better here:"
            f" {duration(comparison.avg_jct_seconds(best))} on average.",
        )


def idle_gpu_seconds(comparison: Comparison, result: ReplayResult) -> float | None:
    """GPU-seconds that nobody held while at least one job waited with nothing; None where machines come and go."""
    if comparison.environment.changes_nodes:
        return None
    return gpu_use(comparison.workload, result).idle_while_waiting_gpu_seconds(comparison.gpus)
