"""Fixed replays on which versions are scored: named, seeded, small.

Nobody trains on these seeds. A change of the set, or of the simulation such that the figures differ, must change
`REVISION`: only scores under one digest are compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Workload, WorkloadOptions

NAME = "fixed-1"
REVISION = 1
BASELINES = ("drf", "optimus", "oracle")
"""Policies with which versions are compared; `oracle` knows the true speeds and is no contender."""
STATES_A_REPLAY = 24
"""States of each replay at which versions' decisions are compared."""


@dataclass(frozen=True, slots=True)
class FixedReplay:
    """One workload on one cluster. `noise`: of the observed speeds, as a share; seeded too."""

    name: str
    source: str
    nodes: int
    arrival_scale: float = 1.0
    noise: float = 0.27

    def world(self) -> tuple[Workload, Environment]:
        """The workload and the cluster."""
        options = WorkloadOptions(speeds=default_speeds(), arrival_scale=self.arrival_scale)
        return load_workload(self.source, options), Environment(nodes=self.nodes, speed_noise=self.noise, seed=1)


REPLAYS = (
    FixedReplay("crowded, 16 nodes", "dl2:jobs=24,arrivals=google,sizes=varied,seed=7710001", 16),
    FixedReplay("24 nodes", "dl2:jobs=24,arrivals=poisson,sizes=varied,seed=7710002", 24),
    FixedReplay("steady, 20 nodes", "dl2:jobs=40,arrivals=google,sizes=varied,seed=7710003", 20, 2.5),
    FixedReplay(
        "half all-reduce, 20 nodes",
        "dl2:jobs=24,arrivals=google,sizes=varied,seed=7710004,"
        "mix=resnet-50+dssm+cnn-text+bert-64-allreduce+gpt2-128-allreduce+deepspeech2-32-allreduce",
        20,
    ),
)


def set_digest() -> str:
    """SHA-256 over all that the figures follow from, hex."""
    content = {
        "name": NAME,
        "revision": REVISION,
        "replays": [asdict(entry) for entry in REPLAYS],
        "baselines": BASELINES,
        "states": STATES_A_REPLAY,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def worlds() -> Iterator[tuple[FixedReplay, Workload, Environment]]:
    """All replays, in order."""
    for entry in REPLAYS:
        workload, environment = entry.world()
        yield entry, workload, environment
