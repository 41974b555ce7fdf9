"""Page of a run: content for the page's script, in sentences and figures."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from deploy.train.story import Life, Resize, Story
from foundation.figures import counted, duration
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
    times = {1: "once", 2: "twice"}.get(len(story.live), f"{len(story.live)} times")
    resized = f", and were resized {times} while they trained" if story.live else ""
    content = {
        "headline": f"{counted(len(story.lives), 'job')} shared {counted(story.cores, 'core')}{resized}",
        "lead": _LEAD,
        "made": time.strftime("%Y-%m-%d %H:%M", time.localtime(story.began_unix_seconds)),
        "tiles": _tiles(story),
        "seconds": story.seconds,
        "jobs": _lanes(story),
        "loss": _lines(story, lambda life: _smoothed([(said.seconds, said.loss) for said in life.said])),
        "accuracy": _lines(
            story, lambda life: [(said.seconds, said.accuracy) for said in life.said if said.accuracy is not None]
        ),
        "beliefs": _beliefs(story),
        "tables": {"resizes": _resizes(story), "versions": _versions(story)},
    }
    return _PAGE.page(content)


def _tiles(story: Story) -> list[tuple[str, str, str]]:
    found = story.to_json()
    early, late = found["belief_factor_early"] or 1.0, found["belief_factor_late"] or 1.0
    also = f"and {found['resizes_by_checkpoint']} by a checkpoint; " if found["resizes_by_checkpoint"] else ""
    done = sum(job["state"] == "done" for job in found["jobs"])
    share = found["stall_share"]
    return [
        ("Jobs done", f"{done} of {len(story.lives)}", f"in {duration(story.seconds)}"),
        ("Resizes while they trained", str(found["resizes"]), also + counted(found["suspensions"], "suspension")),
        ("Longest stall", f"{1000 * found['longest_stall_seconds']:.2g} ms", "of any worker in these resizes"),
        ("Stalls", "below 0.001%" if share < 1e-5 else f"{100 * share:.2g}%", "of the time in which such jobs trained"),
        ("Beliefs of speeds off by", f"× {late:.2f}", f"in the median; × {early:.2f} at first"),
        ("Gradients", str(found["gradients"]), f"to the learner; {counted(len(story.versions), 'version')}"),
    ]


def _lanes(story: Story) -> list[dict[str, Any]]:
    return [
        {
            "name": life.name,
            "color": color % _COLORS,
            "submitted": life.submitted_seconds,
            "ended": life.submitted_seconds + life.facts["ageSeconds"],
            "held": life.sizes,
            "marks": [
                (found.ended_unix_seconds - story.began_unix_seconds, _of_resize(found))
                for found in story.carried_out
                if found.job == life.name
            ],
            "end": f"{life.facts['state']} after {duration(life.facts['ageSeconds'])}",
        }
        for color, life in enumerate(story.lives)
    ]


def _lines(story: Story, points: Callable[[Life], Sequence[tuple[float, float]]]) -> list[dict[str, Any]]:
    """A line for every job that said something: seconds and values."""
    return [
        {"name": life.name, "color": color % _COLORS, "points": points(life)} for color, life in enumerate(story.lives)
    ]


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
    note = (
        "Sizes are workers + parameter servers; all-reduce jobs have no parameter servers. The stall is the longest"
        " wait of any worker: with parameter servers all the rest of a resize happens while the job trains; all-reduce"
        " jobs wait from their last step before it to the first one after it."
    )
    headings = ("Job", "At", "From", "To", "How", "Took", "Of that, starting processes", "Stall")
    return {"headings": headings, "rows": rows, "note": note}


def _versions(story: Story) -> dict[str, Any]:
    rows = []
    for version, number in Counter(each.version for each in story.acted).items():
        first = next(each.unix_seconds for each in story.acted if each.version == version)
        rows.append((f"v{version}", f"{first - story.began_unix_seconds:.0f} s", str(number)))
    note = (
        "Each was published by the learner, signed, and assigned to this machine. The guard changed"
        f" {sum(bool(acted.interventions) for acted in story.acted)} of {len(story.acted)} decisions."
    )
    return {"headings": ("Version", "From", "Decisions"), "rows": rows, "note": note}


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


def _smoothed(points: Sequence[tuple[float, float]], keep: float = 0.6) -> list[tuple[float, float]]:
    """The geometric moving average: single batches' losses jump."""
    shown: list[tuple[float, float]] = []
    for at, value in points:
        level = math.log(max(value, _LEAST_LOSS))
        before = math.log(shown[-1][1]) if shown else level
        shown.append((at, math.exp(keep * before + (1 - keep) * level)))
    return shown
