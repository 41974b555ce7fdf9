"""Cards of versions, as the registry keeps them and as they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from google.protobuf.message import DecodeError

from global_learner.registry.tables import VersionRow
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import SetSpec

FIRST_VERSION = 1
_MAX_NOTE_CHARACTERS = 500


class VersionOrigin(StrEnum):
    """Where a version comes from."""

    FIRST = "first policy"
    """The file that the learner began with; nothing says how it was made."""
    IMITATED = "imitated"
    """The first policy too, made by imitating a scheduler."""
    TRAINED = "trained"
    """By this fleet; or the first policy, after reinforcement learning in simulation."""
    PUBLISHED = "published by hand"
    """Trained elsewhere, and made a version by an operator."""
    ABOVE = "learner above"
    """Assigned to this region by the learner above."""


@dataclass(frozen=True, slots=True)
class VersionDetails:
    """Facts of a version that only people read.

    Attributes:
        rejections: updates refused since the parent, by reason, as far as the process that published it counted.
        aggregation: how updates became steps.
        policy: the kind of policy.
        prior_statistics: rows of beliefs of speeds in the file.
        privacy: of clusters, spent up to here; empty where no noise is added.
    """

    staleness_p90: float = 0.0
    staleness_max: int = 0
    rejections: Mapping[str, int] = field(default_factory=dict)
    aggregation: str = ""
    origin: str = ""
    policy: str = ""
    prior_statistics: int = 0
    notes: str = ""
    privacy: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON for the registry."""
        return {**asdict(self), "rejections": dict(self.rejections), "privacy": dict(self.privacy)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> VersionDetails:
        """Details from the registry's JSON; older versions have fewer."""
        return cls(**{name: content[name] for name in cls.__slots__ if name in content})


@dataclass(frozen=True, slots=True)
class VersionCard:
    """Card of a version, as in `fleet.proto`."""

    version: int
    head_step: int
    parent: int
    digest: str
    spec_digest: str
    created_unix_seconds: float
    size_bytes: int
    updates: int = 0
    contributions: dict[str, int] = field(default_factory=dict)
    staleness_p50: float = 0.0
    details: VersionDetails = VersionDetails()
    score: dict[str, Any] | None = None
    pinned: bool = False
    kept: bool = True
    head_size_bytes: int = 0
    signed: bytes = b""
    note: dict[str, Any] | None = None
    aliases: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: VersionRow) -> VersionCard:
        """Card of a row."""
        content = {item.name: getattr(row, item.name) for item in fields(cls)}
        details, signed = VersionDetails.from_json(row.details), row.signed or b""
        return cls(**{**content, "details": details, "signed": signed, "aliases": tuple(row.aliases)})


def kind_of(policy: PolicyFile) -> str:
    """The kind of a policy file, by the name under which such policies are trained."""
    return str(policy.spec.policy) if isinstance(policy.spec, SetSpec) else "dl2"


def first_details(policy: PolicyFile) -> VersionDetails:
    """Details of a first version: how its file was made, and under which name it ships, if it does."""
    from policy_net.exchange.shipped import shipped_name  # noqa: PLC0415

    made = policy.card
    if made.get("updates") or made.get("residual_published"):
        origin = VersionOrigin.TRAINED
    else:
        origin = VersionOrigin.IMITATED if made.get("imitated") else VersionOrigin.FIRST
    known = ("imitated", "imitation_steps", "updates", "workloads", "seed")
    facts = [f"{name} {_short(made[name])}" for name in known if made.get(name) is not None]
    shipped = shipped_name(policy)
    notes = ", ".join(facts if shipped is None else [f"ships with fedl2 as {shipped}", *facts])
    return VersionDetails(
        origin=origin.value,
        policy=kind_of(policy),
        prior_statistics=len(policy.priors),
        notes=notes[:_MAX_NOTE_CHARACTERS],
    )


def _short(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def version_message(card: VersionCard, *, scoring: bool = True) -> fleet_pb2.VersionCard:
    """The card's message, which has the same fields; `scoring`: whether scores are on."""
    details = card.details.to_json()
    privacy = fleet_pb2.Privacy(**details["privacy"]) if details["privacy"] else None
    other = {
        "details": fleet_pb2.VersionDetails(**{**details, "privacy": privacy}),
        "score": _score_message(card.score, scoring),
        "signed": signed_message(card),
        "note": fleet_pb2.VersionNote(**card.note) if card.note else None,
    }
    return fleet_pb2.VersionCard(**{item.name: getattr(card, item.name) for item in fields(card)} | other)


def signed_message(card: VersionCard) -> fleet_pb2.SignedDocument | None:
    """Signed document of a version; None without one, or if it is damaged."""
    try:
        return fleet_pb2.SignedDocument.FromString(card.signed) if card.signed else None
    except DecodeError:
        return None


def _score_message(score: dict[str, Any] | None, scoring: bool) -> fleet_pb2.ReplayScore:
    if score is None:
        return fleet_pb2.ReplayScore(state="waiting" if scoring else "off")
    known = fleet_pb2.ReplayScore.DESCRIPTOR.fields_by_name
    return fleet_pb2.ReplayScore(**{name: value for name, value in score.items() if name in known})
