"""`policyctl cluster`: who belongs to the fleet, who does no longer, and whose updates are looked at again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foundation.option_groups import with_option_groups
from global_learner.errors import BadConfig
from global_learner.policyctl.cluster_views import (
    clusters_table,
    enrollment_facts,
    enrollment_table,
    identity_facts,
    released_table,
    revocation_facts,
    revocation_table,
)
from global_learner.policyctl.options import CallOptions
from global_learner.policyctl.views import Facts
from policy_net.exchange.enrollment_file import EnrollmentFile

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
    with options.client() as client:
        reply = client.enroll_cluster(name)
    path = out or Path(f"{name}.enrollment")
    enrollment = EnrollmentFile(
        name, reply.token, reply.enroll_port, reply.expires_unix_seconds, reply.authority.decode()
    )
    try:
        enrollment.write(path)
    except OSError as error:
        raise BadConfig(
            f"{path}: cannot be written ({error.strerror}); name another file with --out. The token is lost; enrolling "
            "again makes a new one"
        ) from error
    facts = enrollment_facts(enrollment, path)
    options.show(facts, enrollment_table(facts))


@cluster_app.command("list")
@with_option_groups
def list_clusters(options: CallOptions) -> None:
    """Every cluster that was ever invited: invited, enrolled, expired or revoked."""
    with options.client() as client:
        facts = [identity_facts(entry) for entry in client.clusters()]
    options.show(facts, clusters_table(facts))


@cluster_app.command("revoke")
@with_option_groups
def revoke_cluster(name: Name, options: CallOptions) -> None:
    """Turn a cluster out at once: its certificates and tokens count no longer, also on open connections."""
    with options.client() as client:
        reply = client.revoke_cluster(name)
    facts = revocation_facts(name, reply)
    options.show(facts, revocation_table(facts))


@cluster_app.command("release")
@with_option_groups
def release_cluster(name: Name, options: CallOptions) -> None:
    """End a cluster's quarantine: its updates are looked at again."""
    with options.client() as client:
        facts: Facts = {"cluster": name, "released": client.release_cluster(name)}
    options.show(facts, released_table(facts))
