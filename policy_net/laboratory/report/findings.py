"""Findings of a report, in sentences: what a reader would ask after the headline, good or bad."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foundation.figures import counted, duration, hours, percent, shown, unit_for
from policy_net.laboratory.report.comparison import Comparison, PairedJobs, best_of
from policy_net.laboratory.report.headline import SAME, case_in_words, change, interval
from policy_net.laboratory.report.owners import FIELDS, Owner, owners_by
from policy_net.laboratory.report.policies import label
from policy_net.laboratory.report.spread import ELASTIC, KIND, MODELS, STALLS
from policy_net.laboratory.simulation.replay import ReplayResult

MOST_NAMED = 3
"""Owners that wait longer, named in a sentence; the table has the others."""
YEAR_SECONDS = 8_760 * 3_600.0
LEAST_SECONDS_OF_A_YEAR = 86_400.0
"""Work of less than a day has no nights and weekends: it is no sample of a year."""
_ASSUMED = {
    KIND: "how the jobs train",
    MODELS: "the seed that draws their models",
    STALLS: "the stalls of a resize",
    ELASTIC: "the share of jobs that can be resized",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of the report, and its topic."""

    topic: str
    text: str


def findings(comparison: Comparison) -> tuple[Finding, ...]:
    """Findings, in the order in which a reader asks for them; empty if there is nothing to compare."""
    return tuple(_findings(comparison)) if comparison.compares else ()


def _findings(comparison: Comparison) -> Iterator[Finding]:
    every = comparison.all_jobs
    yield from certainty(comparison)
    yield from as_recorded(comparison)
    total = sum(pair.delay_seconds for pair in every.pairs)
    word = "less" if total < 0 else "more"
    together = f"Together the jobs spend {hours(abs(total))} job-hours {word} between submission and end."
    yield Finding("Time", together)
    yield Finding("Who gains, who loses", _gains_and_losses(every, label(comparison.today.policy)))
    yield from fairness(comparison)
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
        yield from money(comparison)
    yield from _best(comparison)


def certainty(comparison: Comparison) -> Iterator[Finding]:
    """The answer's range, and which assumption moves it most; nothing where no other was tried."""
    spread = comparison.spread
    if spread is None or len(spread.changes) < 2:
        return
    tried = f"{len(spread.changes):,} of {spread.planned:,} sets of assumptions were replayed"
    over = [_ASSUMED[name] for name in spread.assumptions.each]
    text = f"Over {_listed(over)} the answer is {interval(spread.least, spread.most)}; {tried}."
    moved = spread.moved_most_by
    if moved is not None:
        name, cases = moved
        parts = [f"{change(1 + value, 1)} {case_in_words(name, case)}" for case, value in cases]
        text += f" What moves it most by itself is {name}: {_listed(parts)}."
    if spread.failed:
        text += f" Some could not be replayed, the first because of this: {shown(spread.failed)}."
    yield Finding("How sure", text)


def as_recorded(comparison: Comparison) -> Iterator[Finding]:
    """Recorded waits and times with today's simulated ones; nothing where none is recorded."""
    recorded = comparison.recorded
    if recorded is None:
        return
    wait, jct = comparison.simulated_like_recorded(comparison.today)
    really, simulated = [], []
    if recorded.avg_wait_seconds is not None and wait is not None:
        unit = unit_for(recorded.avg_wait_seconds, wait)
        really.append(f"waited {unit.text(recorded.avg_wait_seconds)} on average")
        simulated.append(unit.text(wait))
    if recorded.avg_jct_seconds is not None and jct is not None:
        unit = unit_for(recorded.avg_jct_seconds, jct)
        really.append(f"were done after {unit.text(recorded.avg_jct_seconds)}")
        simulated.append(unit.text(jct))
    if not really:
        return
    most = max(recorded.wait_jobs, recorded.jct_jobs)
    jobs = "the jobs" if most == len(comparison.workload.jobs) else f"the {counted(most, 'job')} with a recorded start"
    today = label(comparison.today.policy)
    yield Finding(
        "As recorded", f"Really {jobs} {' and '.join(really)}; simulated under {today}: {' and '.join(simulated)}."
    )


def fairness(comparison: Comparison) -> Iterator[Finding]:
    """Owners who wait longer than under today's policy, simulated too, and than was recorded; by each of `FIELDS`."""
    for field in FIELDS:
        owners = owners_by(comparison, field)
        if owners:
            text = _who_waits_longer(owners, field, f"simulated under {label(comparison.today.policy)}")
            yield Finding(f"Fairness by {field}", text + _longer_than_recorded(owners))


