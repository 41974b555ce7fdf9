"""Report of the demo: `summary.json` for programs, a page, and a table with sentences for the terminal.

The page has the content of the learner's own, with the replays and the staleness of every update beside it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.demonstration.configs import DemoPolicy
from deploy.local.comparison import BASELINE, DRAWN, RECORDED, Comparison
from deploy.local.fleet import FleetResult
from deploy.local.lessons import lessons_json
from deploy.local.plan import ClusterPlan
from foundation.page import PAGE_NAME
from foundation.tables import NOTHING, Column, FittedTable
from global_learner.report.content import report_content
from global_learner.report.learning import CurvePoint, LessonCurve, lesson_finding
from global_learner.report.load import LoadScope, SchedulerLoad
from global_learner.report.page import static_page
from global_learner.report.savings import ReplayComparison, headline
from global_learner.report.words import against
from global_learner.rollout.state import RolloutPhase
from policy_net.laboratory.simulation.metrics import Load, nearly_done

MOMENTS = 121
"""Points of a curve of load: more than a page can show apart."""
_REPLAYED_LOAD = (
    "on the jobs that were learned on, until 95% were done under each. Jobs that end sooner hold fewer GPUs at once."
)


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known at the end.

    Attributes:
        staleness: cluster to the staleness of each of its applied updates, in head steps.
        policy: that the fleet began with.
        lessons: what recorded pasts taught; None where there were no lessons.
    """

    plan: Sequence[ClusterPlan]
    fleet: FleetResult
    comparison: Comparison
    staleness: Mapping[str, Sequence[int]]
    wall_seconds: float
    policy: DemoPolicy
    lessons: LessonCurve | None = None

    @property
    def replays(self) -> ReplayComparison:
        """What the replays say, as the page reads it."""
        first, note = _first_version(self.policy, self.comparison)
        return ReplayComparison(
            jct_seconds=self.comparison.own_jct_seconds,
            labels=self.comparison.labels,
            baseline=BASELINE,
            proposed="learned",
            curve=self.comparison.curve,
            first=first,
            first_note=note,
            load=load_scopes(self.comparison),
            lessons=self.lessons,
        )

    def to_json(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        last, curve = self.fleet.last, self.comparison.curve
        return {
            "clusters": [self._cluster(cluster) for cluster in self.plan],
            "learner": {
                "head_step": last.head_step,
                "updates_accepted": last.updates_accepted,
                "updates_rejected": last.updates_rejected,
                "staleness_p50": last.staleness_p50,
                "versions": list(self.fleet.published),
            },
            "learning": {
                "validation_jct_v1": self.comparison.validation_jct_v1,
                "validation_jct_final": self.comparison.validation_jct_final,
                f"v1_over_{BASELINE}": curve[0].mean,
                "final_over_v1": curve[-1].mean / curve[0].mean,
            },
            "wall_seconds": self.wall_seconds,
            "rollouts": [end.to_json() for end in self.fleet.rollouts],
            "canary_power": None if self.fleet.canary_power is None else self.fleet.canary_power.to_json(),
            "lessons": None if self.lessons is None else lessons_json(self.lessons),
        }

    def _cluster(self, cluster: ClusterPlan) -> dict[str, Any]:
        return {
            "name": cluster.name,
            "workload": cluster.source,
            "nodes": cluster.nodes,
            "jobs": cluster.jobs,
            "completed": min(score.completed for score in self.comparison.own[cluster.name].values()),
            "avg_jct_seconds": self.comparison.own_jct_seconds[cluster.name],
            "guard_interventions": self.fleet.interventions[cluster.name],
        }


def report_files(report: Report) -> dict[str, str]:
    """The page and the summary, by the names of their files."""
    summary = json.dumps(report.to_json(), indent=2) + "\n"
    return {PAGE_NAME: static_page(page_content(report)), "summary.json": summary}


def sentences(report: Report) -> Iterator[str]:
    """The findings, in the order in which they stand below the table."""
    found, power, last = headline([], report.replays), report.fleet.canary_power, report.fleet.last
    yield f"{found.text}."
    yield found.note
    if report.lessons is not None:
        yield f"lessons: {lesson_finding(report.lessons)}"
    for end in report.fleet.rollouts:
        what = "made by the fleet" if end.foretold == RolloutPhase.DONE else "made worse on purpose"
        yield f"rollout {end.number} of v{end.version}, {what}: {end.word}"
        if power is not None and power.rollout == end.number:
            yield f"  {power.words}"
    yield (
        f"learner: head step {last.head_step}, {last.updates_accepted} updates accepted, {last.updates_rejected}"
        f" rejected, {len(report.fleet.published)} versions; {report.wall_seconds:.0f} s in all"
    )


def times_table(report: Report) -> FittedTable:
    """What jobs took in each cluster under each policy."""
    labels, figures = report.comparison.labels, report.comparison.own_jct_seconds
    left_out = {policy: place for place, policy in enumerate(("v1", "optimus", "drf", RECORDED), start=1)}
    columns = [
        Column("cluster"),
        Column("nodes", 6),
        Column("jobs", 5),
        *(Column(label.replace(" ", "\n"), 5 - left_out.get(policy, 5)) for policy, label in labels.items()),
        Column("newest/\nFIFO"),
    ]
    rows = []
    for cluster in report.plan:
        by = figures[cluster.name]
        cells = [f"{by[policy] / 3600:.2f}" if policy in by else NOTHING for policy in labels]
        ratio = f"{by['learned'] / by[BASELINE]:.2f}"
        rows.append((cluster.name, str(cluster.nodes), str(cluster.jobs), *cells, ratio))
    return FittedTable("average job completion time [h]", columns, rows)


def page_content(report: Report) -> dict[str, Any]:
    """The page's content, as the learner's own page has it, with the replays."""
    every_update = {cluster: Counter(values) for cluster, values in report.staleness.items()}
    content = report_content(report.fleet.report, report.replays, every_update, ended=True)
    power = report.fleet.canary_power
    for card in content["rollouts"]["cards"]:
        if power is not None and card["number"] == power.rollout:
            card["said"] = [*card["said"], f"{power.words[:1].upper()}{power.words[1:]}."]
            card["shown"] = True
    return content


def load_scopes(comparison: Comparison) -> list[LoadScope]:
    """The clusters' own jobs under the schedulers that are drawn: all clusters together, then each."""
    loads = {
        cluster: {policy: load for policy in DRAWN if (load := scores[policy].load) is not None}
        for cluster, scores in comparison.own.items()
    }
    whole = [cluster for cluster, by in loads.items() if len(by) == len(DRAWN)]
    groups = {f"all {len(whole)} clusters": whole} if len(whole) > 1 else {}
    groups |= {cluster: [cluster] for cluster in whole}
    scopes = []
    for name, clusters in groups.items():
        curves = {policy: [loads[cluster][policy] for cluster in clusters] for policy in DRAWN}
        recorded = [comparison.recorded_load[cluster] for cluster in clusters if cluster in comparison.recorded_load]
        if len(recorded) == len(clusters):
            curves = {RECORDED: recorded, **curves}
        at = moments([of_policy for policy, of_policy in curves.items() if policy != RECORDED])
        gpus = float(sum(load.gpus for load in curves[BASELINE]))
        drawn = [
            SchedulerLoad(comparison.labels[policy], *amounts(of_policy, at)) for policy, of_policy in curves.items()
        ]
        together = "all clusters together, " if len(clusters) > 1 else ""
        note = f"Simulated: {together}{_REPLAYED_LOAD}"
        scopes.append(LoadScope(name, at, [gpus] * len(at), drawn, "simulated time", note))
    return scopes


def moments(policies: Sequence[Sequence[Load]]) -> list[float]:
    """Moments evenly apart, from zero until nearly all jobs have ended under every policy.

    Args:
        policies: of each the loads of all clusters; the last few jobs may run alone for days, which says little.
    """
    end = max(nearly_done([seconds for load in loads for seconds in load.ends]) for loads in policies)
    return [end * index / (MOMENTS - 1) for index in range(MOMENTS)]


def amounts(loads: Sequence[Load], at: Sequence[float]) -> tuple[Sequence[float | None], Sequence[float]]:
    """GPUs in use and jobs that wait at these moments, clusters together; the former are not known where a recorded
    cluster had more of them than the simulated one has."""
    found = [[load.at(seconds) for load in loads] for seconds in at]
    known = all(max(load.used) <= load.gpus for load in loads)
    used = [float(sum(used for used, _ in every)) if known else None for every in found]
    return used, [float(sum(waits for _, waits in every)) for every in found]


def _first_version(policy: DemoPolicy, comparison: Comparison) -> tuple[str, str]:
    """Name of v1, and a note on it: its worth is no merit of this fleet."""
    if policy is DemoPolicy.DL2:
        return "the warm start", "v1 is DL2's network, trained here to imitate DRF before the fleet began."
    note = (
        "v1 is the policy that ships, but without the speeds of these types of jobs, which this fleet has to find out."
    )
    if comparison.shipped_whole:
        ratio = CurvePoint(0, 0, comparison.shipped_whole).mean
        note += f" With those speeds, and without any learning, it takes {against(ratio, comparison.labels[BASELINE])}."
    return "the shipped policy", note
