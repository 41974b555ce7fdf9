"""Headline of a report: the answer in a sentence, with its range and its warnings."""

from __future__ import annotations

from foundation.figures import counted, duration, percent, unit_for
from policy_net.domain import MAX_ALLREDUCE_WORKERS, MAX_TASKS_PER_ROLE
from policy_net.laboratory.report.comparison import AS_REQUESTED, QUEUES, Comparison
from policy_net.laboratory.report.policies import label
from policy_net.laboratory.report.spread import ELASTIC, KIND, MODELS, AssumedCase
from policy_net.laboratory.workloads.workload import FigureOrigin, JobKindChoice
from policy_net.policy import DEFAULT_POLICY

SAME = 0.01
"""Averages closer than this are called the same: another draw of the models would move them further."""

_KIND_WORDS = {
    JobKindChoice.ALLREDUCE: "by all-reduce",
    JobKindChoice.PS: "over parameter servers",
    JobKindChoice.ASYNC: "over parameter servers, each worker at its own pace",
    JobKindChoice.MIX: "half by all-reduce, half over parameter servers",
}
_QUEUE_WORDS = {
    "fifo": " (first come, first served, at the requested size)",
    "fifo-easy": " (first come, first served with backfill, as Slurm does it, at the requested size)",
}


def headline(comparison: Comparison) -> str:
    """The answer in one sentence, with its warnings in the same line."""
    return " ".join([_answer(comparison), *_warnings(comparison)])


def _answer(comparison: Comparison) -> str:
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
        return (
            f"{jobs} would have been done in {duration(after)} on average either way: no gain{_range(comparison)} on"
            f" {these} {gpus}{_conditions(comparison)}."
        )
    unit = unit_for(before, after)
    return (
        f"{jobs} would have been done in {unit.text(after)} instead of {unit.text(before)} on average:"
        f" {change(after, before)}{_range(comparison)}, on the same {gpus}{_conditions(comparison)}."
    )


def _conditions(comparison: Comparison) -> str:
    """Change in GPU-hours, and condition on the jobs."""
    before, after = (result.counters.gpu_seconds for result in (comparison.today, comparison.proposed))
    gpu_hours = ""
    if comparison.gpus and before and abs(after / before - 1) >= SAME:
        gpu_hours = f", held for {percent(abs(after / before - 1))} {'fewer' if after < before else 'more'} GPU-hours"
    share = comparison.elastic_share
    if share is None or comparison.proposed.policy in (*AS_REQUESTED, "tetris"):
        return gpu_hours
    which = "all" if share == 1.0 else f"{percent(share)} of"
    return f"{gpu_hours}, if {which} your jobs can be resized"


def subline(comparison: Comparison) -> str:
    """The two policies that are compared."""
    proposed, today = label(comparison.proposed.policy), label(comparison.today.policy)
    if not comparison.compares:
        return f"From submission to end, waiting included, under {proposed}; simulated."
    default = ", the default policy," if comparison.proposed.policy == DEFAULT_POLICY else ""
    what = _QUEUE_WORDS[comparison.today.policy] if comparison.today.policy in QUEUES else ""
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


def _range(comparison: Comparison) -> str:
    spread = comparison.spread
    if spread is None or len(spread.changes) < 2:
        return ""
    return f" ({interval(spread.least, spread.most)}, by what is assumed)"


def interval(least: float, most: float) -> str:
    """Two changes in words: 62% to 82% less; from 12% less to 3% more."""
    low, high = change(1 + least, 1), change(1 + most, 1)
    if low == high:
        return low
    if least < most <= -SAME:
        return f"{percent(-most)} to {low}"
    if SAME <= least < most:
        return f"{percent(least)} to {high}"
    return f"from {low} to {high}"


def case_in_words(assumption: str, case: AssumedCase) -> str:
    """Words for the value of an assumption in a case, to stand after a figure."""
    if assumption == KIND:
        return _KIND_WORDS[case.kind]
    if assumption == ELASTIC:
        return f"if {'all' if case.elastic_share == 1.0 else percent(case.elastic_share)} can be resized"
    if assumption == MODELS:
        return f"with seed {case.seed}"
    resize, resume = case.stall_seconds
    stalls = f"with {resize:g} s a resize and {resume:g} s a resumption"
    return stalls if resize or resume else "without stalls"


def _warnings(comparison: Comparison) -> list[str]:
    warnings = []
    recorded, against = comparison.recorded, comparison.change_against_record(comparison.proposed)
    if comparison.compares and recorded is not None and against is not None:
        really = duration(recorded.avg_jct_seconds or 0.0)
        warnings.append(f"Against your record ({really}): {change(1 + against, 1)}.")
    if comparison.hardly_waits:
        warnings.append("But jobs hardly wait here: the change comes from other sizes than they asked for.")
    beyond, capped = comparison.cut_jobs
    if beyond:
        warnings.append(
            f"But {beyond:,} of the {counted(len(comparison.workload.jobs), 'job')} asked for more GPUs than these"
            f" {comparison.gpus:,} and {'is' if beyond == 1 else 'are'} cut to what there is."
        )
    if capped:
        warnings.append(
            f"{'And' if beyond else 'But'} {counted(capped, 'job')} asked for more than a job may have here"
            f" ({MAX_TASKS_PER_ROLE} GPUs, by all-reduce {MAX_ALLREDUCE_WORKERS}), and"
            f" {'is' if capped == 1 else 'are'} cut to that."
        )
    if comparison.machines_assumed and not comparison.workload.slotted:
        warnings.append(
            f"The machines are assumed ({counted(comparison.environment.nodes, 'machine')} with"
            f" {counted(comparison.environment.gpus_per_node, 'GPU')} each): give yours with"
            f" {' and '.join(_unsaid_machines(comparison))}."
        )
    return warnings


def _unsaid_machines(comparison: Comparison) -> list[str]:
    """Options for what neither the user nor the log said of the machines."""
    machines = comparison.workload.machines
    if machines is None:  # nobody knows of which each of the two was said
        return ["--nodes", "--gpus-per-node"]
    said_by = {"--nodes": machines.nodes_by, "--gpus-per-node": machines.gpus_by}
    return [option for option, origin in said_by.items() if origin is FigureOrigin.ASSUMED]
