"""Section of savings: the headline, with how it was worked out, and average job completion times by policy.

Replays after the fleet's end (`ReplayComparison`) are a controlled comparison, every policy on the same jobs. Without
them the page has what clusters report of their jobs so far, or says that nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foundation.figures import counted
from global_learner.report.learning import CurvePoint, LessonCurve
from global_learner.report.load import LoadScope
from global_learner.report.replayed_pasts import TWIN, believed_past, within
from global_learner.report.words import against, change, is_same, job_hours, listed, moment, policy_label
from policy_net.exchange.generated import fleet_pb2

_BASELINE, _FLEET = "baseline", "fleet"
RECORDED, USUAL = "recorded", "fifo-easy"
"""What scheduled recorded jobs, where a cluster simulates them; and what most clusters run."""
USUAL_LABEL = "FIFO with EASY backfill"
_WHAT_RUNS = (RECORDED, USUAL)
_SHORTEST_SECONDS = 1.0
"""A shorter average is no baseline: no cluster's jobs end within a second, and a ratio to it would say nothing."""
_HOW_TO_KNOW = (
    "A cluster that is not simulated says what another scheduler would have needed once 20 jobs have ended there and"
    " its agent has replayed them, unless the replay is too far from what happened. Of older jobs, replay the history:"
    " policy-net replay --workload FILE --report FOLDER."
)


@dataclass(frozen=True, slots=True)
class ReplayComparison:
    """A controlled comparison, which is worth more than what was seen while policies changed and explored.

    Attributes:
        jct_seconds: cluster to policy to average JCT on the cluster's own jobs.
        labels: names of the policies for people, in the order of the chart; not every cluster has each of them.
        baseline: the policy with which versions are compared.
        proposed: the newest version.
        curve: versions on jobs that nobody trained on, oldest first, over the baseline; at least the first version.
        first: name of the first version, which is none of this fleet's own learning.
        first_note: whole sentences about it.
        load: of the clusters on their own jobs, over simulated time: all together, then each.
        lessons: of another fleet, from recorded pasts.
    """

    jct_seconds: Mapping[str, Mapping[str, float]]
    labels: Mapping[str, str]
    baseline: str
    proposed: str
    curve: Sequence[CurvePoint]
    first: str = "the first version"
    first_note: str = ""
    load: Sequence[LoadScope] = ()
    lessons: LessonCurve | None = None


@dataclass(frozen=True, slots=True)
class Headline:
    """The page's first sentence, and what stands below it."""

    text: str
    note: str


ENDED = Headline(
    "The learner of this fleet has ended",
    "Its files hold versions, updates and their contributors. They do not hold the clusters' reports of their jobs, and"
    " so no savings; the report of a running learner has them.",
)


def headline(views: Sequence[fleet_pb2.ClusterView], replays: ReplayComparison | None = None) -> Headline:
    """The most telling figure that is known: replays on the same jobs, else what the clusters say of their jobs."""
    if replays is not None and replays.jct_seconds:
        return _of_replays(replays)
    if not views:
        return Headline(
            "No cluster has joined this fleet yet",
            "A cluster joins by itself once its agent reaches this learner; where identity is on, enroll it first.",
        )
    compared = {view.cluster: found for view in views if (found := comparison(view)) is not None and found.jobs_done}
    if not compared:
        return _from_records(views) or _unknown(views)
    return _so_far(compared, len(views))


def comparison(view: fleet_pb2.ClusterView) -> fleet_pb2.Comparison | None:
    """The other scheduler with which a cluster's times are compared; None where none is known."""
    return view.compared if view.HasField("compared") else latest_comparison(None, view.status)


def latest_comparison(
    before: fleet_pb2.Comparison | None, status: fleet_pb2.ClusterStatus
) -> fleet_pb2.Comparison | None:
    """Comparison of a cluster's times from a heartbeat on; `before` is that of earlier heartbeats.

    FIFO with EASY backfill, which most clusters run, where the cluster knows it; else the agent's fallback. A cluster
    knows one of them a while after its jobs, and not always both: the earlier comparison stands until its scheduler is
    reported again, so that people do not read of another one at each look. A run that began anew has none.
    """
    if before is not None and status.jobs_done < before.jobs_done:
        before = None
    usual = next((each.avg_jct_seconds for each in status.baselines if each.policy == USUAL), 0.0)
    if usual >= _SHORTEST_SECONDS:
        policy, seconds = USUAL, usual
    elif _known(status) and (before is None or before.policy != USUAL):
        policy, seconds = status.baseline_policy, status.baseline_jct_seconds
    else:
        return before
    return fleet_pb2.Comparison(
        policy=policy,
        policy_jct_seconds=seconds,
        jobs_done=status.jobs_done,
        avg_jct_seconds=status.avg_jct_seconds,
    )


