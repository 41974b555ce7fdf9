"""`python -m benchmarks.local [-o json]`: the same real jobs under one policy after the other on this machine.

Ten jobs or more of three kinds, which arrive over time, are trained by a real agent under `fifo` (the sizes that they
ask for), `drf`, `optimus` and `set`, for some seeds of sizes and arrivals. Each policy's agent lives through all seeds,
so that it knows the types of jobs from the second one on. The average completion times of `set` are shown over those of
the others.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean, quantiles
from typing import Any

from rich.console import Console
from rich.status import Status

from benchmarks.command import parser_of, show
from benchmarks.local.machine import Run, plan, run
from deploy.demonstration.processes import DemoFailed

POLICIES = ("set", "fifo", "drf", "optimus")
"""In turn, which begins with another one for each seed."""
_COLUMNS = ("seed", "policy", "jct_seconds", "resizes", "agent_cpu_share")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = parser_of("local", __doc__)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of sizes and arrivals")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--work", type=float, default=2.0, help="of each job's usual work so much")
    parser.add_argument("--gap", type=float, default=8.0, help="mean seconds from one submission to the next")
    parser.add_argument("--deadline", type=float, default=1800.0, help="seconds of one run")
    parser.add_argument("--cgroup", type=Path, help="a control group in which each job is kept to its exact millicores")
    parser.add_argument("--folder", type=Path, help="keep what the runs leave; in a temporary folder unless given")
    options = parser.parse_args(arguments)
    if options.jobs < 1 or min(options.work, options.gap, options.deadline) <= 0.0:
        parser.error("--jobs takes 1 or more, --work, --gap and --deadline more than 0")
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="fedl2-local-") as scratch, Status("", console=console) as status:
        try:
            result = _measure(options, options.folder or Path(scratch), status)
        except DemoFailed as error:
            console.print(f"local: {error}", markup=False)
            return 1
    show(result, options.output, "runs", _COLUMNS)
    return 0


def _measure(options: argparse.Namespace, folder: Path, status: Status) -> dict[str, Any]:
    runs: list[tuple[int, Run]] = []
    for number, seed in enumerate(options.seeds):
        submissions = plan(seed, options.jobs, options.work, options.gap)
        shift = number % len(options.policies)
        for policy in [*options.policies[shift:], *options.policies[:shift]]:
            on_step = partial(_report, status, f"seed {seed}, {policy}")
            done = run(policy, submissions, folder / policy, options.deadline, on_step, options.cgroup)
            runs.append((seed, done))
    rows = [_row(seed, done) for seed, done in runs]
    rivals = [policy for policy in options.policies if policy != "set" and "set" in options.policies]
    return {
        "set_over": {policy: _over(rows, policy) for policy in rivals},
        "set_over_by_seed": {
            str(seed): {policy: _over([row for row in rows if row["seed"] == seed], policy) for policy in rivals}
            for seed in options.seeds
        },
        "decision_to_resized_p99_seconds": _p99([seconds for _, done in runs for seconds in done.resized_seconds]),
        "start_share_of_resize": round(mean([share for _, done in runs for share in done.start_shares] or [0.0]), 3),
        "agent_cpu_share": round(mean(done.agent_cpu_share for _, done in runs), 4),
        "stall_share": sum(done.stall_seconds for _, done in runs) / sum(done.run_seconds for _, done in runs),
        "cores": len(os.sched_getaffinity(0)),
        "runs": rows,
    }


def _report(status: Status, what: str, step: str) -> None:
    status.update(f"{what}: {step}")


def _row(seed: int, done: Run) -> dict[str, Any]:
    return {
        "seed": seed,
        "policy": done.policy,
        "jct_seconds": round(done.average_jct_seconds, 1),
        "resizes": len(done.resized_seconds),
        "agent_cpu_share": round(done.agent_cpu_share, 4),
    }


def _over(rows: Sequence[dict[str, Any]], policy: str) -> float:
    """Average completion time of `set` over that of a policy, over all seeds."""
    ours, theirs = (math.fsum(row["jct_seconds"] for row in rows if row["policy"] == name) for name in ("set", policy))
    return round(ours / theirs, 3)


def _p99(seconds: Sequence[float]) -> float | None:
    if len(seconds) < 2:
        return None
    return round(quantiles(seconds, n=100, method="inclusive")[98], 2)


if __name__ == "__main__":
    sys.exit(main())
