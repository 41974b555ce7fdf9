"""Commands of `policyctl cluster` and `policyctl operator`: who belongs to the fleet, and who may do what.

A token is never printed: it is in the enrollment file. The private key of a person's identity file is made here and
never sent; the learner signs its public half.
"""

from __future__ import annotations

import errno
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from foundation.command_line import with_option_groups
from foundation.files import check_replaceable
from foundation.tables import FactSheet
from global_learner.errors import BadLearnerConfig, StateUnusable
from global_learner.policyctl.options import CallOptions, DryRun, PollOptions, Reason, Yes, confirm
from global_learner.policyctl.views import Facts, certificate_facts, certificates_table, facts_of, moment, tried_sheet
from policy_net.errors import IdentityFileError
from policy_net.exchange.generated import fleet_pb2

cluster_app = typer.Typer(no_args_is_help=True, help="Who belongs to the fleet, and who is in quarantine.")

Name = Annotated[str, typer.Argument(help="The cluster's name.")]


@cluster_app.command("enroll")
@with_option_groups
def enroll_cluster(
    name: Name,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file for the cluster's agent; NAME.enrollment unless set.")
    ] = None,
    *,
    options: CallOptions,
) -> None:
    """Invite a cluster: writes a one-time token, which its agent trades for a certificate."""
    from policy_net.exchange.enrolled_identity import EnrollmentFile  # noqa: PLC0415  (brings certificates)

    path = out or Path(f"{name}.enrollment")
    _check_out(path)
    replaces = path.exists()
    with options.client() as client:
        reply = client.ask(fleet_pb2.EnrollClusterRequest(cluster=name))
    enrollment = EnrollmentFile(
        name, reply.token, reply.enroll_port, reply.expires_unix_seconds, reply.authority.decode()
    )
    try:
        enrollment.write(path)
    except OSError as error:
        raise BadLearnerConfig(
            f"{path}: cannot be written ({error.strerror}); name another file with --out. The token is lost; enrolling "
            "again makes a new one"
        ) from error
    facts: Facts = {
        "cluster": name,
        "file": str(path),
        "expires_unix_seconds": enrollment.expires_unix_seconds,
        "enroll_port": enrollment.enroll_port,
        "voided_tokens": reply.voided_tokens,
        "file_replaced": replaces,
    }
    options.show(facts, enrollment_table(facts))


@cluster_app.command("list")
@with_option_groups
def list_clusters(options: PollOptions) -> None:
    """Every cluster that was ever invited: invited, enrolled, expired or revoked."""
    options.poll(
        lambda client: [certificate_facts(entry) for entry in client.ask(fleet_pb2.ListClustersRequest()).clusters],
        lambda clusters: certificates_table(clusters, "cluster"),
    )


@cluster_app.command("revoke")
@with_option_groups
def revoke_cluster(
    name: Name, yes: Yes = False, reason: Reason = "", dry_run: DryRun = False, *, options: CallOptions
) -> None:
    """Turn a cluster out at once: its certificates and tokens count no longer, also on open connections."""
    with options.client() as client:
        confirm(f"turn cluster {name[:63]} out, until it is enrolled again", yes or dry_run, lambda: options.place)
        reply = client.ask(fleet_pb2.RevokeClusterRequest(cluster=name, reason=reason, dry_run=dry_run))
    facts: Facts = {"cluster": name, "certificates": reply.certificates, "tokens": reply.tokens, "dry_run": dry_run}
    rows = [("certificates", str(reply.certificates)), ("tokens", str(reply.tokens))]
    options.show(facts, tried_sheet("revoked", name, rows, dry_run=dry_run))


@cluster_app.command("forget")
@with_option_groups
def forget_cluster(
    name: Name, yes: Yes = False, reason: Reason = "", dry_run: DryRun = False, *, options: CallOptions
) -> None:
    """Take a cluster out of every list that was revoked, or never enrolled and is away; what it taught stays."""
    with options.client() as client:
        confirm(f"forget cluster {name[:63]}, which is gone for good", yes or dry_run, lambda: options.place)
        reply = client.ask(fleet_pb2.ForgetClusterRequest(cluster=name, reason=reason, dry_run=dry_run))
    facts: Facts = {"cluster": name, **facts_of(reply), "dry_run": dry_run}
    rows = [
        ("had registered", "yes" if reply.registered else "no"),
        ("updates in the head", f"{reply.updates_accepted}, which stay"),
    ]
    options.show(facts, tried_sheet("forgotten", name, rows, dry_run=dry_run))


@cluster_app.command("release")
@with_option_groups
def release_cluster(name: Name, reason: Reason = "", *, options: CallOptions) -> None:
    """End a cluster's quarantine: its updates are looked at again."""
    with options.client() as client:
        reply = client.ask(fleet_pb2.ReleaseClusterRequest(cluster=name, reason=reason))
    ended = "ended" if reply.released else "there was none"
    options.show(
        {"cluster": name, "released": reply.released}, FactSheet("", [("cluster", name), ("quarantine", ended)])
    )


def _check_out(path: Path) -> None:
    """See that the file can be written, before the learner is asked: its answer voids what the name has.

    Raises:
        BadConfig: it cannot.
    """
    try:
        if not path.parent.is_dir():
            raise BadLearnerConfig(f"{path.parent}: is no folder; name another file with --out. Nothing was issued")
        check_replaceable(path)
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    except OSError as error:
        raise BadLearnerConfig(
            f"{str(path)[:200]}: cannot be written ({error.strerror}); name another file with --out. Nothing was issued"
        ) from error


def enrollment_table(facts: Facts) -> FactSheet:
    """The invitation, and what to do with it."""
    rows = [
        ("enrollment of", facts["cluster"]),
        ("file", facts["file"]),
        ("good until", moment(facts["expires_unix_seconds"]) + " UTC, once"),
    ]
    if facts["voided_tokens"]:
        where = (
            "a copy of its file counts no longer" if facts["file_replaced"] else "its file counts no longer, delete it"
        )
        rows.append(("in place of", f"an earlier token that nobody had used: {where}"))
    if facts["file_replaced"]:
        rows.append(("replaced", "the file that was there before"))
    rows.append(("next", "copy the file to the cluster, name it as learner.enrollment_file, start the agent"))
    return FactSheet("", rows)


operator_app = typer.Typer(no_args_is_help=True, help="People, and what each of them may do.")


class GivenRole(StrEnum):
    """What a person may be; each may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


Person = Annotated[str, typer.Argument(help="The person's name; it stands in the audit log.")]


@operator_app.command("enroll")
@with_option_groups
def enroll_operator(
    name: Person,
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
    _check_out(path)
    try:
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
    name: Person, yes: Yes = False, reason: Reason = "", dry_run: DryRun = False, *, options: CallOptions
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
