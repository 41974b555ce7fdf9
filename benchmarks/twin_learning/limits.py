"""`python -m benchmarks.twin_learning.limits --data FOLDER -o json`: what keeps the taught policy from gaining more.

Average JCT on recorded clusters, over the best heuristic of each cluster in hindsight, of policies that know more than
any can: true speeds from the start, no noise, and in settings of unknown work all work. `bound` is what no scheduler at
all can go below. `warm` is what beliefs from the 1,000 jobs before bring, against none, and `chosen` what it brings to
take on each cluster whichever policy is best on a window to choose on, against the taught policy everywhere (`best`:
could one choose by the window that judges). Figures are ratios; some ten minutes on an idle core.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from benchmarks.policy_quality.cells import Durations
from benchmarks.policy_quality.policies import HEURISTICS
from benchmarks.policy_quality.seeds import Part
from benchmarks.policy_quality.statistics import best_of_each, comparison_json
from benchmarks.policy_quality.worlds import Cluster, World, build_world, clusters_in
from benchmarks.set_prices import window_cell
from benchmarks.twin_learning.__main__ import cell, parts_of
from benchmarks.twin_learning.bounds import bound_seconds
from benchmarks.twin_learning.command_line import SETTINGS, add_judge, parser_of, run
from foundation.errors import DONE
from policy_net.domain import PolicyContext
from policy_net.errors import BadInput
from policy_net.exchange.spec import SET, SET_TAUGHT
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.laboratory.simulation.replay import replay
from policy_net.policy import SchedulerPolicy
from policy_net.policy_kinds import load_policy
from policy_net.set_policy.policy import SetPolicy, set_spec_of, shipped_file

PROGRAM = "python -m benchmarks.twin_learning.limits"
BOUND = "bound"
KNOWS_WORK, KNOWS_SPEEDS, NO_NOISE = "work known", "true speeds", "no noise"
WARMED = (SET_TAUGHT, SET, "marginal", "optimus-sr")
CHOICES = (SET_TAUGHT, SET, "marginal", "optimus-sr", "optimus", "drf")
_SURE = 10**6
"""Observations behind each true speed that is a prior."""

Logs = dict[str, dict[str, list[float]]]
"""Logs of average JCT by policy and cluster, one for each draw of models and noise."""


def knowing_speeds(world: World) -> SetPolicy:
    """The taught policy with true speeds, in place of beliefs where all work is known, and else as its priors.

    There it has lengths to learn; of a type whose first reports are off it believes for a while that all its sizes are.
    """
    file = shipped_file(SET_TAUGHT)
    spec = set_spec_of(file, SET_TAUGHT)
    if all(job.work_known for job in world.workload.jobs):
        return SetPolicy(spec, file.weights, speeds=world.speeds, label=SET_TAUGHT)
    priors = []
    for job_type, kind in sorted({(job.job_type, job.kind) for job in world.workload.jobs}):
        grid = world.speeds.grid(job_type)
        priors += [
            SpeedStatistic(job_type, kind, ps, workers, math.log(grid[ps, workers]), _SURE)
            for ps in (range(1, kind.most_ps + 1) if kind.uses_ps else (0,))
            for workers in range(1, min(kind.most_workers, grid.shape[1] - 1) + 1)
            if grid[ps, workers] > 0.0
        ]
    return SetPolicy(spec, file.weights, priors, label=SET_TAUGHT)


def quiet(world: World) -> World:
    """The same world, in which jobs train exactly as fast as they do on average."""
    return replace(world, environment=replace(world.environment, speed_noise=0.0))


def policies_of(world: World, known: World) -> Iterator[tuple[str, SchedulerPolicy, World]]:
    """What is compared: by name the policy, and the world that it meets.

    Args:
        known: the world with all work declared; the same one if it is.
    """
    for name in (*HEURISTICS, SET, SET_TAUGHT, "oracle"):
        yield name, _built(name, world), world
    yield f"{SET_TAUGHT}, {NO_NOISE}", _built(SET_TAUGHT, world), quiet(world)
    yield f"{SET_TAUGHT}, {KNOWS_SPEEDS}", knowing_speeds(world), world
    yield f"{SET_TAUGHT}, {KNOWS_SPEEDS}, {NO_NOISE}", knowing_speeds(world), quiet(world)
    if known is not world:
        yield f"{SET_TAUGHT}, {KNOWS_WORK}", _built(SET_TAUGHT, known), known
        yield f"{SET_TAUGHT}, {KNOWS_WORK}, {KNOWS_SPEEDS}, {NO_NOISE}", knowing_speeds(known), quiet(known)


def warmed(name: str, past: World) -> SchedulerPolicy:
    """A policy with what it came to believe in another world."""
    policy = _built(name, past)
    replay(past.workload, past.environment, policy, past.speeds)
    return policy


def measure(setting: str, clusters: Sequence[Cluster], options: argparse.Namespace) -> dict[str, Any]:
    """One setting: every comparison, over clusters."""
    part, data = Part(options.judge), options.data
    logs: Logs = {}
    warm: Logs = {}
    before: Logs = {}
    for cluster in clusters:
        parts = parts_of(cluster)
        for draw in range(options.draws if part in parts else 0):
            this = cell(cluster, part, setting, draw)
            world = build_world(this, data)
            known = world
            if this.durations is Durations.UNKNOWN:
                known = build_world(replace(this, durations=Durations.KNOWN), data)
            for name, policy, met in policies_of(world, known):
                _note(logs, name, cluster, _log_jct(met, policy))
            bound = math.log(bound_seconds(world.workload, world.environment, world.speeds))
            _note(logs, BOUND, cluster, bound)
            if parts[part] > 0:
                earlier = window_cell(cluster, parts[part] - 1, part, draw, *SETTINGS[setting])
                past = build_world(earlier, data)
                for name in WARMED:
                    _note(warm, name, cluster, _log_jct(world, warmed(name, past)))
            if part is Part.TEST and Part.VALIDATION in parts:
                choosing = build_world(cell(cluster, Part.VALIDATION, setting, draw), data)
                for name in CHOICES:
                    _note(before, name, cluster, _log_jct(choosing, _built(name, choosing)))
        print(f"{setting}: {cluster.name}", file=sys.stderr)
    if not logs:
        raise BadInput(f"{data}: no workloads/*.csv is long enough to have a window to judge on")
    return summary(_means(logs), _means(warm), _means(before))


def summary(
    logs: Mapping[str, Mapping[str, float]],
    warm: Mapping[str, Mapping[str, float]],
    before: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    """Ratios over clusters.

    Args:
        logs: by policy and cluster, the mean log of average JCT where it is judged; `warm` with beliefs from earlier
            jobs, and `before` on windows to choose on.
    """
    best = best_of_each({name: logs[name] for name in HEURISTICS})
    taught = logs[SET_TAUGHT]
    chosen = {
        cluster: min(before, key=lambda name: before[name][cluster]) for cluster in next(iter(before.values()), {})
    }
    hindsight = best_of_each({name: logs[name] for name in before})
    return {
        "over_best_heuristic": {name: comparison_json(_over(values, best)) for name, values in logs.items()},
        "taught_over_bound": comparison_json(_over(taught, logs[BOUND])),
        "warm": {name: comparison_json(_over(values, logs[name])) for name, values in warm.items()},
        "chosen": {
            "policies": chosen,
            "over_taught": comparison_json([logs[name][cluster] - taught[cluster] for cluster, name in chosen.items()]),
            "best": comparison_json([hindsight[cluster] - taught[cluster] for cluster in chosen]),
        },
        "clusters": {
            cluster: {
                "best_heuristic": min(HEURISTICS, key=lambda name: logs[name][cluster]),
                **{name: math.exp(values[cluster] - best[cluster]) for name, values in logs.items()},
            }
            for cluster in sorted(best)
        },
    }


def _over(values: Mapping[str, float], other: Mapping[str, float]) -> Iterable[float]:
    return [value - other[cluster] for cluster, value in sorted(values.items())]


def _built(name: str, world: World) -> SchedulerPolicy:
    return load_policy(name, PolicyContext(true_speeds=world.speeds))


def _log_jct(world: World, policy: SchedulerPolicy) -> float:
    result = replay(world.workload, world.environment, policy, world.speeds, keep_beliefs=False)
    return math.log(float(result.to_json()["avg_jct_seconds"]))


def _note(logs: Logs, name: str, cluster: Cluster, value: float) -> None:
    logs.setdefault(name, {}).setdefault(cluster.name, []).append(value)


def _means(logs: Logs) -> dict[str, dict[str, float]]:
    return {
        name: {cluster: math.fsum(values) / len(values) for cluster, values in of_clusters.items()}
        for name, of_clusters in logs.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = parser_of(PROGRAM, __doc__)
    add_judge(parser)
    parser.add_argument("--draws", type=int, default=2, help="of models and noise")
    return run(parser, arguments, _run)


def _run(options: argparse.Namespace) -> int:
    if options.draws < 1:
        raise BadInput(f"--draws is {options.draws}: use 1 or more")
    clusters = clusters_in(options.data)
    found = {setting: measure(setting, clusters, options) for setting in options.settings}
    facts = {name: value for name, value in vars(options).items() if name not in ("data", "output")}
    print(json.dumps({"options": facts, "settings": found}, indent=1))
    return DONE


if __name__ == "__main__":
    sys.exit(main())
