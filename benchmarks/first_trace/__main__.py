"""`python -m benchmarks.first_trace`: a new cluster's first traces with the fleet's priors, and without.

Simulated clusters begin with nothing and run traces; what they have seen is merged as the learner does it. Then one
more cluster runs held-out traces, one after the other, its beliefs going on: with a version's priors, without any, and
on the true speeds without noise (the oracle). Reported is the average JCT over the oracle's, in percent: mean and
standard error over seeds, and median. All runs are of the planner alone, so that only beliefs differ.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.first_trace.worlds import (
    FIRST_HELD_OUT_SEED,
    FLEETS,
    NOISE,
    UNSEEN_TYPES,
    World,
    fleet_reports,
    planner,
)
from global_learner.beliefs.intake import checked_report
from global_learner.section_settings import BeliefSettings
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.exchange.wire import type_messages
from policy_net.throughput.fleet_priors import merge_fleet

NODES = (16, 24, 32, 96)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_trace", description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--clusters", type=int, default=6, help="of the fleet")
    parser.add_argument("--fleet-traces", type=int, default=3, help="that each of them has run")
    parser.add_argument("--traces", type=int, default=3, help="of the cluster that joins")
    parser.add_argument("--seeds", type=int, default=16, help="joining clusters of each size")
    parser.add_argument("--jobs", type=int, default=60, help="of a trace")
    parser.add_argument("--nodes", type=int, action="append", help="of the joining cluster, repeatable")
    parser.add_argument("--fleet", action="append", choices=tuple(FLEETS), help="repeatable; all unless given")
    options = parser.parse_args(arguments)
    if min(options.clusters, options.fleet_traces, options.traces, options.seeds, options.jobs) < 1:
        parser.error("--clusters, --fleet-traces, --traces, --seeds and --jobs take 1 or more")
    result = measure(
        options.fleet or list(FLEETS),
        options.nodes or list(NODES),
        options.clusters,
        options.fleet_traces,
        options.traces,
        options.seeds,
        options.jobs,
    )
    if options.output == "json":
        print(json.dumps(result, indent=1))
    else:
        for run in result["runs"]:
            figures = f"{run['mean_pct']:+7.1f} ± {run['standard_error_pct']:3.1f} (median {run['median_pct']:+5.1f})"
            print(f"{run['priors']:22}{run['nodes']:4} nodes, trace {run['trace']}: {figures} % over the oracle")
    return 0


def measure(
    fleets: Sequence[str],
    nodes: Sequence[int],
    clusters: int,
    fleet_traces: int,
    traces: int,
    seeds: int,
    jobs: int,
) -> dict[str, Any]:
    """All runs, and what the fleets knew."""
    began = time.monotonic()
    console = Console(stderr=True)
    priors: dict[str, tuple[SpeedStatistic, ...]] = {"without": ()}
    known = {}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("joining clusters", total=len(nodes) * seeds)
        for name in fleets:
            reports = fleet_reports(name, clusters, fleet_traces, jobs)
            merged = merge_fleet({cluster: told(statistics) for cluster, statistics in reports.items()})
            priors[name] = merged.statistics
            known[name] = {
                "what": FLEETS[name],
                "statistics": len(merged.statistics),
                "types": len({entry.job_type for entry in merged.statistics}),
                "observations": merged.observations,
                "clusters": merged.clusters,
                "reports_left_out": len(merged.left_out),
                "types_withheld": list(merged.withheld),
            }
        logs: dict[tuple[str, int, int], list[float]] = {}
        for size in nodes:
            for number in range(seeds):
                for name, log in _joined(World(size, jobs=jobs), priors, number, traces).items():
                    for trace, value in enumerate(log, start=1):
                        logs.setdefault((name, size, trace), []).append(value)
                progress.advance(task)
    return {
        "noise": NOISE,
        "clusters": clusters,
        "fleet_traces": fleet_traces,
        "jobs": jobs,
        "seeds": [FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + 10 * (seeds - 1) + traces - 1],
        "unseen_types": list(UNSEEN_TYPES),
        "fleets": known,
        "runs": [
            {"priors": name, "nodes": size, "trace": trace, **_summary(values)}
            for (name, size, trace), values in sorted(logs.items())
        ],
        "wall_seconds": round(time.monotonic() - began, 1),
    }


def told(statistics: Sequence[SpeedStatistic]) -> tuple[SpeedStatistic, ...]:
    """What the learner takes of a report: over the wire, and checked."""
    return checked_report(1, type_messages(statistics), BeliefSettings())


def _joined(
    world: World, priors: dict[str, tuple[SpeedStatistic, ...]], number: int, traces: int
) -> dict[str, list[float]]:
    """By priors: log JCT over the oracle's of a joining cluster's traces, one after the other."""
    first = FIRST_HELD_OUT_SEED + 10 * number
    seeds = range(first, first + traces)
    oracle = [world.mean_jct_seconds(planner(speeds=world.speeds), seed, noise=0.0) for seed in seeds]
    logs = {}
    for name, statistics in priors.items():
        policy = planner(statistics)
        logs[name] = [
            math.log(world.mean_jct_seconds(policy, seed) / best) for seed, best in zip(seeds, oracle, strict=True)
        ]
    return logs


def _summary(logs: Sequence[float]) -> dict[str, float]:
    values = 100 * np.expm1(logs)
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return {
        "mean_pct": round(float(values.mean()), 2),
        "standard_error_pct": round(error, 2),
        "median_pct": round(float(np.median(values)), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
