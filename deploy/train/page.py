"""Page of a run: content for the page's script, in sentences and figures."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from deploy.train.story import Resize, Story
from foundation.figures import counted, duration, percent
from foundation.page import PageKind

_PAGE = PageKind(
    "fedl2: jobs that trained on this machine",
    "real jobs on one machine",
    files("deploy.train"),
    ["page.js"],
    "page.css",
)
_COLORS = 6
_LEAST_LOSS = 1e-3
"""Below it, a curve on a logarithmic axis shows nothing but rounding."""
_LEAD = (
    "Real processes: a job has a coordinator, parameter servers and workers of its own, or workers alone that exchange"
    " gradients directly (all-reduce). The policy decides, and the running jobs are resized; their speeds are measured."
    " Gradients of these decisions went to a learner, and its new versions took the next ones."
)


def training_page(story: Story) -> str:
    """The page."""
    return _PAGE.page(page_content(story))


def page_content(story: Story) -> dict[str, Any]:
    """Content of the page, as its script reads it."""
    resized = f", and were resized {_times(len(story.live))} while they trained" if story.live else ""
    return {
        "headline": f"{counted(len(story.lives), 'job')} shared {counted(story.cores, 'core')}{resized}",
        "lead": _LEAD,
        "made": time.strftime("%Y-%m-%d %H:%M", time.localtime(story.began_unix_seconds)),
        "tiles": _tiles(story),
        "seconds": story.seconds,
        "jobs": _lanes(story),
        "loss": [
            {
                "name": life.name,
                "color": color % _COLORS,
                "points": _smoothed([(said.seconds, said.loss) for said in life.said]),
            }
            for color, life in enumerate(story.lives)
        ],
        "accuracy": _accuracy(story),
        "beliefs": _beliefs(story),
        "tables": {
            "speeds": _speeds(story),
            "resizes": _resizes(story),
            "gradients": _gradients(story),
            "versions": _versions(story),
        },
    }


def _tiles(story: Story) -> list[tuple[str, str, str]]:
    early, late = story.belief_errors() if story.speeds else (1.0, 1.0)
    also = f"and {len(story.checkpointed)} by a checkpoint; " if story.checkpointed else ""
    return [
        ("Jobs done", f"{len(story.done)} of {len(story.lives)}", f"in {duration(story.seconds)}"),
        ("Resizes while they trained", str(len(story.live)), also + counted(story.suspensions, "suspension")),
        ("Longest stall", f"{1000 * story.longest_stall_seconds:.2g} ms", "of any worker in these resizes"),
        ("Stalls", _small_share(story.stall_share), "of the time in which such jobs trained"),
        ("Beliefs of speeds off by", f"× {late:.2f}", f"in the median; × {early:.2f} at first"),
        ("Gradients", str(len(story.gradients)), f"to the learner; {counted(len(story.versions), 'version')}"),
    ]


def _lanes(story: Story) -> list[dict[str, Any]]:
    return [
        {
            "name": life.name,
            "color": color % _COLORS,
            "submitted": life.submitted_seconds,
            "ended": life.ended_seconds,
            "held": life.held,
            "marks": [
                (found.ended_unix_seconds - story.began_unix_seconds, _of_resize(found))
                for found in story.carried_out
                if found.job == life.name
            ],
            "end": f"{life.facts['state']} after {duration(life.facts['ageSeconds'])}",
        }
        for color, life in enumerate(story.lives)
    ]


def _accuracy(story: Story) -> dict[str, Any]:
    lines: list[dict[str, Any]] = [
        {
            "name": life.name,
            "color": color % _COLORS,
            "points": [(said.seconds, said.accuracy) for said in life.said if said.accuracy is not None],
        }
        for color, life in enumerate(story.lives)
    ]
    best = ", ".join(f"{line['name']} {percent(line['points'][-1][1])}" for line in lines if line["points"])
    return {"lines": lines, "note": f"At the end: {best}." if best else ""}


def _beliefs(story: Story) -> dict[str, Any]:
    types = list(dict.fromkeys(life.facts["modelType"] for life in story.lives))
    last = max(1, len(story.speeds) - 1)
    points = [
        {
            "measured": speed.measured,
            "believed": speed.believed,
            "type": types.index(speed.job_type) % _COLORS if speed.job_type in types else _COLORS - 1,
            "late": number / last,
            "words": [
                f"{speed.job}, {speed.workers} workers, {speed.ps} PSs",
                f"measured {speed.measured:.0f}, believed {speed.believed:.0f} samples/s",
            ],
        }
        for number, speed in enumerate(story.speeds)
    ]
    return {"types": types, "points": points}


def _speeds(story: Story) -> dict[str, Any]:
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
    headings = ("Type", "Size", "Measured", "Believed first", "Believed last", "Trained for")
    return _table(headings, rows, "Sizes are workers + parameter servers, speeds samples/s.")


def _resizes(story: Story) -> dict[str, Any]:
    rows = [
        (
            found.job,
            f"{found.began_unix_seconds - story.began_unix_seconds:.0f} s",
            _size(*found.before) if found.before[0] else "suspended",
            _size(found.workers, found.ps) if found.workers else "suspended",
            "by a checkpoint" if found.by_checkpoint or not (found.workers and found.before[0]) else "while it trained",
            duration(max(0.0, found.ended_unix_seconds - found.began_unix_seconds)),
            duration(found.start_seconds) if found.start_seconds else "–",
            _stall(found),
        )
        for found in story.carried_out
    ]
    return _table(
        ("Job", "At", "From", "To", "How", "Took", "Of that, starting processes", "Stall"),
        rows,
        "Sizes are workers + parameter servers; all-reduce jobs have no parameter servers. The stall is the longest"
        " wait of any worker: with parameter servers all the rest of a resize happens while the job trains; all-reduce"
        " jobs wait from their last step before it to the first one after it.",
    )


def _gradients(story: Story) -> dict[str, Any]:
    rows = [
        (
            str(receipt.step),
            f"{receipt.unix_seconds - story.began_unix_seconds:.0f} s",
            str(receipt.samples),
            str(receipt.base_step),
            str(receipt.staleness),
            f"{receipt.learning_rate:.2g}",
        )
        for receipt in story.gradients
    ]
    headings = ("Step of the learner", "At", "Choices", "Computed at step", "Staleness", "Step size")
    note = "Choices of the policy from which a gradient was computed. Staleness: steps of the learner meanwhile."
    return _table(headings, rows, note)


def _versions(story: Story) -> dict[str, Any]:
    rows = []
    for version in story.acting_versions:
        acted = [each.unix_seconds - story.began_unix_seconds for each in story.acted if each.version == version]
        rows.append((f"v{version}", f"{acted[0]:.0f} s", str(len(acted))))
    note = (
        "Each was published by the learner, signed, and assigned to this machine. The guard changed"
        f" {sum(bool(acted.interventions) for acted in story.acted)} of {len(story.acted)} decisions."
    )
    return _table(("Version", "From", "Decisions"), rows, note)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> dict[str, Any]:
    return {"headings": headings, "rows": rows, "note": note}


def _of_resize(found: Resize) -> str:
    if found.suspends:
        return "suspended"
    what = f"resized from {_size(*found.before)} to" if found.before[0] else "resumed with"
    return f"{what} {_size(found.workers, found.ps)}; stall {_stall(found)}"


def _size(workers: int, ps: int) -> str:
    return f"{workers} + {ps}" if ps else str(workers)


def _stall(found: Resize) -> str:
    """Longest wait of a worker; none of a suspension, where the job waits for free capacity, not for the resize."""
    if found.suspends or not found.before[0]:
        return "–"
    return duration(found.stall_seconds) if found.by_checkpoint else f"{1000 * found.stall_seconds:.2f} ms"


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
