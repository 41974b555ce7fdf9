"""Caveats of a report: cautions right below the headline, the assumptions by the settings used, and the limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from foundation.figures import counted, duration, percent, shown, unit_for
from policy_net.domain import CapacityMode, JobKind
from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.report.policies import label
from policy_net.laboratory.report.record_cautions import unlike_the_record
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy
from policy_net.laboratory.workloads.workload import FigureOrigin, Workload

FEW_JOBS = 100
"""On fewer jobs, which of two policies does better is often chance."""
MUCH_SKIPPED = 0.05
"""Share of a log; with more of it skipped, the jobs are not those that ran."""
OVERFULL = 0.1
"""Share of all jobs; with more of them waiting when the last one comes, the cluster does not keep up."""
PACE_COSTS = 0.02
"""Share of the jobs' time; with less of it due to the pace of decisions, the pace hardly matters."""
SHORT_QUEUE = 10
"""Jobs that may wait at any moment."""
PLAIN, BACKFILL = "fifo", ("fifo-easy", "fifo-backfill")


def cautions(comparison: Comparison) -> tuple[str, ...]:
    """Cautions of a sentence or two each."""
    return (
        *_about_machines(comparison),
        *_about_skipped(comparison.workload),
        *_about_chance(comparison),
        *_about_larger_jobs(comparison),
        *_about_the_queue(comparison),
        *_about_overload(comparison),
    )


def _about_machines(comparison: Comparison) -> Iterator[str]:
    if comparison.machines_assumed:
        yield (
            "The machines are assumed, because neither you nor the log says what they are. They decide how long jobs"
            " wait, and so what there is to save: repeat this with the machines that you have."
        )


def _about_larger_jobs(comparison: Comparison) -> Iterator[str]:
    larger, _ = comparison.cut_jobs
    if larger:
        yield (
            f"{counted(larger, 'job')} asked for more than the {counted(comparison.gpus, 'GPU')} that there are here,"
            f" and {'gets' if larger == 1 else 'get'} fewer under every policy: these are not the machines on which"
            f" {'it' if larger == 1 else 'they'} ran."
        )


def _about_overload(comparison: Comparison) -> Iterator[str]:
    jobs = comparison.workload.jobs
    _, queue = comparison.load(comparison.today).at(math.nextafter(jobs[-1].submit_time_seconds, -math.inf))
    if comparison.compares and queue > max(OVERFULL * len(jobs), SHORT_QUEUE):
        yield (
            f"Under {label(comparison.today.policy)} {queue:,} of the {len(jobs):,} jobs were waiting with nothing when"
            " the last one was submitted: on these machines its queue grows for as long as jobs come. What is saved"
            " then says as much about the length of the window as about the policy."
        )


def cautions_in_short(comparison: Comparison) -> tuple[str, ...]:
    """Cautions of an answer without a page, whose own line covers the others; without a comparison, on skipped rows."""
    skipped = tuple(_about_skipped(comparison.workload))
    if not comparison.compares:
        return skipped
    return (*skipped, *_about_chance(comparison), *_about_the_queue(comparison))


def _about_skipped(workload: Workload) -> Iterator[str]:
    skipped = workload.skipped
    if skipped is None or skipped.share <= MUCH_SKIPPED:
        return
    which = "" if skipped.alike == skipped.count else f"most of them ({skipped.alike:,}) "
    yield (
        f"{counted(skipped.count, skipped.unit)} of the log, {percent(skipped.share)} of it,"
        f" {'is' if skipped.count == 1 else 'are'} skipped as malformed, {which}like this one:"
        f" {shown(skipped.example)}. The answer is about the jobs that are left."
    )


def _about_chance(comparison: Comparison) -> Iterator[str]:
    jobs = len(comparison.workload.jobs)
    if jobs < FEW_JOBS:
        yield f"With {counted(jobs, 'job')} much is chance: take {FEW_JOBS} or more, better a thousand."


def _about_the_queue(comparison: Comparison) -> Iterator[str]:
    """Cautions where today's queue, simulated, differs from the record, or leaves next to nothing to save."""
    yield from unlike_the_record(comparison)
    if comparison.hardly_waits:
        yield (
            f"Under {label(comparison.today.policy)} jobs hardly wait. What is saved or lost then comes from running"
            " them at other sizes than they asked for, and hangs on how fast they are assumed to be there."
        )
    yield from _about_the_pace(comparison)


def _about_the_pace(comparison: Comparison) -> Iterator[str]:
    unpaced, pace_seconds = comparison.unpaced_jct_seconds, comparison.environment.debounce_seconds
    if unpaced is None:
        return
    paced = comparison.avg_jct_seconds(comparison.proposed)
    if abs(paced - unpaced) <= PACE_COSTS * paced:
        return
    unit = unit_for(paced, unpaced)
    yield (
        f"{label(comparison.proposed.policy)} decides at most once in {duration(pace_seconds)} here; at every event, as"
        f" queues do, its jobs would be done in {unit.text(unpaced)} instead of {unit.text(paced)} on average. Give the"
        " pace of your agent by --debounce-seconds."
    )


