"""Teaching by twins in one process: a head that learns from replays of windows, as a fleet's learner does.

Every update is the gradient of one window (`learning.twin_gradient`), counted in spreads, held within a trust region of
where it began, and averaged. Nobody is late and nobody lies, so nothing is judged. The same seed gives the same bits.
Windows and directions are drawn apart, so that settings that are compared meet the same windows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PRICES_VERSION, SESSIONS_VERSION, SET, SetSpec, Weights
from policy_net.laboratory.training.settings import SetSettings, SetStart, SetTwinSettings
from policy_net.laboratory.training.twin_windows import TwinWindow, cost_of, part_of
from policy_net.learning.adam import AdamConstants, TrustRegion, adam_step, follow
from policy_net.learning.twin_gradient import twin_gradient
from policy_net.set_policy.extended import extended
from policy_net.set_policy.policy import default_set_file, set_spec_of
from policy_net.set_policy.residual import initial_residual
from policy_net.set_policy.spreads import spreads_of

Windows = Callable[[np.random.Generator], TwinWindow]
"""Draws a workload that may be taught with."""


def begin(settings: SetSettings, seed: int) -> PolicyFile:
    """What is taught where there is no file to go on from: the shipped speeds, and the structure that is asked for.

    Args:
        seed: of hidden layers that begin anew.
    """
    shipped, wanted = default_set_file(), settings.twin
    groups = [name for name, asked in (("prices", wanted.prices), ("sessions", wanted.sessions)) if asked]
    if wanted.start is SetStart.SET:
        return extended(shipped, SET, groups) if groups else shipped
    spec = SetSpec(
        hidden=settings.hidden,
        prices=PRICES_VERSION if wanted.prices else 0,
        sessions=SESSIONS_VERSION if wanted.sessions else 0,
    )
    return PolicyFile(spec, initial_residual(spec, seed), {}, shipped.priors)


def teach(
    start: PolicyFile,
    windows: Windows,
    settings: SetTwinSettings,
    seed: int,
    *,
    updates: int,
    stop: Callable[[], bool] = lambda: False,
    on_update: Callable[[int, Weights, float], None] | None = None,
    reached: tuple[int, Weights] | None = None,
) -> Weights:
    """The average of the head after so many updates, or fewer if `stop` says so; shape (parameter_count,).

    Args:
        start: a `set` policy; its priors are what every replay begins with.
        on_update: gets how many updates are done, the average, and the root mean square of half the log ratios of the
            update's pairs.
        reached: of a teaching that was interrupted, how many updates were done, and the average then; it goes on on
            other draws.
    """
    spec = set_spec_of(start, "what is taught")
    spreads = spreads_of(spec)
    region = TrustRegion.around(start.weights, settings.trust_radius, spreads)
    before, begun = (0, start.weights) if reached is None else reached
    weights = begun.astype(np.float32)
    average = weights.copy()
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    drawn_on = (before,) if before else ()
    drawing, directing = (np.random.default_rng((seed, stream, *drawn_on)) for stream in range(2))
    for done in range(before, updates):
        if stop():
            break
        window = part_of(windows(drawing), settings.window_jobs, settings.speed_spread, drawing)
        cost = cost_of(window, spec, start.priors)
        found = twin_gradient(weights.copy(), spreads, cost, settings.gradient, directing)
        rate = settings.learning_rate / (1.0 + done / (settings.decay_share * updates))
        adam_step(weights, first, second, done + 1 - before, found.gradient, rate, AdamConstants(), spreads)
        if region is not None:
            region.keep_in(weights)
        follow(average, weights, settings.average_decay)
        if on_update is not None:
            on_update(done + 1, average.copy(), found.statistics["difference_rms"])
    return average
