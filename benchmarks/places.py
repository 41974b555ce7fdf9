"""`set` with places in its plan against the plan without, and against the baselines: ratios of average JCT.

Recorded workloads on machines of 8 GPUs, as `policy_quality` has them with locality: packed by the cluster where a
policy does not place, all-reduce jobs, load 0.9, speeds that vary by 27.3%. Under `types` half of the machines have
GPUs of another type, and it does not matter over how many machines a job lies; under `both` it does. `unplaced` is
`set` with a plan that knows no places; `unplaced-spread` is that on tasks spread by the cluster, the default of
`policy-net replay`; `oracle` is `set` given the true speeds and effects; `unplaced-oracle` the true speeds alone.

    python -m benchmarks.places --data FOLDER
    python -m benchmarks.places --data FOLDER --part validation --worlds locality --policies unplaced,set -o json

Choose on validation windows; test windows judge. A window of 120 jobs takes minutes: plans with places have no compiled
twin.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from benchmarks.policy_quality.cells import Durations, RealCell
from benchmarks.policy_quality.seeds import SEEDS, Part, windows_of
from benchmarks.policy_quality.worlds import Cluster, World, build_world, clusters_in
from policy_net.domain import CapacityMode, PolicyContext
from policy_net.errors import BadInput, PolicyNetError
from policy_net.laboratory.simulation.environment import PlacementStrategy
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.placement_effect import FittedPlacementEffect
from policy_net.policy import SchedulerPolicy
from policy_net.policy_kinds import load_policy
from policy_net.set_policy.policy import SetPolicy, default_set_file, set_policy_of, set_spec_of

WORLDS = ("locality", "types", "both")
POLICIES = ("unplaced", "unplaced-spread", "set", "drf", "drf-peak", "srtf", "tetris", "optimus", "marginal")


@dataclass(frozen=True, slots=True)
class Measured:
    """One policy on one window.

    Attributes:
        avg_jct_seconds: over all jobs of the window.
        resizes: of running jobs, moves included.
    """

    world: str
    cluster: str
    window: int
    policy: str
    avg_jct_seconds: float
    resizes: int


def measure(
    data: Path, clusters: Sequence[str], worlds: Sequence[str], policies: Sequence[str], part: Part, options: Options
) -> Iterator[Measured]:
    """Replay one window of each cluster under every policy, in every world.

    Raises:
        PolicyNetError: a file cannot be used, or a policy is not known.
    """
    known = {cluster.name: cluster for cluster in clusters_in(data)}
    for name in worlds:
        for cluster in clusters or tuple(known):
            if cluster not in known:
                raise BadInput(f"no cluster {cluster!r} in {data}: use one of {', '.join(known)}")
            cell = _cell(known[cluster], part, options)
            if cell is None:
                continue
            world = _world(build_world(cell, data), name, options)
            for policy in policies:
                placed = world
                if policy == "unplaced-spread":
                    spread = replace(world.environment, placement=PlacementStrategy.SPREAD)
                    placed = replace(world, environment=spread)
                result = replay(
                    placed.workload,
                    placed.environment,
                    _policy(policy, world),
                    placed.speeds,
                    placement_effect=placed.placement_effect,
                )
                jct = math.fsum(outcome.jct_seconds or math.inf for outcome in result.outcomes) / len(result.outcomes)
                yield Measured(name, cluster, cell.window, policy, jct, result.counters.resizes)


@dataclass(frozen=True, slots=True)
class Options:
    """What is the same for all windows.

    Attributes:
        jobs: of a window.
        gpu_types: of the first and of the second half of the machines.
        stall_seconds: what a resize and a resumption cost; a move too, where a policy places.
    """

    jobs: int = 120
    kind: str = "allreduce"
    load: float = 0.9
    gpu_types: tuple[str, str] = ("v100", "k80")
    stall_seconds: float = 0.0


def _cell(cluster: Cluster, part: Part, options: Options) -> RealCell | None:
    """The cell of a cluster's window for this part; None where it has none."""
    windows = windows_of(cluster.jobs, options.jobs)
    window = next((index for index, belongs in windows.items() if belongs is part), None)
    if window is None:
        return None
    seeds = SEEDS[part]
    return RealCell(
        cluster.name,
        cluster.file_digest,
        cluster.jobs,
        window,
        options.jobs,
        part,
        model_seed=seeds.models.start,
        noise_seed=seeds.disturbances.start,
        job_kind=options.kind,
        load=options.load,
        durations=Durations.KNOWN,
        capacity=CapacityMode.NODES,
        locality=True,
    )


