"""The cost of placing tasks on nodes against pooled capacity: ratios of average JCT on the same jobs, 1 is nothing.

Placed, a task must fit some node; pooled, all tasks together must fit the cluster's sum. With DL2's demands (2 CPU for
every task, 1 GPU for a worker, nodes of 8 CPU and 2 GPU) nothing forces a loss: GPU workers first leave every node with
as many CPUs as its GPUs need. `spread` gives exactly the pooled result then, and so does `pack`.

    python -m benchmarks.placement
    python -m benchmarks.placement -o json --seeds 8 --policy drf
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from policy_net.domain import CapacityMode, PolicyContext
from policy_net.errors import PolicyNetError
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.generator import GeneratorSettings, generate
from policy_net.laboratory.workloads.workload import Workload
from policy_net.policy import build_policy

POLICIES = ("drf", "optimus", "oracle")
NODES = (16, 24, 32, 96)
JOBS = 60
FIRST_SEED = 9000


@dataclass(frozen=True, slots=True)
class PlacementCost:
    """One policy on one size of cluster; ratios are geometric means over the workloads.

    Attributes:
        spread, pack: average JCT placed that way over the average JCT with pooled capacity.
        worst: the largest ratio of any workload under either.
        trimmed_tasks: tasks that were granted and had no place, over all runs.
    """

    policy: str
    nodes: int
    spread: float
    pack: float
    worst: float
    trimmed_tasks: int


def measure(policies: Sequence[str], sizes: Sequence[int], seeds: int, jobs: int = JOBS) -> Iterator[PlacementCost]:
    """Replay every policy on every size of cluster, pooled and placed, on `seeds` generated workloads."""
    workloads = [
        generate(GeneratorSettings(jobs=jobs, sizes="varied", seed=FIRST_SEED + number)) for number in range(seeds)
    ]
    for policy in policies:
        for nodes in sizes:
            ratios: dict[PlacementStrategy, list[float]] = {strategy: [] for strategy in PlacementStrategy}
            trimmed = 0
            for workload in workloads:
                placed = Environment(nodes, decide_on=DecideOn.SLOT)
                pooled, _ = _average_jct(policy, workload, replace(placed, capacity_mode=CapacityMode.POOLED))
                for strategy, found in ratios.items():
                    jct, lacking = _average_jct(policy, workload, replace(placed, placement=strategy))
                    found.append(jct / pooled)
                    trimmed += lacking
            yield PlacementCost(
                policy,
                nodes,
                spread=_geometric_mean(ratios[PlacementStrategy.SPREAD]),
                pack=_geometric_mean(ratios[PlacementStrategy.PACK]),
                worst=max(max(found) for found in ratios.values()),
                trimmed_tasks=trimmed,
            )


def _average_jct(policy: str, workload: Workload, environment: Environment) -> tuple[float, int]:
    speeds = default_speeds()
    result = replay(workload, environment, build_policy(policy, PolicyContext(true_speeds=speeds)), speeds)
    return math.fsum(outcome.jct_seconds or 0.0 for outcome in result.outcomes), result.counters.trimmed_tasks


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurement; exit code 2 if an option cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placement", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", action="append", metavar="NAME", help="repeatable; drf, Optimus and oracle")
    parser.add_argument("--nodes", action="append", type=int, metavar="N", help="repeatable; 16, 24, 32 and 96")
    parser.add_argument("--seeds", type=int, default=4, metavar="N", help="workloads a size; 4")
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N", help="jobs a workload; 60")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.jobs < 1:
        print("benchmarks.placement: --seeds and --jobs need 1 or more", file=sys.stderr)
        return 2
    costs: list[PlacementCost] = []
    try:
        for cost in measure(options.policy or POLICIES, options.nodes or NODES, options.seeds, options.jobs):
            if options.output == "table":
                if not costs:
                    print(f"{'policy':<22}{'nodes':>6}{'spread':>9}{'pack':>9}{'worst':>9}{'trimmed':>9}")
                print(
                    f"{cost.policy:<22}{cost.nodes:>6}{cost.spread:>9.4f}{cost.pack:>9.4f}{cost.worst:>9.4f}"
                    f"{cost.trimmed_tasks:>9}",
                    flush=True,
                )
            costs.append(cost)
    except PolicyNetError as error:
        print(f"benchmarks.placement: {error}", file=sys.stderr)
        return 2
    if options.output == "json":
        print(json.dumps([asdict(cost) for cost in costs], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
