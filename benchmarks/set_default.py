"""`python -m benchmarks.set_default`: trains the `set` policy that ships with the package, and prints its card.

On generated workloads alone, over clusters from jammed to empty, with known and unknown durations, with and without
parameter servers. Seeds below 9,000,000 train, those up to 9,500,000 decide whether the residual is kept; what
`benchmarks.policy_quality` judges on lies beyond.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.processes import process_pool
from policy_net.domain import CapacityMode
from policy_net.exchange.policy_file import PolicyFile, write_policy_file
from policy_net.exchange.spec import SetSpec, Weights
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.laboratory.catalogue import ALLREDUCE_MODEL_NAMES, MODEL_NAMES
from policy_net.laboratory.commands.train_set import FIRST_EVOLUTION_WORLD
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.evolution import Trial, evolve
from policy_net.laboratory.training.offline import Episode
from policy_net.laboratory.training.set_training import (
    FIRST_VALIDATION_WORLD,
    PRIOR_WORLDS,
    NumberedWorlds,
    ResidualVerdict,
    changes_against,
    learn_priors,
    log_losses,
)
from policy_net.laboratory.training.settings import SetSettings
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Estimates, Workload, with_estimates
from policy_net.set_policy.policy import DEFAULT_SET_FILE
from policy_net.set_policy.residual import initial_residual

NODES = (16, 20, 24, 32, 48, 16, 24, 96)
NOISE = 0.273
"""Of a job's speed from slot to slot, as the yardstick has it."""
VALIDATED_ROUNDS = 3
"""Worlds of every kind in the validation."""
KINDS = (
    "fixed sizes",
    "varied sizes",
    "unknown durations",
    "half all-reduce",
    "long tails",
    "long tails, unknown",
    "long tails, half all-reduce",
    "long tails, half all-reduce, unknown",
)
LONG_TAIL_SIGMA = 1.5
"""Of the log of a further factor of sizes, mostly all-reduce jobs, and events: nearer to what clusters record."""
WORLDS_PER_ROUND = len(NODES) * len(KINDS)


def episode(number: int) -> Episode:
    """World by number: a size of cluster, and what is special about the jobs."""
    kind = KINDS[number // len(NODES) % len(KINDS)]
    sizes = "fixed" if kind == "fixed sizes" else "varied"
    source = f"dl2:jobs=60,arrivals=google,sizes={sizes},seed={number}"
    long_tailed = kind.startswith("long tails")
    if "half all-reduce" in kind:
        source += f",mix={'+'.join((*MODEL_NAMES, *ALLREDUCE_MODEL_NAMES))}"
    elif long_tailed:
        source += f",mix={'+'.join(ALLREDUCE_MODEL_NAMES)}"
    workload = load_workload(source)
    if long_tailed:
        workload = _with_long_tails(workload, number)
    if "unknown" in kind:
        workload = with_estimates(workload, Estimates(known=False), number % 1000)
    environment = Environment(
        nodes=NODES[number % len(NODES)],
        capacity_mode=CapacityMode.POOLED,
        speed_noise=NOISE,
        seed=number % 1000,
        decide_on=DecideOn.EVENT if long_tailed else DecideOn.SLOT,
    )
    return workload, environment


def _with_long_tails(workload: Workload, seed: int) -> Workload:
    """Every job's work times a lognormal factor of mean one."""
    factors = np.random.default_rng((seed, 1)).normal(-(LONG_TAIL_SIGMA**2) / 2, LONG_TAIL_SIGMA, len(workload.jobs))
    jobs = [
        replace(job, total_epochs=job.total_epochs * float(np.exp(factor)))
        for job, factor in zip(workload.jobs, factors, strict=True)
    ]
    return replace(workload, jobs=tuple(jobs))


def _losses(spec: SetSpec, priors: tuple[SpeedStatistic, ...], trials: Sequence[Trial]) -> list[float]:
    return log_losses(NumberedWorlds(episode, default_speeds()), spec, priors, FIRST_EVOLUTION_WORLD)(trials)


def _change(spec: SetSpec, priors: tuple[SpeedStatistic, ...], weights: Weights, number: int) -> float:
    (change,) = changes_against(
        NumberedWorlds(episode, default_speeds()), spec, priors, weights, np.zeros_like(weights), (number,)
    )
    return change


def main() -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.set_default", description=__doc__)
    parser.add_argument("--out", type=Path, default=DEFAULT_SET_FILE)
    parser.add_argument("--seconds", type=float, default=120.0, help="of evolution")
    parser.add_argument("--generations", type=int, default=1000, help="at most so many")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    worlds, spec = NumberedWorlds(episode, default_speeds()), SetSpec()
    settings = SetSettings()
    priors = learn_priors(worlds, spec)
    print(f"{len(priors)} statistics of {len({entry.job_type for entry in priors})} types", file=sys.stderr)
    deadline = time.monotonic() + options.seconds
    done = 0

    def on_generation(generation: int, loss: float) -> None:
        nonlocal done
        done = generation
        print(f"generation {generation}: log JCT {loss:.4f}", file=sys.stderr)

    with process_pool(options.processes) as pool:

        def losses(trials: Sequence[Trial]) -> list[float]:
            pairs = [trials[start : start + 2] for start in range(0, len(trials), 2)]
            return [loss for part in pool.map(partial(_losses, spec, priors), pairs) for loss in part]

        weights = evolve(
            initial_residual(spec, options.seed),
            losses,
            settings,
            options.seed,
            generations=options.generations,
            stop=lambda: time.monotonic() > deadline,
            on_generation=on_generation,
        )
        first, count = FIRST_VALIDATION_WORLD, VALIDATED_ROUNDS * WORLDS_PER_ROUND
        changes = list(pool.map(partial(_change, spec, priors, weights), range(first, first + count)))
    verdict = ResidualVerdict.over(changes)
    by_kind, by_nodes = {}, {}
    for position, kind in enumerate(KINDS):
        by_kind[kind] = ResidualVerdict.over(
            [c for n, c in enumerate(changes) if n // len(NODES) % len(KINDS) == position]
        )
    for nodes in sorted(set(NODES)):
        by_nodes[nodes] = ResidualVerdict.over([c for n, c in enumerate(changes) if NODES[n % len(NODES)] == nodes])
    card = {
        "made_by": "python -m benchmarks.set_default",
        "data": "generated workloads only; speeds as observed in simulation, with noise",
        "prior_seeds": [0, PRIOR_WORLDS - 1],
        "evolution_seeds": [FIRST_EVOLUTION_WORLD, FIRST_EVOLUTION_WORLD + done * settings.pairs - 1],
        "validation_seeds": [first, first + count - 1],
        "nodes": list(NODES),
        "kinds": list(KINDS),
        "generations": done,
        "evolution": settings.model_dump(include={"pairs", "sigma", "learning_rate"}) | {"seed": options.seed},
        "validation_change": round(verdict.change, 5),
        "validation_standard_error": round(verdict.standard_error, 5),
        "validation_change_by_kind": {kind: round(one.change, 5) for kind, one in by_kind.items()},
        "validation_change_by_nodes": {str(nodes): round(one.change, 5) for nodes, one in by_nodes.items()},
        "residual_published": verdict.publish,
    }
    if not verdict.publish:
        weights = initial_residual(spec, options.seed)
    write_policy_file(options.out, PolicyFile(spec, weights, card, priors))
    print(json.dumps(card, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
