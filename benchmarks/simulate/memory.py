"""Memory that a simulation keeps of ended jobs: two runs with the same number present, one with ten times the jobs.

Both are measured at their end, when nobody is present any more. Counted by `tracemalloc`, so that the figure does not
depend on the allocator or on what ran before. The workload is not counted: it is the input. What grows is the outcome
of every job: when it started and when it ended.
"""

from __future__ import annotations

import gc
import tracemalloc

from benchmarks.simulate.worlds import generated
from policy_net.baselines.drf import DrfPolicy
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.speeds.speed import default_speeds

FEWER, MORE = 200, 2000


def bytes_per_finished_job(nodes: int, fewer: int = FEWER, more: int = MORE) -> float:
    """What one more job leaves behind, run under drf."""
    return (_bytes_at_the_end(more, nodes) - _bytes_at_the_end(fewer, nodes)) / (more - fewer)


def _bytes_at_the_end(jobs: int, nodes: int) -> int:
    workload, environment, speeds = generated(jobs), Environment(nodes=nodes), default_speeds()
    policy = DrfPolicy()
    gc.collect()
    tracemalloc.start()
    try:
        simulation = Simulation(workload, environment, speeds)
        while not simulation.finished:
            state, trigger = simulation.observe()
            simulation.apply(policy.decide(state, trigger))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
