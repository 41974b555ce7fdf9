"""Teacher of a policy: logged decisions that it is fitted to, and how far it then agrees with them.

The agreement is measured on decisions that were not learned from, with two jobs or more. Whole runs of a log's
decisions are held out, spread over the log: neighbouring decisions are nearly alike, so one between two that were
learned from would show nothing; and the end of a log alone may be its quietest part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from foundation.figures import counted
from policy_net.dl2.policy import LearnedPolicy
from policy_net.domain import Allocation, Trigger
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PolicySpec, SetSpec, Weights
from policy_net.exchange.statistics import SpeedStatistic, merged
from policy_net.laboratory.logged import DecisionFile, LoggedDecision
from policy_net.laboratory.training.imitation import demonstrate, imitate
from policy_net.laboratory.training.set_imitation import (
    LogView,
    PickCollector,
    fit_residual,
    log_views,
    nearest_on_steps,
    tasks_in_common,
)
from policy_net.laboratory.training.set_training import MOST_COUNT
from policy_net.learning.settings import ImitationSettings
from policy_net.set_policy.planner import plan
from policy_net.set_policy.residual import Residual
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs

MOST_DECISIONS = 4000
"""Decisions that are learned from; of a longer log, every so many-th."""
LEAST_DECISIONS = 20
SET_ITERATIONS = 200

MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "task_overlap": "tasks in common",
        "same_allocation": "jobs that are given exactly the same",
        "running_alike": "jobs that run under both, or wait under both",
    }
)
"""What `Agreement.to_json` says, and what it means."""

RUNS = 40
EVERY = 5
"""Every fifth of forty runs is held out."""


@dataclass
class Agreement:
    """Agreement over some decisions, counted over all of their jobs and tasks.

    Attributes:
        both, either: tasks that both gave to the same job in the same role, and that either gave.
        same: jobs that were given exactly the same.
        alike: jobs that run under both, or wait under both.
    """

    decisions: int = 0
    jobs: int = 0
    both: int = 0
    either: int = 0
    same: int = 0
    alike: int = 0

    def add(self, ours: Sequence[Allocation], theirs: Sequence[Allocation]) -> None:
        """One decision: what every job is given by either."""
        both, either = tasks_in_common(ours, theirs)
        self.decisions += 1
        self.jobs += len(ours)
        self.both += both
        self.either += either
        self.same += sum(mine == other for mine, other in zip(ours, theirs, strict=True))
        self.alike += sum((mine.tasks > 0) == (other.tasks > 0) for mine, other in zip(ours, theirs, strict=True))

    @property
    def task_overlap(self) -> float:
        """Share of tasks in common, 0 to 1."""
        return self.both / self.either if self.either else 1.0

    def to_json(self) -> dict[str, float]:
        """Shares between 0 and 1."""
        jobs = max(self.jobs, 1)
        return {
            "task_overlap": round(self.task_overlap, 4),
            "same_allocation": round(self.same / jobs, 4),
            "running_alike": round(self.alike / jobs, 4),
        }


@dataclass(frozen=True, slots=True)
class Split:
    """Division of a log of so many decisions; of those to learn from about `most` at most are taken, evenly spread."""

    decisions: int
    most: int

    def is_held_out(self, position: int) -> bool:
        """Whether the decision at this position judges."""
        return position // max(self.decisions // RUNS, 1) % EVERY == EVERY // 2

    def is_learned(self, position: int) -> bool:
        """Whether the decision at this position is learned from."""
        return not self.is_held_out(position) and position % max(-(-self.decisions // self.most), 1) == 0


@dataclass(frozen=True, slots=True)
class Imitated:
    """Outcome of an imitation; `facts` for the card are the log, how many decisions, the agreement before and after."""

    weights: Weights
    facts: dict[str, Any]
    priors: tuple[SpeedStatistic, ...] = ()

    @property
    def agreement_lines(self) -> list[str]:
        """Lines for the user: how far the policy agrees with the log, and in what less than before."""
        before, after = self.facts["agreement_before"], self.facts["agreement_after"]
        reachable = self.facts.get("reachable")
        limit = (
            "" if reachable is None else f"; within reach of this kind of policy are {reachable['task_overlap']:.1%}"
        )
        lines = [
            f"{self.facts['imitated']}: tasks in common with it, on"
            f" {counted(self.facts['held_out_decisions'], 'decision')} not learned from:"
            f" {before['task_overlap']:.1%} before, {after['task_overlap']:.1%} after{limit}"
        ]
        lines += [
            f"It agrees less than before in {measure} ({meaning}):"
            f" {before[measure]:.1%} before, {after[measure]:.1%} after"
            for measure, meaning in MEASURES.items()
            if round(after[measure], 3) < round(before[measure], 3)
        ]
        return lines


class Teacher:
    """Somebody's decisions, to learn from."""

    def __init__(self, name: str, decisions: Iterable[LoggedDecision], digest: str | None = None) -> None:
        """Go through the decisions once, and count; they must be the same every time. `digest` is of the log's bytes.

        Raises:
            BadInput: they cannot be read, or are too few to learn from.
        """
        self.name = name
        self._decisions = decisions
        self._digest = digest
        count = sum(1 for _ in decisions)
        if count < LEAST_DECISIONS:
            raise BadInput(
                f"--imitate {name}: holds {counted(count, 'decision')}; at least {LEAST_DECISIONS} are needed"
            )
        self._split = Split(count, MOST_DECISIONS)

    @classmethod
    def from_file(cls, path: Path, slot_seconds: float) -> Teacher:
        """A log; raises BadInput as the constructor."""
        decisions = DecisionFile(path, slot_seconds)
        with path.open("rb") as stream:
            return cls(path.name, decisions, hashlib.file_digest(stream, "sha256").hexdigest())

    def imitate_set(self, start: PolicyFile, spec: SetSpec, on_iteration: Callable[[float], None]) -> Imitated:
        """Fit the residual of a `set` policy; its priors become what the log shows of speeds.

        Raises:
            BadInput: the log holds nothing to learn from.
        """
        collector = PickCollector()
        beliefs = GaussianProcessBeliefs(start.priors)
        for position, view in enumerate(log_views(self._decisions, beliefs)):
            if self._split.is_learned(position):
                collector.add(view)
        picks = collector.picks()
        if not picks.count:
            raise BadInput(f"--imitate {self.name}: no decision of it makes a choice between jobs")
        weights, likelihood = fit_residual(
            spec, start.weights, picks, most_iterations=SET_ITERATIONS, on_iteration=on_iteration
        )
        before, after, reachable = Agreement(), Agreement(), Agreement()
        residuals = (Residual(spec, start.weights), before), (Residual(spec, weights), after)
        for position, view in enumerate(log_views(self._decisions, GaussianProcessBeliefs(start.priors))):
            if len(view.decision.state.jobs) < 2 or not self._split.is_held_out(position):
                continue
            desired = _desired(view.decision)
            for residual, agreement in residuals:
                agreement.add(_planned(view, residual), desired)
            reachable.add([nearest_on_steps(*pair) for pair in zip(view.tables, desired, strict=True)], desired)
        facts = self._facts(before, after) | {
            "picks": picks.count,
            "mean_log_likelihood": round(likelihood, 4),
            "reachable": reachable.to_json(),
        }
        return Imitated(weights, facts, _with_log_speeds(start.priors, beliefs.statistics()))

    def imitate_dl2(
        self,
        start: Weights,
        spec: PolicySpec,
        steps: int,
        seed: int,
        on_step: Callable[[int, float], None],
        settings: ImitationSettings = ImitationSettings(),  # noqa: B008  (frozen)
    ) -> Imitated:
        """Fit a `dl2` policy by cross-entropy.

        Raises:
            BadInput: the log holds nothing to learn from.
        """
        seen = [
            decision
            for position, decision in enumerate(self._decisions)
            if decision.state.jobs and self._split.is_learned(position)
        ]
        if not seen:
            raise BadInput(f"--imitate {self.name}: no decision of it has a job")
        weights = imitate(
            start, spec, demonstrate(seen, spec, settings, seed), settings, steps=steps, seed=seed, on_step=on_step
        )
        before, after = Agreement(), Agreement()
        policies = (LearnedPolicy(spec, start), before), (LearnedPolicy(spec, weights), after)
        for position, decision in enumerate(self._decisions):
            if len(decision.state.jobs) < 2 or not self._split.is_held_out(position):
                continue
            for policy, agreement in policies:
                made = policy.decide(decision.state, Trigger.SLOT)
                agreement.add([made.of(job.job_id) for job in decision.state.jobs], _desired(decision))
        return Imitated(weights, self._facts(before, after) | {"imitation_steps": steps})

    def _facts(self, before: Agreement, after: Agreement) -> dict[str, Any]:
        return {
            "imitated": self.name,
            **({} if self._digest is None else {"imitated_digest": self._digest}),
            "logged_decisions": self._split.decisions,
            "held_out_decisions": after.decisions,
            "agreement_before": before.to_json(),
            "agreement_after": after.to_json(),
        }


def _desired(decision: LoggedDecision) -> list[Allocation]:
    return [decision.of(job.job_id) for job in decision.state.jobs]


def _planned(view: LogView, residual: Residual) -> list[Allocation]:
    state = view.decision.state
    made = plan(state, view.tables, None if residual.silent else residual.tilts(view.inputs_JF))
    return [made.of(job.job_id) for job in state.jobs]


def _with_log_speeds(
    priors: Sequence[SpeedStatistic], observed: Sequence[SpeedStatistic]
) -> tuple[SpeedStatistic, ...]:
    """The priors, with what the log shows in place of what they say of the types that it knows."""
    known = {entry.job_type for entry in observed}
    return merged((*observed, *(entry for entry in priors if entry.job_type not in known)), most_count=MOST_COUNT)
