"""Rounds of measurements: all ways one after the other, and a comparison of what stood side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.dataplane.pair import Pair

_MB = 1_000_000
_ROUND_MB = 100
"""Pushed, and pulled, in each round: small sizes are repeated so often."""
_MOST_REPEATS = 40


@dataclass(frozen=True, slots=True)
class Measured:
    """One way, one size, one round; bytes are those of the payload, once each way."""

    push_seconds_per_gb: float
    pull_seconds_per_gb: float
    cpu_seconds_per_gb: float
    """Of both processes."""

    @property
    def gb_per_second(self) -> float:
        """Pushed and pulled alike."""
        return 2.0 / (self.push_seconds_per_gb + self.pull_seconds_per_gb)


Rounds = dict[tuple[str, int], list[Measured]]
"""By way and size in MB."""


def measure(
    pairs: Mapping[str, Pair], sizes_mb: Sequence[int], rounds: int, reported: Callable[[str], None] = lambda _: None
) -> Rounds:
    """`rounds` measurements of each way and size, after one that is not counted; each round in another order."""
    measured: Rounds = {(way, size): [] for size in sizes_mb for way in pairs}
    ways = list(pairs)
    for number in range(rounds + 1):
        for size in sizes_mb:
            for way in ways:
                reported(f"round {number} of {rounds}: {size} MB, {way}")
                result = _measure_one(pairs[way], size)
                if number:
                    measured[way, size].append(result)
        ways = ways[1:] + ways[:1]
    return measured


def _measure_one(pair: Pair, size_mb: int) -> Measured:
    repeats = min(_MOST_REPEATS, max(1, _ROUND_MB // size_mb))
    gigabytes = repeats * size_mb * _MB / 1e9
    push_seconds = pull_seconds = 0.0
    cpu_before = pair.cpu_seconds()
    for _ in range(repeats):
        started = time.perf_counter()
        pair.push(size_mb * _MB)
        pushed = time.perf_counter()
        pair.pull(size_mb * _MB)
        push_seconds += pushed - started
        pull_seconds += time.perf_counter() - pushed
    cpu_seconds = pair.cpu_seconds() - cpu_before
    return Measured(push_seconds / gigabytes, pull_seconds / gigabytes, cpu_seconds / (2.0 * gigabytes))


def rows(measured: Rounds) -> list[dict[str, Any]]:
    """Medians over the rounds, one row a way and size."""
    return [
        {
            "way": way,
            "size_mb": size,
            "gb_per_second": _median(each.gb_per_second for each in results),
            "push_gb_per_second": _median(1.0 / each.push_seconds_per_gb for each in results),
            "pull_gb_per_second": _median(1.0 / each.pull_seconds_per_gb for each in results),
            "best_gb_per_second": round(max(each.gb_per_second for each in results), 3),
            "cpu_seconds_per_gb": _median(each.cpu_seconds_per_gb for each in results),
        }
        for (way, size), results in measured.items()
    ]


def speed_over(measured: Rounds, way: str, base: str) -> dict[str, float]:
    """GB/s of `way` over that of `base` by size: the median of the rounds' ratios."""
    return _over(measured, way, base, lambda each: each.gb_per_second)


def cpu_over(measured: Rounds, way: str, base: str) -> dict[str, float]:
    """Processor time a GB, likewise."""
    return _over(measured, way, base, lambda each: each.cpu_seconds_per_gb)


def _over(measured: Rounds, way: str, base: str, figure: Callable[[Measured], float]) -> dict[str, float]:
    return {
        str(size): _median(
            figure(ours) / figure(theirs)
            for ours, theirs in zip(measured[way, size], measured[base, size], strict=True)
        )
        for (name, size) in measured
        if name == way
    }


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)
