"""`python -m benchmarks.inference [-o json]`: what one inference costs, and one decision about many jobs.

An inference is one action of `dl2` with forty jobs in a batch: features, network, mask and pick; its weights are new,
as they do not change what it costs. A decision is one of the default policy, from state to allocation, with tasks
placed on nodes: generated jobs that all come at once, and only decisions at which nine in ten of them are still there.
Beside them stands what its own network takes for forty jobs. Of the shipped `dl2` an action is timed in an agent's
code, and in the compiled twin: the time of a whole replay over its actions. All in one process; a minute.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foundation.errors import DONE
from foundation.tables import FactSheet, name_in_words, table_console
from policy_net.dl2.network import initial_weights
from policy_net.dl2.policy import LearnedPolicy, build_dl2
from policy_net.domain import PolicyContext
from policy_net.exchange.shipped import shipped_file
from policy_net.exchange.spec import SET_INPUTS, PolicySpec
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay, run_compiled
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.policy import DEFAULT_POLICY, SchedulerPolicy
from policy_net.set_policy.policy import SetPolicy, set_policy_of
from policy_net.twin.library import notice

PROGRAM = "python -m benchmarks.inference"
JOBS_PER_BATCH = 40
LEAST_SHARE_OF_JOBS = 0.9
CROWD_NODES = 500
_NODES_OF_A_BATCH = 16
_TWIN_REPLAYS = 5


def decide_seconds(policy: SchedulerPolicy, jobs: int, nodes: int, seed: int) -> list[float]:
    """Of every decision at which nine in ten of the jobs are there; all have come at once."""
    workload = load_workload(f"dl2:jobs={jobs},sizes=varied,seed={seed}")
    at_once = replace(workload, jobs=tuple(replace(job, submit_time_seconds=0.0) for job in workload.jobs))
    simulation = Simulation(at_once, Environment(nodes=nodes), default_speeds())
    found: list[float] = []
    while not simulation.finished:
        state, trigger = simulation.observe()
        if len(state.jobs) < LEAST_SHARE_OF_JOBS * jobs:
            break
        began = time.perf_counter()
        decision = policy.decide(state, trigger)
        found.append(time.perf_counter() - began)
        policy.observe(simulation.apply(decision))
    return found


def decisions(jobs: int, nodes: int, least: int) -> list[float]:
    """Seconds of at least so many decisions, over as many workloads as that takes, each from the shipped beliefs."""
    found: list[float] = []
    seed = 0
    while len(found) < least:
        seed += 1
        found += decide_seconds(_shipped(), jobs, nodes, seed)
    return found


def inferences(actions: int) -> list[float]:
    """Seconds of at least so many actions of `dl2`."""
    spec = PolicySpec(jobs_per_batch=JOBS_PER_BATCH)
    policy = LearnedPolicy(spec, initial_weights(spec, seed=1))
    seed = 0
    while len(policy.inference_seconds) < actions:
        seed += 1
        decide_seconds(policy, JOBS_PER_BATCH, _NODES_OF_A_BATCH, seed)
    return policy.inference_seconds


def actions_of_a_replay(seed: int) -> tuple[float, float]:
    """Median seconds of an action in an agent's code, and the CPU seconds of a replay in the twin over its actions."""
    workload, environment = load_workload(f"dl2:jobs=60,sizes=varied,seed={seed}"), Environment(nodes=24)
    policy = build_dl2(PolicyContext())
    replay(workload, environment, policy, default_speeds(), compiled=False)
    twin_seconds = []
    for _ in range(_TWIN_REPLAYS):
        began = time.process_time()
        run_compiled(workload, environment, policy, default_speeds(), keep_beliefs=False)
        twin_seconds.append(time.process_time() - began)
    return float(np.median(policy.inference_seconds)), min(twin_seconds) / len(policy.inference_seconds)


def tilts(times: int) -> list[float]:
    """Seconds that `set`'s network takes for the tilts of a batch's jobs, their features given."""
    policy = _shipped()
    inputs_JF = np.random.default_rng(1).normal(size=(JOBS_PER_BATCH, SET_INPUTS + 1))
    found = []
    for _ in range(times):
        began = time.perf_counter()
        policy.residual.tilts(inputs_JF)
        found.append(time.perf_counter() - began)
    return found


def measure(least: int) -> dict[str, Any]:
    """All figures; without those of the twin where it was not built.

    Args:
        least: decisions of each size, and a hundredth of the actions.
    """
    twin: dict[str, Any] = {}
    if notice() is None:
        by_agent, by_twin = actions_of_a_replay(seed=1)
        twin = {"action_p50_us": 1e6 * by_agent, "action_twin_us": 1e6 * by_twin, "twin_over_agent": by_twin / by_agent}
    few, many = (decisions(jobs, CROWD_NODES, least) for jobs in (200, 1000))
    return {
        "inference_j40_p50_us": 1e6 * float(np.median(inferences(100 * least))),
        **twin,
        "set_network_j40_p50_us": 1e6 * float(np.median(tilts(100 * least))),
        "slot_200_jobs_500_nodes_p50_ms": 1e3 * float(np.median(few)),
        "slot_200_jobs_500_nodes_p99_ms": 1e3 * float(np.percentile(few, 99)),
        "slot_1000_jobs_p50_ms": 1e3 * float(np.median(many)),
        "slot_1000_jobs_p99_ms": 1e3 * float(np.percentile(many, 99)),
        "decisions_200_jobs": len(few),
        "decisions_1000_jobs": len(many),
    }


def _shipped() -> SetPolicy:
    return set_policy_of(shipped_file(DEFAULT_POLICY), DEFAULT_POLICY)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--decisions", type=int, default=200, help="at least so many of each size")
    options = parser.parse_args(arguments)
    if options.decisions < 1:
        parser.error(f"--decisions {options.decisions}: use 1 or more")
    found = measure(options.decisions)
    if options.output == "json":
        print(json.dumps(found, indent=1))
        return DONE
    table_console().print(FactSheet("", [(name_in_words(name), f"{value:.4g}") for name, value in found.items()]))
    return DONE


if __name__ == "__main__":
    sys.exit(main())
