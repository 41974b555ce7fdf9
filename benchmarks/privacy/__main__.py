"""`python -m benchmarks.privacy`: what a fleet still learns under noise, by its size, budget, and who adds the noise.

Without and with noise each size may take one of three learning rates: which, is said by a seed of its own, whose runs
are not reported. A cluster's budget is spent with the last of its updates, however many they are.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.command import parser_of, show
from benchmarks.privacy.fleet import Treatment, judged_run
from benchmarks.privacy.world import SHARES, WORKLOADS, Experience, average_jcts, beginning, teacher, watched
from benchmarks.processes import process_pool
from global_learner.aggregation.settings import PrivacyMode

RATES = (0.01, 0.03, 0.1)
UPDATES = MappingProxyType({4: 100, 20: 50, 100: 20})
"""That each cluster gives, by the number of clusters; fewer updates have less noise for the same budget."""
EPSILONS = (4.0, 8.0, 16.0)
TUNED_EPSILON = 8.0
"""Whose learning rate all budgets get, and the control, in which only noise is left of the updates."""
LOCAL_SIZES = (4, 20)
"""In these sizes noise is added by agents, too; each of their updates is written down to a disk."""
TUNING_SEED = 90
PROCESSES = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = parser_of("privacy", __doc__)
    parser.add_argument("--seeds", type=int, default=3, help="training seeds")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error("--seeds takes 1 or more")
    result = measure(options.seeds)
    show(result, options.output, "rows", list(result["rows"][0]))
    return 0


def measure(seeds: int) -> dict[str, Any]:
    """All figures; `jct_over_teacher` is average JCT over the teacher's, of which clusters learn."""
    began = time.monotonic()
    with process_pool(PROCESSES) as pool:
        worlds = {seed: _world(pool, seed) for seed in (TUNING_SEED, *range(seeds))}
        theirs, before = pool.map(average_jcts, (teacher()[0].weights, beginning()))
        treatments = [
            Treatment(clusters, updates, 0.0, epsilon, mode)
            for clusters, updates in UPDATES.items()
            for epsilon, mode in _privacies(clusters)
        ]
        treatments += [
            Treatment(clusters, updates, 0.0, TUNED_EPSILON, teaches=False) for clusters, updates in UPDATES.items()
        ]
        tuned = _tuned(pool, worlds[TUNING_SEED], theirs, treatments)
        rows = []
        for treatment in tuned:
            found = list(pool.map(judged_run, *zip(*((worlds[s], treatment, s) for s in range(seeds)), strict=True)))
            rows.append(_row(treatment, [_ratio(jcts, theirs) for jcts, _, _ in found], _ratio(before, theirs), found))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return {
        "parameters": len(beginning()),
        "seeds": seeds,
        "start_over_teacher": round(_ratio(before, theirs), 4),
        "rows": rows,
        "wall_seconds": round(time.monotonic() - began, 1),
    }


def _privacies(clusters: int) -> list[tuple[float | None, PrivacyMode]]:
    central = [(epsilon, PrivacyMode.CENTRAL) for epsilon in EPSILONS]
    local = [(epsilon, PrivacyMode.LOCAL) for epsilon in EPSILONS] if clusters in LOCAL_SIZES else []
    return [(None, PrivacyMode.CENTRAL), *central, *local]


def _world(pool: ProcessPoolExecutor, seed: int) -> list[Experience]:
    """What each cluster teaches from; neighbours in the list share no workload."""
    shared = list(pool.map(watched, [seed] * WORKLOADS, range(WORKLOADS)))
    return [shared[number][share] for share in range(SHARES) for number in range(WORKLOADS)]


def _tuned(
    pool: ProcessPoolExecutor, world: list[Experience], theirs: NDArray[np.float64], treatments: Sequence[Treatment]
) -> list[Treatment]:
    """Each treatment with the rate that was best for its size without noise, or with the learner's at one budget."""
    tried = [
        dataclasses.replace(treatment, learning_rate=rate)
        for treatment in treatments
        if treatment.teaches and treatment.mode is PrivacyMode.CENTRAL and treatment.epsilon in (None, TUNED_EPSILON)
        for rate in RATES
    ]
    jobs = pool.map(judged_run, [world] * len(tried), tried, [TUNING_SEED] * len(tried))
    ratios = dict(zip(tried, (_ratio(jcts, theirs) for jcts, _, _ in jobs), strict=True))
    best = []
    for treatment in treatments:
        epsilon = None if treatment.epsilon is None else TUNED_EPSILON
        like = dataclasses.replace(treatment, mode=PrivacyMode.CENTRAL, epsilon=epsilon, teaches=True)
        of_rates = {rate: ratios[dataclasses.replace(like, learning_rate=rate)] for rate in RATES}
        best.append(dataclasses.replace(treatment, learning_rate=min(of_rates, key=of_rates.__getitem__)))
    return best


def _row(
    treatment: Treatment, ratios: list[float], start: float, found: list[tuple[NDArray[np.float64], int, float]]
) -> dict[str, Any]:
    privacy = treatment.privacy()
    return {
        "clusters": treatment.clusters,
        "updates_of_each": treatment.updates,
        "privacy": "none" if privacy is None else treatment.mode.value,
        "teaches": treatment.teaches,
        "epsilon": treatment.epsilon,
        "noise_multiplier": None if privacy is None else round(privacy.noise_multiplier, 2),
        "learning_rate": treatment.learning_rate,
        "jct_over_teacher_median": round(statistics.median(ratios), 3),
        "jct_over_teacher_least": round(min(ratios), 3),
        "jct_over_teacher_most": round(max(ratios), 3),
        "gap_closed": round(1.0 - np.log(statistics.median(ratios)) / np.log(start), 3),
        "updates_applied": [applied for _, applied, _ in found],
        "epsilon_spent": round(max(spent for _, _, spent in found), 3),
    }


def _ratio(figures: NDArray[np.float64], against: NDArray[np.float64]) -> float:
    """Geometric mean over workloads."""
    return float(np.exp(np.log(figures / against).mean()))


if __name__ == "__main__":
    sys.exit(main())
