"""Speeds of all-reduce jobs on 1–16 GPUs: a small physical form, and the constants that we fitted to measurements.

A step of a global batch B on n GPUs lasts `fixed + per_sample·B/n + ring·(n−1)/n + per_peer·(n−1)` seconds: what does
not depend on the GPUs (launching, reading data), computing a GPU's part of the batch, sending the gradient around a
ring (of which every GPU sends 2(n−1)/n), and what every further GPU costs (latency, stragglers). The batch stays as
it is when the job is resized, so that training gives what it would have given.

Source: the throughputs on A100s (8 a node) that were published with ElasticFlow (ASPLOS'23; Apache-2.0), up to 16
GPUs, 2 or 3 global batches a model. One set of constants a model fits all of them; how well: `benchmarks.speed_fit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_TASKS_PER_ROLE


@dataclass(frozen=True, slots=True)
class RingConstants:
    """What a step of one model lasts, in seconds; all ≥ 0."""

    fixed: float
    per_sample: float
    ring: float
    per_peer: float


FITTED_RINGS: Mapping[str, RingConstants] = MappingProxyType(
    {
        "bert": RingConstants(0.05673, 0.001708, 0.0112, 0.0009967),
        "deepspeech2": RingConstants(0.03511, 0.008989, 0.03051, 2.009e-05),
        "gpt2": RingConstants(0.02605, 0.0008543, 0.007674, 0.000665),
        "inception3": RingConstants(0.03097, 0.002733, 0.01095, 0.001244),
        "resnet50": RingConstants(0.01039, 0.002081, 0.01429, 0.0007693),
        "vgg16": RingConstants(0.0, 0.003012, 0.02805, 0.0001639),
    }
)
"""By model, whatever its batch."""


def ring_features(batch: float, workers: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the four constants are multiplied by, shape (workers, 4)."""
    peers = workers - 1
    return np.stack([np.ones_like(workers), batch / workers, peers / workers, peers], axis=-1)


def allreduce_speeds(constants: RingConstants, batch: float) -> NDArray[np.float64]:
    """Samples/s with 0, 1, … 16 workers, shape (17,)."""
    workers = np.arange(1, MAX_TASKS_PER_ROLE + 1, dtype=np.float64)
    seconds = ring_features(batch, workers) @ np.array(
        [constants.fixed, constants.per_sample, constants.ring, constants.per_peer]
    )
    return np.concatenate([[0.0], batch / seconds])
