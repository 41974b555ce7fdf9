"""`python -m benchmarks.twin_learning.together --data FOLDER -o json`: how much sooner a fleet learns than one cluster.

Some of the recorded clusters teach one shared policy, and each of them also learns alone, with the same settings. A
window is one replay's gradient that a cluster pushes. After 4, 8, 16 … windows of each cluster, what would be published
is judged on later windows of these same clusters, which only judge; `alone` and `together` are the changes of average
JCT against the same structure untaught, means over clusters and training seeds. `windows_ratio` is how many windows of
each cluster it takes together, over how many it takes alone, to gain half of what one gains alone in the end.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.policy_quality.seeds import Part
from benchmarks.policy_quality.worlds import Cluster, build_world, clusters_in
from benchmarks.twin_learning.__main__ import JUDGED_SEEDS, cell, parts_of, pasts_of, start_file
from benchmarks.twin_learning.command_line import add_training, parser_of, run
from benchmarks.twin_learning.fleet import Training, trained_at
from foundation.errors import DONE
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import Weights
from policy_net.laboratory.simulation.replay import replay
from policy_net.set_policy.policy import set_policy_of

PROGRAM = "python -m benchmarks.twin_learning.together"
FEWEST_WINDOWS = 4


def doubled(most: int) -> list[int]:
    """After how many windows of each cluster is judged: doubled each time, and at the end."""
    found = []
    windows = FEWEST_WINDOWS
    while windows < most:
        found.append(windows)
        windows *= 2
    return [*found, most]


def reached_at(windows: Sequence[int], changes: Sequence[float], level: float) -> float | None:
    """After how many windows a curve of changes has first come down to a level; None if it never has.

    Between two points it is a straight line, and it begins at no change after no window.
    """
    before, at = 0.0, 0
    for count, change in zip(windows, changes, strict=True):
        if change <= level:
            return at + (count - at) * (before - level) / (before - change)
        before, at = change, count
    return None


def windows_ratio(windows: Sequence[int], alone: Sequence[float], together: Sequence[float]) -> float | None:
    """Windows of each cluster until half of what one alone gains in the end: together over alone; None without gain."""
    level = alone[-1] / 2.0
    if level >= 0.0:
        return None
    first, second = (reached_at(windows, curve, level) for curve in (together, alone))
    return None if first is None or second is None else first / second


def log_jcts(clusters: Sequence[Cluster], part: Part, setting: str, data: Path, file: PolicyFile) -> dict[str, float]:
    """The log of the average JCT of each cluster's window of a part, the mean over draws."""
    found = {}
    for cluster in clusters:
        if part not in parts_of(cluster):
            continue
        logs = []
        for seed in range(JUDGED_SEEDS):
            world = build_world(cell(cluster, part, setting, seed), data)
            policy = set_policy_of(file, "a trained policy")
            result = replay(world.workload, world.environment, policy, world.speeds).to_json()
            logs.append(math.log(result["avg_jct_seconds"]))
        found[cluster.name] = math.fsum(logs) / len(logs)
    return found


def measure(setting: str, clusters: Sequence[Cluster], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One setting: both curves, each the mean of clusters and seeds."""
    start = start_file()
    windows = doubled(options.windows)
    before = log_jcts(clusters, Part.TEST, setting, options.data, start)
    changes: dict[str, list[dict[str, list[float]]]] = {"alone": [], "together": []}

    def judged(weights: Weights, these: Sequence[Cluster]) -> dict[str, float]:
        file = PolicyFile(start.spec, weights, start.card, start.priors)
        after = log_jcts(these, Part.TEST, setting, options.data, file)
        return {name: math.expm1(value - before[name]) for name, value in after.items()}

    def curve(these: Sequence[Cluster], seed: int) -> dict[str, list[float]]:
        training = Training(
            len(these) * options.windows,
            options.pairs,
            options.window_jobs,
            options.learning_rate,
            decay_steps=max(1, options.windows // 2),
        )
        pasts = pasts_of(these, setting, options.data, folder)
        updates = [len(these) * count for count in windows]
        found = [judged(weights, these) for weights in trained_at(start, pasts, training, seed, updates)]
        return {name: [point[name] for point in found] for name in before if name in found[0]}

    for seed in range(options.seeds):
        changes["together"].append(curve(clusters, seed))
        alone: dict[str, list[float]] = {}
        for cluster in clusters:
            alone |= curve([cluster], seed)
            print(f"{setting}, seed {seed}: {cluster.name} has learned alone", file=sys.stderr)
        changes["alone"].append(alone)
    means = {
        name: [
            math.fsum(of_seed[cluster.name][place] for of_seed in of_seeds for cluster in clusters)
            / (len(of_seeds) * len(clusters))
            for place in range(len(windows))
        ]
        for name, of_seeds in changes.items()
    }
    return {
        "windows": windows,
        **means,
        "windows_ratio": windows_ratio(windows, means["alone"], means["together"]),
        "clusters": {
            name: {
                cluster.name: math.fsum(of_seed[cluster.name][-1] for of_seed in of_seeds) / len(of_seeds)
                for cluster in clusters
            }
            for name, of_seeds in changes.items()
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = parser_of(PROGRAM, __doc__, ["mix-unknown"])
    add_training(parser)
    parser.add_argument("--seeds", type=int, default=1, help="of training")
    parser.add_argument("--fleet", type=int, default=8, help="how many clusters teach together")
    parser.add_argument("--draw", type=int, default=0, help="seed of which clusters these are")
    parser.add_argument("--windows", type=int, default=256, help="of each cluster")
    return run(parser, arguments, _run)


def _run(options: argparse.Namespace) -> int:
    if min(options.seeds, options.pairs, options.window_jobs) < 1 or options.draw < 0:
        raise BadInput("--seeds, --pairs and --window-jobs are 1 or more, --draw 0 or more")
    if options.fleet < 2 or options.windows < FEWEST_WINDOWS:
        raise BadInput(f"--fleet is 2 or more, --windows {FEWEST_WINDOWS} or more")
    fit = [cluster for cluster in clusters_in(options.data) if {Part.TRAIN, Part.TEST} <= set(parts_of(cluster))]
    if len(fit) < options.fleet:
        raise BadInput(
            f"--fleet {options.fleet}: {len(fit)} recorded workloads in {options.data} have a window to teach with and"
            " one to judge on; give fewer"
        )
    clusters = sorted(random.Random(options.draw).sample(fit, options.fleet), key=lambda cluster: cluster.name)
    with tempfile.TemporaryDirectory() as folder:
        found = {setting: measure(setting, clusters, options, Path(folder)) for setting in options.settings}
    facts = {name: value for name, value in vars(options).items() if name not in ("data", "output")}
    print(json.dumps({"options": facts, "settings": found}, indent=1))
    return DONE


if __name__ == "__main__":
    sys.exit(main())
