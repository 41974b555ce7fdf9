"""Imitation: how near a policy comes to a scheduler by its log. `python -m benchmarks.imitation`, some minutes.

Every scheduler is watched on generated workloads as its log would have it; a `set` policy is fitted, and compared with
the log on decisions that it was not fitted to, and with the scheduler by average JCT on further workloads.
"""

from __future__ import annotations

import argparse
import json
from statistics import geometric_mean
from typing import Any

import policy_net.baselines  # noqa: F401  (registers the schedulers)
from policy_net.dl2.network import initial_weights
from policy_net.dl2.policy import LearnedPolicy
from policy_net.domain import PolicyContext
from policy_net.exchange.spec import OTHER_TYPE, PolicySpec, SetSpec, Weights
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.logged import LoggedDecision
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.imitation import watch_logged
from policy_net.laboratory.training.teacher import Teacher
from policy_net.laboratory.workloads.source_options import WorkloadOptions
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Workload
from policy_net.policy import SchedulerPolicy, build_policy
from policy_net.set_policy.policy import SetPolicy, default_set_file

TEACHERS = ("optimus", "drf", "srtf", "fifo")
LOGGED_SEEDS = range(4)
JUDGED_SEEDS = range(9_600_000, 9_600_004)
NOISE = 0.27
DL2_STEPS = 2000
SPEEDS = default_speeds()


def _workload(seed: int) -> Workload:
    return load_workload(f"dl2:jobs=60,sizes=varied,seed={seed}", WorkloadOptions(speeds=SPEEDS))


def _average_jct_seconds(policy: SchedulerPolicy, nodes: int) -> float:
    """Geometric mean over the judged workloads, in their order; beliefs go on from one to the next."""
    environment = Environment(nodes=nodes, speed_noise=NOISE)
    results = [replay(_workload(seed), environment, policy, SPEEDS).to_json() for seed in JUDGED_SEEDS]
    return geometric_mean(float(result["avg_jct_seconds"]) for result in results)


def measure(name: str, nodes: int, *, with_dl2: bool) -> list[dict[str, Any]]:
    """One scheduler's log, imitated by both kinds of policy."""
    environment = Environment(nodes=nodes, speed_noise=NOISE)
    scheduler = build_policy(name, PolicyContext())
    log: list[LoggedDecision] = []
    for seed in LOGGED_SEEDS:
        log += watch_logged(scheduler, _workload(seed), environment, SPEEDS)
    teacher = Teacher(name, log)
    shipped, spec = default_set_file(), SetSpec()
    imitated = teacher.imitate_set(shipped, spec, lambda _: None)

    def jct(weights: Weights, priors: tuple[SpeedStatistic, ...]) -> float:
        return _average_jct_seconds(SetPolicy(spec, weights, priors), nodes)

    theirs = _average_jct_seconds(build_policy(name, PolicyContext()), nodes)
    rows = [
        {
            "teacher": name,
            "nodes": nodes,
            "policy": "set",
            **imitated.facts,
            "jct_of_teacher": 1.0,
            "jct_before": round(jct(shipped.weights, shipped.priors) / theirs, 3),
            "jct_after": round(jct(imitated.weights, imitated.priors) / theirs, 3),
        }
    ]
    if with_dl2:
        network = PolicySpec(jobs_per_batch=20, job_types=(OTHER_TYPE, *MODEL_NAMES))
        learned = teacher.imitate_dl2(initial_weights(network, 0), network, DL2_STEPS, 0, lambda *_: None)
        after = _average_jct_seconds(LearnedPolicy(network, learned.weights), nodes)
        rows.append(
            {"teacher": name, "nodes": nodes, "policy": "dl2", **learned.facts, "jct_after": round(after / theirs, 3)}
        )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--nodes", type=int, nargs="+", default=[16, 24])
    parser.add_argument("--with-network", action="store_true", help="also with a dl2 policy; a minute each")
    wanted = parser.parse_args()
    rows = []
    for nodes in wanted.nodes:
        for name in TEACHERS:
            for row in measure(name, nodes, with_dl2=wanted.with_network):
                rows.append(row)
                if wanted.output == "table":
                    print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
    if wanted.output == "json":
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
