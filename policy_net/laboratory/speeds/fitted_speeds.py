"""Fitted constants of the simulator's truth, in a form for each kind of job; which type has which says `speed`.

Synchronous PS jobs: we fitted them to the speeds that DL2's authors measured and published with their code (MXNet, 1–16
parameter servers × 1–16 workers, eight models). How well all three forms match: `benchmarks.speed_fit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_ALLREDUCE_WORKERS, MAX_TASKS_PER_ROLE


@dataclass(frozen=True, slots=True)
class SpeedConstants:
    """What the log speed (samples/s) of a synchronous PS model is made of; `speed.fitted_grid` has the form.

    Attributes:
        servers: log speed with one worker, for 1, 2, … 16 parameter servers.
        workers: coefficients of (log workers)^1, ^2, …
        interaction: coefficients of (log servers)^i·(log workers)^j, row i = 1, 2, …, column j = 1, 2, …
    """

    servers: tuple[float, ...]
    workers: tuple[float, ...]
    interaction: tuple[tuple[float, ...], ...]


# fmt: off
FITTED_SPEEDS: Mapping[str, SpeedConstants] = MappingProxyType(
    {
        "resnet-50": SpeedConstants(
            servers=(
                2.7528, 3.38129, 3.8406, 3.84667, 3.99472, 3.79537, 3.87792, 3.96676,
                3.97899, 4.07978, 4.04551, 4.05914, 4.07419, 4.09535, 4.13576, 4.11472,
            ),
            workers=(1.13153, -1.32036, 0.22376, 0.03473),
            interaction=(
                (-2.21086, 2.25167, -0.59242),
                (1.13359, -1.07263, 0.27609),
                (-0.17119, 0.15907, -0.0401),
            ),
        ),
        "vgg-16": SpeedConstants(
            servers=(
                2.26144, 2.67186, 2.86266, 2.9305, 3.01322, 3.11094, 3.17577, 3.2023,
                3.2492, 3.24206, 3.27173, 3.29273, 3.33649, 3.34003, 3.33553, 3.32023,
            ),
            workers=(-0.88923, 1.4473, -0.99042, 0.19785),
            interaction=(
                (-0.28005, 0.51254, -0.17893),
                (0.12437, -0.21472, 0.07688),
                (0.00521, 0.00473, -0.00415),
            ),
        ),
        "resnext-110": SpeedConstants(
            servers=(
                5.95246, 5.98155, 6.13563, 6.22411, 6.26131, 6.18163, 6.10245, 6.09341,
                6.09949, 6.10452, 6.11052, 6.1158, 6.11831, 6.12768, 6.14219, 6.15112,
            ),
            workers=(-0.06052, -0.31281, -0.20182, 0.10283),
            interaction=(
                (-0.03725, 1.05001, -0.40415),
                (-0.0612, -0.4673, 0.1972),
                (0.01615, 0.07982, -0.03335),
            ),
        ),
        "inception-bn": SpeedConstants(
            servers=(
                5.13838, 5.23499, 5.37397, 5.44456, 5.45203, 5.38339, 5.32491, 5.32668,
                5.34757, 5.35121, 5.34818, 5.34221, 5.33455, 5.33372, 5.33623, 5.33664,
            ),
            workers=(0.12181, -0.14137, -0.30402, 0.114),
            interaction=(
                (-0.59497, 1.58897, -0.51642),
                (0.45091, -0.90886, 0.2859),
                (-0.09861, 0.17615, -0.05266),
            ),
        ),
        "seq2seq": SpeedConstants(
            servers=(
                5.62345, 5.79317, 5.9259, 6.07796, 6.19292, 6.18286, 6.14925, 6.11596,
                6.11089, 6.15246, 6.19785, 6.20015, 6.16072, 6.15895, 6.17964, 6.23082,
            ),
            workers=(-0.51781, 1.21306, -0.8984, 0.18631),
            interaction=(
                (0.00526, -0.0639, 0.00752),
                (-0.17348, 0.40342, -0.12285),
                (0.07216, -0.14362, 0.0439),
            ),
        ),
        "cnn-text-classification": SpeedConstants(
            servers=(
                4.12734, 4.18888, 4.23968, 4.25299, 4.25739, 4.24554, 4.23993, 4.22105,
                4.21087, 4.21585, 4.22828, 4.23069, 4.23362, 4.23926, 4.24881, 4.26137,
            ),
            workers=(-0.05917, 0.51801, -0.34408, 0.05614),
            interaction=(
                (-0.05903, 0.11935, -0.03832),
                (0.07258, -0.0445, 0.01455),
                (-0.01144, -0.00346, 0.00109),
            ),
        ),
        "dssm": SpeedConstants(
            servers=(
                6.13222, 6.15838, 6.17985, 6.17905, 6.18857, 6.19884, 6.21738, 6.21152,
                6.19994, 6.19057, 6.18824, 6.18966, 6.19359, 6.19094, 6.18599, 6.17652,
            ),
            workers=(0.44657, 0.76207, -0.61223, 0.11451),
            interaction=(
                (-0.34632, 0.31242, -0.06783),
                (0.2486, -0.2494, 0.05364),
                (-0.05614, 0.05731, -0.01189),
            ),
        ),
        "wlm": SpeedConstants(
            servers=(
                5.08294, 5.52156, 5.8321, 6.01465, 6.20102, 6.15688, 6.17426, 6.1496,
                6.13208, 6.13054, 6.13556, 6.09459, 6.05951, 6.02643, 6.00381, 6.03488,
            ),
            workers=(-0.10312, 0.43719, -0.55925, 0.14792),
            interaction=(
                (-0.84121, 0.9134, -0.25601),
                (0.22275, -0.24207, 0.05937),
                (0.02336, -0.0153, 0.00608),
            ),
        ),
    }
)
# fmt: on


@dataclass(frozen=True, slots=True)
class QueueConstants:
    """What a step of an asynchronous PS model is made of, in seconds; all ≥ 0.

    Nobody published measurements of these models training asynchronously, so this is made of what the synchronous ones
    show. There, a step with p servers and w workers lasts about `compute/w + latency + w·(server/p + shared)`: the
    workers' compute, what every step costs, and the servers and links that all workers share. An asynchronous worker
    has a whole batch for itself: it computes alone for `compute + latency` seconds, then queues for the shared part,
    `server/p + shared` seconds a visit. The speed of w such workers follows from mean value analysis of that closed
    queue (Reiser and Lavenberg 1980): more workers always help, less and less, up to 1 / (server/p + shared) steps/s. A
    single worker waits for nobody in either mode, so the synchronous speeds with one worker hold here too; they fix the
    unit for every number of servers.

    Deviation: progress is counted in samples; what stale gradients cost in samples is not modelled, as it depends on
    learning rates. Waiting at the shared part is taken to be in turns with exponential times.
    Source of the constants: least relative error to the step times in the speeds that DL2's authors published.
    """

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


WELL_CONNECTED = 16
"""GPUs up to which every further one costs the same."""


@dataclass(frozen=True, slots=True)
class RingConstants:
    """What a step of an all-reduce model lasts, in seconds; all ≥ 0.

    A step of a global batch B on n GPUs lasts `fixed + per_sample·B/n + ring·(n−1)/n + per_peer·(n−1)` seconds: what
    does not depend on the GPUs (launching, reading data), computing a GPU's part of the batch, sending the gradient
    around a ring (of which every GPU sends 2(n−1)/n), and what every further GPU costs (latency, stragglers). The batch
    stays as it is when the job is resized, so that training gives what it would have given.

    Beyond 16 GPUs this form would be 38% too slow on 64. There the last term stays what it is on 16, and every doubling
    of the GPUs adds `per_doubling` seconds.

    Source: the throughputs on A100s (8 a node) that were published with ElasticFlow (ASPLOS'23; Apache-2.0), 2 or 3
    global batches a model. One set of constants a model fits all of them: four up to 16 GPUs, then the fifth to 32, 64.
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
