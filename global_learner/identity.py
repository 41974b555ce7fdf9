"""Who is calling: the name in the certificate, never one in a field.

With client certificates the certificate's common name (or a DNS name among its alternative names) is the cluster; a
name in the request must be the same or empty. Without them the settings allow loopback addresses only, and there a bare
name is believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from global_learner.errors import BadRequest, IdentityRefused

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")

AuthContext = Mapping[str, Iterable[bytes]]
"""What gRPC knows about the peer: property name to values."""


class Identity:
    """Tells callers apart; `authenticated` is whether they must show a certificate."""

    def __init__(self, authenticated: bool, admin_names: Iterable[str] = ()) -> None:
        self._authenticated = authenticated
        self._admin_names = frozenset(admin_names)

    def cluster(self, claimed: str, context: AuthContext) -> str:
        """The calling cluster.

        Raises:
            IdentityRefused: it is not the one that it says.
            BadRequest: the name is no cluster name.
        """
        if self._authenticated:
            names = _certificate_names(context)
            if claimed and claimed not in names:
                raise IdentityRefused(
                    f"the request says cluster {claimed[:63]!r}, its certificate {', '.join(names) or 'no name'}; "
                    "set the agent's cluster to the name that it was enrolled with"
                )
            claimed = claimed or next(iter(names), "")
        if not _NAME.fullmatch(claimed):
            raise BadRequest(
                f"{claimed[:63]!r} is no cluster name: use 1 to 63 lower-case letters, digits, '-' and '.'"
            )
        return claimed

    def administrator(self, context: AuthContext) -> None:
        """Check that the caller may see the whole fleet.

        Raises:
            IdentityRefused: its certificate is not an administrator's.
        """
        if self._authenticated and self._admin_names.isdisjoint(_certificate_names(context)):
            raise IdentityRefused(
                f"certificate {', '.join(_certificate_names(context)) or 'without a name'} may not ask about the "
                "fleet; use one of tls.admin_names"
            )


def _certificate_names(context: AuthContext) -> list[str]:
    """Common name first, then the alternative names, without repeats."""
    values = [*context.get("x509_common_name", ()), *context.get("x509_subject_alternative_name", ())]
    return list(dict.fromkeys(value.decode(errors="replace") for value in values))