def is_simulated(status: fleet_pb2.ClusterStatus) -> bool:
    """Whether a cluster's jobs are simulated: it says so, or knows what only a simulation can know."""
    return status.simulated or bool(status.baseline_policy) or _known(status)


def compared_label(policy: str) -> str:
    """Name of the scheduler with which a cluster is compared."""
    return USUAL_LABEL if policy == USUAL else policy_label(policy)


def _so_far(compared: Mapping[str, fleet_pb2.Comparison], clusters: int) -> Headline:
    took = math.fsum(each.jobs_done * each.avg_jct_seconds for each in compared.values())
    would_take = math.fsum(each.jobs_done * each.policy_jct_seconds for each in compared.values())
    jobs = sum(each.jobs_done for each in compared.values())
    by_label: dict[str, list[str]] = {}  # what most clusters run stands first
    for policy, cluster in sorted(
        ((each.policy, cluster) for cluster, each in compared.items()),
        key=lambda each: (each[0] != USUAL, compared_label(each[0]), each[1]),
    ):
        by_label.setdefault(compared_label(policy), []).append(cluster)
    baseline = listed(list(by_label))
    which_of = [f"{label} of {listed(names)}" for label, names in by_label.items()]
    simulation_of = listed(which_of) if len(which_of) > 1 else baseline
    text = f"In simulation, jobs took {against(took / would_take, f'under {baseline}')}"
    if not is_same(took / would_take):
        saved = "saved" if took < would_take else "lost"
        text += f": {job_hours(would_take - took)} of simulated waiting and training {saved}"
    which = f"all {clusters}" if len(compared) == clusters else f"{len(compared)} of {clusters}"
    of = "the cluster, which is simulated," if clusters == 1 else f"{which} clusters, which are simulated,"
    note = (
        "No real machine ran these jobs, and no real hour was saved."
        f" Over the {counted(jobs, 'job')} that {of} completed so far: their average completion time against a"
        f" simulation of {simulation_of} on exactly these jobs. Every job counts the same. Includes the time in which"
        " earlier, worse versions acted, and what exploring costs where it is on."
    )
    return Headline(text, note)


def _of_replays(replays: ReplayComparison) -> Headline:
    first, last = replays.curve[0], replays.curve[-1]
    baseline = replays.labels[replays.baseline]
    text = f"In simulation, {replays.first} alone takes {against(first.mean, baseline)}"
    since = last.mean / first.mean
    if last.version == first.version:
        text += "; no version was learned since"
    else:
        text += f"; learned since: {'nothing' if is_same(since) else change(since, fine=True).removesuffix(' time')}"
    note = (
        f"No real machine ran these jobs: {counted(len(replays.jct_seconds), 'cluster')}, all simulated."
        " Both figures are of workloads that no cluster learned on, replayed to completion after the run: average"
        f" completion times of v{first.version} over those of {baseline}, and of v{last.version}, the newest of this"
        f" fleet, over those of v{first.version} on the same jobs (geometric means: every cluster counts the same)."
    )
    return Headline(text, " ".join(filter(None, [note, replays.first_note])))


def _against_each(replays: ReplayComparison) -> str:
    others = [key for key in replays.labels if key != replays.proposed]
    said = [against(_over(replays, replays.proposed, key), replays.labels[key]) for key in others]
    return f"The {replays.labels[replays.proposed]} takes {listed(said, 9)}."


def _over(replays: ReplayComparison, policy: str, other: str) -> float:
    """Average JCT of a policy over another's, geometric mean over the clusters that have both."""
    both = [by for by in replays.jct_seconds.values() if policy in by and other in by]
    return math.exp(math.fsum(math.log(by[policy] / by[other]) for by in both) / len(both))


