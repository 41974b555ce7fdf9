"""The platform owner's identity file: made at the first start, renewed at later ones, made anew if it is gone."""

from __future__ import annotations

from pathlib import Path

import structlog
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from global_learner.enrollment.authority import DAY_SECONDS, Authority
from global_learner.enrollment.book import IdentityBook
from global_learner.enrollment.known import Role
from policy_net.errors import IdentityFileError
from policy_net.exchange.identity_file import new_key, parse_identity, read_identity

_log = structlog.get_logger()

ADMINISTRATOR = "policyctl"
ADMINISTRATOR_SECONDS = 365 * DAY_SECONDS


def ensure_administrator(path: Path, authority: Authority, book: IdentityBook, now: float) -> None:
    """See that the file is there and good for a while; a new one takes the place of all earlier ones.

    Raises:
        OSError: the disk refuses.
    """
    try:
        present = read_identity(path)
        known = book.known.get(present.fingerprint)
        if (
            known is not None
            and known.role is Role.ADMIN
            and not known.revoked
            and present.authority == authority.pem
            and now < present.renewal_unix_seconds()
        ):
            return
    except IdentityFileError as error:
        if path.exists():
            _log.warning("administrator", reason=str(error))
    key_pem = new_key()
    public_key = serialization.load_pem_private_key(key_pem, None).public_key()
    assert isinstance(public_key, ec.EllipticCurvePublicKey)  # noqa: S101  (new_key makes no other)
    grant = book.add_administrator(
        ADMINISTRATOR, now, lambda: authority.for_client(public_key, ADMINISTRATOR, now, ADMINISTRATOR_SECONDS)
    )
    parse_identity(key_pem + grant.pem + authority.pem).write(path)
    _log.info("administrator", file=str(path), expires_unix_seconds=round(grant.expires_unix_seconds))
