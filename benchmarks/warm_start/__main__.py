"""Benchmark of warm starts: a real job is resized by a worker and by a parameter server, its tasks cold and warm.

Cold and warm take turns, so that whatever else the machine does falls on both alike.

Usage: python -m benchmarks.warm_start [-o json] [--script SCRIPT] [--resizes N] [--turns N] [--beside]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from rich.console import Console

from benchmarks.warm_start.timed_job import Resized, TimedJob
from elastic_runtime.errors import ElasticError

_EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
_EPOCHS = "1000000"


def main() -> int:
    """Entry point; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warm_start", description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--example", choices=("digits", "gpt"), default="digits", help="what the job trains")
    parser.add_argument("--resizes", type=int, default=3, help="of each kind, in each turn")
    parser.add_argument("--turns", type=int, default=2, help="jobs with cold starts, and as many with warm ones")
    parser.add_argument("--beside", action="store_true", help="another job trains all the while")
    options = parser.parse_args()
    if options.resizes < 1 or options.turns < 1:
        parser.error("--resizes and --turns take 1 or more")
    try:
        with tempfile.TemporaryDirectory(prefix="fedl2-warm-") as scratch, ExitStack() as stack:
            folder = Path(scratch)
            if options.beside:
                stack.enter_context(_job(folder, "beside", "digits", cold=False))
            result = _measure(options, folder)
    except ElasticError as error:
        Console(stderr=True).print(f"warm_start: {error}", markup=False)
        return 1
    print(json.dumps(result) if options.output == "json" else _table(result))
    return 0


def _job(folder: Path, name: str, example: str, cold: bool) -> TimedJob:
    return TimedJob(folder, name, _EXAMPLES / example / "train.py", [f"--epochs={_EPOCHS}"], cold)


def _measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    found: dict[str, dict[str, list[Any]]] = {
        way: {"worker": [], "ps": [], "first": [], "memory": []} for way in ("cold", "warm")
    }
    for turn in range(options.turns):
        for way in ("cold", "warm") if turn % 2 == 0 else ("warm", "cold"):
            rows = found[way]
            with _job(folder, f"{way}-{turn}", options.example, cold=way == "cold") as job:
                rows["first"].append(job.first_start_seconds)
                for _ in range(options.resizes):
                    rows["worker"].append(job.resize(1, 2))
                    rows["memory"].append(job.memory_mb())
                    job.resize(1, 1)
                    rows["ps"].append(job.resize(2, 1))
                    job.resize(1, 1)
    ways = {way: _figures(rows) for way, rows in found.items()}
    return {
        "warm_over_cold": {
            name: round(ways["warm"][name] / ways["cold"][name], 3)
            for name in ("worker_p50_seconds", "ps_p50_seconds", "first_start_seconds", "memory_mb")
        },
        **ways,
        "load": [round(load, 1) for load in os.getloadavg()],
    }


def _figures(rows: dict[str, list[Any]]) -> dict[str, float]:
    figures = {}
    for kind in ("worker", "ps"):
        resizes: list[Resized] = rows[kind]
        seconds = [resize.seconds for resize in resizes]
        figures[f"{kind}_p50_seconds"] = median(seconds)
        figures[f"{kind}_p99_seconds"] = _p99(seconds)
        figures[f"{kind}_start_share"] = mean(resize.start_seconds / resize.seconds for resize in resizes)
        figures[f"{kind}_start_seconds"] = median(resize.start_seconds for resize in resizes)
        figures[f"{kind}_ready_seconds"] = median(resize.ready_seconds for resize in resizes)
    figures["first_start_seconds"] = median(rows["first"])
    figures["memory_mb"] = median(rows["memory"])
    return {name: round(value, 3) for name, value in figures.items()}


def _p99(seconds: list[float]) -> float:
    return quantiles(seconds, n=100, method="inclusive")[98] if len(seconds) > 1 else seconds[0]


def _table(result: dict[str, Any]) -> str:
    lines = [f"{'':24}{'cold':>10}{'warm':>10}"]
    lines += [f"{name:24}{result['cold'][name]:>10}{result['warm'][name]:>10}" for name in result["cold"]]
    lines += [f"warm over cold: {result['warm_over_cold']}", f"load: {result['load']}"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
