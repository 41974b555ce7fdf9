"""`python -m benchmarks.dl2_safety`: on which jobs the shipped `dl2` is worse than fair sharing, and with the guard.

Two parts: made-up worlds that differ from those of its training in one thing each, and windows of recorded clusters
(with `--data`), all on seeds that no training and no choice of weights used. Each is replayed under DRF, under `dl2`,
and under `dl2` as an agent obeys it: DRF decides where the guard says that the network was never taught of such jobs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import policy_net.baselines  # noqa: F401  (registers the schedulers)
from benchmarks.learning.score import ratio_interval
from benchmarks.policy_quality.cells import Durations, RealCell
from benchmarks.policy_quality.plan import RECORDED, cells_of
from benchmarks.policy_quality.worlds import build_world, clusters_in
from benchmarks.set_default import NOISE
from cluster_agent.active_policy import CandidateFactory
from cluster_agent.settings import PolicySettings
from policy_net.domain import ClusterState, Decision, PolicyContext, Progress, Trigger
from policy_net.exchange.spec import DL2
from policy_net.laboratory.catalogue import ALLREDUCE_MODEL_NAMES, MODEL_NAMES
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.offline import Episode
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Estimates, with_estimates
from policy_net.policy import SchedulerPolicy, build_policy

FIRST_SEED = 9_900_000
ASYNC_NAMES = tuple(f"{name}-async" for name in MODEL_NAMES)
TRUE_EPOCHS = Estimates()
COMPARED = "optimus", "set-taught"
FIGURES = "dl2", "guarded", *COMPARED


class GuardedDl2:
    """The shipped `dl2` behind the guard's rule, as a policy of its own."""

    name = "dl2-guarded"

    def __init__(self) -> None:
        self._candidate = CandidateFactory(PolicySettings()).from_name_or_file(DL2)
        self._fallback = build_policy("drf", PolicyContext())

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        """Whoever may decide in this state does."""
        policy = self._fallback if self._candidate.untaught(state) else self._candidate.policy
        return policy.decide(state, trigger)

    def observe(self, progress: Sequence[Progress]) -> None:
        """Neither has beliefs."""


def _mix(others: Sequence[str], share: float) -> str:
    weights = dict.fromkeys(MODEL_NAMES, (1 - share) / len(MODEL_NAMES)) if share < 1 else {}
    weights |= dict.fromkeys(others, share / len(others))
    return "+".join(f"{name}*{weight:.6f}" for name, weight in weights.items())


def _made_up(
    seed: int,
    *,
    nodes: int = 24,
    jobs: int = 60,
    at_most: int = 3,
    arrivals: str = "google",
    mix: str = "",
    declared: Estimates = TRUE_EPOCHS,
    on: DecideOn = DecideOn.SLOT,
) -> Episode:
    """A workload of the generator, with at most so many arrivals a slot, on a cluster."""
    source = f"dl2:jobs={jobs},max-arrivals={at_most},arrivals={arrivals},sizes=varied,seed={seed}"
    workload = with_estimates(load_workload(source + (f",mix={mix}" if mix else "")), declared, seed % 1000)
    return workload, Environment(nodes=nodes, speed_noise=NOISE, seed=seed % 1000, decide_on=on)


MADE_UP: dict[str, dict[str, Any]] = {
    "as taught": {},
    "on events": {"on": DecideOn.EVENT},
    "16 nodes": {"nodes": 16},
    "32 nodes": {"nodes": 32},
    "uniform arrivals": {"arrivals": "uniform"},
    "Poisson arrivals": {"arrivals": "poisson"},
    "epochs 20% wrong": {"declared": Estimates(epoch_error=0.2)},
    "work unknown": {"declared": Estimates(known=False)},
    "8 nodes, 20 jobs": {"nodes": 8, "jobs": 20, "at_most": 1},
    "96 nodes, 240 jobs": {"nodes": 96, "jobs": 240, "at_most": 12},
    "half all-reduce": {"mix": _mix(ALLREDUCE_MODEL_NAMES, 0.5)},
    "all-reduce": {"mix": _mix(ALLREDUCE_MODEL_NAMES, 1.0)},
    "tenth asynchronous": {"mix": _mix(ASYNC_NAMES, 0.1)},
    "asynchronous": {"mix": _mix(ASYNC_NAMES, 1.0)},
    "24 nodes, 240 jobs": {"jobs": 240},
}


def _episodes(seeds: int, only: Sequence[str], data: Path | None, nth: int) -> Iterator[tuple[str, Episode]]:
    for name in only:
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            yield name, _made_up(seed, **MADE_UP[name])
    if data is None:
        return
    cells = [cell for cell in cells_of(RECORDED, clusters_in(data)) if isinstance(cell, RealCell)]
    for cell in [cell for cell in cells if cell.model_seed == cells[0].model_seed]:
        if sorted({each.cluster for each in cells}).index(cell.cluster) % nth == 0:
            world = build_world(cell, data)
            work = "known" if cell.durations is Durations.KNOWN else "unknown"
            yield f"recorded, {cell.job_kind}, work {work}", (world.workload, world.environment)


def _jct(policy: SchedulerPolicy, episode: Episode) -> float:
    figures = replay(*episode, policy, default_speeds()).to_json()
    return float(figures["avg_jct_seconds"])


def main() -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dl2_safety", description=__doc__)
    parser.add_argument("--seeds", type=int, default=8, help="of made-up worlds, each kind")
    parser.add_argument("--only", nargs="+", choices=MADE_UP, default=MADE_UP, help="these made-up worlds")
    parser.add_argument("--data", type=Path, help="folder with workloads/*.csv")
    parser.add_argument("--every-nth", type=int, default=1, help="of the recorded clusters")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    asked = parser.parse_args()
    if asked.data is not None and not asked.data.is_dir():
        parser.error(f"--data {asked.data}: no such folder; name one of recorded workloads, or leave it out")
    ratios: dict[str, list[list[float]]] = {}
    for name, episode in _episodes(asked.seeds, asked.only, asked.data, asked.every_nth):
        drf = _jct(build_policy("drf", PolicyContext()), episode)
        others = [build_policy(name, PolicyContext()) for name in COMPARED]
        policies = build_policy(DL2, PolicyContext()), GuardedDl2(), *others
        ours = [_jct(policy, episode) / drf for policy in policies]
        ratios.setdefault(name, []).append(ours)
        print(f"{name}: {episode[0].name}: {ours[0]:.3f}, guarded {ours[1]:.3f}", file=sys.stderr, flush=True)
    rows = []
    for name, found in ratios.items():
        row: dict[str, Any] = {"jobs": name, "replays": len(found)}
        for figure, each in zip(FIGURES, np.transpose(found), strict=True):
            row |= {f"{figure}_over_drf": float(np.expm1(np.log(each).mean())), f"{figure}_worst": float(each.max())}
            if len(each) > 1:
                row[f"{figure}_over_drf_ci95"] = [round(bound - 1.0, 4) for bound in ratio_interval(np.log(each))]
        rows.append(row)
    if asked.output == "json":
        print(json.dumps(rows, indent=1))
        return 0
    for row in rows:
        print(
            f"| {row['jobs']} | {row['dl2_over_drf']:+.0%} | {row['dl2_worst']:.2f} | {row['guarded_over_drf']:+.0%} |"
            f" {row['guarded_worst']:.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