def summary(comparison: Comparison) -> str:
    """The most consequential assumptions in a few lines."""
    workload, environment = comparison.workload, comparison.environment
    sentences = [
        f"{counted(environment.nodes, 'machine')}, {_said_by(comparison)}.",
        _sizes_in_short(comparison),
        _kinds(workload),
        _knowledge(workload),
        _resizing(environment),
        _failures(environment),
        "One simulated window; see the page for the rest.",
    ]
    return " ".join(sentences)


def assumptions(comparison: Comparison) -> Iterator[str]:
    """Assumptions of one sentence or two each, the most consequential first."""
    workload, environment = comparison.workload, comparison.environment
    yield _sizes(comparison)
    yield _machines(comparison)
    if workload.slotted:
        yield "The jobs are generated, or a published sample; they are nobody's last week."
    else:
        yield (
            "A job’s recorded running time at the size it asked for is its work; recorded waiting times are only what"
            " the simulation is compared with. How fast it is at other sizes follows from measured speeds of the model"
            " that it is taken to train."
            " A job that failed or was cancelled counts with the time it ran."
        )
    yield _kinds(workload)
    yield _knowledge(workload)
    yield _resizing(environment)
    yield _failures(environment)
    yield _placing(comparison)
    if environment.gpu_types:
        types = ", ".join(f"{counted(count, 'machine')} with {shown(name)}" for name, count in environment.gpu_types)
        yield f"GPUs differ: {types}. Jobs train faster or slower on them, as measured."
    yield _noise(environment)
    yield _decisions(environment)
    yield (
        "The cluster is empty at the first submission and runs until the last job is done: what was running before, and"
        " what comes after, is not there."
    )


def _sizes(comparison: Comparison) -> str:
    jobs, share = comparison.workload.jobs, comparison.elastic_share
    if share is None or share == 1.0:
        return (
            "Jobs can be resized: all policies but those with fixed sizes change the number of GPUs of running jobs,"
            " and suspend and resume them. Jobs that cannot be resized gain only what a better order gives."
        )
    fixed = sum(job.fixed_size for job in jobs)
    return (
        f"{counted(fixed, 'job')} of {len(jobs):,}, drawn with the seed, {'keeps' if fixed == 1 else 'keep'} the size"
        " asked for, and can only be suspended and resumed. The others can be resized, by all policies but those with"
        " fixed sizes."
    )


def _sizes_in_short(comparison: Comparison) -> str:
    share = comparison.elastic_share
    if share is None or share == 1.0:
        return "Running jobs can be resized, suspended and resumed."
    return f"{percent(share)} of the jobs can be resized; all can be suspended and resumed."


def _machines(comparison: Comparison) -> str:
    environment = comparison.environment
    machines = (
        f"{counted(environment.nodes, 'machine')} with {counted(environment.gpus_per_node, 'GPU')} and"
        f" {counted(environment.cpus_per_node, 'CPU core')} each"
    )
    if environment.node_sizes:
        cores = sum(node.capacity.cpu_milli for node in environment.node_list) / 1000
        machines = (
            f"{counted(environment.nodes, 'machine')} of different sizes, with {counted(environment.gpus, 'GPU')} and"
            f" {cores:,.0f} CPU cores in all"
        )
    if not comparison.machines_assumed:
        return f"The cluster has {machines}, {_said_by(comparison)}; all policies get the same."
    return (
        f"The cluster has {machines}, {_said_by(comparison)}. Nobody said what it is. For your own cluster give"
        " --nodes, --gpus-per-node and --cpus-per-node; on more machines there is less to gain."
    )


def _said_by(comparison: Comparison) -> str:
    machines = comparison.workload.machines
    if machines is None:
        return "as given" if comparison.nodes_given else "their number chosen to suit the jobs"
    if machines.nodes_by is machines.gpus_by is FigureOrigin.GIVEN:
        return "as given"
    return f"{_NUMBER_BY[machines.nodes_by]}, {_SIZE_BY[machines.gpus_by]}"


_NUMBER_BY = {
    FigureOrigin.GIVEN: "as given",
    FigureOrigin.LOG: "as many as the log names",
    FigureOrigin.ASSUMED: "their number chosen to suit the jobs",
}
_SIZE_BY = {
    FigureOrigin.GIVEN: "their size as given",
    FigureOrigin.LOG: "as large as the log shows",
    FigureOrigin.ASSUMED: "their size assumed",
}


