"""`python -m benchmarks.dl2_learning`: DL2's network from random weights, learned from groups of decisions.

The world is that of `policy-net reproduce dl2 --scale full`: 60 jobs on 24 nodes, and its 16 judging workloads, whose
seeds nothing else uses. Speeds are learned on the way; the true ones are the simulator's alone. Minutes are of a core,
with validation. `windows_8_over_1` is how many updates eight clusters take to where a single one ends, over its own
updates; each is of as many decisions of every cluster; fleets that never get there are counted and left out of it.
`--file` trains nothing: it judges a policy file, or `dl2` as it ships.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import policy_net.baselines  # noqa: F401  (registers the schedulers)
from benchmarks.command import parser_of, show
from benchmarks.processes import process_pool
from policy_net.dl2.group import DrawingPolicy
from policy_net.dl2.network import initial_weights
from policy_net.dl2.policy import ActingMode, GroupChoice, LearnedPolicy
from policy_net.domain import ClusterState, Decision, PolicyContext, Progress, Trigger
from policy_net.errors import PolicyFileError
from policy_net.exchange.policy_file import PolicyFile, read_policy_file, write_policy_file
from policy_net.exchange.shipped import shipped_file
from policy_net.exchange.spec import DL2, PolicySpec, Weights
from policy_net.laboratory.catalogue import MODEL_NAMES, SLOT_SECONDS
from policy_net.laboratory.reproduction.dl2 import SCALES
from policy_net.laboratory.reproduction.experiment import World
from policy_net.laboratory.reproduction.tasks import judging_episode, training_episodes
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.group_training import (
    VALIDATIONS,
    GroupLearner,
    mean_jct_seconds,
    train_in_groups,
)
from policy_net.laboratory.training.offline import Episode
from policy_net.laboratory.training.settings import Dl2Settings
from policy_net.policy import SchedulerPolicy, build_policy

WORLD, SCALE = World(), SCALES["full"]
FIRST_VALIDATION, VALIDATED = 9_000, 12
"""Of a training's own episodes, which number no further than this."""
CLUSTERS = 8
FLEET_MICRO_ACTIONS = 5_000
"""Of every cluster in every update."""
LAST_VALIDATIONS = 5
"""Their median is where a cluster ends."""


def slots(policy: SchedulerPolicy, episodes: Sequence[Episode]) -> float:
    """Average JCT in slots over workloads."""
    return mean_jct_seconds(policy, episodes, default_speeds()) / SLOT_SECONDS


@cache
def judged() -> list[Episode]:
    """The workloads that judge."""
    return [judging_episode(WORLD, SCALE, number) for number in range(SCALE.workloads)]


@cache
def scheduler_slots(name: str, seed: int | None = None) -> float:
    """Average JCT of a scheduler in slots, on the judging workloads or on a training's validation."""
    policy = build_policy(name, PolicyContext(true_speeds=default_speeds()))
    return slots(policy, judged() if seed is None else validation(seed))


def validation(seed: int) -> list[Episode]:
    """Workloads that a training is validated on."""
    return list(islice(training_episodes(WORLD, SCALE, seed, FIRST_VALIDATION), VALIDATED))


def trained(seed: int, updates: int) -> dict[str, Any]:
    """One training from random weights, and how it is judged."""
    spec = Dl2Settings().spec(MODEL_NAMES)
    episodes = training_episodes(WORLD, SCALE, seed)
    learner = GroupLearner(spec, initial_weights(spec, seed), episodes, default_speeds(), Dl2Settings().groups, seed)
    apart, drf = validation(seed), scheduler_slots("drf", seed)
    began, curve = time.process_time(), []

    def on_validated(done: int, cost: float) -> None:
        minutes = (time.process_time() - began) / 60.0
        curve.append({"updates": done, "minutes": round(minutes, 2), "validation_slots": round(cost, 3)})
        print(f"seed {seed}: {curve[-1]}", file=sys.stderr, flush=True)

    weights, best = train_in_groups(
        learner, lambda weights: slots(LearnedPolicy(spec, weights), apart), steps=updates, on_validated=on_validated
    )
    below = [point["minutes"] for point in curve if point["validation_slots"] <= drf]
    judged_slots = slots(LearnedPolicy(spec, weights), judged())
    return {
        "seed": seed,
        "minutes": curve[-1]["minutes"],
        "judged_slots": round(judged_slots, 3),
        "over_drf": round(judged_slots / scheduler_slots("drf") - 1.0, 4),
        "over_optimus": round(judged_slots / scheduler_slots("optimus") - 1.0, 4),
        "minutes_to_drf": min(below, default=None),
        "drift_over_best": round(curve[-1]["validation_slots"] / best - 1.0, 4),
        "curve": curve,
        "weights": weights.tobytes(),
    }