def _world(world: World, name: str, options: Options) -> World:
    stall = options.stall_seconds
    environment = replace(world.environment, resize_seconds=stall, resume_seconds=stall)
    if name == "locality":
        return replace(world, environment=environment)
    nodes = max(environment.nodes, 2)
    first, second = options.gpu_types
    types = ((first, nodes // 2), (second, nodes - nodes // 2))
    effect = FittedPlacementEffect(apart=name == "both")
    return replace(world, environment=replace(environment, nodes=nodes, gpu_types=types), placement_effect=effect)


def _policy(name: str, world: World) -> SchedulerPolicy:
    content = default_set_file()
    if name in ("unplaced", "unplaced-spread"):
        return set_policy_of(content, name, places=False)
    if name in ("oracle", "unplaced-oracle"):
        effect = world.placement_effect if name == "oracle" else None
        return SetPolicy(set_spec_of(content, "set"), content.weights, speeds=world.speeds, effect=effect, label=name)
    return load_policy(name, PolicyContext(true_speeds=world.speeds))


def ratios(found: Sequence[Measured], reference: str) -> dict[str, dict[str, float]]:
    """By world and policy, the geometric mean over clusters of the average JCT over the reference's."""
    by_key = {(entry.world, entry.cluster, entry.policy): entry.avg_jct_seconds for entry in found}
    logs: dict[str, dict[str, list[float]]] = {}
    for (world, cluster, policy), jct in by_key.items():
        at_reference = by_key.get((world, cluster, reference))
        if at_reference is not None:
            logs.setdefault(world, {}).setdefault(policy, []).append(math.log(jct / at_reference))
    return {
        world: {policy: math.exp(math.fsum(values) / len(values)) for policy, values in policies.items()}
        for world, policies in logs.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurement; exit code 2 if an option cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.places", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="with workloads/*.csv")
    parser.add_argument("--clusters", default="", metavar="NAMES", help="by comma; all")
    parser.add_argument("--worlds", default=",".join(WORLDS), metavar="NAMES", help="by comma; all three")
    parser.add_argument("--policies", default=",".join(POLICIES), metavar="NAMES", help="by comma; see above")
    parser.add_argument("--part", choices=("validation", "test"), default="test", help="test windows judge")
    parser.add_argument("--jobs", type=int, default=120, help="of a window; 120")
    parser.add_argument("--kind", choices=("allreduce", "mix", "ps"), default="allreduce")
    parser.add_argument("--load", type=float, default=0.9, help="GPUs asked for over GPUs that there are; 0.9")
    parser.add_argument("--types", default="v100:k80", metavar="FIRST:SECOND", help="GPU types; v100:k80")
    parser.add_argument("--stall", type=float, default=0.0, metavar="SECONDS", help="of a resize or a move; 0")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    given = parser.parse_args(arguments)
    worlds, policies = given.worlds.split(","), given.policies.split(",")
    if not set(worlds) <= set(WORLDS):
        parser.error(f"--worlds {given.worlds}: use some of {', '.join(WORLDS)}")
    first, _, second = given.types.partition(":")
    if not second or given.jobs < 1:
        parser.error("--types needs FIRST:SECOND, and --jobs 1 or more")
    options = Options(given.jobs, given.kind, given.load, (first, second), given.stall)
    found = []
    try:
        clusters = [name for name in given.clusters.split(",") if name]
        for entry in measure(given.data, clusters, worlds, policies, Part(given.part), options):
            found.append(entry)
            print(json.dumps(asdict(entry)), file=sys.stderr, flush=True)
    except PolicyNetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    over_reference = ratios(found, policies[0])
    if given.output == "json":
        print(json.dumps({"reference": policies[0], "ratios": over_reference, "cells": [asdict(e) for e in found]}))
        return 0
    for world, of_policies in over_reference.items():
        for policy, ratio in of_policies.items():
            print(f"{world:10} {policy:18} {ratio:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
