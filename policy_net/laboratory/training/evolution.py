"""Evolution strategies: climb a loss that can only be measured, by pairs of opposite perturbations.

Both sides of a pair meet the same world (common random numbers), and every pair another one, so that none is learned by
heart.
Source: Salimans et al. 2017 (antithetic evolution strategies). Deviation: no ranks, as the losses are logarithms of
JCTs and well behaved, and an average over the second half of the path is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from policy_net.exchange.spec import Weights
from policy_net.laboratory.training.settings import SetSettings

Array = NDArray[np.float64]

Trial = tuple[Weights, int]
"""Weights, and the number of the world that they are tried in."""


def evolve(
    start: Weights,
    losses: Callable[[Sequence[Trial]], Sequence[float]],
    settings: SetSettings,
    seed: int,
    *,
    generations: int,
    stop: Callable[[], bool] = lambda: False,
    on_generation: Callable[[int, float], None] | None = None,
    on_average: Callable[[int, Weights], None] | None = None,
) -> Weights:
    """Take `generations` steps, or fewer if `stop` says so.

    Args:
        losses: measures all trials of a generation; lower is better.
        on_generation: gets how many generations are done, and the mean loss of the last.
        on_average: gets how many generations are done, and what would be returned if they were all.
    """
    generator = np.random.default_rng(seed)
    position: Array = start.astype(np.float64)
    first, second = np.zeros_like(position), np.zeros_like(position)
    path: list[Array] = []
    for generation in range(generations):
        if stop():
            break
        directions = generator.standard_normal((settings.pairs, len(position)))
        trials: list[Trial] = []
        for pair, direction in enumerate(directions):
            world = generation * settings.pairs + pair
            for sign in (1.0, -1.0):
                trials.append(((position + sign * settings.sigma * direction).astype(np.float32), world))
        measured = np.array(losses(trials)).reshape(settings.pairs, 2)
        gradient = ((measured[:, 0] - measured[:, 1]) / (2 * settings.sigma)) @ directions / settings.pairs
        first = 0.9 * first + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient**2
        unbiased = first / (1 - 0.9 ** (generation + 1))
        scale = np.sqrt(second / (1 - 0.99 ** (generation + 1))) + 1e-8
        position = position - settings.learning_rate * unbiased / scale
        path.append(position)
        if on_generation is not None:
            on_generation(generation + 1, float(measured.mean()))
        if on_average is not None:
            on_average(generation + 1, _average(path))
    return _average(path) if path else start


def _average(path: Sequence[Array]) -> Weights:
    return np.mean(path[len(path) // 2 :], axis=0).astype(np.float32)  # type: ignore[no-any-return]  # numpy's stubs
