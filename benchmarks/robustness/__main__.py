"""`python -m benchmarks.robustness`: five clusters, one of which sends bad gradients, under several aggregations.

For every aggregation the fleet is trained clean and under every attack, from the same start and the same seeds; what is
reported is the average JCT on held-out workloads over the clean run's and over the start's. Below 1.05 over the clean
run is what an aggregation that calls itself robust has to reach.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.learning.score import average_jcts, mean_log_ratio
from benchmarks.learning.worlds import ARRIVAL_SCALE, JOBS_PER_BATCH, NODES, PUSHING, TRAIN_SEED, held_out, source
from benchmarks.robustness.attacks import ATTACKS
from benchmarks.robustness.fleet import MIXES, run_fleet
from global_learner.aggregation.settings import AggregationSettings
from policy_net.exchange.policy_file import PolicyFile, read_policy_file, write_policy_file

AGGREGATIONS: dict[str, dict[str, Any]] = {
    "async": {"mode": "async"},
    "median": {"mode": "buffered", "strategy": "FedMedian", "buffer": 5},
    "trimmed-mean": {
        "mode": "buffered",
        "strategy": "FedTrimmedAvg",
        "parameters": {"beta": 0.2},
        "buffer": 5,
    },
    "krum": {"mode": "buffered", "strategy": "Krum", "parameters": {"num_malicious_nodes": 1}, "buffer": 5},
    "mean": {"mode": "buffered", "strategy": "FedAvg", "buffer": 5},
}
ROUNDS = 500
WARM_START_SECONDS = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.robustness", description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="updates of every cluster in every run")
    parser.add_argument("--seeds", type=int, default=1, help="training seeds")
    parser.add_argument("--workloads", type=int, default=3, help="held-out workloads of each of three mixes")
    parser.add_argument("--aggregation", action="append", choices=AGGREGATIONS, help="repeatable; async and median")
    parser.add_argument("--attack", action="append", choices=[name for name in ATTACKS if name != "none"])
    parser.add_argument("--start", type=Path, help="policy file to start from; trained by imitating drf unless given")
    options = parser.parse_args(arguments)
    if min(options.rounds, options.seeds, options.workloads) < 1:
        parser.error("--rounds, --seeds and --workloads take 1 or more")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedl2-robustness-")))
        start = read_policy_file(options.start or _warm_start(folder))
        result = measure(
            folder,
            start,
            options.aggregation or ["async", "median"],
            ["none", *(options.attack or ["flipped", "hundredfold"])],
            options.rounds,
            options.seeds,
            options.workloads,
        )
    if options.output == "json":
        print(json.dumps(result))
    else:
        for run in result["runs"]:
            print(f"{run['aggregation']:14}{run['attack']:22}{run['over_clean']:8.3f}{run['over_start']:8.3f}")
    return 0


def measure(
    folder: Path,
    start: PolicyFile,
    aggregations: Sequence[str],
    attacks: Sequence[str],
    rounds: int,
    seeds: int,
    workloads: int,
) -> dict[str, Any]:
    """Train every combination, judge all together; `attacks` begins with `none`."""
    began = time.monotonic()
    first = folder / "start.safetensors"
    write_policy_file(first, start)
    keys = [(mode, attack, seed) for mode in aggregations for attack in attacks for seed in range(seeds)]
    files, taken = [], {}
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        for mode, attack, seed in keys:
            task = progress.add_task(f"{mode} {attack} {seed}", total=rounds)
            settings = AggregationSettings.model_validate(AGGREGATIONS[mode])
            result = run_fleet(
                start,
                settings,
                ATTACKS[attack],
                seed,
                rounds,
                lambda done, task=task: progress.update(task, completed=done),  # type: ignore[misc]  # a default binds
            )
            taken[mode, attack, seed] = result
            path = folder / f"{mode}-{attack}-{seed}.safetensors"
            write_policy_file(path, PolicyFile(start.spec, result.weights))
            files.append(path)
    before, *after = average_jcts([first, *files], list(held_out(PUSHING, workloads)))
    jcts = dict(zip(keys, after, strict=True))

    def ratio(mode: str, attack: str, against: str | None) -> float:
        logs = []
        for seed in range(seeds):
            base = before if against is None else jcts[mode, against, seed]
            logs.append(float(mean_log_ratio(jcts[mode, attack, seed], base).mean()))
        return round(math.exp(sum(logs) / len(logs)), 4)

    runs = [
        {
            "aggregation": mode,
            "attack": attack,
            "over_clean": ratio(mode, attack, "none"),
            "over_start": ratio(mode, attack, None),
            "updates": sum(taken[mode, attack, seed].updates for seed in range(seeds)),
            "rejected": sum(taken[mode, attack, seed].rejected for seed in range(seeds)),
        }
        for mode in aggregations
        for attack in attacks
    ]
    return {
        "clusters": len(MIXES),
        "rounds": rounds,
        "seeds": seeds,
        "held_out_workloads": len(PUSHING) * workloads,
        "runs": runs,
        "wall_seconds": round(time.monotonic() - began, 1),
    }


def _warm_start(folder: Path) -> Path:
    """Train a start with the command that a user would type."""
    out = folder / "v1.safetensors"
    workloads = [part for mix in MIXES.values() for part in ("--workload", source(mix, TRAIN_SEED))]
    world = ["--nodes", str(NODES), "--arrival-scale", str(ARRIVAL_SCALE), "--jobs-per-batch", str(JOBS_PER_BATCH)]
    wanted = ["train", *workloads, *world, "--imitate", "drf", "--out", str(out)]
    command = [sys.executable, "-m", "policy_net.cli", *wanted]
    subprocess.run(command, check=True, timeout=WARM_START_SECONDS, stdout=subprocess.DEVNULL)
    return out


if __name__ == "__main__":
    sys.exit(main())
