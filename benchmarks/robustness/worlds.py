"""A small world in which clean learning improves much and soon, so that what an attack takes away can be seen.

Five clusters of eight nodes with different mixes of models, a network of 37,000 parameters, and a start that has only
begun to imitate DRF: acting greedily it takes four times as long.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.learning.worlds import PUSHING, SILENT
from policy_net.exchange.spec import OTHER_TYPE, PolicySpec
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Workload, WorkloadOptions

MIXES = {name: {**PUSHING, **SILENT}[name] for name in ("north", "west", "south", "silent", "east")}
"""Five clusters; the last one is the bad one where there is one."""
BAD = "east"
NODES = 8
ARRIVAL_SCALE = 4.0
"""Arrivals four times as far apart as the generator's: about the load that the nodes can bear."""
HELD_OUT_SEED = 9_600_000
"""From here on: nobody trains on these, and nothing was chosen by them (tuning used those from 9,100,000 on)."""
SPEC = PolicySpec(jobs_per_batch=12, job_types=(OTHER_TYPE, *MODEL_NAMES), hidden=(64, 64))


def environment() -> Environment:
    """The machines of every cluster here."""
    return Environment(nodes=NODES)


def workload(mix: str, seed: int) -> Workload:
    """One workload of a mix."""
    options = WorkloadOptions(speeds=default_speeds(), arrival_scale=ARRIVAL_SCALE)
    return load_workload(f"dl2:jobs=40,arrivals=google,sizes=varied,seed={seed},mix={mix}", options)


def held_out(each: int) -> Iterator[Workload]:
    """The workloads that policies are judged on, of every cluster's mix."""
    for mix in MIXES.values():
        for number in range(each):
            yield workload(mix, HELD_OUT_SEED + number)
