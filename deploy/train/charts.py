"""Charts of the page, as SVG: sizes over time, curves, and measured speeds beside what was believed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 1220
NARROW_WIDTH = 450
"""Of a chart on a telephone, and of one that stands beside another: scaled down to three quarters on the former."""
_LEFT, _RIGHT = 132, 18
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """A line with its name and the number of its colour."""

    name: str
    points: Sequence[Point]
    color: int
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """One job: from when on it held how many workers and PSs in which state, and what happened to it.

    Attributes:
        held: in order; it ends with `ended`.
        marks: moments of resizes, each with what to say of it.
    """

    name: str
    submitted: float
    ended: float
    held: Sequence[tuple[float, int, int, str]]
    marks: Sequence[tuple[float, str]]
    color: int
    end: str


def lanes(jobs: Sequence[Lane], seconds: float, most: int, *, narrow: bool = False) -> str:
    """All jobs below each other: workers up, PSs down, one height a task.

    Args:
        most: workers that any of them had.
        narrow: for a telephone; names stand above their lines, not beside them.
    """
    width, start, above = (NARROW_WIDTH, 2, 24) if narrow else (WIDTH, _LEFT, 0)
    unit = 18.0 if most <= 3 else 54.0 / most
    most_ps = max((ps for job in jobs for _, _, ps, _ in job.held), default=1)
    up, down = unit * max(most, 1) + 8, unit * 0.7 * max(most_ps, 1) + 8
    height = len(jobs) * (above + up + down) + 30
    x = _across(seconds, start, width - _RIGHT)
    parts = [*_seconds_axis(x, seconds, height - 24)]
    for number, job in enumerate(jobs):
        base = number * (above + up + down) + above + up
        parts.append(f'<line x1="{start}" x2="{width - _RIGHT}" y1="{base:.1f}" y2="{base:.1f}" class="base"/>')
        name, end = escape(job.name), escape(job.end)
        if narrow:
            parts.append(f'<text x="0" y="{base - up - 5:.1f}" class="lane">{name}</text>')
            place = f'x="{width}" y="{base - up - 5:.1f}"'
            parts.append(f'<text {place} class="small" text-anchor="end">{end}</text>')
        else:
            parts.append(f'<text x="0" y="{base - 4:.1f}" class="lane">{name}</text>')
            parts.append(f'<text x="0" y="{base + 11:.1f}" class="small">{end}</text>')
        starts = [job.submitted, *(at for at, *_ in job.held)]
        sizes = [(0, 0, "queued"), *((workers, ps, state) for _, workers, ps, state in job.held)]
        for at, until, (workers, ps, state) in zip(starts, [*starts[1:], job.ended], sizes, strict=True):
            left, long = x(at), max(0.0, x(until) - x(at))
            if not workers:
                words = f"{job.name}: {state}, {at:.0f}–{until:.0f} s"
                kind = f"f{job.color} starts" if state == "starting" else "waits"
                parts.append(_box(left, base - 3, long, 6, kind, words))
                continue
            words = f"{job.name}: {workers} workers, {ps} PSs, {at:.0f}–{until:.0f} s"
            parts.append(_box(left, base - unit * workers, long, unit * workers, f"f{job.color}", words))
            parts.append(_box(left, base, long, 0.7 * unit * ps, f"f{job.color} ps", words))
            for row in range(1, workers):
                y = base - unit * row
                parts.append(f'<line x1="{left:.1f}" x2="{left + long:.1f}" y1="{y:.1f}" y2="{y:.1f}" class="cut"/>')
        for at, words in job.marks:
            parts.append(
                f'<path d="M{x(at):.1f} {base + down - 8:.1f}l-4 7h8z" class="mark">'
                f"<title>{escape(words)}</title></path>"
            )
    return _svg(height, parts, "Workers and parameter servers of every job over time", width)


def curves(
    lines: Sequence[Curve],
    seconds: float,
    title: str,
    *,
    log: bool = False,
    width: int = NARROW_WIDTH,
    share: bool = False,
) -> str:
    """Lines over the run's time.

    Args:
        share: values are shares of one, shown as per cent.
    """
    points = [point for line in lines for point in line.points]
    if not points:
        return '<p class="empty">Nothing was seen.</p>'
    height, bottom = 250, 222
    values = [value for _, value in points]
    low, high = min(values), 1.0 if share else max(values)
    if log:
        low, high = 10 ** math.floor(math.log10(max(low, 1e-4))), 10 ** math.ceil(math.log10(max(high, 1e-3)))
        ticks = _powers(low, high)
    else:
        ticks = _round_values(low, high)
        low, high = ticks[0], ticks[-1]
    x, y = _across(seconds, 52, width - 12), _upward(low, high, bottom, 12, log=log)
    parts = _seconds_axis(x, seconds, bottom)
    for value in ticks:
        text = f"{100 * value:.6g}%" if share else f"{value:g}"
        parts.append(f'<line x1="52" x2="{width - 12}" y1="{y(value):.1f}" y2="{y(value):.1f}" class="grid"/>')
        parts.append(f'<text x="46" y="{y(value) + 4:.1f}" class="tick" text-anchor="end">{text}</text>')
    for line in lines:
        path = " ".join(f"{x(at):.1f},{y(max(value, low)):.1f}" for at, value in line.points)
        dash = " dashed" if line.dashed else ""
        parts.append(
            f'<polyline points="{path}" class="s{line.color}{dash}"><title>{escape(line.name)}</title></polyline>'
        )
        if line.points:
            at, value = line.points[-1]
            parts.append(f'<circle cx="{x(at):.1f}" cy="{y(max(value, low)):.1f}" r="3" class="f{line.color}"/>')
    return _svg(height, parts, title, width)


def scatter(points: Sequence[tuple[float, float, int, float, str]], title: str, width: int = NARROW_WIDTH) -> str:
    """Believed over measured on logarithmic axes: x, y, colour, how dense (0–1), words."""
    if not points:
        return '<p class="empty">Nothing was measured.</p>'
    values = [value for x, y, *_ in points for value in (x, y) if value > 0]
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
    height, bottom = 360, 322
    x, y = _upward(low, high, 62, width - 24, log=True), _upward(low, high, bottom, 12, log=True)
    parts = []
    for value in _powers(low, high):
        parts.append(f'<line x1="62" x2="{width - 24}" y1="{y(value):.1f}" y2="{y(value):.1f}" class="grid"/>')
        parts.append(f'<line y1="12" y2="{bottom}" x1="{x(value):.1f}" x2="{x(value):.1f}" class="grid"/>')
        parts.append(f'<text x="56" y="{y(value) + 4:.1f}" class="tick" text-anchor="end">{value:,g}</text>')
        parts.append(f'<text x="{x(value):.1f}" y="{bottom + 16}" class="tick" text-anchor="middle">{value:,g}</text>')
    ends = f'x1="{x(low):.1f}" y1="{y(low):.1f}" x2="{x(high):.1f}" y2="{y(high):.1f}"'
    parts.append(f'<line {ends} class="same"/>')
    for across, up, color, density, words in points:
        parts.append(
            f'<circle cx="{x(across):.1f}" cy="{y(max(up, low)):.1f}" r="5" class="f{color}" '
            f'fill-opacity="{0.25 + 0.7 * density:.2f}"><title>{escape(words)}</title></circle>'
        )
    parts.append(f'<text x="{width - 14}" y="{height - 4}" class="tick" text-anchor="end">measured samples/s</text>')
    parts.append('<text x="66" y="22" class="tick">believed before, samples/s</text>')
    return _svg(height, parts, title, width)


def _svg(height: float, parts: Sequence[str], title: str, width: int = WIDTH) -> str:
    head = f'<svg viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(title)}">'
    return f"{head}{''.join(parts)}</svg>"


def _box(x: float, y: float, width: float, height: float, kind: str, words: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} class="{kind}"><title>{escape(words)}</title></rect>'


def _across(seconds: float, left: float, right: float) -> Callable[[float], float]:
    return lambda at: left + (right - left) * min(max(at, 0.0), seconds) / max(seconds, 1e-9)


def _upward(low: float, high: float, bottom: float, top: float, *, log: bool) -> Callable[[float], float]:
    if log:
        first, last = math.log10(low), math.log10(high)
        return lambda value: bottom + (top - bottom) * (math.log10(max(value, low)) - first) / max(last - first, 1e-9)
    return lambda value: bottom + (top - bottom) * (value - low) / (high - low)


def _seconds_axis(x: Callable[[float], float], seconds: float, bottom: float) -> list[str]:
    step = next(step for step in (10, 20, 30, 60, 120, 300, 600, 3600) if seconds / step <= 6 or step == 3600)
    parts = []
    for number in range(int(seconds // step) + 1):
        at = x(number * step)
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="4" y2="{bottom:.0f}" class="grid"/>')
        text = f"{number * step} s"
        parts.append(f'<text x="{at:.1f}" y="{bottom + 17:.0f}" class="tick" text-anchor="middle">{text}</text>')
    return parts


def _powers(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]


def _round_values(low: float, high: float) -> list[float]:
    """From at most the lowest to at least the highest value in round steps; two of them at least."""
    span = max(high - low, 1e-3)
    unit = 10.0 ** math.floor(math.log10(span / 5))
    step = next(unit * times for times in (1, 2, 5, 10) if span / (unit * times) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]
