"""Page of a run: one file that needs nothing else, in the style of the fleet's report."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from deploy.train.charts import Curve, Lane, curves, lanes, scatter
from deploy.train.story import Resize, Story
from foundation.figures import counted, duration, percent
from foundation.files import write_whole

_STYLE = """
svg { width: 100%; height: auto; display: block; overflow: visible; }
.on-a-telephone { display: none; }
thead th { white-space: normal; overflow-wrap: break-word; } tbody th { white-space: nowrap; }
svg text { font-size: 12px; fill: var(--ink); } svg .lane { font-weight: 600; font-size: 13px; }
svg .tick, svg .small { fill: var(--soft); font-size: 11px; } svg .grid { stroke: var(--line); stroke-width: 1; }
svg .base { stroke: var(--soft); stroke-width: 1; } svg .cut { stroke: var(--card); stroke-width: 1.5; }
svg .same { stroke: var(--soft); stroke-dasharray: 5 4; } svg .waits { fill: var(--line); }
svg .starts { fill-opacity: .5; }
svg .mark { fill: var(--ink); } svg .ps { fill-opacity: .45; } svg polyline { fill: none; stroke-width: 2.2; }
svg .dashed { stroke-dasharray: 6 4; } svg .light { display: inline; }
@media screen and (max-width: 560px) {
  .on-a-desk { display: none; } .on-a-telephone { display: block; }
  .stacked .first::before { content: attr(data-name) " "; color: var(--soft); font-weight: 400; }
  svg text, svg .tick, svg .small, svg .lane { font-size: 15px; }
}
"""
_COLORS = "".join(f"svg .f{n} {{ fill: var(--c{n}); }} svg .s{n} {{ stroke: var(--c{n}); }}\n" for n in range(6))
_LEAST_LOSS = 1e-3
"""Below it, a curve on a logarithmic axis shows nothing but rounding."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def write_training_page(story: Story, folder: Path) -> Path:
    """Write the page, whole or not at all; returns its path.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / "index.html"
    write_whole(path, training_page(story), durable=False)
    return path


def training_page(story: Story) -> str:
    """The page."""
    style = (files("global_learner.report") / "template" / "page.css").read_text(encoding="utf-8") + _STYLE + _COLORS
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(story.began_unix_seconds))
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>fedl2: jobs that trained on this machine</title><style>{style}</style></head><body>"
        f'<header class="top"><p class="brand"><b>fedl2</b> real jobs on one machine</p><p class="status">{made}</p>'
        "</header><main>"
    )
    sections = (_hero, _sizes, _learning, _beliefs, _stalls, _gradients)
    return head + "".join(section(story) for section in sections) + "</main></body></html>\n"


def _hero(story: Story) -> str:
    early, late = story.belief_errors() if story.speeds else (1.0, 1.0)
    also = f"and {len(story.checkpointed)} by a checkpoint; " if story.checkpointed else ""
    beside = also + counted(story.suspensions, "suspension")
    tiles = (
        ("Jobs done", f"{len(story.done)} of {len(story.lives)}", f"in {duration(story.seconds)}"),
        ("Resizes while they trained", str(len(story.live)), beside),
        ("Longest stall", f"{1000 * story.longest_stall_seconds:.2g} ms", "of any worker, in any of these"),
        ("Stalls", _small_share(story.stall_share), "of the time in which such jobs trained"),
        ("Beliefs of speeds off by", f"× {late:.2f}", f"in the median; × {early:.2f} at first"),
        ("Gradients", str(len(story.gradients)), f"to the learner; {counted(len(story.versions), 'version')}"),
    )
    shown = "".join(
        f"<div><dt>{name}</dt><dd><b>{value}</b><span>{more}</span></dd></div>" for name, value, more in tiles
    )
    cores = counted(story.cores, "core")
    resized = f", and were resized {_times(len(story.live))} while they trained" if story.live else ""
    return (
        f'<section class="hero"><h1>{counted(len(story.lives), "job")} shared {cores}{resized}</h1>'
        '<p class="lead">Real processes: a job has a coordinator, parameter servers and workers of its own, or workers '
        "alone that exchange gradients directly (all-reduce). The policy decides, the running jobs are resized, what "
        "they then train is measured, and what was learned from it went to a learner, whose versions decided what came "
        f'next.</p><dl class="tiles">{shown}</dl></section>'
    )


def _sizes(story: Story) -> str:
    colors = _job_colors(story)
    began = story.began_unix_seconds
    rows = []
    for life in story.lives:
        marks = [
            (found.ended_unix_seconds - began, _of_resize(found))
            for found in story.carried_out
            if found.job == life.name
        ]
        end = f"{life.facts['state']} after {duration(life.facts['ageSeconds'])}"
        rows.append(
            Lane(life.name, life.submitted_seconds, life.ended_seconds, life.held, marks, colors[life.name], end)
        )
    most = max((workers for life in story.lives for _, workers, *_ in life.held), default=1)
    return _section(
        "Workers and parameter servers of every job",
        "Workers stand above each line, parameter servers below it. Where the bar is thin, a grey job waits, and a "
        "coloured one starts its processes or goes on from its checkpoint. ▲ marks the end of a resize, a suspension, "
        "or a resumption.",
        f'<div class="on-a-desk">{lanes(rows, story.seconds, most)}</div>'
        f'<div class="on-a-telephone">{lanes(rows, story.seconds, most, narrow=True)}</div>',
    )


def _learning(story: Story) -> str:
    colors = _job_colors(story)
    loss = [
        Curve(life.name, _smoothed([(said.seconds, said.loss) for said in life.said]), colors[life.name])
        for life in story.lives
    ]
    accuracy = [
        Curve(life.name, [(said.seconds, said.accuracy) for said in life.said if said.accuracy is not None], color)
        for life in story.lives
        if (color := colors[life.name]) is not None and any(said.accuracy is not None for said in life.said)
    ]
    best = ", ".join(f"{line.name} {percent(line.points[-1][1])}" for line in accuracy if line.points)
    left = _section(
        "Loss of every job",
        "As its script printed it of single batches, smoothed.",
        _legend((line.name, line.color) for line in loss) + curves(loss, story.seconds, "Loss over time", log=True),
    )
    right = _section(
        "Accuracy on what was not trained on",
        f"At the end: {best}." if best else "",
        _legend((line.name, line.color) for line in accuracy)
        + curves(accuracy, story.seconds, "Accuracy over time", share=True),
    )
    return f'<div class="pair">{left}{right}</div>'


def _beliefs(story: Story) -> str:
    types = list(dict.fromkeys(life.facts["modelType"] for life in story.lives))
    count = max(1, len(story.speeds) - 1)
    points = [
        (
            speed.measured,
            speed.believed,
            types.index(speed.job_type) % 6 if speed.job_type in types else 5,
            number / count,
            f"{speed.job}, {speed.workers} workers, {speed.ps} PSs: measured {speed.measured:.0f}, "
            f"believed {speed.believed:.0f} samples/s",
        )
        for number, speed in enumerate(story.speeds)
    ]
    legend = _legend((name, number % 6) for number, name in enumerate(types))
    chart = _section(
        "What was believed of speeds, and what was measured",
        "A point is one interval of one job: its speed as its coordinator counted it, and what was believed of that "
        "size before. Pale is early, dense is late; on the dashed line the belief was right.",
        legend + scatter(points, "Believed over measured speed"),
    )
    sizes: dict[tuple[str, int, int], list[tuple[float, float, float]]] = {}
    for speed in story.speeds:
        key = (speed.job_type, speed.workers, speed.ps)
        sizes.setdefault(key, []).append((speed.measured, speed.believed, speed.seconds))
    rows = [
        (
            name,
            _size(workers, ps),
            f"{sum(measured * seconds for measured, _, seconds in found) / sum(seconds for *_, seconds in found):,.0f}",
            f"{found[0][1]:,.0f}",
            f"{found[-1][1]:,.0f}",
            f"{sum(seconds for *_, seconds in found):.0f} s",
        )
        for (name, workers, ps), found in sorted(sizes.items())
    ]
    heads = ("Type", "Size", "Measured", "Believed first", "Believed last", "Trained for")
    note = "Sizes are workers + parameter servers, speeds samples/s."
    table = _section("Speeds by size", note, _table(heads, rows))
    return f'<div class="pair">{chart}{table}</div>'


def _stalls(story: Story) -> str:
    began = story.began_unix_seconds
    rows = [
        (
            found.job,
            f"{found.began_unix_seconds - began:.0f} s",
            _size(*found.before) if found.before[0] else "suspended",
            _size(found.workers, found.ps) if found.workers else "suspended",
            "by a checkpoint" if found.by_checkpoint or not (found.workers and found.before[0]) else "while it trained",
            duration(max(0.0, found.ended_unix_seconds - found.began_unix_seconds)),
            duration(found.start_seconds) if found.start_seconds else "–",
            _stall(found),
        )
        for found in story.carried_out
    ]
    heads = ("Job", "At", "From", "To", "How", "Took", "Of that, starting processes", "Stall")
    return _section(
        "Every resize, and how long it kept workers waiting",
        "Sizes are workers + parameter servers; all-reduce jobs have none of these. The stall is the longest wait of "
        "any worker: with parameter servers all the rest of a resize happens while the job trains; all-reduce jobs "
        "wait from their last step before it to the first one after it.",
        _table(heads, rows),
    )


def _gradients(story: Story) -> str:
    began = story.began_unix_seconds
    rows = [
        (
            str(receipt.step),
            f"{receipt.unix_seconds - began:.0f} s",
            str(receipt.samples),
            str(receipt.base_step),
            str(receipt.staleness),
            f"{receipt.learning_rate:.2g}",
        )
        for receipt in story.gradients
    ]
    heads = ("Step of the learner", "At", "Choices", "Computed at step", "Staleness", "Step size")
    first: dict[int, float] = {}
    for acted in story.acted:
        first.setdefault(acted.version, acted.unix_seconds - began)
    counts = {version: sum(acted.version == version for acted in story.acted) for version in first}
    versions = [(f"v{version}", f"{at:.0f} s", str(counts[version])) for version, at in first.items()]
    changed = sum(bool(acted.interventions) for acted in story.acted)
    guard = f" The guard changed {changed} of {len(story.acted)} decisions."
    left = _section(
        "Gradients that went to the learner",
        "Choices of the policy from which a gradient was computed. Staleness: steps of the learner meanwhile.",
        _table(heads, rows),
    )
    right = _section(
        "Versions that decided here",
        f"Each was published by the learner, signed, and assigned to this machine.{guard}",
        _table(("Version", "From", "Decisions"), versions),
    )
    return f'<div class="pair">{left}{right}</div>'


def _job_colors(story: Story) -> dict[str, int]:
    return {life.name: number % 6 for number, life in enumerate(story.lives)}


def _of_resize(found: Resize) -> str:
    if found.suspends:
        return "suspended"
    what = f"resized from {_size(*found.before)} to" if found.before[0] else "resumed with"
    return f"{what} {_size(found.workers, found.ps)}; stall {_stall(found)}"


def _size(workers: int, ps: int) -> str:
    return f"{workers} + {ps}" if ps else str(workers)


def _stall(found: Resize) -> str:
    """Of a suspension none: the job waits for room, not for the resize."""
    if found.suspends or not found.before[0]:
        return "–"
    return duration(found.stall_seconds) if found.by_checkpoint else f"{1000 * found.stall_seconds:.2f} ms"


def _section(title: str, note: str, body: str) -> str:
    return f'<section><h2>{escape(title)}</h2>{body}<p class="note">{escape(note)}</p></section>'


def _legend(entries: Iterable[tuple[str, int]]) -> str:
    keys = (
        f'<span class="key"><span class="swatch" style="--fill: var(--c{color})"></span>{escape(name)}</span>'
        for name, color in entries
    )
    return f'<p class="legend">{"".join(keys)}</p>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return '<p class="empty">None.</p>'

    def cells(row: Sequence[str]) -> str:
        named = zip(heads[1:], row[1:], strict=True)
        rest = "".join(f'<td data-name="{escape(name)}">{escape(cell)}</td>' for name, cell in named)
        return f'<th scope="row" class="first" data-name="{escape(heads[0])}">{escape(row[0])}</th>{rest}'

    first, *others = map(escape, heads)
    head = f'<th scope="col" class="first">{first}</th>' + "".join(f'<th scope="col">{name}</th>' for name in others)
    body = "".join(f"<tr>{cells(row)}</tr>" for row in rows)
    return f'<div class="wide"><table class="stacked"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _small_share(share: float) -> str:
    return "below 0.001%" if share < 1e-5 else f"{100 * share:.2g}%"


def _smoothed(points: Sequence[tuple[float, float]], keep: float = 0.6) -> list[tuple[float, float]]:
    """The geometric moving average: single batches' losses jump."""
    shown: list[tuple[float, float]] = []
    for at, value in points:
        level = math.log(max(value, _LEAST_LOSS))
        before = math.log(shown[-1][1]) if shown else level
        shown.append((at, math.exp(keep * before + (1 - keep) * level)))
    return shown
