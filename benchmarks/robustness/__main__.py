"""`python -m benchmarks.robustness`: five clusters, one of which sends bad gradients, under several aggregations.

For every aggregation the fleet is trained clean and under every attack, from the same start and the same seeds, on what
a scheduler decides. What is reported is the average JCT on held-out workloads over
the clean run's, and over the teacher's. Below 1.05 over the clean run is what an aggregation that calls itself robust
has to reach.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, as_completed
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.command import parser_of, show
from benchmarks.processes import process_pool
from benchmarks.robustness.fleet import ATTACKS
from benchmarks.robustness.runs import NAMES, Ended, Task, learned_jcts, mean_ratio, named_jcts, train_and_judge
from benchmarks.robustness.teaching import TEACHER, beginning
from benchmarks.robustness.worlds import MIXES, held_out
from policy_net.dl2.policy import ActingMode

ROUNDS = 1000
CLEAN = "none"
_COLUMNS: tuple[str, ...] = ("aggregation", "attack", "over_clean", "over_teacher", "greedy_over_clean")
_COLUMNS += ("greedy_over_teacher", "rejected_of_bad")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = parser_of("robustness", __doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="updates of every cluster in every run")
    parser.add_argument("--seeds", type=int, default=1, help="training seeds")
    parser.add_argument("--workloads", type=int, default=3, help="held-out workloads of each of five mixes")
    parser.add_argument("--aggregation", action="append", choices=NAMES, help="repeatable; all unless given")
    parser.add_argument("--attack", action="append", choices=[name for name in ATTACKS if name != CLEAN])
    parser.add_argument("--processes", type=int, default=2, help="runs at once")
    options = parser.parse_args(arguments)
    if min(options.rounds, options.seeds, options.workloads, options.processes) < 1:
        parser.error("--rounds, --seeds, --workloads and --processes take 1 or more")
    with process_pool(options.processes) as pool:
        result = measure(
            options.aggregation or NAMES,
            [CLEAN, *(options.attack or [name for name in ATTACKS if name != CLEAN])],
            options.rounds,
            options.seeds,
            options.workloads,
            pool,
        )
    show(result, options.output, "runs", _COLUMNS)
    return 0


def measure(
    names: Sequence[str],
    attacks: Sequence[str],
    rounds: int,
    seeds: int,
    workloads: int,
    pool: Executor,
) -> dict[str, Any]:
    """Train every combination, judge all; `attacks` begins with `none`."""
    began = time.monotonic()
    start = beginning()
    judged = list(held_out(workloads))
    teacher = named_jcts(TEACHER, judged)
    keys = [(name, attack, seed) for name in names for attack in attacks for seed in range(seeds)]
    ended: dict[tuple[str, str, int], Ended] = {}
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("runs", total=len(keys))
        futures = {
            pool.submit(train_and_judge, Task(start.weights, name, attack, seed, rounds, workloads)): key
            for key in keys
            for name, attack, seed in [key]
        }
        for future in as_completed(futures):
            ended[futures[future]] = future.result()
            progress.advance(bar)

    def line(name: str, attack: str) -> dict[str, Any]:
        runs = [ended[name, attack, seed] for seed in range(seeds)]
        clean = [ended[name, CLEAN, seed] for seed in range(seeds)]
        return {
            "aggregation": name,
            "attack": attack,
            "over_clean": round(mean_ratio([(a.sampled, b.sampled) for a, b in zip(runs, clean, strict=True)]), 4),
            "over_teacher": round(mean_ratio([(run.sampled, teacher) for run in runs]), 4),
            "greedy_over_clean": round(mean_ratio([(a.greedy, b.greedy) for a, b in zip(runs, clean, strict=True)]), 4),
            "greedy_over_teacher": round(mean_ratio([(run.greedy, teacher) for run in runs]), 4),
            "updates": sum(run.updates for run in runs),
            "rejected_of_bad": sum(run.rejected_of_bad for run in runs),
            "rejected_of_honest": sum(run.rejected_of_honest for run in runs),
        }

    return {
        "clusters": len(MIXES),
        "rounds": rounds,
        "seeds": seeds,
        "held_out_workloads": len(judged),
        "start_over_teacher": round(mean_ratio([(learned_jcts(start, judged, ActingMode.SAMPLE), teacher)]), 4),
        "greedy_start_over_teacher": round(mean_ratio([(learned_jcts(start, judged, ActingMode.GREEDY), teacher)]), 4),
        "runs": [line(name, attack) for name in names for attack in attacks],
        "cpu_seconds": round(sum(run.cpu_seconds for run in ended.values()), 1),
        "wall_seconds": round(time.monotonic() - began, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
