"""Comparison of settings: how much sooner jobs end than under the default ones, with an interval over worlds.

Two trainings meet the same worlds, so each world gives a pair. The interval is Student's; it says nothing of other
trainings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policy_net.laboratory.tuning.study_file import Trial

CONFIDENCE = 0.95
_DONE = "done"


@dataclass(frozen=True, slots=True)
class JctChange:
    """Change of the average JCT as a share, negative where jobs end sooner; an interval if there are several worlds."""

    mean: float
    low: float | None
    high: float | None

    @property
    def shown(self) -> bool:
        """Whether the whole interval says that jobs end sooner."""
        return self.high is not None and self.high < 0.0

    def to_json(self) -> dict[str, float | None]:
        """Rounded to what figures of some worlds can say."""
        figures = {"change": self.mean, "low": self.low, "high": self.high}
        return {name: None if value is None else round(value, 5) for name, value in figures.items()}

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:+.1%}"
        return f"{self.mean:+.1%} ({self.low:+.1%} to {self.high:+.1%})"


def change_between(by_world: Sequence[float], reference: Sequence[float]) -> JctChange:
    """The change from the reference to others, of logs of average JCTs in the same order of worlds."""
    differences = np.asarray(by_world) - np.asarray(reference)
    mean = float(differences.mean())
    if len(differences) < 2:
        return JctChange(math.expm1(mean), None, None)
    from scipy.special import stdtrit  # noqa: PLC0415  (SciPy takes long to load)

    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    reach = float(stdtrit(len(differences) - 1, 0.5 + CONFIDENCE / 2.0)) * error
    return JctChange(math.expm1(mean), math.expm1(mean - reach), math.expm1(mean + reach))


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The trial with the lowest score of those that went to their end; the first of equals; None if there is none."""
    return next(iter(ranked(trials)), None)


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Trials that went to their end, best first."""
    done = [(trial.report.scores[-1], trial) for trial in trials if trial.report and state_of(trial) == _DONE]
    return [trial for _, trial in sorted(done, key=lambda entry: entry[0])]


def confirmation(
    best: int, seeds: Sequence[int], confirmed: Mapping[tuple[int, int], Sequence[float]]
) -> JctChange | None:
    """The change under other seeds on other worlds, each world over the seeds; None while one of them is missing."""
    if any((number, seed) not in confirmed for number in (0, best) for seed in seeds):
        return None
    mean = [np.mean([confirmed[number, seed] for seed in seeds], axis=0) for number in (best, 0)]
    return change_between(mean[0].tolist(), mean[1].tolist())


def row(trial: Trial, reference: Trial) -> dict[str, Any]:
    """A trial's facts for programs."""
    report = trial.report
    facts: dict[str, Any] = {"number": trial.number, "state": state_of(trial), "values": dict(trial.values)}
    if report is None:
        return facts
    facts["scores"] = [round(score, 6) for score in report.scores]
    if report.failure is not None:
        facts["failure"] = report.failure
    compares = state_of(trial) == state_of(reference) == _DONE and trial.number != reference.number
    if compares and reference.report is not None:
        facts |= change_between(report.by_world, reference.report.by_world).to_json()
    return facts


def state_of(trial: Trial) -> str:
    """In a word or two."""
    if trial.report is None:
        return "under way"
    if trial.report.failure is not None:
        return "failed"
    return "given up" if trial.report.given_up else _DONE
