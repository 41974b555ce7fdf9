"""Where a decision that was made again first differs from the one in the log: field, job, both values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from policy_net.exchange.state_codec import JsonObject

_BEFORE = ("beliefs_digest", "asked")
_AFTER = ("interventions", "reasons", "placement")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first field of a decision that came out differently.

    Attributes:
        where: the line.
        number: of the decision.
        job: whose; empty where it is about no single job.
        field: such as `workers`, `action 3` or `beliefs_digest`.
    """

    where: str
    number: int
    job: str
    field: str
    logged: Any
    recomputed: Any

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        whose = f", job {self.job}" if self.job else ""
        return (
            f"decision {self.number}{whose}, {self.field}: logged {self.logged!r}, recomputed {self.recomputed!r}"
            f" ({self.where})"
        )


def first_difference(where: str, logged: JsonObject, made: dict[str, Any]) -> Difference | None:
    """Compare in the order in which a decision comes about: believed, chosen, allocated, and what became of it."""
    found = _fields(logged, made, _BEFORE) or _choices(logged, made) or _grants(logged, made)
    found = found or _fields(logged, made, _AFTER)
    if found is None:
        return None
    job, name, before, after = found
    return Difference(where, int(logged["number"]), job, name, before, after)


Found = tuple[str, str, Any, Any]


def _fields(logged: JsonObject, made: dict[str, Any], names: tuple[str, ...]) -> Found | None:
    return next((("", name, logged[name], made[name]) for name in names if logged[name] != made[name]), None)


def _choices(logged: JsonObject, made: dict[str, Any]) -> Found | None:
    """The first choice that differs, or its probability."""
    for key, name in (("actions", "action"), ("behaviour", "probability of action")):
        before, after = logged[key], made[key]
        if before == after:
            continue
        if before is None or after is None:
            return "", key, before, after
        for index, pair in enumerate(zip(before, after, strict=False)):
            if pair[0] != pair[1]:
                return "", f"{name} {index}", *pair
        return "", f"number of {key}", len(before), len(after)
    return None


def _grants(logged: JsonObject, made: dict[str, Any]) -> Found | None:
    before, after = logged["allocation"], made["allocation"]
    if before == after:
        return None
    for job in (*before, *(job for job in after if job not in before)):
        for position, role in enumerate(("workers", "ps")):
            pair = tuple(None if side.get(job) is None else side[job][position] for side in (before, after))
            if pair[0] != pair[1]:
                return job, role, *pair
    return None
