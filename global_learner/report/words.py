"""Words for numbers in the report's sentences; tables and charts have their own in `words.js`."""

from __future__ import annotations

from datetime import UTC, datetime

from foundation.figures import UNITS, percent
from policy_net.laboratory.report.policies import label

_AS_LONG = 0.005
"""Smaller changes are none: a page that shows 0% must not say "less"."""
_FINE_BELOW = 0.095
"""Larger changes are told in whole percent: learning moves versions by a few."""


def is_same(ratio: float) -> bool:
    """Whether a ratio of times is no change."""
    return abs(ratio - 1.0) < _AS_LONG


def change(ratio: float, *, fine: bool = False) -> str:
    """A ratio of times in words: 12% less time, as much time, 5% more time; `fine`: 4.8% more time."""
    if is_same(ratio):
        return "as much time"
    by = abs(ratio - 1.0)
    return f"{f'{by:.1%}' if fine and by < _FINE_BELOW else percent(by)} {'less' if ratio < 1.0 else 'more'} time"


def against(ratio: float, other: str, *, fine: bool = False) -> str:
    """A ratio of times with what it is over: 12% less time than DRF, as much time as DRF."""
    return f"{change(ratio, fine=fine)} {'as' if is_same(ratio) else 'than'} {other}"


def job_hours(seconds: float) -> str:
    """A sum over jobs in hours, without its sign."""
    hours = abs(seconds) / 3600.0
    return f"{hours:,.0f} hours" if hours >= 10.0 else f"{hours:.1f} hours"


def silence(seconds: float) -> str:
    """Time without a heartbeat, in words."""
    unit = next((unit for unit in reversed(UNITS) if seconds >= unit.seconds), UNITS[0])
    return f"{seconds / unit.seconds:.0f} {unit.name}"


def moment(unix_seconds: float) -> str:
    """A moment in UTC, to the minute."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def listed(names: list[str], most: int = 3) -> str:
    """Names in a sentence; of many, the first ones and how many more."""
    shown = names[:most] if len(names) > most + 1 else names
    rest = len(names) - len(shown)
    words = [*shown, f"{rest} more"] if rest else shown
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def policy_label(name: str) -> str:
    """Name of a scheduler for people."""
    return label(name) if name else "the fallback"
