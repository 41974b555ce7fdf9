"""`python -m benchmarks.kube [-o json]`: what an agent on a large Kubernetes cluster takes, and how quick it is.

A real agent process on the test API server, 500 nodes and 10,000 pods of others, in each of its modes: 2,000 Jobs with
targets that ask for advice; as many whose sizes it sets (`auto`); TrainingJobs that it starts and asks (`training`).
The figures of advice are on top; the others are in `modes`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import parser_of
from benchmarks.kube.large_cluster import Size
from benchmarks.kube.measure import Plan, measure

MODES = ("advice", "auto", "training")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = parser_of("kube", __doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--training-jobs", type=int, default=500)
    parser.add_argument("--ticks", type=int, default=200)
    parser.add_argument("--changes", type=int, default=5, help="jobs that come, and go, at each tick")
    parser.add_argument("--calm-seconds", type=float, default=30.0, help="in which nothing changes, after the ticks")
    parser.add_argument("--modes", default=",".join(MODES), help="some of these, with commas between them")
    given = parser.parse_args(arguments)
    modes = given.modes.split(",")
    if not modes or set(modes) - set(MODES):
        parser.error(f"--modes: {given.modes!r} is not some of {', '.join(MODES)}")
    found: dict[str, dict[str, Any]] = {}
    for mode in modes:
        jobs = given.training_jobs if mode == "training" else given.jobs
        with tempfile.TemporaryDirectory(prefix="fedl2-kube-") as folder:
            plan = Plan(jobs, given.ticks, given.changes, given.calm_seconds)
            found[mode] = measure(mode, Size(given.nodes, given.pods), plan, Path(folder))
    if given.output == "json":
        others = {mode: figures for mode, figures in found.items() if mode != "advice"}
        json.dump({**found.get("advice", {}), "modes": others}, sys.stdout, indent=2)
        print()
    else:
        for mode, figures in found.items():
            print(mode)
            for name, value in figures.items():
                print(f"  {name:26} {value:.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
