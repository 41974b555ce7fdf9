"""What policyctl prints: plain values for `-o json`, tables for people."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from rich.table import Column, Table

from policy_net.exchange.generated import fleet_pb2

Facts = dict[str, Any]


def version_facts(card: fleet_pb2.VersionCard) -> Facts:
    """A card as JSON shows it."""
    return {
        "version": card.version,
        "name": f"v{card.version}",
        "head_step": card.head_step,
        "parent": card.parent,
        "digest": card.digest,
        "spec_digest": card.spec_digest,
        "created_unix_seconds": card.created_unix_seconds,
        "size_bytes": card.size_bytes,
        "updates": card.updates,
        "contributions": dict(sorted(card.contributions.items())),
        "staleness_p50": card.staleness_p50,
    }


def shown_version_facts(reply: fleet_pb2.ShowVersionReply) -> Facts:
    """A card and its spec as JSON shows them."""
    return {**version_facts(reply.card), "spec": json.loads(reply.spec_json)}


def fleet_facts(reply: fleet_pb2.GetFleetReply) -> Facts:
    """The fleet as JSON shows it."""
    return {
        "head_step": reply.head_step,
        "updates_accepted": reply.updates_accepted,
        "updates_rejected": reply.updates_rejected,
        "staleness_p50": reply.staleness_p50,
        "latest_version": reply.latest_version,
        "disk_bytes": dict(sorted(reply.disk_bytes.items())),
        "log_limit_bytes": reply.log_limit_bytes,
        "disk_full": reply.disk_full or None,
        "clusters": [_cluster_facts(view) for view in reply.clusters],
    }


def _cluster_facts(view: fleet_pb2.ClusterView) -> Facts:
    status = view.status
    return {
        "cluster": view.cluster,
        "incarnation": view.incarnation,
        "seconds_since_heard": view.seconds_since_heard if view.seconds_since_heard >= 0.0 else None,
        "assigned_version": view.assigned_version,
        "acting_version": status.acting_version,
        "learning_step": status.learning_step,
        "updates_accepted": view.updates_accepted,
        "updates_duplicate": view.updates_duplicate,
        "updates_rejected": dict(sorted(view.updates_rejected.items())),
        "last_staleness": view.last_staleness,
        "time_seconds": status.time_seconds,
        "decisions": status.decisions,
        "jobs_running": status.jobs_running,
        "jobs_waiting": status.jobs_waiting,
        "jobs_done": status.jobs_done,
        "jobs_total": status.jobs_total,
        "avg_jct_seconds": status.avg_jct_seconds,
        "baseline_jct_seconds": status.baseline_jct_seconds,
        "guard_interventions": dict(sorted(status.guard_interventions.items())),
        "finished": status.finished,
        "quarantined_until_unix_seconds": view.quarantined_until_unix_seconds or None,
    }


def versions_table(versions: list[Facts]) -> Table:
    """All versions, oldest first."""
    table = Table("", "step", "updates", "stale", "from", *(Column(name, no_wrap=True) for name in ("UTC", "digest")))
    for card in versions:
        table.add_row(
            card["name"],
            str(card["head_step"]),
            str(card["updates"]),
            f"{card['staleness_p50']:g}",
            ", ".join(f"{name} {count}" for name, count in card["contributions"].items()) or "initial policy",
            moment(card["created_unix_seconds"]),
            card["digest"][:12],
        )
    return table


def version_table(version: Facts) -> Table:
    """One version, a row a fact."""
    table = Table("fact", "value", title=version["name"])
    for key, value in version.items():
        shown = moment(value) + " UTC" if key == "created_unix_seconds" else value
        table.add_row(key, json.dumps(shown) if isinstance(shown, dict) else str(shown))
    return table


def fleet_table(fleet: Facts) -> Table:
    """All clusters, and the head in the title."""
    table = Table(
        "cluster",
        "heard",
        "run/wait/done",
        "JCT",
        "acts",
        "to act",
        "updates",
        "rejected",
        "stale",
        title=f"head step {fleet['head_step']}, newest version v{fleet['latest_version']}, "
        f"{fleet['updates_accepted']} updates applied, {fleet['updates_rejected']} rejected",
        caption=_disk_line(fleet),
    )
    for view in fleet["clusters"]:
        heard, until = view["seconds_since_heard"], view["quarantined_until_unix_seconds"]
        table.add_row(
            view["cluster"],
            "never" if heard is None else f"{heard:.0f} s ago",
            f"{view['jobs_running']}/{view['jobs_waiting']}/{view['jobs_done']}",
            f"{view['avg_jct_seconds']:.0f} s",
            f"v{view['acting_version']}" if view["acting_version"] else "–",
            f"v{view['assigned_version']}",
            str(view["updates_accepted"]) + (f" (quarantined until {moment(until)} UTC)" if until else ""),
            ", ".join(f"{reason} {count}" for reason, count in view["updates_rejected"].items()) or "0",
            str(view["last_staleness"]),
        )
    return table


def _disk_line(fleet: Facts) -> str:
    if fleet["disk_full"]:
        return f"DISK FULL: {fleet['disk_full']}"
    return f"the learner's state takes {sum(fleet['disk_bytes'].values()) / 1e6:.1f} MB"


def moment(unix_seconds: float) -> str:
    """A moment in UTC, to the minute."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M")
