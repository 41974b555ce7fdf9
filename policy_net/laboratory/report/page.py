"""The page: what a cluster operator sees. One file, no scripts, nothing loaded from anywhere; all text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import StrictUndefined

from policy_net.laboratory.report.assumptions import assumptions, limits
from policy_net.laboratory.report.cautions import cautions
from policy_net.laboratory.report.charts import charts_of
from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.report.findings import findings, headline, subline
from policy_net.laboratory.report.pictures import CHART_INCHES, as_data_url
from policy_net.laboratory.report.policies import describe, label
from policy_net.laboratory.report.tables import policy_table, size_table
from policy_net.laboratory.report.words import counted, shown

_PIXELS_PER_INCH = 96


def page_html(comparisons: Sequence[Comparison]) -> str:
    """The whole page, for one or more workloads; the same comparisons give the same bytes."""
    templates = Templates(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = templates.from_string((files("policy_net.laboratory.report") / "page.html").read_text(encoding="utf-8"))
    names = ", ".join(shown(comparison.workload.name) for comparison in comparisons)
    return template.render(
        title=f"What would fedl2 have saved? {names}",
        sections=[_section(comparison) for comparison in comparisons],
        limits=limits(comparisons),
    )


def _section(comparison: Comparison) -> dict[str, Any]:
    workload = comparison.workload
    return {
        "source": (
            f"{shown(workload.name)} · {counted(len(workload.jobs), 'job')} · {counted(comparison.gpus, 'GPU')}"
        ),
        "headline": headline(comparison),
        "subline": subline(comparison),
        "cautions": cautions(comparison),
        "table": policy_table(comparison),
        "findings": findings(comparison),
        "pictures": [
            {
                "url": as_data_url(chart),
                "alt": chart.alt,
                "width": round(CHART_INCHES[0] * _PIXELS_PER_INCH),
                "height": round(CHART_INCHES[1] * _PIXELS_PER_INCH),
            }
            for chart in charts_of(comparison)
        ],
        "sizes": size_table(comparison),
        "assumptions": assumptions(comparison),
        "policies": [{"name": label(result.policy), "text": describe(result.policy)} for result in comparison.results],
        "notes": [shown(note) for note in workload.notes],
    }
