"""One training run of the benchmark and what it came to: what its processes are given, and give back.

Apart from the command, as a spawned process cannot find what a package's `__main__` defines.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.robustness.fleet import ATTACKS, run_fleet
from benchmarks.robustness.score import Figures, learned_jcts
from benchmarks.robustness.treatments import treatments
from benchmarks.robustness.worlds import BAD, SPEC, held_out
from policy_net.dl2.policy import ActingMode
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import Weights


@dataclass(frozen=True, slots=True)
class Task:
    """One training run."""

    start: Weights
    treatment: str
    attack: str
    seed: int
    rounds: int
    workloads: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What one run came to."""

    sampled: Figures
    greedy: Figures
    updates: int
    rejected_of_bad: int
    rejected_of_honest: int
    cpu_seconds: float


def train_and_judge(task: Task) -> Ended:
    """One run, in a process of its own."""
    began = time.process_time()
    treatment = treatments(task.rounds)[task.treatment]
    start = PolicyFile(SPEC, task.start)
    result = run_fleet(start, treatment, ATTACKS[task.attack], task.seed, task.rounds)
    final = PolicyFile(SPEC, result.weights)
    judged = list(held_out(task.workloads))
    return Ended(
        learned_jcts(final, judged, ActingMode.SAMPLE),
        learned_jcts(final, judged, ActingMode.GREEDY),
        result.updates,
        result.rejected[BAD],
        sum(count for name, count in result.rejected.items() if name != BAD),
        time.process_time() - began,
    )
