"""`python -m benchmarks.simulate [-o json] [--data FOLDER]`: how fast the simulator is, tasks placed on nodes.

Seconds are the medians of five replays under drf, everything included but reading the workload; the ten thousand real
jobs run once. Beside them stands the processor time, which says more where other programs run. Rates are of
one process.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.simulate.memory import bytes_per_finished_job
from benchmarks.simulate.rates import gym_steps_per_second, scalar_decisions_per_second, vector_decisions_per_second
from benchmarks.simulate.worlds import REAL_FILE, REAL_NODES, SEED, generated, real
from policy_net.baselines.drf import DrfPolicy
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.workload import Workload

REPEATS = 5
VECTOR_CLUSTERS = 256
GYM_STEPS = 20_000
NODES_OF_RATES = 24
NODES_OF_MEMORY = 96
"""Enough that no queue builds up, however many jobs come."""
PARTS = 7


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help=f"has {REAL_FILE}; drawn like it unless given")
    options = parser.parse_args(arguments)
    if options.data is not None and not (options.data / REAL_FILE).is_file():
        parser.error(f"--data {options.data}: has no {REAL_FILE}")
    result = measure(options.data)
    print(json.dumps(result) if options.output == "json" else "\n".join(f"{k:36} {v}" for k, v in result.items()))
    return 0


def measure(data_folder: Path | None) -> dict[str, Any]:
    """All figures; about a minute."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=PARTS)

        def step(what: str) -> None:
            progress.update(task, description=what, advance=1)

        result: dict[str, Any] = {"generator_seed": SEED, "processor": platform.processor() or platform.machine()}
        for jobs, nodes in ((60, 96), (200, 500)):
            step(f"{jobs} jobs on {nodes} nodes")
            name = f"jobs{jobs}_nodes{nodes}_drf"
            times = [_timed(generated(jobs), nodes) for _ in range(REPEATS)]
            result[f"{name}_seconds"] = round(statistics.median(timed.wall for timed in times), 4)
            result[f"{name}_cpu_seconds"] = round(statistics.median(timed.cpu for timed in times), 4)
        step(f"real jobs on {REAL_NODES} nodes")
        with tempfile.TemporaryDirectory(prefix="fedl2-simulate-") as scratch:
            workload, origin = real(data_folder, Path(scratch))
        timed = _timed(workload, REAL_NODES)
        result["real_jobs10000_nodes1000_drf_seconds"] = round(timed.wall, 2)
        result["real_jobs10000_nodes1000_drf_cpu_seconds"] = round(timed.cpu, 2)
        result["real_jobs10000_decisions"] = timed.decisions
        result["real_jobs10000_origin"] = origin
        step("many clusters in one call")
        vector = vector_decisions_per_second(generated(60), NODES_OF_RATES, VECTOR_CLUSTERS)
        result["vector_decisions_per_second"] = round(vector)
        result["vector_clusters"] = VECTOR_CLUSTERS
        step("one cluster")
        result["scalar_decisions_per_second"] = round(scalar_decisions_per_second(generated(60), NODES_OF_RATES))
        step("gymnasium")
        result["gym_steps_per_second"] = round(gym_steps_per_second(GYM_STEPS))
        step("memory")
        result["memory_bytes_per_finished_job"] = round(bytes_per_finished_job(NODES_OF_MEMORY))
    return result


class Timed(NamedTuple):
    """One replay."""

    wall: float
    cpu: float
    decisions: int


def _timed(workload: Workload, nodes: int) -> Timed:
    """Replay under drf, tasks placed on nodes."""
    decide_on = DecideOn.SLOT if workload.slotted else DecideOn.EVENT
    wall, cpu = time.perf_counter(), time.process_time()
    run = replay(workload, Environment(nodes=nodes, decide_on=decide_on), DrfPolicy(), default_speeds())
    return Timed(time.perf_counter() - wall, time.process_time() - cpu, run.counters.decisions)


if __name__ == "__main__":
    sys.exit(main())
