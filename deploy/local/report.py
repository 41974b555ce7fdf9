"""Report of the demo: `summary.json` for programs, a page, and a table with sentences for the terminal.

The page has the content of the learner's own, with the replays beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deploy.local.comparison import BASELINE, RECORDED
from deploy.local.fleet import FleetResult
from deploy.local.lessons import lessons_json
from deploy.local.plan import ClusterPlan
from foundation.tables import NOTHING, Column, FittedTable
from global_learner.report.content import report_content
from global_learner.report.learning import lesson_finding
from global_learner.report.page import static_page
from global_learner.report.savings import ReplayComparison, headline
from global_learner.rollout.state import RolloutPhase


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known at the end.

    Attributes:
        validation_jct: average JCT in seconds over all held-out workloads, under v1 and the newest version.
    """

    plan: Sequence[ClusterPlan]
    fleet: FleetResult
    replays: ReplayComparison
    validation_jct: tuple[float, float]
    wall_seconds: float

    def to_json(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        last, curve, lessons = self.fleet.report.fleet, self.replays.curve, self.replays.lessons
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
                "validation_jct_v1": self.validation_jct[0],
                "validation_jct_final": self.validation_jct[1],
                f"v1_over_{BASELINE}": curve[0].mean,
                "final_over_v1": curve[-1].mean / curve[0].mean,
            },
            "wall_seconds": self.wall_seconds,
            "rollouts": list(map(asdict, self.fleet.rollouts)),
            "canary_power": None if self.fleet.canary_power is None else self.fleet.canary_power.to_json(),
            "lessons": None if lessons is None else lessons_json(lessons),
        }

    def _cluster(self, cluster: ClusterPlan) -> dict[str, Any]:
        last = next(view.status for view in self.fleet.report.fleet.clusters if view.cluster == cluster.name)
        return {
            "name": cluster.name,
            "workload": cluster.source,
            "nodes": cluster.nodes,
            "jobs": cluster.jobs,
            "completed": cluster.jobs,  # a replay that leaves jobs behind has no report
            "avg_jct_seconds": self.replays.jct_seconds[cluster.name],
            "guard_interventions": sum(last.guard_interventions.values()),
        }


def sentences(report: Report) -> Iterator[str]:
    """The findings, in the order in which they stand below the table."""
    found, power, last = headline([], report.replays), report.fleet.canary_power, report.fleet.report.fleet
    yield f"{found.text}."
    yield found.note
    if report.replays.lessons is not None:
        yield f"lessons: {lesson_finding(report.replays.lessons)}"
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
    labels, figures = report.replays.labels, report.replays.jct_seconds
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


def report_page(report: Report) -> str:
    """The page: what the learner's own has, with the replays."""
    content = report_content(report.fleet.report, report.replays, ended=True)
    power = report.fleet.canary_power
    for card in content["rollouts"]["cards"]:
        if power is not None and card["number"] == power.rollout:
            card["said"] = [*card["said"], f"{power.words[:1].upper()}{power.words[1:]}."]
            card["shown"] = True
    return static_page(content)
