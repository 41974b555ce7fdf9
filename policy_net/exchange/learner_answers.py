"""Answers of a learner in plain values, to an agent or a region; `fleet_client.py` asks it over gRPC."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from policy_net.exchange.rollout_assignment import RolloutAssignment
from policy_net.exchange.signed_documents import SignedDocument
from policy_net.exchange.spec import Weights, WeightSpec


class PushOutcome(StrEnum):
    """What became of an update."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Registration:
    """The learner's answer to a cluster that says it is there.

    Attributes:
        incarnation: numbers this registration; update sequences start at 1 within it.
        learning: False if this cluster's updates are not wanted.
        rounds: the learner asks for work, round by round; updates are not pushed.
        fleets: the learner's fleet, and those above it that it knows, the nearest first.
    """

    incarnation: int
    spec: WeightSpec
    head_step: int
    assigned_version: int
    learning: bool
    rounds: bool = False
    timestamp: SignedDocument | None = None
    fleets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LearnerHead:
    """The learner's newest weights."""

    step: int
    weights: Weights


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """What became of an update, and the head after it if it was sent along."""

    outcome: PushOutcome
    reason: str
    head_step: int
    staleness: int
    head: LearnerHead | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the learner wants of this cluster now.

    Attributes:
        rollout_assignment: what a rollout asks besides; None: nothing.
        assignment_fault: what is wrong with one that cannot be read.
        lost_digest: of a policy file that the learner lost and takes back; empty: of none.
    """

    version: int
    head_step: int
    reregister: bool
    timestamp: SignedDocument | None = None
    rollout_assignment: RolloutAssignment | None = None
    assignment_fault: str = ""
    lost_digest: str = ""
    fleets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareAnswer:
    """What became of a report of speeds.

    Attributes:
        taken: False if the learner had it, or a later one.
        left_out: job types for which the fleet's vocabulary has no room.
    """

    taken: bool
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchedPolicy:
    """A published version as it came over the wire; not checked yet.

    Attributes:
        signed: what the version is; None from a learner that signs nothing.
        timestamp: that this cluster is to act on it now.
    """

    version: int
    data: bytes
    digest: str
    signed: SignedDocument | None = None
    timestamp: SignedDocument | None = None
    roots: tuple[SignedDocument, ...] = ()