def _from_records(views: Sequence[fleet_pb2.ClusterView]) -> Headline | None:
    """Headline from replays of real clusters' records, both sides simulated; None where none is believed."""
    if any(is_simulated(view.status) for view in views):
        return None
    pasts = [past for view in views if (past := believed_past(view)) is not None and USUAL in past.seconds]
    if not pasts:
        return None
    jobs = sum(past.jobs for past in pasts)
    took, usual = (math.fsum(past.jobs * past.seconds[key] for past in pasts) for key in (TWIN, USUAL))
    which = f"{len(pasts)} of {counted(len(views), 'cluster')}" if len(pasts) < len(views) else "every cluster"
    return Headline(
        f"Simulated from their own records, jobs take {against(took / usual, f'under {USUAL_LABEL}')}",
        f"Not measured: the agents of {which if len(views) > 1 else 'the cluster'} replayed the"
        f" {counted(jobs, 'job')} that ended since {moment(min(past.since_seconds for past in pasts))} from their"
        f" decision logs, once under what acts there and once under {USUAL_LABEL}. Every job counts the same."
        f" The first replay is {within(pasts)} what the jobs really took; a difference no larger than that says"
        " nothing.",
    )


def _unknown(views: Sequence[fleet_pb2.ClusterView]) -> Headline:
    if any(is_simulated(view.status) for view in views):
        return Headline(
            "What the fleet saves in simulation is not known yet",
            "No job is done whose time under the baseline is worked out too; this takes a while after the start.",
        )
    return Headline("What the fleet saves is not known", _HOW_TO_KNOW)


def _known(status: fleet_pb2.ClusterStatus) -> bool:
    return status.baseline_jct_seconds >= _SHORTEST_SECONDS


def completion_times(
    views: Sequence[fleet_pb2.ClusterView], replays: ReplayComparison | None = None
) -> dict[str, Any] | None:
    """Replays on the same jobs where there are some, else what was seen so far; None if no job is done anywhere."""
    if replays is not None and replays.jct_seconds:
        return {
            "finding": _against_each(replays),
            "note": "Simulated: every policy on the same jobs and machines, replayed to completion after the run. The"
            " clusters learned on these jobs.",
            "policies": [{"key": key, "label": label} for key, label in replays.labels.items()],
            "proposed": replays.proposed,
            "rows": [{"cluster": cluster, "seconds": dict(by)} for cluster, by in replays.jct_seconds.items()],
        }
    done = sorted((view for view in views if view.status.jobs_done), key=lambda view: view.cluster)
    if not done:
        return None
    simulated = [view.cluster for view in done if is_simulated(view.status)]
    rows = {view.cluster: _seconds(view.status) for view in done}
    others = {key for by in rows.values() for key in by if key != _FLEET}
    ordered = [*(key for key in _WHAT_RUNS if key in others), *sorted(others - {*_WHAT_RUNS})]
    policies = [{"key": key, "label": _baseline_label(key)} for key in ordered]
    policies.append({"key": _FLEET, "label": "this fleet, so far"})
    return {
        "finding": "",
        "note": f"Of the jobs that each cluster completed so far{', others on exactly these jobs' if others else ''}."
        + (f" Simulated clusters: {listed(simulated, 6)}." if simulated else ""),
        "policies": policies,
        "proposed": _FLEET,
        "rows": [{"cluster": cluster, "seconds": by} for cluster, by in rows.items()],
    }


def _seconds(status: fleet_pb2.ClusterStatus) -> dict[str, float]:
    """Of agents of before there were several baselines, the fallback's."""
    found = {baseline.policy: baseline.avg_jct_seconds for baseline in status.baselines if baseline.avg_jct_seconds}
    if not found and status.baseline_jct_seconds > 0.0:
        found[status.baseline_policy or _BASELINE] = status.baseline_jct_seconds
    return {**found, _FLEET: status.avg_jct_seconds}


def _baseline_label(key: str) -> str:
    if key == RECORDED:
        return "your own, as recorded"
    if key == USUAL:
        return f"{USUAL_LABEL}, simulated"
    return f"{'fallback' if key == _BASELINE else policy_label(key)}, simulated"
