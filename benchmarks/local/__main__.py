"""`python -m benchmarks.local [-o json]`: the same real jobs under one policy after the other on this machine.

Ten jobs or more of three kinds, which arrive over time, are trained by a real agent under `fifo` (the sizes that they
ask for), `drf`, `optimus` and `set`, for some seeds of sizes and arrivals. Each policy's agent lives through all seeds,
so that it knows the types of jobs from the second one on. The average completion times of `set` are shown over those of
the others, beside what the simulator foretells with the speeds of the first seed's runs.
"""

from __future__ import annotations

import argparse
import json
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

from benchmarks.command import parser_of
from benchmarks.local.machine import Run, Submission, plan, run
from benchmarks.local.twin import Calibration, calibrated, foretold_jct_seconds
from deploy.demonstration.processes import DemoFailed
from policy_net.domain import PolicyContext
from policy_net.policy import build_policy

POLICIES = ("set", "fifo", "drf", "optimus")
"""In turn, which begins with another one for each seed."""


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
    print(json.dumps(result) if options.output == "json" else _table(result))
    return 0


def _measure(options: argparse.Namespace, folder: Path, status: Status) -> dict[str, Any]:
    rounds: list[tuple[int, Sequence[Submission], list[Run]]] = []
    for number, seed in enumerate(options.seeds):
        submissions = plan(seed, options.jobs, options.work, options.gap)
        shift = number % len(options.policies)
        runs = []
        for policy in [*options.policies[shift:], *options.policies[:shift]]:
            tell = partial(_tell, status, f"seed {seed}, {policy}")
            runs.append(run(policy, submissions, folder / policy, options.deadline, tell, options.cgroup))
        rounds.append((seed, submissions, runs))
    _, first, measured = rounds[0]
    machine = calibrated(measured, first, _cores())
    twins = {policy: build_policy(policy, PolicyContext()) for policy in options.policies}
    rows = [
        _row(seed, done, foretold_jct_seconds(twins[done.policy], submissions, machine))
        for seed, submissions, runs in rounds
        for done in runs
    ]
    runs = [done for _, _, of_seed in rounds for done in of_seed]
    return {
        "set_over": {
            policy: _over(rows, policy) for policy in options.policies if policy != "set" and "set" in options.policies
        },
        "set_over_by_seed": {
            str(seed): {
                policy: _over([row for row in rows if row["seed"] == seed], policy)
                for policy in options.policies
                if policy != "set" and "set" in options.policies
            }
            for seed in options.seeds
        },
        "twin_error_worst": max(_error(rows, policy) for policy in options.policies),
        "twin_order_kept": _order(rows, options.policies, "jct_seconds")
        == _order(rows, options.policies, "twin_jct_seconds"),
        "decision_to_resized_p99_seconds": _p99([seconds for done in runs for seconds in done.resized_seconds]),
        "start_share_of_resize": round(mean([share for done in runs for share in done.start_shares] or [0.0]), 3),
        "agent_cpu_share": round(mean(done.agent_cpu_share for done in runs), 4),
        "stall_share": sum(done.stall_seconds for done in runs) / sum(done.run_seconds for done in runs),
        "machine": _machine(machine),
        "runs": rows,
    }


def _tell(status: Status, what: str, step: str) -> None:
    status.update(f"{what}: {step}")


def _row(seed: int, done: Run, foretold: float) -> dict[str, Any]:
    return {
        "seed": seed,
        "policy": done.policy,
        "jct_seconds": round(done.average_jct_seconds, 1),
        "twin_jct_seconds": round(foretold, 1),
        "resizes": len(done.resized_seconds),
        "agent_cpu_share": round(done.agent_cpu_share, 4),
    }


def _of(rows: Sequence[dict[str, Any]], policy: str, figure: str) -> float:
    return math.fsum(row[figure] for row in rows if row["policy"] == policy)


def _over(rows: Sequence[dict[str, Any]], policy: str) -> float:
    """Average completion time of `set` over that of a policy, over all seeds."""
    return round(_of(rows, "set", "jct_seconds") / _of(rows, policy, "jct_seconds"), 3)


def _error(rows: Sequence[dict[str, Any]], policy: str) -> float:
    return round(abs(_of(rows, policy, "twin_jct_seconds") / _of(rows, policy, "jct_seconds") - 1.0), 3)


def _order(rows: Sequence[dict[str, Any]], policies: Sequence[str], figure: str) -> list[str]:
    return sorted(policies, key=lambda policy: _of(rows, policy, figure))


def _p99(seconds: Sequence[float]) -> float | None:
    if len(seconds) < 2:
        return None
    return round(quantiles(seconds, n=100, method="inclusive")[98], 2)


def _machine(machine: Calibration) -> dict[str, float]:
    return {
        "cores": machine.cores,
        "start_seconds": round(machine.start_seconds, 2),
        "resume_seconds": round(machine.resume_seconds, 2),
        "resize_seconds": round(machine.resize_seconds, 2),
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _table(result: dict[str, Any]) -> str:
    columns = ("seed", "policy", "jct_seconds", "twin_jct_seconds", "resizes", "agent_cpu_share")
    lines = ["".join(f"{name:>18}" for name in columns)]
    lines += ["".join(f"{row[name]:>18}" for name in columns) for row in result["runs"]]
    lines += [f"{name:34}{value}" for name, value in result.items() if name != "runs"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
