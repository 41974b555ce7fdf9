"""Page and picture of a report: one file of HTML without scripts that loads nothing, and one PNG of it to pass on."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import FunctionLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from foundation.figures import counted, shown
from foundation.page import PARTS, read_part
from policy_net.laboratory.report.caveats import assumptions, cautions, limits, summary
from policy_net.laboratory.report.chart_style import FAINT, INK, in_both_lights, look
from policy_net.laboratory.report.charts import PROPOSED_COLOUR, Chart, charts_of
from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.report.findings import findings
from policy_net.laboratory.report.headline import headline, subline
from policy_net.laboratory.report.owners import FIELDS
from policy_net.laboratory.report.policies import describe, label
from policy_net.laboratory.report.tables import owner_table, policy_table, size_table

CHART_INCHES = (4.8, 3.5)
"""Of one chart; on a telephone it is scaled down to three quarters, and its text is 10 px high."""
PNG_DOTS_PER_INCH = 110
PNG_WIDTH_INCHES = 13.0
_HEADLINE_INCHES = 0.335
_LINE_INCHES = 0.32
_CHARTS_ROW_INCHES = 4.0
_SMALL_LINE_INCHES = 0.21
_MARGIN = 0.014
_HEADLINE_COLUMNS = 88
_SMALL_COLUMNS = 165
_HEADING_COLUMNS = 15
_NAME_WIDTH = 0.16
_COLUMNS = 9
"""Columns of the policies' table in the picture: up to the share of GPUs held."""
PIXELS_PER_INCH = 96


def page_html(comparisons: Sequence[Comparison]) -> str:
    """The page of one or more workloads; the same comparisons give the same bytes."""
    names = ", ".join(shown(comparison.workload.name) for comparison in comparisons)
    return rendered(
        "page.html",
        title=f"What would fedl2 have saved? {names}",
        sections=[_section(comparison) for comparison in comparisons],
        limits=limits(comparisons),
    )


def rendered(template: str, **content: Any) -> str:
    """A page of this folder's templates, with its style; all text is escaped."""
    folder = files("policy_net.laboratory.report")
    loader = FunctionLoader(lambda name: read_part(folder / name))
    templates = Templates(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = read_part(PARTS / "base.css") + read_part(folder / "page.css")
    return templates.get_template(template).render(style=style, **content)


def pictures_of(charts: Iterable[Chart]) -> list[dict[str, Any]]:
    """Charts as a page's template shows them."""
    width, height = (round(inches * PIXELS_PER_INCH) for inches in CHART_INCHES)
    return [{"url": _as_data_url(chart), "alt": chart.alt, "width": width, "height": height} for chart in charts]


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
        "pictures": pictures_of(charts_of(comparison)),
        "sizes": size_table(comparison),
        "owners": [
            {"field": field, "table": table}
            for field, table in ((field, owner_table(comparison, field)) for field in FIELDS)
            if table is not None
        ],
        "assumptions": assumptions(comparison),
        "policies": [{"name": label(result.policy), "text": describe(result.policy)} for result in comparison.results],
        "notes": [shown(note) for note in workload.notes],
    }


