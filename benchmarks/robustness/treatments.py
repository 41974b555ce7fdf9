"""Treatments: ways of turning updates into a moved head, each with the learning rate that suits it clean."""

from __future__ import annotations

from types import MappingProxyType

from benchmarks.robustness.fleet import Treatment

NORM_LIMIT = 10.0
"""Honest gradients here have a norm of 0.13 to 1.1."""

RATE, COHORT_RATE = 3e-3, 8e-3
"""For single updates and for cohorts of votes with a memory; for other cohorts."""

_COHORT = {"mode": "buffered", "buffer": 5}
_MEDIAN = {**_COHORT, "strategy": "FedMedian"}


def treatments(rounds: int) -> MappingProxyType[str, Treatment]:
    """By name; the rate shrinks over the rounds, to a sixth at their end, so that runs end rather than wander."""

    def optimizer(rate: float, beta1: float = 0.9) -> dict[str, float]:
        return {"learning_rate": rate, "decay_steps": rounds, "beta1": beta1}

    return MappingProxyType(
        {
            "async": Treatment({"mode": "async"}, optimizer(RATE)),
            "async-norm": Treatment({"mode": "async"}, optimizer(RATE), NORM_LIMIT),
            "mean": Treatment({**_COHORT, "strategy": "FedAvg"}, optimizer(COHORT_RATE)),
            "median": Treatment(_MEDIAN, optimizer(COHORT_RATE)),
            # The votes have the memory that Adam's first moment would be.
            "median-memory": Treatment({**_MEDIAN, "vote_momentum": 0.9}, optimizer(RATE, 0.0)),
            "multi-krum-memory": Treatment(
                {
                    **_COHORT,
                    "strategy": "MultiKrum",
                    "parameters": {"num_malicious_nodes": 1, "num_nodes_to_select": 4},
                    "vote_momentum": 0.9,
                },
                optimizer(RATE, 0.0),
            ),
            "robust": Treatment({"mode": "robust"}, optimizer(RATE)),
            "trimmed-mean": Treatment(
                {**_COHORT, "strategy": "FedTrimmedAvg", "parameters": {"beta": 0.2}}, optimizer(COHORT_RATE)
            ),
            "krum": Treatment(
                {**_COHORT, "strategy": "Krum", "parameters": {"num_malicious_nodes": 1}}, optimizer(COHORT_RATE)
            ),
        }
    )


NAMES = tuple(treatments(1))
