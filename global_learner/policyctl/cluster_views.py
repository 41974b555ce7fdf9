"""What `policyctl cluster` prints; never a token, which is in the enrollment file alone."""

from __future__ import annotations

from pathlib import Path

from rich.table import Column, Table

from global_learner.policyctl.views import Facts, moment
from policy_net.exchange.enrollment_file import EnrollmentFile
from policy_net.exchange.generated import fleet_pb2


def enrollment_facts(enrollment: EnrollmentFile, path: Path) -> Facts:
    """An invitation as JSON shows it."""
    return {
        "cluster": enrollment.cluster,
        "file": str(path),
        "expires_unix_seconds": enrollment.expires_unix_seconds,
        "enroll_port": enrollment.enroll_port,
    }


def identity_facts(entry: fleet_pb2.ClusterIdentity) -> Facts:
    """A cluster's standing as JSON shows it; None where there is no such moment."""
    return {
        "cluster": entry.cluster,
        "state": entry.state,
        "issued_unix_seconds": entry.issued_unix_seconds or None,
        "expires_unix_seconds": entry.expires_unix_seconds or None,
        "revoked_unix_seconds": entry.revoked_unix_seconds or None,
        "fingerprint": entry.fingerprint or None,
    }


def revocation_facts(cluster: str, reply: fleet_pb2.RevokeClusterReply) -> Facts:
    """A revocation as JSON shows it."""
    return {"cluster": cluster, "certificates": reply.certificates, "tokens": reply.tokens}


def enrollment_table(facts: Facts) -> Table:
    """What to do with the invitation."""
    table = Table("enrollment of", facts["cluster"])
    table.add_row("file", facts["file"])
    table.add_row("good until", moment(facts["expires_unix_seconds"]) + " UTC, once")
    table.add_row("next", "copy the file to the cluster, name it as learner.enrollment_file, start the agent")
    return table


def clusters_table(clusters: list[Facts]) -> Table:
    """All clusters, by name."""
    table = Table("cluster", "state", *(Column(name, no_wrap=True) for name in ("issued", "until", "certificate")))
    for entry in clusters:
        until = entry["revoked_unix_seconds"] or entry["expires_unix_seconds"]
        table.add_row(
            entry["cluster"],
            entry["state"],
            *("–" if seconds is None else moment(seconds) for seconds in (entry["issued_unix_seconds"], until)),
            (entry["fingerprint"] or "–")[:16],
        )
    return table


def revocation_table(facts: Facts) -> Table:
    """What counts no longer."""
    table = Table("revoked", facts["cluster"])
    table.add_row("certificates", str(facts["certificates"]))
    table.add_row("tokens", str(facts["tokens"]))
    return table


def released_table(facts: Facts) -> Table:
    """What became of a release."""
    table = Table("cluster", "quarantine")
    table.add_row(facts["cluster"], "ended" if facts["released"] else "there was none")
    return table
