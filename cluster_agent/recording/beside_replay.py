"""Replay of what the policy that did not act would have done: made again like the decisions that were carried out.

Its answer stands in the line of the next decision, as it was given while the interval lasted. It is made again before
that decision's reports are shown to anybody, from beliefs of its own, which a checkpoint holds and reports sharpen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cluster_agent.acting.active_policy import Candidate, number_decision
from cluster_agent.acting.deadline import decide_recorded
from cluster_agent.guard import Guard, Intervention, Proposal
from policy_net.domain import ClusterState, Progress, Trigger
from policy_net.exchange.state_codec import JsonObject, encode_decision
from policy_net.throughput.beliefs import beliefs_of

_COMPARED = ("beliefs_digest", "asked", "allocation", "interventions", "placement")


@dataclass
class OtherPolicy:
    """The policy beside the acting one, from a checkpoint on.

    Attributes:
        known: whether what it believes is known.
        asked_of: number, state and trigger of the latest decision, which it was asked about too.
    """

    candidate: Candidate
    guard: Guard
    known: bool
    asked_of: tuple[int, ClusterState, Trigger] | None = None

    def decide(self, logged: JsonObject) -> dict[str, Any] | None:
        """Make its latest decision again; None where that is another one's, or its beliefs are not known."""
        if self.asked_of is None or self.asked_of[0] != logged["number"]:
            return None
        if logged["digest"] != self.candidate.identity.digest:
            return None
        number, state, trigger = self.asked_of
        policy = self.candidate.policy
        beliefs = beliefs_of(policy)
        digest = None if beliefs is None or logged["beliefs_digest"] is None else beliefs.digest()
        number_decision(policy, number)
        proposal = self._proposal(logged, state, trigger)
        decision, interventions = self.guard.would(proposal, state)
        if logged["asked"] and not self.known:
            return None
        made: JsonObject = {"allocation": None, "placement": None} if decision is None else encode_decision(decision)
        return {
            "beliefs_digest": digest,
            "asked": proposal.asked,
            "allocation": made["allocation"],
            "interventions": [intervention.value for intervention in interventions],
            "placement": made["placement"],
        }

    def observe(self, progress: list[Progress]) -> None:
        """Show it what jobs did."""
        self.candidate.policy.observe(progress)

    def _proposal(self, logged: JsonObject, state: ClusterState, trigger: Trigger) -> Proposal:
        if not logged["asked"]:
            return Proposal(None, None, 0.0, TimeoutError(), asked=False)
        late = Intervention.DEADLINE.value in logged["interventions"]
        try:
            decision, samples = decide_recorded(self.candidate.policy, state, trigger)
        except Exception as error:  # as the agent does
            return Proposal(None, None, 0.0, TimeoutError() if late else error)
        # One that was late has thought all the same, which its beliefs show.
        return Proposal(None, None, 0.0, TimeoutError()) if late else Proposal(decision, samples, 0.0)


def differing_field(logged: JsonObject, made: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The first field that came out differently, as logged and as made again; None if none did."""
    return next(((name, logged[name], made[name]) for name in _COMPARED if logged[name] != made[name]), None)
