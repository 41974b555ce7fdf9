"""Trainings that differ in their seed alone, as one policy: the mean of their weights.

The seeds of a training agree on where it goes and differ by chance in how far each weight went. What they agree on is
left in the mean, which on the windows to choose on is better than the seeds are on average.
Source: Izmailov et al., "Averaging weights leads to wider optima and better generalization" (UAI 2018), there along one
training; here over several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import Weights

SEED, SEEDS = "seed", "seeds"


def mean_of(files: Sequence[PolicyFile]) -> PolicyFile:
    """The mean of several trainings; its card has their seeds.

    Raises:
        BadInput: there are fewer than two, two of one seed, or some that differ in more than their seeds.
    """
    if len(files) < 2:
        raise BadInput("--average: give two files or more, made by --write with different --seed")
    first = files[0]
    for file in files[1:]:
        if file.spec != first.spec or file.priors != first.priors or _but_seed(file) != _but_seed(first):
            raise BadInput("--average: these files differ in more than their seed; make them with the same options")
    seeds = [file.card.get(SEED) for file in files]
    if None in seeds or len(set(seeds)) < len(seeds):
        raise BadInput(f"--average: the seeds are {', '.join(map(str, seeds))}; each file needs one of its own")
    together = np.stack([file.weights for file in files]).astype(np.float64)
    weights: Weights = together.mean(axis=0).astype(first.weights.dtype)
    return PolicyFile(first.spec, weights, {**_but_seed(first), SEEDS: seeds}, first.priors)


def _but_seed(file: PolicyFile) -> dict[str, Any]:
    return {name: value for name, value in file.card.items() if name != SEED}
