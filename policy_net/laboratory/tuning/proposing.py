"""Proposals of what to try next, and giving up what does worse: Optuna's, as functions of what is known.

Each sampler and pruner is made anew, with a seed of its own, over the trials that it may know: so a study that was
killed, or is run by more processes, goes the same way.

Source: Bergstra et al. 2011 (tree-structured Parzen estimator, several parameters at once); Golovin et al. 2017 (the
median rule).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from policy_net.laboratory.tuning.space import Space, TunedParameter, Value, Values

if TYPE_CHECKING:
    import optuna

Scores = tuple[float, ...]
"""Of a trial at its rungs; lower is better."""

STARTUP_TRIALS = 8
"""Tried at random before any is proposed: fewer say nothing of so many parameters."""
TRIALS_BEFORE_GIVING_UP = 4
"""That went to their end; the median of fewer is chance."""


@dataclass(frozen=True, slots=True)
class TrialReport:
    """What became of a trial.

    Attributes:
        scores: at each rung that it reached.
        by_world: the log of the average JCT in each world, at the last of them.
        given_up: whether it ended early, as others did better.
        failure: why it has no score, in a few words; None where it has one.
    """

    scores: Scores = ()
    by_world: tuple[float, ...] = ()
    given_up: bool = False
    failure: str | None = None


def propose(
    space: Space, seed: int, known: Sequence[tuple[Values, TrialReport]], under_way: Sequence[Values]
) -> dict[str, Value]:
    """Values for the next trial; the defaults for the first.

    Args:
        known: the trials of earlier batches, in order, and what became of them.
        under_way: values of the trials before this one of the same batch, from which it keeps away.
    """
    number = len(known) + len(under_way)
    if number == 0:
        return space.defaults
    with _quiet() as optuna:
        distributions = distributions_of(space)
        sampler = optuna.samplers.TPESampler(
            seed=int(np.random.SeedSequence((seed, number)).generate_state(1)[0]),
            n_startup_trials=STARTUP_TRIALS,
            multivariate=True,
            constant_liar=True,
        )
        study = optuna.create_study(direction="minimize", sampler=sampler)
        for values, report in known:
            study.add_trial(_ended(values, report, distributions))
        for values in under_way:
            study.add_trial(
                optuna.trial.create_trial(
                    state=optuna.trial.TrialState.RUNNING, params=dict(values), distributions=distributions
                )
            )
        return dict(study.ask(fixed_distributions=distributions).params)


def is_given_up(earlier: Sequence[Scores], scores: Sequence[float]) -> bool:
    """Whether a trial with these scores so far is worse at its rung than the median of those that went to their end."""
    with _quiet() as optuna:
        study = optuna.create_study(direction="minimize")
        states = optuna.trial.TrialState
        for other in earlier:
            study.add_trial(
                optuna.trial.create_trial(
                    state=states.COMPLETE, value=other[-1], intermediate_values=dict(enumerate(other))
                )
            )
        this = optuna.trial.create_trial(state=states.RUNNING, intermediate_values=dict(enumerate(scores)))
        return bool(optuna.pruners.MedianPruner(n_startup_trials=TRIALS_BEFORE_GIVING_UP).prune(study, this))


def distributions_of(space: Space) -> dict[str, optuna.distributions.BaseDistribution]:
    """The space in Optuna's words."""
    return {item.name: _distribution(item) for item in space.parameters}


def _distribution(item: TunedParameter) -> optuna.distributions.BaseDistribution:
    from optuna import distributions  # noqa: PLC0415  (half a second, and help needs none of it)

    if item.choices:
        return distributions.CategoricalDistribution(item.choices)
    if item.whole:
        return distributions.IntDistribution(int(item.low), int(item.high), log=item.log)
    return distributions.FloatDistribution(item.low, item.high, log=item.log)


def _ended(
    values: Values, report: TrialReport, distributions: dict[str, optuna.distributions.BaseDistribution]
) -> optuna.trial.FrozenTrial:
    from optuna.trial import TrialState, create_trial  # noqa: PLC0415  (as above)

    scores = () if report.failure is not None else report.scores
    state = TrialState.PRUNED if report.given_up else TrialState.COMPLETE
    return create_trial(
        state=state if scores else TrialState.FAIL,
        value=scores[-1] if scores else None,
        params=dict(values),
        distributions=distributions,
        intermediate_values=dict(enumerate(scores)),
    )


@contextmanager
def _quiet() -> Iterator[Any]:
    """Optuna, a module, which tells nobody of studies that live for a moment."""
    import optuna  # noqa: PLC0415  (as above)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield optuna
