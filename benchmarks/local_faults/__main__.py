"""`python -m benchmarks.local_faults [--kills N] [-o json]`: real jobs, and SIGKILL in each state of each change.

A real agent runs jobs of three kinds; the agent, launchers, coordinators, parameter servers and workers are killed
while jobs are submitted, resized, suspended, resumed, cancelled and at their end. Targets: no problem, and
seconds_worst 30 or less. A kill costs some ten seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.status import Status

from benchmarks.local_faults.kills import JobLife, Outcome, lives_to_live
from benchmarks.local_faults.machine import Machine, NotInTime


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local_faults", description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--kills", type=int, default=50, help="at least so many")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no other job after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--patience", type=float, default=300.0, help="seconds after which a job that does not go on is given up"
    )
    parser.add_argument("--folder", type=Path, help="keep what the run leaves; in a temporary folder unless given")
    options = parser.parse_args(arguments)
    if options.kills < 1 or options.patience <= 0.0:
        parser.error("--kills takes 1 or more, --patience more than 0")
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="fedl2-faults-") as scratch, Status("", console=console) as status:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        result = kill(folder, options.kills, options.seed, options.patience, status.update, options.seconds)
    print(json.dumps(result, indent=1) if options.output == "json" else _table(result))
    return int(bool(result["problems"]))


def kill(
    folder: Path,
    kills: int,
    seed: int,
    patience_seconds: float,
    on_step: Callable[[str], None],
    seconds: float = math.inf,
) -> dict[str, Any]:
    """Kill so often, and say what came of it.

    Args:
        folder: is there, and is empty.
        patience_seconds: after which a job that does not go on is a problem, and the run is over.
        seconds: after which no other job begins.
    """
    outcomes: list[Outcome] = []
    began = time.monotonic()

    def on_kill(outcome: Outcome) -> None:
        outcomes.append(outcome)
        on_step(f"{len(outcomes)} of {kills} kills; last: {outcome}")

    with Machine(folder, patience_seconds) as machine:
        for number, planned in enumerate(lives_to_live(seed), 1):
            if len(outcomes) >= kills or machine.problems or time.monotonic() - began >= seconds:
                break
            try:
                JobLife(machine, f"job-{number}", planned, on_kill, seed).live()
            except NotInTime as error:
                machine.problems.append(str(error))
        with suppress(NotInTime):
            machine.wait_for(lambda: not machine.processes(), "no process is left")
        machine.problems += [f"process {number} is left" for number in machine.processes()]
        files = (folder / "state").rglob("*.partial")
        machine.problems += [f"{path} is left" for path in files]
        return _summary(outcomes, machine.problems)


def _summary(outcomes: Sequence[Outcome], problems: Sequence[str]) -> dict[str, Any]:
    seconds = sorted(outcome.seconds for outcome in outcomes)
    worst = max(outcomes, key=lambda outcome: outcome.seconds, default=None)
    return {
        "kills": len(outcomes),
        "problems": list(problems),
        "seconds_median": round(median(seconds), 1) if seconds else 0.0,
        "seconds_worst": round(seconds[-1], 1) if seconds else 0.0,
        "worst": str(worst),
        "victims": dict(Counter(f"{one.kill.kind} {one.kill.action} {one.kill.victim}" for one in outcomes)),
        "states": dict(Counter(one.seen or "unanswered" for one in outcomes)),
    }


def _table(result: dict[str, Any]) -> str:
    lines = [f"{name:16}{result[name]}" for name in ("kills", "seconds_median", "seconds_worst", "worst")]
    lines += [f"{count:6}  {name}" for part in ("victims", "states") for name, count in sorted(result[part].items())]
    return "\n".join([*lines, *(f"PROBLEM {line}" for line in result["problems"])])


if __name__ == "__main__":
    sys.exit(main())