def in_turns(clusters: int, seed: int) -> Iterator[Episode]:
    """Workloads of so many clusters, one after the other."""
    each = [training_episodes(WORLD, SCALE, seed, cluster=cluster) for cluster in range(clusters)]
    while True:
        for episodes in each:
            yield next(episodes)


def fleet_curve(clusters: int, seed: int, updates: int, enough_slots: float = -math.inf) -> list[tuple[int, float]]:
    """Validation of a network that learns from so many clusters, in slots, until it is enough."""
    spec = Dl2Settings().spec(MODEL_NAMES)
    settings = Dl2Settings().groups.model_copy(update={"micro_actions": clusters * FLEET_MICRO_ACTIONS})
    learner = GroupLearner(
        spec, initial_weights(spec, seed), in_turns(clusters, seed), default_speeds(), settings, seed
    )
    apart, every, curve = validation(seed), max(1, updates // VALIDATIONS), []
    for done in range(1, updates + 1):
        learner.update(done / updates)
        if done % every == 0:
            curve.append((done, slots(LearnedPolicy(spec, learner.weights), apart)))
            if curve[-1][1] <= enough_slots:
                break
    return curve


def windows_of_each(seed: int, updates: int) -> dict[str, Any]:
    """How many updates eight clusters take to where one ends, over its own; None if they never get there."""
    alone = fleet_curve(1, seed, updates)
    end_slots = float(np.median([cost for _, cost in alone[-LAST_VALIDATIONS:]]))
    together = fleet_curve(CLUSTERS, seed, updates, end_slots)
    print(f"seed {seed}: alone {alone[-1]}, {CLUSTERS} clusters {together[-1]}", file=sys.stderr, flush=True)
    got_there = together[-1][1] <= end_slots
    return {
        "seed": seed,
        "alone": alone,
        "together": together,
        "over": together[-1][0] / alone[-1][0] if got_there else None,
    }


UTILITY_EVERY = 5
"""States of a replay that are looked at: every so many-th."""
JOBS_BELOW = (6, 10, 15, 21, 32, 100)
"""Bounds of the numbers of jobs that utilities are given for."""


class UtilityProbe(DrawingPolicy):
    """Acts greedily, and notes what its decisions and the planner's are believed to bring in the same states.

    Attributes:
        noted: number of jobs, utility of the network's decision and of the planner's.
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        super().__init__(spec, weights, GroupChoice(1, sys.maxsize))
        self.begin(sys.maxsize, sys.maxsize - 1)
        self.mode = ActingMode.GREEDY
        self._planner = build_policy("set", PolicyContext())
        self.noted: list[tuple[int, float, float]] = []

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        """Decide, and note what it brings."""
        number = self.decision_index
        planned, own = self._planner.decide(state, trigger), super().decide(state, trigger)
        if state.jobs and number % UTILITY_EVERY == 0:
            self.noted.append((len(state.jobs), self._brings(state, own), self._brings(state, planned)))
        return own

    def _brings(self, state: ClusterState, decision: Decision) -> float:
        best = sum(self._utility(job, self._best_speed(job)) for job in state.jobs)
        return sum(self._granted_utility(job, decision.of(job.job_id)) for job in state.jobs) / best if best else 0.0

    def observe(self, progress: Sequence[Progress]) -> None:
        """Learn of speeds, as the planner does."""
        super().observe(progress)
        self._planner.observe(progress)


def utility_by_jobs(file: PolicyFile) -> list[dict[str, Any]]:
    """What greedy decisions bring in the judging workloads, by the number of jobs, and what the planner's would."""
    noted = []
    for workload, environment in judged():
        probe = UtilityProbe(file.network_spec, file.weights)
        replay(workload, environment, probe, default_speeds(), compiled=False)
        noted += probe.noted
    found_N3, rows, least = np.array(noted), [], 1
    for below in JOBS_BELOW:
        here = (found_N3[:, 0] >= least) & (found_N3[:, 0] < below)
        if here.any():
            _, network, planner = found_N3[here].mean(axis=0).round(4).tolist()
            rows.append({"jobs": f"{least}-{below - 1}", "states": int(here.sum()), "dl2": network, "set": planner})
        least = below
    return rows


def judged_file(name: str) -> dict[str, Any]:
    """How a policy file is judged, or `dl2` as it ships.

    Raises:
        PolicyFileError: it cannot be read, or holds a policy of another kind.
    """
    file = shipped_file(DL2) if name == DL2 else read_policy_file(Path(name))
    judged_slots = slots(LearnedPolicy(file.network_spec, file.weights), judged())
    return {
        "file": name,
        "drf_slots": round(scheduler_slots("drf"), 3),
        "optimus_slots": round(scheduler_slots("optimus"), 3),
        "judged_slots": round(judged_slots, 3),
        "over_drf": round(judged_slots / scheduler_slots("drf") - 1.0, 4),
        "over_optimus": round(judged_slots / scheduler_slots("optimus") - 1.0, 4),
        "utility_by_jobs": utility_by_jobs(file),
    }


def main() -> int:
    """Entry point; returns the exit code."""
    parser = parser_of("dl2_learning", __doc__)
    parser.add_argument("--updates", type=int, default=2000, help="of each training; a thousand take half an hour")
    parser.add_argument("--fleet-updates", type=int, default=200, help="of each fleet")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, help="the policy of the seed that validates best, as a file")
    parser.add_argument("--file", metavar="FILE|dl2", help="judge it, and train nothing")
    asked = parser.parse_args()
    if asked.file is not None:
        try:
            found = judged_file(asked.file)
        except PolicyFileError as error:
            parser.error(f"--file: {error}")
        show(found, asked.output, "utility_by_jobs", ("jobs", "states", "dl2", "set"))
        return 0
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    with process_pool(asked.processes) as pool:
        runs = list(pool.map(partial(trained, updates=asked.updates), seeds))
        fleets = list(pool.map(partial(windows_of_each, updates=asked.fleet_updates), seeds))
    if asked.out is not None:
        write_policy_file(asked.out, _best(runs))
    over = [fleet["over"] for fleet in fleets if fleet["over"] is not None]
    reached = [run["minutes_to_drf"] for run in runs]
    result = {
        "drf_slots": round(scheduler_slots("drf"), 3),
        "optimus_slots": round(scheduler_slots("optimus"), 3),
        "over_drf_mean": round(float(np.mean([run["over_drf"] for run in runs])), 4),
        "over_optimus_mean": round(float(np.mean([run["over_optimus"] for run in runs])), 4),
        "minutes_to_drf_from_random": None if None in reached else max(reached),
        "drift_over_best": max(run["drift_over_best"] for run in runs),
        "windows_8_over_1": round(float(np.mean(over)), 4) if over else None,
        "fleets_that_got_there": f"{len(over)} of {len(fleets)}",
        "utility_by_jobs": utility_by_jobs(_best(runs)),
        "fleets": fleets,
        "runs": [{name: value for name, value in run.items() if name != "weights"} for run in runs],
    }
    show(
        result, asked.output, "runs", ("seed", "minutes", "judged_slots", "over_drf", "over_optimus", "minutes_to_drf")
    )
    return 0


def _best(runs: Sequence[dict[str, Any]]) -> PolicyFile:
    run = min(runs, key=lambda run: min(point["validation_slots"] for point in run["curve"]))
    weights: Weights = np.frombuffer(run["weights"], dtype=np.float32)
    spec: PolicySpec = Dl2Settings().spec(MODEL_NAMES)
    card = {
        "method": "groups",
        "seed": run["seed"],
        "updates": run["curve"][-1]["updates"],
        "workloads": [f"{SCALE.jobs} generated jobs on {SCALE.nodes} nodes"],
        "validation_avg_jct_seconds": round(SLOT_SECONDS * min(point["validation_slots"] for point in run["curve"]), 3),
    }
    return PolicyFile(spec, weights, card)


if __name__ == "__main__":
    sys.exit(main())
