"""Speeds of asynchronous PS jobs: measured contention at the servers, without waiting for each other.

Nobody published measurements of these models training asynchronously, so this is a model, made of what the
synchronous measurements show. There, a step with p servers and w workers lasts about
`compute/w + latency + w·(server/p + shared)`: the workers' compute, what every step costs, and the servers and links
that all workers share. An asynchronous worker has a whole batch for itself and waits for nobody: it computes alone for
`compute + latency` seconds, then queues for the shared part, `server/p + shared` seconds a visit. The speed of w such
workers follows from mean value analysis of that closed queue (Reiser and Lavenberg 1980): more workers always help,
less and less, up to 1 / (server/p + shared) steps/s. A single worker waits for nobody in either mode, so the
synchronous speeds with one worker hold here too; they fix the unit for every number of servers.

Deviation: progress is counted in samples; what stale gradients cost in samples is not modelled, as it depends on
learning rates. Waiting at the shared part is taken to be in turns with exponential times.
Source of the constants: least relative error to the step times in the speeds that DL2's authors published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_TASKS_PER_ROLE


@dataclass(frozen=True, slots=True)
class QueueConstants:
    """What a step of one model is made of, in seconds; all ≥ 0."""

    compute: float
    latency: float
    server: float
    shared: float


FITTED_QUEUES: Mapping[str, QueueConstants] = MappingProxyType(
    {
        "cnn-text-classification": QueueConstants(0.3736, 0.3446, 0.02754, 0.01601),
        "dssm": QueueConstants(0.421, 0.09982, 0.0, 0.009532),
        "inception-bn": QueueConstants(0.3762, 0.1934, 0.1541, 0.02052),
        "resnet-50": QueueConstants(0.1045, 0.4507, 0.4149, 0.00491),
        "resnext-110": QueueConstants(0.05576, 0.1788, 0.1039, 0.0202),
        "seq2seq": QueueConstants(0.07719, 0.04919, 0.02409, 0.01361),
        "vgg-16": QueueConstants(0.5813, 0.5728, 0.7936, 0.1397),
        "wlm": QueueConstants(0.09288, 0.2402, 0.1572, 0.03126),
    }
)


def queue_features(ps: NDArray[np.float64], workers: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the four constants are multiplied by in a synchronous step, shape (measurements, 4)."""
    return np.stack([1 / workers, np.ones_like(workers), workers / ps, workers], axis=-1)


def async_grid(constants: QueueConstants, one_worker: NDArray[np.float64]) -> NDArray[np.float64]:
    """Samples/s, shape (17, 17) [ps, workers], from the speeds of one worker with 0, 1, … 16 servers, shape (17,)."""
    alone = constants.compute + constants.latency
    visit = constants.server / np.arange(1, MAX_TASKS_PER_ROLE + 1) + constants.shared
    grid = np.zeros((MAX_TASKS_PER_ROLE + 1, MAX_TASKS_PER_ROLE + 1))
    waiting = np.zeros_like(visit)  # how many workers one more would find there
    for workers in range(1, MAX_TASKS_PER_ROLE + 1):
        stay = visit * (1 + waiting)
        steps_per_second = workers / (alone + stay)
        grid[1:, workers] = one_worker[1:] * steps_per_second * (alone + visit)
        waiting = steps_per_second * stay
    return grid
