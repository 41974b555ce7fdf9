"""Roles of callers, and the least role that every method of the learner's services needs.

People are viewers, operators or admins: each may do what those before it may. A cluster's agent is no person, and may
do nothing of theirs. A certificate says which of the three its holder is, by a URI among its alternative names; one
without such a URI is a cluster's, or an admin's of before there were roles.

A new method of fleet.proto needs a line in `NEEDS`: without one nobody may call it, and a test fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from global_learner.errors import IdentityRefusal, IdentityRefused

FIRST_ADMIN = "policyctl"
"""Name in the identity file that the learner makes for its owner."""
URI_PREFIX = "fedl2:role:"
"""Of the URI in a certificate; the role's word follows."""


class CallerRole(StrEnum):
    """What a caller is; never two at once."""

    UNCERTIFIED = "uncertified"
    """It showed no certificate, where none are asked for: on loopback, and to enroll. Its word for a name is taken."""
    CLUSTER = "cluster"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


PEOPLE = (CallerRole.VIEWER, CallerRole.OPERATOR, CallerRole.ADMIN)
"""Each may do what those before it may."""


@dataclass(frozen=True, slots=True)
class RequiredRole:
    """What one must be to call a method.

    Attributes:
        least: of people; None: none of them may.
        cluster: whether clusters may, and who showed no certificate and says that it is one.
        newcomer: whether who showed no certificate may, as there is none yet.
    """

    least: CallerRole | None = None
    cluster: bool = False
    newcomer: bool = False

    def allows(self, role: CallerRole) -> bool:
        """Whether this is enough."""
        if role is CallerRole.UNCERTIFIED:
            return self.cluster or self.newcomer
        if role is CallerRole.CLUSTER:
            return self.cluster
        return self.least is not None and PEOPLE.index(role) >= PEOPLE.index(self.least)


_CLUSTER = RequiredRole(cluster=True)
_VIEWER, _OPERATOR, _ADMIN = (RequiredRole(role) for role in PEOPLE)

NEEDS: Mapping[str, RequiredRole] = MappingProxyType(
    {
        # Fleet: agents.
        "Register": _CLUSTER,
        "PullHead": _CLUSTER,
        "Push": _CLUSTER,
        "Heartbeat": _CLUSTER,
        "FetchPolicy": RequiredRole(CallerRole.VIEWER, cluster=True),
        "Poll": _CLUSTER,
        "Reply": _CLUSTER,
        "ShareBeliefs": _CLUSTER,
        "ShareEvidence": _CLUSTER,
        "ShareSketch": _CLUSTER,
        "ReturnPolicy": _CLUSTER,
        "RenewCertificate": _CLUSTER,
        # Enrollment: agents that have a token and no certificate.
        "Enroll": RequiredRole(newcomer=True),
        # Admin: what only looks.
        "ListVersions": _VIEWER,
        "ShowVersion": _VIEWER,
        "GetFleet": _VIEWER,
        "GetReport": _VIEWER,
        "ListClusters": _VIEWER,
        "ListOperators": _VIEWER,
        "ListAudit": _VIEWER,
        "GetKeys": _VIEWER,
        "GetRollout": _VIEWER,
        "ListRollouts": _VIEWER,
        # What the fleet acts on and learns from.
        "AssignVersion": _OPERATOR,
        "RollBack": _OPERATOR,
        "PinVersion": _OPERATOR,
        "NoteVersion": _OPERATOR,
        "RestoreVersion": _OPERATOR,
        "PublishVersion": _OPERATOR,
        "AliasVersion": _OPERATOR,
        "ResetHead": _OPERATOR,
        "ReleaseCluster": _OPERATOR,
        "StartRollout": _OPERATOR,
        "ActOnRollout": _OPERATOR,
        # Who belongs to it, and whose word counts.
        "EnrollCluster": _ADMIN,
        "RevokeCluster": _ADMIN,
        "ForgetCluster": _ADMIN,
        "EnrollOperator": _ADMIN,
        "RevokeOperator": _ADMIN,
        "RotateKey": _ADMIN,
    }
)
"""By the method's name in fleet.proto."""

_SOCKET = (
    "without certificates only the learner's own user may ask this, at the socket in its state directory: "
    "policyctl --learner unix:STATE_DIR/operator.sock"
)


def check_role(method: str, name: str, role: CallerRole) -> None:
    """See that a caller may call a method.

    Raises:
        IdentityRefused: it may not; says who it is, and what is needed.
    """
    need = NEEDS.get(method)
    if need is not None and need.allows(role):
        return
    if need is None:
        why = f"{method}: no role may call it"
    elif role is CallerRole.UNCERTIFIED and need.least is not None:
        why = f"{method}: {_SOCKET}"
    elif need.least is None:
        why = f"{method}: {name} is {_a(role)}, and only clusters may; agents use their own certificate"
    elif role is CallerRole.CLUSTER:
        why = f"{method}: {name} is a cluster, and may not ask about the fleet; it takes {_a(need.least)}'s certificate"
    else:
        why = f"{method}: {name} is {_a(role)}, and it takes {_a(need.least)}; ask an admin for a certificate as one"
    raise IdentityRefused(why, IdentityRefusal.WRONG_ROLE)


def role_uri(role: CallerRole) -> str:
    """The URI that says in a certificate that its holder is a person of this role."""
    return f"{URI_PREFIX}{role.value}"


def stated_role(uris: Iterable[str]) -> CallerRole | None:
    """The role that a certificate's URIs state; None if they state none.

    Raises:
        IdentityRefused: they state more than one, or one that this learner does not know.
    """
    words = {uri.removeprefix(URI_PREFIX) for uri in uris if uri.startswith(URI_PREFIX)}
    if not words:
        return None
    found = [role for role in PEOPLE if role.value in words]
    if len(words) > 1 or not found:
        raise IdentityRefused(
            f"the certificate says role {', '.join(sorted(words))[:80]!r}; it must be one of {', '.join(PEOPLE)}",
            IdentityRefusal.WRONG_ROLE,
        )
    return found[0]


def _a(role: CallerRole) -> str:
    return f"an {role}" if role.value[0] in "aeiou" else f"a {role}"