def _as_data_url(chart: Chart) -> str:
    """The chart as an SVG inside a `data:` URL, with letters as outlines, in a light and a dark look."""
    stream = io.StringIO()
    with look():
        figure = Figure(figsize=CHART_INCHES, layout="constrained")
        chart.draw(figure.add_subplot())
        figure.savefig(stream, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + base64.b64encode(in_both_lights(stream.getvalue()).encode()).decode("ascii")


def overview_png(comparisons: Sequence[Comparison]) -> bytes:
    """The reports of all workloads below each other; `overview_inches` says how large."""
    stream = io.BytesIO()
    with look():
        figure = Figure(figsize=overview_inches(comparisons), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.16, h_pad=0.14)  # type: ignore[union-attr, call-arg]  # constrained takes both
        heights = [sum(_block_inches(comparison)) for comparison in comparisons]
        blocks = figure.subfigures(len(comparisons), 1, height_ratios=heights, squeeze=False)[:, 0]
        for block, comparison in zip(blocks, comparisons, strict=True):
            _draw_block(block, comparison)
        figure.savefig(stream, format="png", dpi=PNG_DOTS_PER_INCH)
    return stream.getvalue()


def overview_inches(comparisons: Sequence[Comparison]) -> tuple[float, float]:
    """Width and height of the overview."""
    return PNG_WIDTH_INCHES, sum(sum(_block_inches(comparison)) for comparison in comparisons)


def _block_inches(comparison: Comparison) -> tuple[float, float, float, float]:
    """Heights of one workload's head, table, charts and foot."""
    title, below = _head(comparison)
    return (
        _HEADLINE_INCHES * len(title) + _SMALL_LINE_INCHES * (len(below) + 1.5),
        _LINE_INCHES * (len(comparison.results) + (comparison.recorded is not None) + 3),
        _CHARTS_ROW_INCHES * _rows(charts_of(comparison)),
        _SMALL_LINE_INCHES * (len(_foot(comparison)) + 1),
    )


def _draw_block(block: SubFigure, comparison: Comparison) -> None:
    parts = block.subfigures(4, 1, height_ratios=_block_inches(comparison), squeeze=False)[:, 0]
    head, table, grid, foot = parts.tolist()
    title, below = _head(comparison)
    inch = 1.0 / _block_inches(comparison)[0]
    top = 1.0 - _SMALL_LINE_INCHES * inch
    head.text(_MARGIN, top, "\n".join(title), fontsize=17, fontweight="bold", va="top", linespacing=1.25)
    _small(head, top - _HEADLINE_INCHES * len(title) * inch, below)
    _draw_table(table.add_axes((_MARGIN, 0.0, 1 - 2 * _MARGIN, 1.0)), comparison)
    charts = charts_of(comparison)
    for index, chart in enumerate(charts):
        chart.draw(grid.add_subplot(_rows(charts), 2, index + 1))
    _small(foot, 0.98, _foot(comparison))


def _head(comparison: Comparison) -> tuple[list[str], list[str]]:
    below = (
        f"{shown(comparison.workload.name)}: {counted(len(comparison.workload.jobs), 'job')} on"
        f" {counted(comparison.gpus, 'GPU')}. {subline(comparison)}"
    )
    return textwrap.wrap(headline(comparison), _HEADLINE_COLUMNS), textwrap.wrap(below, _SMALL_COLUMNS)


def _foot(comparison: Comparison) -> list[str]:
    texts = [*(f"Caution: {sentence}" for sentence in cautions(comparison)), f"Assumed: {summary(comparison)}"]
    return [line for text in texts for line in textwrap.wrap(text, _SMALL_COLUMNS)]


def _small(figure: SubFigure, top: float, lines: Sequence[str]) -> None:
    figure.text(_MARGIN, top, "\n".join(lines), fontsize=10, va="top", linespacing=1.4)


def _draw_table(axes: Axes, comparison: Comparison) -> None:
    table = policy_table(comparison)
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(table.rows) + 3, 0)
    right_edges = [_NAME_WIDTH + (1 - _NAME_WIDTH) * column / (_COLUMNS - 1) for column in range(1, _COLUMNS)]
    axes.text(0, 1.8, table.headings[0], va="bottom", fontsize=9.5)
    for edge, heading in zip(right_edges, table.headings[1:_COLUMNS], strict=True):
        lines = textwrap.fill(heading, _HEADING_COLUMNS)
        axes.text(edge, 1.8, lines, ha="right", va="bottom", fontsize=9.5, linespacing=1.15)
    for index, row in enumerate(table.rows):
        middle = index + 2.5
        colour = PROPOSED_COLOUR if row.proposed else INK
        axes.plot([0, 1], [middle - 0.5] * 2, color=FAINT, linewidth=0.8)
        axes.text(0, middle, row.name, va="center", fontsize=11, fontweight="bold", color=colour)
        weight = "bold" if row.proposed else "normal"
        for edge, cell in zip(right_edges, row.cells[: _COLUMNS - 1], strict=True):
            axes.text(edge, middle, cell, ha="right", va="center", fontsize=11, fontweight=weight, color=colour)


def _rows(charts: Sequence[Chart]) -> int:
    return (len(charts) + 1) // 2
