"""Clusters made of numbers: blocks with a load that wanders, a candidate's effect, and a twin of any quality."""

from collections.abc import Callable

import numpy as np

from global_learner.rollout.verdicts.evidence import SwitchbackBlock, TwinSays
from policy_net.exchange.rollout_assignment import candidate_acts

USUAL_JOBS = 10.0


def blocks_of(
    seed: int,
    pairs: int,
    *,
    loss: float = 0.0,
    twin_error: float = 0.05,
    twin_bias: float = 0.0,
    believed_loss: Callable[[np.random.Generator], float] | None = None,
    name: str = "north",
) -> list[SwitchbackBlock]:
    """Blocks of a cluster whose candidate has so many shares more jobs in the system.

    Args:
        twin_error: deviation of what the twin foresees, as a share of the usual jobs.
        twin_bias: share by which the twin has more jobs under either version.
        believed_loss: what the twin has for the candidate's loss in a block; the true one unless given.
    """
    generator = np.random.default_rng((seed, *name.encode()))
    load = 0.0
    blocks = []
    for number in range(2 * pairs):
        load = 0.8 * load + generator.normal(0.0, 0.3)
        base = USUAL_JOBS * np.exp(load)
        acts = candidate_acts(seed, name, number)
        jobs = base * (1.0 + loss * acts)
        believed = loss if believed_loss is None else believed_loss(generator)
        foreseen = base * (1.0 + twin_bias) + USUAL_JOBS * generator.normal(0.0, twin_error)
        twin = TwinSays(jobs, foreseen, foreseen + base * believed)
        blocks.append(
            SwitchbackBlock(number, acts, jobs, USUAL_JOBS, USUAL_JOBS, generator.poisson(20), twin)
        )  # begins as full as usual
    return blocks
