"""Decisions of the policy that does not act: asked for the same state in a thread of its own, and never waited for.

The question is put once the acting policy's decision is made and written down; the answer is looked at when the
interval is over. On a live cluster that is later than any deadline. A simulated cluster's clock stands still meanwhile,
and there the agent waits as long as the deadline lets a policy think.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cluster_agent.acting.active_policy import Candidate
from cluster_agent.acting.deadline import DeadlineAsker
from cluster_agent.guard import Guard, Intervention, Proposal
from policy_net.domain import ClusterState, Decision, Progress, Trigger
from policy_net.exchange.state_codec import encode_decision


@dataclass(frozen=True, slots=True)
class BesideDecision:
    """What the other policy would have done.

    Attributes:
        decision: as the guard would have let it through; None where the fallback would have decided.
        answered: whether it gave a decision in time, good or bad.
    """

    number: int
    candidate: Candidate
    decision: Decision | None
    interventions: tuple[Intervention, ...]
    asked: bool
    answered: bool
    seconds: float

    def to_json(self, beliefs_digest: str | None) -> dict[str, Any]:
        """For the decision log."""
        identity = self.candidate.identity
        made = {"allocation": None, "placement": None} if self.decision is None else encode_decision(self.decision)
        return {
            "number": self.number,
            "policy": identity.name,
            "version": identity.version,
            "digest": identity.digest,
            "asked": self.asked,
            "beliefs_digest": beliefs_digest,
            "interventions": [intervention.value for intervention in self.interventions],
            "decide_seconds": self.seconds,
            "allocation": made["allocation"],
            "placement": made["placement"],
        }


@dataclass(frozen=True, slots=True)
class _Question:
    number: int
    candidate: Candidate
    state: ClusterState
    proposal: Callable[[float], Proposal]


class Beside:
    """Asks the policy that does not act; used by the loop's thread alone.

    Args:
        asker: of the policy that is held beside the assigned one; it has a thread of its own.
        patience_seconds: longest wait for an answer when the interval is over; 0 on live clusters.
    """

    def __init__(self, asker: DeadlineAsker, guard: Guard, patience_seconds: float) -> None:
        self.asker = asker
        self._guard = guard
        self._patience_seconds = patience_seconds
        self._question: _Question | None = None

    def ask(
        self, number: int, candidate: Candidate, asker: DeadlineAsker, state: ClusterState, trigger: Trigger
    ) -> None:
        """Put the question to the policy that does not act."""
        self._question = _Question(number, candidate, state, asker.begin(candidate.policy, state, trigger))

    def answer(self) -> BesideDecision | None:
        """What it would have done; None where nothing was asked."""
        question, self._question = self._question, None
        if question is None:
            return None
        proposal = question.proposal(self._patience_seconds)
        decision, interventions = self._guard.would(proposal, question.state)
        answered = proposal.decision is not None and Intervention.DEADLINE not in interventions
        return BesideDecision(
            question.number,
            question.candidate,
            decision,
            interventions,
            proposal.asked,
            answered,
            proposal.seconds,
        )

    def close(self) -> None:
        """Let the thread end."""
        self.asker.close()


def show(candidate: Candidate, progress: Sequence[Progress]) -> Exception | None:
    """Show what jobs did to the policy that did not act; what it raised, if anything."""
    try:
        candidate.policy.observe(progress)
    except Exception as error:  # a candidate's fault is its own
        return error
    return None