def _who_waits_longer(owners: tuple[Owner, ...], field: str, today: str) -> str:
    longer = sorted(
        (owner for owner in owners if owner.waits_longer or owner.ends_later),
        key=lambda owner: owner.jobs.before_seconds - owner.jobs.after_seconds,
    )
    every = f"Of {counted(len(owners), field)}"
    if not longer:
        return f"{every} none waits longer, or is done later, on average than {today}."
    waiting = sum(owner.waits_longer for owner in longer)
    later = sum(owner.ends_later for owner in longer)
    parts = []
    for owner in longer[:MOST_NAMED]:
        wait = unit_for(owner.wait_seconds_before, owner.wait_seconds_after)
        end = unit_for(owner.jobs.before_seconds, owner.jobs.after_seconds)
        parts.append(
            f"{shown(owner.name)} ({counted(len(owner.jobs.pairs), 'job')}: starts after"
            f" {wait.text(owner.wait_seconds_after)} instead of {wait.text(owner.wait_seconds_before)}, done after"
            f" {end.text(owner.jobs.after_seconds)} instead of {end.text(owner.jobs.before_seconds)})"
        )
    first = "" if len(longer) <= MOST_NAMED else ", first of all"
    return (
        f"{every} {_some(waiting)} longer on average for the first start than {today}, and"
        f" {later or 'none'} {'is' if later <= 1 else 'are'} done later{first}: {_listed(parts)}."
    )


def _longer_than_recorded(owners: tuple[Owner, ...]) -> str:
    """A sentence on owners who wait longer than was recorded; empty where no wait is recorded."""
    known = [owner for owner in owners if owner.wait_seconds_like_recorded is not None]
    if not known:
        return ""
    longer = [
        (simulated - really, owner.name, simulated, really)
        for owner in known
        if owner.waits_longer_than_recorded
        and (simulated := owner.wait_seconds_like_recorded) is not None
        and (really := owner.recorded_wait_seconds) is not None
    ]
    of_known = "" if len(known) == len(owners) else f" of the {len(known):,} of whom waits are recorded"
    if not longer:
        return f" None waits longer than was recorded{of_known}."
    parts = []
    for _, name, simulated, really in sorted(longer, key=lambda one: (-one[0], one[1]))[:MOST_NAMED]:
        unit = unit_for(simulated, really)
        parts.append(f"{shown(name)} ({unit.text(simulated)} instead of {unit.text(really)})")
    first = "" if len(longer) <= MOST_NAMED else ", first of all"
    return f" But {_some(len(longer))} longer than was recorded{of_known}{first}: {_listed(parts)}."


def _some(count: int) -> str:
    return f"{count or 'none'} {'waits' if count <= 1 else 'wait'}"


def money(comparison: Comparison) -> Iterator[Finding]:
    """Cost of the GPU-hours in a year at the user's price; nothing without a price.

    The work is scaled to a year by the time that it took under the slower policy, so that no year costs more than all
    GPUs held without a pause. Work of less than a day is not scaled.
    """
    price = comparison.gpu_hour_price
    if price is None:
        return
    results = (comparison.today, comparison.proposed)
    before, after = (result.counters.gpu_seconds / 3600 * price for result in results)
    took = _work_seconds(comparison)
    only = "That is saved, or spent, only where GPUs that nobody holds cost nothing."
    if took < LEAST_SECONDS_OF_A_YEAR:
        what, each = "these jobs cost", ""
        only = f"They take {duration(took)} in all, too little to say what a year costs. {only}"
    else:
        before, after = (cost * YEAR_SECONDS / took for cost in (before, after))
        what, each = f"a year like these {duration(took)} costs", " a year"
    word = "less" if after <= before else "more"
    yield Finding(
        "Money",
        f"At {price:,.2f} a GPU-hour, {what} {_amount(after)} for GPUs held instead of {_amount(before)}:"
        f" {_amount(abs(after - before))} {word}{each}. {only}",
    )


def _work_seconds(comparison: Comparison) -> float:
    """Time from the first submission until the last job has let go of its GPUs, under the slower of both policies."""
    ends = [job.submit_time_seconds for job in comparison.workload.jobs]
    for result in (comparison.today, comparison.proposed):
        ends += [outcome.end_seconds for outcome in result.outcomes if outcome.end_seconds is not None]
        ends.append(result.counters.allocated_until_seconds)
    # A world whose clock begins before its first job holds nothing until then.
    return max(ends) - comparison.workload.jobs[0].submit_time_seconds


def _amount(money: float) -> str:
    return f"{money:,.0f}" if money >= 100 or money == 0 else f"{money:,.2f}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


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
    results = (comparison.proposed, comparison.today)
    after, before = (result.counters.gpu_seconds for result in results)
    held = (
        f"The same work holds GPUs for {hours(after)} GPU-hours instead of {hours(before)} ({change(after, before)})."
    )
    idle_after, idle_before = (idle_gpu_seconds(comparison, result) for result in results)
    if idle_after is None or idle_before is None:
        return held
    return f"{held} While jobs wait with nothing, {hours(idle_after)} GPU-hours idle instead of {hours(idle_before)}."


def _best(comparison: Comparison) -> Iterator[Finding]:
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
    return comparison.load(result).idle_while_waiting_gpu_seconds()
