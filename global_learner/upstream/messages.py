"""Answers of the learner above, in plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policy_net.exchange.signed_documents import SignedDocument
from policy_net.exchange.spec import Weights


@dataclass(frozen=True, slots=True)
class RegistrationAbove:
    """What the learner above says to a region that registers.

    Attributes:
        fleets: its fleet's name, and those above it that it knows, the nearest first.
        rounds: it works in rounds, and takes no pushes.
    """

    incarnation: int
    spec_digest: str
    fleets: tuple[str, ...]
    rounds: bool


@dataclass(frozen=True, slots=True)
class HeadAbove:
    """Newest weights of the learner above; float32, shape (parameter_count,)."""

    step: int
    weights: Weights


@dataclass(frozen=True, slots=True)
class AnswerAbove:
    """What became of a push there: `outcome` is applied, duplicate or rejected, and `reason` says why of the last."""

    outcome: str
    reason: str
    staleness: int
    head: HeadAbove


@dataclass(frozen=True, slots=True)
class WishAbove:
    """What a heartbeat's answer says.

    Attributes:
        reregister: the registration is not known there.
    """

    assigned_version: int
    head_step: int
    reregister: bool
    fleets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VersionAbove:
    """A version as it came, not checked yet."""

    version: int
    data: bytes
    digest: str
    signed: SignedDocument | None
    timestamp: SignedDocument | None
    roots: Sequence[SignedDocument]