def _kinds(workload: Workload) -> str:
    counts = Counter(spec.kind for spec in workload.jobs)
    if len(counts) == 1:
        return f"All jobs train {_KINDS[workload.jobs[0].kind]}."
    parts = [f"{counts[kind]:,} {text}" for kind, text in _KINDS.items() if counts[kind]]
    return f"How the jobs train: {'; '.join(parts)}."


def _knowledge(workload: Workload) -> str:
    jobs = len(workload.jobs)
    unknown = sum(not spec.work_known for spec in workload.jobs)
    wrong = sum(spec.work_known and spec.declared_epochs is not None for spec in workload.jobs)
    if unknown == jobs:
        return "No policy is told how much work a job is: those that use it guess as much again as was done."
    if wrong == jobs:
        return "Policies that use durations are told an estimate of how much work a job has left, not the truth."
    assumed = "Policies that use durations are told exactly how much work a job has left, which users can seldom say"
    if not unknown and not wrong:
        return f"{assumed}. With estimates they gain less, with none less again."
    inexact = [f"for {counted(wrong, 'job')} they are told another amount than is needed"] if wrong else []
    inexact += [f"for {counted(unknown, 'job')} they are told nothing"] if unknown else []
    return f"{assumed}, except that {' and '.join(inexact)}."


def _resizing(environment: Environment) -> str:
    resize, resume = environment.resize_seconds, environment.resume_seconds
    if not resize and not resume:
        return "Resizing, suspending and resuming a job takes no time."
    return f"A resize stops a running job for {duration(resize)}; to go on after a suspension takes {duration(resume)}."


def _failures(environment: Environment) -> str:
    if not environment.changes_nodes:
        return "No machine fails, comes or goes."
    parts = []
    if environment.node_changes:
        parts.append(f"machines come and go {counted(len(environment.node_changes), 'time')} by plan")
    if environment.node_mtbf_seconds:
        parts.append(
            f"a machine fails after {duration(environment.node_mtbf_seconds)} on average and is back after"
            f" {duration(environment.node_repair_seconds)}"
        )
    lost = environment.checkpoint_seconds
    parts.append(f"a job then loses what it trained in up to {duration(lost)}" if lost else "no training is lost then")
    return "; ".join(parts).capitalize() + "."


def _placing(comparison: Comparison) -> str:
    environment = comparison.environment
    if environment.capacity_mode is CapacityMode.POOLED:
        return "GPUs and CPU cores are added up over all machines: whether tasks fit the single machine is not asked."
    where = {
        PlacementStrategy.SPREAD: "to the least loaded ones first",
        PlacementStrategy.PACK: "each job on as few as possible",
    }[environment.placement]
    costs = (
        "All-reduce jobs train slower where their workers lie apart, as measured; recorded durations count as those on"
        " one machine."
        if comparison.locality
        else "Where a job’s tasks lie costs no speed."
    )
    return f"Every task is placed on a machine with room for it, {where}. {costs}"


def _noise(environment: Environment) -> str:
    if not environment.speed_noise and not environment.job_noise:
        return "Speeds do not vary from run to run."
    parts = [f"by {percent(environment.job_noise)} for life"] if environment.job_noise else []
    parts += [f"by {percent(environment.speed_noise)} from decision to decision"] if environment.speed_noise else []
    return f"A job’s speed varies {' and '.join(parts)} (standard deviation)."


def _decisions(environment: Environment) -> str:
    if environment.decide_on is DecideOn.SLOT:
        return f"Every policy decides once in {duration(environment.slot_seconds)}, and jobs wait for that."
    return (
        "Every policy decides when a job arrives or ends, at most once in"
        f" {duration(environment.debounce_seconds)} and at least once in {duration(environment.slot_seconds)}; queues"
        f" ({', '.join((PLAIN, *BACKFILL))}), which need no agent, at every event. What a job held is free at its end."
    )


_KINDS = {
    JobKind.PS: "with parameter servers, in step",
    JobKind.ASYNC: "with parameter servers, each worker at its own pace",
    JobKind.ALLREDUCE: "by all-reduce",
}


def limits(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Limits of what a report can tell."""
    yield (
        "This is a simulation of one window of jobs with one draw of what the record does not say. Another window or"
        " another --seed moves the figures by some percent, small windows by more."
    )
    policies = {result.policy for comparison in comparisons for result in comparison.results}
    if PLAIN in policies and not policies.intersection(BACKFILL):
        yield (
            "FIFO is strict: no job passes another. A cluster that lets small jobs pass (backfill, as Slurm does) waits"
            f" less today: compare with --policy {BACKFILL[0]}."
        )
    yield (
        "Nothing here has been tried on your cluster. An agent of fedl2 runs on one machine and on Kubernetes; on Slurm"
        " none does."
    )
    yield "Averages hang on few long jobs; read them together with the slowdown and with who loses."
    yield (
        "“GPUs held” says how much was given out, not how much good it did: more GPUs speed a job up by less than their"
        " number, so a good policy may hold fewer."
    )
