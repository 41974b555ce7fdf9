"""Duty of a cluster in a rollout: which version it holds beside its own, and whose turn it is; learner and agent alike.

It travels inside the signed timestamp: a cluster computes or acts on a second version only if the fleet said so.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from policy_net.exchange.generated import fleet_pb2

_LARGEST = 2**63 - 1
_LONGEST_BLOCK_SECONDS = 30 * 86400.0


class AssignmentRole(StrEnum):
    """What the second version is for."""

    SHADOW = "shadow"
    """Its decisions are computed, and not carried out."""
    ALTERNATING = "alternating"
    """The two act block by block."""


@dataclass(frozen=True, slots=True)
class RolloutAssignment:
    """What a rollout asks of a cluster.

    Attributes:
        beside_version: the candidate; the assigned version is the incumbent.
        seed: of the coins that say which version begins a pair of blocks.
        block_seconds: how long a block lasts, in the cluster's own time; the agent says when the first one begins.
        washout_seconds: at the begin of every block that are not counted.

    Raises:
        ValueError: a value is out of its range.
    """

    rollout: int
    role: AssignmentRole
    beside_version: int
    seed: int
    block_seconds: float
    washout_seconds: float

    def __post_init__(self) -> None:
        """Refuse what no learner asks."""
        for name, value in (("rollout", self.rollout), ("beside_version", self.beside_version)):
            if not 1 <= value <= _LARGEST:
                raise ValueError(f"{name} is {value}: it is a whole number from 1 on")
        if not 0 <= self.seed <= _LARGEST:
            raise ValueError(f"seed is {self.seed}: it is a whole number from 0 on")
        if not (math.isfinite(self.block_seconds) and 0.0 < self.block_seconds <= _LONGEST_BLOCK_SECONDS):
            raise ValueError(f"block_seconds is {self.block_seconds}: it is above 0, and 30 days at most")
        if not 0.0 <= self.washout_seconds < self.block_seconds:
            raise ValueError(f"washout_seconds is {self.washout_seconds}: it is from 0 to below block_seconds")

    def to_json(self) -> dict[str, Any]:
        """For a signed statement."""
        return {**asdict(self), "role": self.role.value}

    @classmethod
    def from_json(cls, content: Any) -> RolloutAssignment:
        """The inverse.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(content, Mapping):
            raise ValueError("the assignment is no object")  # noqa: TRY004  (one kind of error for whatever is wrong)
        return cls(
            _whole(content, "rollout"),
            AssignmentRole(str(content.get("role"))),
            _whole(content, "beside_version"),
            _whole(content, "seed"),
            _seconds(content, "block_seconds"),
            _seconds(content, "washout_seconds"),
        )

    @classmethod
    def of(cls, message: fleet_pb2.RolloutDuty) -> RolloutAssignment:
        """From the wire.

        Raises:
            ValueError: a value is out of its range.
        """
        return cls.from_json({name: getattr(message, name) for name in message.DESCRIPTOR.fields_by_name})

    def message(self) -> fleet_pb2.RolloutDuty:
        """For the wire."""
        return fleet_pb2.RolloutDuty(**self.to_json())


def candidate_first(seed: int, cluster: str, pair: int) -> bool:
    """Whether the candidate acts in the first block of a pair: the same coin wherever and whenever it is asked.

    Learner and agent both compute it, and so does whoever checks them; nothing has to be remembered.
    """
    drawn = hashlib.sha256(f"switchback\0{seed}\0{cluster}\0{pair}".encode()).digest()
    return drawn[0] % 2 == 1


def candidate_acts(seed: int, cluster: str, block: int) -> bool:
    """Whether the candidate acts in a block; blocks 2·n and 2·n + 1 are pair n."""
    return candidate_first(seed, cluster, block // 2) == (block % 2 == 0)


def _whole(content: Mapping[str, Any], name: str) -> int:
    value = content.get(name)
    if type(value) is not int:
        raise ValueError(f"{name} is no whole number")
    return value


def _seconds(content: Mapping[str, Any], name: str) -> float:
    value = content.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is no number")  # noqa: TRY004  (one kind of error for whatever is wrong)
    return float(value)
