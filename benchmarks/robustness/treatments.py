"""Treatments: ways of turning updates into a moved head, each with the learning rate that suits it clean."""

from __future__ import annotations

from types import MappingProxyType

from benchmarks.robustness.fleet import Learning, Treatment

NORM_LIMIT = 10.0
"""Honest gradients here have a norm of 0.13 to 1.1."""

_COHORT = {"mode": "buffered", "buffer": 5}
_MEDIAN = {**_COHORT, "strategy": "FedMedian"}


def treatments(learning: Learning, rounds: int) -> MappingProxyType[str, Treatment]:
    """By name; the rate shrinks over the rounds, to a sixth at their end, so that runs end rather than wander."""
    every_update, cohort, remembered = _RATES[learning]

    def optimizer(rate: float, beta1: float = 0.9) -> dict[str, float]:
        return {"learning_rate": rate, "decay_steps": rounds, "beta1": beta1}

    return MappingProxyType(
        {
            "async": Treatment({"mode": "async"}, optimizer(every_update)),
            "async-norm": Treatment({"mode": "async"}, optimizer(every_update), NORM_LIMIT),
            "mean": Treatment({**_COHORT, "strategy": "FedAvg"}, optimizer(cohort)),
            "median": Treatment(_MEDIAN, optimizer(cohort)),
            # The votes have the memory that Adam's first moment would be.
            "median-memory": Treatment({**_MEDIAN, "vote_momentum": 0.9}, optimizer(remembered, 0.0)),
            "multi-krum-memory": Treatment(
                {
                    **_COHORT,
                    "strategy": "MultiKrum",
                    "parameters": {"num_malicious_nodes": 1, "num_nodes_to_select": 4},
                    "vote_momentum": 0.9,
                },
                optimizer(remembered, 0.0),
            ),
            "robust": Treatment({"mode": "robust"}, optimizer(remembered)),
            "trimmed-mean": Treatment(
                {**_COHORT, "strategy": "FedTrimmedAvg", "parameters": {"beta": 0.2}}, optimizer(cohort)
            ),
            "krum": Treatment(
                {**_COHORT, "strategy": "Krum", "parameters": {"num_malicious_nodes": 1}}, optimizer(cohort)
            ),
        }
    )


_RATES = {Learning.TEACHER: (3e-3, 8e-3, 3e-3), Learning.REWARDS: (1e-3, 3e-3, 1e-3)}
"""For single updates, for cohorts, and for cohorts of votes with a memory."""
NAMES = tuple(treatments(Learning.TEACHER, 1))
