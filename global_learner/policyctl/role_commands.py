"""Commands of `policyctl operator`: people, what each may do, and their identity files.

The private key of an identity file is made here and never sent; the learner signs its public half.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from foundation.command_line import with_option_groups
from foundation.files import check_replaceable
from foundation.tables import FactSheet
from global_learner.errors import BadLearnerConfig, StateUnusable
from global_learner.policyctl.options import CallOptions, DryRun, PollOptions, Reason, Yes, confirm
from global_learner.policyctl.views import Facts, certificate_facts, certificates_table, moment, tried_sheet
from policy_net.errors import IdentityFileError
from policy_net.exchange.generated import fleet_pb2

operator_app = typer.Typer(no_args_is_help=True, help="People, and what each of them may do.")


class GivenRole(StrEnum):
    """What a person may be; each may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


Name = Annotated[str, typer.Argument(help="The person's name; it stands in the audit log.")]


@operator_app.command("enroll")
@with_option_groups
def enroll_operator(
    name: Name,
    role: Annotated[
        GivenRole,
        typer.Option("--role", help="viewer looks; operator also acts on versions and the head; admin also on whom."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The identity file, for that person's --cert; NAME.pem unless set.")
    ] = None,
    *,
    options: CallOptions,
) -> None:
    """Make a person's identity file; earlier ones of that name count no longer."""
    from policy_net.exchange.identity_file import new_key, parse_identity, signing_request  # noqa: PLC0415  (slow)

    path = out or Path(f"{name}.pem")
    try:
        # Before the learner is asked: what it signs takes the place of what the person has.
        if not path.parent.is_dir():
            raise BadLearnerConfig(f"{path.parent}: is no folder; name another file with --out")
        check_replaceable(path)
        key = new_key()
        with options.client() as client:
            request = signing_request(key, role.value)  # only its key counts
            reply = client.ask(fleet_pb2.EnrollOperatorRequest(name=name, role=role.value, signing_request=request))
        identity = parse_identity(key + reply.certificate + reply.authority)
        identity.write(path)
    except IdentityFileError as error:
        raise StateUnusable(f"the learner's certificate for {name} cannot be used: {error}; ask again") from error
    except OSError as error:
        raise BadLearnerConfig(
            f"{str(path)[:200]}: cannot be written ({error.strerror}); name another file with --out"
        ) from error
    facts: Facts = {
        "name": name,
        "role": role.value,
        "file": str(path),
        "expires_unix_seconds": reply.expires_unix_seconds,
        "fingerprint": identity.fingerprint,
        "replaced": reply.replaced,
    }
    options.show(facts, enrolled_table(facts))


@operator_app.command("list")
@with_option_groups
def list_operators(options: PollOptions) -> None:
    """Everybody who was ever enrolled: role, and until when."""
    options.poll(
        lambda client: [certificate_facts(entry) for entry in client.ask(fleet_pb2.ListOperatorsRequest()).operators],
        lambda operators: certificates_table(operators, "name", "role"),
    )


@operator_app.command("revoke")
@with_option_groups
def revoke_operator(
    name: Name, yes: Yes = False, reason: Reason = "", dry_run: DryRun = False, *, options: CallOptions
) -> None:
    """Turn a person out at once: what their certificates ask is refused, also on open connections."""
    with options.client() as client:
        confirm(f"turn {name[:63]} out, until they are enrolled again", yes or dry_run, lambda: options.place)
        reply = client.ask(fleet_pb2.RevokeOperatorRequest(name=name, reason=reason, dry_run=dry_run))
    facts: Facts = {"name": name, "certificates": reply.certificates, "dry_run": dry_run}
    rows = [("certificates", str(reply.certificates))]
    options.show(facts, tried_sheet("revoked", name, rows, dry_run=dry_run))


def enrolled_table(facts: Facts) -> FactSheet:
    """The identity file, and what to do with it."""
    rows = [
        (facts["role"], facts["name"]),
        ("file", facts["file"]),
        ("good until", moment(facts["expires_unix_seconds"]) + " UTC"),
    ]
    if facts["replaced"]:
        rows.append(("in place of", f"{facts['replaced']} earlier, which count no longer"))
    rows.append(("next", "hand it over by a way that nobody else reads; policyctl takes it as --cert or FEDL2_CERT"))
    return FactSheet("", rows)
