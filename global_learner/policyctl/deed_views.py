"""What `policyctl assign`, `unassign`, `head reset` and `audit` print."""

from __future__ import annotations

from rich.table import Column, Table

from global_learner.policyctl.views import Facts, moment
from policy_net.exchange.generated import fleet_pb2


def assignment_facts(entry: fleet_pb2.Assignment) -> Facts:
    """One cluster's assignment as JSON shows it."""
    return {
        "cluster": entry.cluster,
        "from_version": entry.from_version,
        "to_version": entry.to_version,
        "held": entry.held,
        "changed": entry.from_version != entry.to_version,
    }


def assignments_table(assignments: list[Facts]) -> Table:
    """All clusters of a deed."""
    table = Table("cluster", "was to act on", "is to act on", "", caption="in force at a cluster's next heartbeat")
    for entry in assignments:
        held = "held" if entry["held"] else "not held"
        table.add_row(entry["cluster"], f"v{entry['from_version']}", f"v{entry['to_version']}", held)
    return table


def reset_facts(version: int, reply: fleet_pb2.ResetHeadReply) -> Facts:
    """A reset as JSON shows it."""
    return {
        "version": version,
        "from_step": reply.from_step,
        "head_step": reply.head_step,
        "moments": "kept" if reply.moments_kept else "zero",
        "changed": reply.changed,
    }


def reset_table(facts: Facts) -> Table:
    """What the head is now."""
    table = Table("head", f"reset to v{facts['version']}")
    table.add_row("step before", str(facts["from_step"]))
    table.add_row("step now", str(facts["head_step"]) + ("" if facts["changed"] else " (it was there already)"))
    kept = "the version's own" if facts["moments"] == "kept" else "zero: the version's were not kept"
    table.add_row("moments", kept)
    return table


def audit_facts(entry: fleet_pb2.AuditEntry) -> Facts:
    """One line of the audit log as JSON shows it."""
    return {
        "unix_seconds": entry.unix_seconds,
        "actor": entry.actor,
        "action": entry.action,
        "subject": entry.subject,
        "detail": entry.detail,
    }


def audit_table(entries: list[Facts]) -> Table:
    """The log, oldest first."""
    table = Table(Column("UTC", no_wrap=True), "who", "did", "to", "")
    for entry in entries:
        table.add_row(moment(entry["unix_seconds"]), entry["actor"], entry["action"], entry["subject"], entry["detail"])
    return table
