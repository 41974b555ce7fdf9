"""Speeds of all-reduce jobs on 1–64 GPUs: a small physical form, and the constants that we fitted to measurements.

A step of a global batch B on n GPUs lasts `fixed + per_sample·B/n + ring·(n−1)/n + per_peer·(n−1)` seconds: what does
not depend on the GPUs (launching, reading data), computing a GPU's part of the batch, sending the gradient around a
ring (of which every GPU sends 2(n−1)/n), and what every further GPU costs (latency, stragglers). The batch stays as
it is when the job is resized, so that training gives what it would have given.

Beyond 16 GPUs further ones cost less than the form lets expect: it would be 38% too slow on 64. There the last term
stays what it is on 16, and every doubling of the GPUs adds `per_doubling` seconds. Up to 16 this changes nothing.

Source: the throughputs on A100s (8 a node) that were published with ElasticFlow (ASPLOS'23; Apache-2.0), 2 or 3 global
batches a model. One set of constants a model fits all of them: four of them up to 16 GPUs, then the fifth to 32 and 64;
how well: `benchmarks.speed_fit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_ALLREDUCE_WORKERS

WELL_CONNECTED = 16
"""GPUs up to which every further one costs the same."""


@dataclass(frozen=True, slots=True)
class RingConstants:
    """What a step of one model lasts, in seconds; all ≥ 0.

    Attributes:
        per_doubling: what every doubling of the GPUs beyond 16 adds.
    """

    fixed: float
    per_sample: float
    ring: float
    per_peer: float
    per_doubling: float = 0.0


FITTED_RINGS: Mapping[str, RingConstants] = MappingProxyType(
    {
        "bert": RingConstants(0.05673, 0.001708, 0.0112, 0.0009967, 0.009698),
        "deepspeech2": RingConstants(0.03511, 0.008989, 0.03051, 2.009e-05, 0.0),
        "gpt2": RingConstants(0.02605, 0.0008543, 0.007674, 0.000665, 0.007113),
        "inception3": RingConstants(0.03097, 0.002733, 0.01095, 0.001244, 0.007112),
        "resnet50": RingConstants(0.01039, 0.002081, 0.01429, 0.0007693, 0.004278),
        "vgg16": RingConstants(0.0, 0.003012, 0.02805, 0.0001639, 0.001316),
    }
)
"""By model, whatever its batch."""


def ring_features(batch: float, workers: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the first four constants are multiplied by, shape (workers, 4)."""
    peers = workers - 1
    near_peers = np.minimum(peers, WELL_CONNECTED - 1)
    return np.stack([np.ones_like(workers), batch / workers, peers / workers, near_peers], axis=-1)


def doublings(workers: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the fifth constant is multiplied by, shape (workers,); zero up to 16 workers."""
    return np.asarray(np.log2(np.maximum(workers, WELL_CONNECTED) / WELL_CONNECTED), dtype=np.float64)


def step_seconds(constants: RingConstants, batch: float, workers: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a step lasts on each of these numbers of workers, shape (workers,)."""
    near = [constants.fixed, constants.per_sample, constants.ring, constants.per_peer]
    return np.asarray(ring_features(batch, workers) @ np.array(near) + constants.per_doubling * doublings(workers))


def allreduce_speeds(constants: RingConstants, batch: float) -> NDArray[np.float64]:
    """Samples/s with 0, 1, … 64 workers, shape (65,)."""
    workers = np.arange(1, MAX_ALLREDUCE_WORKERS + 1, dtype=np.float64)
    # By itself, so that speeds up to 16 do not depend on how a product of so many more rows is rounded.
    parts = (workers[:WELL_CONNECTED], workers[WELL_CONNECTED:])
    return np.concatenate([[0.0], *(batch / step_seconds(constants, batch, part) for part in parts)])
