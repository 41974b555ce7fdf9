"""What the demo leaves in `report/`: `summary.json` for programs, a page, pictures and a table for people."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from deploy.local.charts.jct import draw_jct
from deploy.local.charts.job import draw_job
from deploy.local.charts.learning import draw_learning
from deploy.local.charts.staleness import Updates, draw_staleness
from deploy.local.charts.style import POLICY_LABELS, save, save_grid
from deploy.local.comparison import Comparison
from deploy.local.fleet import FleetResult
from deploy.local.page import page_content
from deploy.local.plan import ClusterPlan
from foundation.figures import counted
from global_learner.report.files import write_page
from policy_net.laboratory.report.chart_style import Draw


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known at the end."""

    plan: Sequence[ClusterPlan]
    fleet: FleetResult
    comparison: Comparison
    staleness: Updates
    wall_seconds: float

    def to_json(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        last = self.fleet.last
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
            },
            "wall_seconds": self.wall_seconds,
        }

    def _cluster(self, cluster: ClusterPlan) -> dict[str, Any]:
        scores = self.comparison.own[cluster.name]
        return {
            "name": cluster.name,
            "workload": cluster.source,
            "nodes": cluster.nodes,
            "jobs": cluster.jobs,
            "completed": min(score.completed for score in scores.values()),
            "avg_jct_seconds": {policy: score.avg_jct_seconds for policy, score in scores.items()},
            "guard_interventions": self.fleet.interventions[cluster.name],
        }


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write the summary, the page and the pictures; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    comparison = report.comparison
    draws: dict[str, Draw] = {
        "jct": partial(draw_jct, figures=comparison.own_jct_seconds),
        "learning": partial(draw_learning, scores=comparison.curve),
        "staleness": partial(draw_staleness, updates=report.staleness),
        "job": partial(draw_job, timeline=comparison.job),
    }
    written = [save(folder / f"{name}.png", draw) for name, draw in draws.items()]
    title = f"{counted(len(report.plan), 'cluster')}, one policy, {counted(report.fleet.last.head_step, 'update')}"
    written.append(save_grid(folder / "overview.png", list(draws.values()), title))
    summary = folder / "summary.json"
    summary.write_text(json.dumps(report.to_json(), indent=2) + "\n", encoding="utf-8")
    page = write_page(page_content(report.fleet.report, comparison, report.staleness), folder)
    return [page, summary, *written]


def print_report(report: Report, files: Sequence[Path], console: Console) -> None:
    """The table, the findings in words, and where the files are."""
    table = Table(
        box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title=escape("average job completion time [h]")
    )
    for heading in ("cluster", "nodes", "jobs", *POLICY_LABELS.values(), "final/DRF"):
        table.add_column(heading, justify="left" if heading == "cluster" else "right")
    figures = report.comparison.own_jct_seconds
    for cluster in report.plan:
        by = figures[cluster.name]
        cells = [f"{by[policy] / 3600:.2f}" for policy in POLICY_LABELS]
        ratio = f"{by['learned'] / by['drf']:.2f}"
        table.add_row(cluster.name, str(cluster.nodes), str(cluster.jobs), *cells, ratio)
    over_drf = math.exp(math.fsum(math.log(by["learned"] / by["drf"]) for by in figures.values()) / len(figures))
    console.print(table)
    comparison = report.comparison
    console.print(
        f"mean ratio final/DRF {over_drf:.3f}; on held-out workloads v1 took"
        f" {comparison.validation_jct_v1 / 3600:.2f} h, the final version"
        f" {comparison.validation_jct_final / 3600:.2f} h",
        soft_wrap=True,
    )
    last = report.fleet.last
    console.print(
        f"learner: head step {last.head_step}, {last.updates_accepted} updates accepted, {last.updates_rejected}"
        f" rejected, {len(report.fleet.published)} versions; {report.wall_seconds:.0f} s in all",
        soft_wrap=True,
    )
    console.print("written: " + ", ".join(str(path) for path in files), soft_wrap=True)
