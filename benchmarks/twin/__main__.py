"""`python -m benchmarks.twin [-o json] [--data FOLDER]`: how much faster the compiled twin is than the reference.

Each world is replayed by both in turn, several times; a ratio is of two runs that followed one another, in processor
time, and the median of them is reported. Every pair is compared as well: by how much any job's end differs.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from benchmarks.command import parser_of
from benchmarks.policy_quality.worlds import World
from benchmarks.twin.worlds import WORLDS, TwinWorld, build
from foundation.errors import BAD_INPUT, DONE, FAILED
from policy_net.domain import PolicyContext, SpeedModel
from policy_net.errors import BadInput, PolicyNetError
from policy_net.laboratory.simulation.replay import ReplayResult, replay, uncovered
from policy_net.policy import SchedulerPolicy, build_policy
from policy_net.set_policy.policy import default_set_file, set_policy_of
from policy_net.twin.library import notice

PROGRAM = "python -m benchmarks.twin"
SET = "set"
LARGEST_DIFFERENCE = 1e-9
"""Of a job's end, relative: beyond it the two are not the same simulator."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = parser_of("twin", __doc__)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="has workloads/*.csv; generated jobs unless given")
    parser.add_argument("--jobs", type=int, default=500, help="of each window")
    parser.add_argument("--policy", default=SET, help="set, or a heuristic; set unless given")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs of each world")
    options = parser.parse_args(arguments)
    missing = notice()
    if missing is not None or options.jobs < 1 or options.repeats < 1:
        print(f"{PROGRAM}: {missing or '--jobs and --repeats: use 1 or more'}", file=sys.stderr)
        return BAD_INPUT
    try:
        result = measure(options.policy, options.data, options.jobs, options.repeats)
    except PolicyNetError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return BAD_INPUT
    if options.output == "json":
        print(json.dumps(result))
    else:
        for name, row in result["worlds"].items():
            print(
                f"{name:34} {row['reference_cpu_seconds']:8.2f} s {1e3 * row['twin_cpu_seconds']:8.1f} ms"
                f" {row['ratio']:7.0f} × (from {row['ratio_least']:.0f})  {row['largest_difference']:.1e}"
            )
    return DONE if result["largest_difference"] <= LARGEST_DIFFERENCE else FAILED


def measure(policy: str, data: Path | None, jobs: int, repeats: int) -> dict[str, Any]:
    """All figures; minutes, of which the reference takes nearly all."""
    console = Console(stderr=True)
    rows: dict[str, Any] = {}
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=len(WORLDS))
        for world in WORLDS:
            progress.update(task, description=world.name)
            rows[world.name] = _row(policy, world, build(world, data, jobs), repeats)
            progress.update(task, advance=1)
    return {
        "policy": policy,
        "processor": platform.processor() or platform.machine(),
        "jobs": jobs,
        "repeats": repeats,
        "recorded": data is not None,
        "worlds": rows,
        "ratio_least": min(row["ratio"] for row in rows.values()),
        "largest_difference": max(row["largest_difference"] for row in rows.values()),
    }


def _built(policy: str, speeds: SpeedModel, *, places: bool) -> SchedulerPolicy:
    """A fresh policy; `places`: whether plans of `set` say where tasks go."""
    if policy == SET:
        return set_policy_of(default_set_file(), SET, places=places)
    return build_policy(policy, PolicyContext(seed=0, true_speeds=speeds))


def _row(name: str, world: TwinWorld, built: World, repeats: int) -> dict[str, Any]:
    """Pairs of runs of one world."""
    times: list[tuple[float, float]] = []
    difference, decisions = 0.0, 0
    for _ in range(repeats):
        ends: list[ReplayResult] = []
        seconds: list[float] = []
        for compiled in (False, True):
            policy = _built(name, built.speeds, places=world.planned)
            declined = uncovered(built.workload, built.environment, policy, built.speeds, built.placement_effect)
            if declined is not None:
                raise BadInput(f"{world.name}: the twin does not cover it: {declined}")
            began = time.process_time()
            ends.append(
                replay(
                    built.workload,
                    built.environment,
                    policy,
                    built.speeds,
                    placement_effect=built.placement_effect,
                    compiled=compiled,
                )
            )
            seconds.append(time.process_time() - began)
        times.append((seconds[0], seconds[1]))
        difference, decisions = max(difference, _difference(*ends)), ends[0].counters.decisions
    ratios = [reference / twin for reference, twin in times]
    return {
        "decisions": decisions,
        "reference_cpu_seconds": round(statistics.median(reference for reference, _ in times), 4),
        "twin_cpu_seconds": round(statistics.median(twin for _, twin in times), 5),
        "ratio": round(statistics.median(ratios), 1),
        "ratio_least": round(min(ratios), 1),
        "largest_difference": difference,
    }


def _difference(reference: ReplayResult, twin: ReplayResult) -> float:
    """The largest relative difference of any job's end; infinite where one ended in one of them only."""
    largest = 0.0
    for one, other in zip(reference.outcomes, twin.outcomes, strict=True):
        if one.end_seconds is None or other.end_seconds is None:
            return float("inf")
        largest = max(largest, abs(one.end_seconds - other.end_seconds) / max(one.end_seconds, 1.0))
    return largest


if __name__ == "__main__":
    sys.exit(main())
