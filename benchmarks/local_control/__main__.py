"""`python -m benchmarks.local_control [-o json]`: what a local agent's control plane costs and how quick it is.

Hundreds of jobs wait for a real agent on this machine: how many `submit` commands pass in a minute, what `jobs` takes
as a command and over the socket, and how long decisions take under each policy. Then some jobs run, and nobody asks
for anything: the agent's own share of one core. The jobs sleep in their steps.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from benchmarks.local_control.measure import queue, running_jobs
from cluster_agent.settings import GuardSettings
from deploy.local.processes import DemoFailed

POLICIES = ("set", "drf", "optimus", "fifo")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local_control", description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--policies", nargs="*", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--queued", type=int, default=500, help="jobs that wait")
    parser.add_argument("--submissions", type=int, default=200, help="of these, by real commands")
    parser.add_argument("--calls", type=int, default=30, help="of each command")
    parser.add_argument("--decisions", type=int, default=10, help="of each policy")
    parser.add_argument("--fixed", type=int, default=14, help="jobs of a fixed size that run")
    parser.add_argument("--elastic", type=int, default=6, help="jobs with a parameter server and a worker that run")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which the running jobs are watched")
    options = parser.parse_args(arguments)
    if min(options.queued, options.calls, options.decisions) < 1 or not 0 <= options.submissions <= options.queued:
        parser.error("--queued, --calls and --decisions take 1 or more, --submissions no more than --queued")
    if min(options.fixed, options.elastic) < 0 or options.seconds <= 0.0:
        parser.error("--fixed and --elastic take 0 or more, --seconds more than 0")
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="fedl2-control-") as scratch, Status("", console=console) as status:
        try:
            result = _measure(options, Path(scratch), status)
        except DemoFailed as error:
            console.print(f"local_control: {error}", markup=False)
            return 1
    print(json.dumps(result) if options.output == "json" else _table(result))
    return 0


def _measure(options: argparse.Namespace, folder: Path, status: Status) -> dict[str, Any]:
    result: dict[str, Any] = {"queued": options.queued, "deadline_seconds": GuardSettings().deadline_ms / 1000.0}
    decisions: dict[str, Any] = {}
    for number, policy in enumerate(options.policies):
        first = number == 0  # commands do not depend on the policy
        submissions, calls = (options.submissions, options.calls) if first else (0, 0)
        found = queue(
            folder / policy, policy, options.queued, submissions, calls, options.decisions, _teller(status, policy)
        )
        decisions[policy] = found.pop("decisions")
        result |= found
    result["decisions"] = decisions
    if options.fixed + options.elastic:
        policy = (options.policies or POLICIES)[0]
        tell = _teller(status, "running")
        result["running"] = running_jobs(
            folder / "running", policy, options.fixed, options.elastic, options.seconds, tell
        )
    result["load"] = [round(load, 1) for load in os.getloadavg()]
    return result


def _teller(status: Status, what: str) -> Any:
    return lambda step: status.update(f"{what}: {step}")


def _table(result: dict[str, Any]) -> str:
    rows: list[tuple[str, object]] = []
    for name, value in result.items():
        if isinstance(value, dict):
            rows += [(f"{name}.{inner}", found) for inner, found in value.items()]
        else:
            rows.append((name, value))
    return "\n".join(f"{name:36}{value}" for name, value in rows)


if __name__ == "__main__":
    sys.exit(main())
