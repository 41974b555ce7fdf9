"""Output of `policyctl fleet`, and what all output is made of: plain values for `-o json`, tables for people."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from foundation.figures import counted
from foundation.tables import NOTHING, Column, FittedTable
from global_learner.errors import UnknownCluster
from global_learner.registry.version_words import damaged_words, refused_words
from policy_net.exchange.generated import fleet_pb2

Facts = dict[str, Any]

SHOWN_OF_A_KEY = 16
"""Characters of a key, or of a certificate's fingerprint, that tell it apart."""
_HOUR_SECONDS = 3600.0
_ALTERNATES = "alternating"
_NOBODY = "no cluster has registered yet: `policyctl cluster enroll NAME` invites one, and its agent does the rest"


class Order(StrEnum):
    """Column by which the clusters of a fleet are ordered: names from A on, of figures the largest first."""

    CLUSTER = "cluster"
    HEARD = "heard"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    JCT = "avg-jct"
    UPDATES = "updates"
    REJECTED = "rejected"
    STALE = "stale"
    SPEEDS = "speeds"


_FIGURES = {
    Order.HEARD: "seconds_since_heard",
    Order.RUNNING: "jobs_running",
    Order.WAITING: "jobs_waiting",
    Order.DONE: "jobs_done",
    Order.JCT: "avg_jct_seconds",
    Order.UPDATES: "updates_accepted",
    Order.REJECTED: "updates_rejected",
    Order.STALE: "last_staleness",
    Order.SPEEDS: "speed_statistics",
}


def _ordered(clusters: list[Facts], order: Order) -> list[Facts]:
    """Of those with the same figure the names from A on; of whom nothing is known at the end."""
    by_name = sorted(clusters, key=lambda view: str(view["cluster"]))
    if order is Order.CLUSTER:
        return by_name

    def figure(view: Facts) -> float:
        value = view[_FIGURES[order]]
        of_status = order in (Order.RUNNING, Order.WAITING, Order.DONE, Order.JCT)
        if value is None or (of_status and not view["reported"]):
            return math.inf
        return -float(sum(value.values()) if isinstance(value, dict) else value)

    return sorted(by_name, key=figure)


def fleet_facts(reply: fleet_pb2.GetFleetReply, only: Collection[str] = (), order: Order | None = None) -> Facts:
    """The fleet as JSON shows it.

    Args:
        only: the clusters that are meant; none for all.
        order: of the clusters; as the learner says them, unless given.

    Raises:
        UnknownCluster: there is none of such a name.
    """
    _check_names(only, [view.cluster for view in reply.clusters])
    clusters = [
        {**_cluster_facts(view, reply.away_seconds), "ahead": _is_ahead(view, reply)}
        for view in reply.clusters
        if not only or view.cluster in only
    ]
    return {
        "head_step": reply.head_step,
        "updates_accepted": reply.updates_accepted,
        "updates_rejected": reply.updates_rejected,
        "staleness_p50": reply.staleness_p50,
        "latest_version": reply.latest_version,
        "numbers_through": reply.numbers_through or None,
        "disk_bytes": dict(sorted(reply.disk_bytes.items())),
        "log_limit_bytes": reply.log_limit_bytes,
        "disk_full": reply.disk_full or None,
        "damaged_files": [{"version": file.version, "is_head": file.is_head} for file in reply.damaged_files],
        "upstream": _upstream_facts(reply.upstream) if reply.HasField("upstream") else None,
        "privacy": privacy_facts(reply.privacy) if reply.HasField("privacy") else None,
        "away_seconds": reply.away_seconds or None,
        "clusters": clusters if order is None else _ordered(clusters, order),
    }


def _is_ahead(view: fleet_pb2.ClusterView, reply: fleet_pb2.GetFleetReply) -> bool:
    """Whether a cluster knows what the learner does not, as where an older state of the learner was restored."""
    status = view.status
    knows_version = 0 < reply.latest_version < status.acting_version
    return knows_version or status.learning_step > reply.head_step


def _check_names(names: Collection[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name[:63], known, 1)
            advice = f"did you mean {near[0]}?" if near else "`policyctl fleet` shows which are"
            raise UnknownCluster(f"no cluster {name[:63]!r} is registered; {advice}")


def _upstream_facts(view: fleet_pb2.UpstreamView) -> Facts:
    return {
        "address": view.address,
        "name": view.name,
        "seconds_since_heard": view.seconds_since_heard if view.seconds_since_heard >= 0.0 else None,
        "base_step": view.base_step,
        "waiting_updates": view.waiting_updates,
        "open_push_updates": view.open_push_updates,
        "version_above": view.version_above or None,
        "fault": view.fault or None,
    }


def privacy_facts(privacy: fleet_pb2.Privacy) -> Facts:
    """What privacy has cost, as JSON shows it."""
    return {
        "mode": privacy.mode,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "target_epsilon": privacy.target_epsilon or None,
        "clip_norm": privacy.clip_norm,
        "noise_multiplier": privacy.noise_multiplier,
        "updates_of_one_cluster": privacy.updates_of_one_cluster,
        "unprotected_updates": privacy.unprotected_updates,
        "sampling": privacy.sampling,
    }


def _privacy_words(privacy: Facts | None) -> str:
    if privacy is None:
        return ""
    limit = privacy["target_epsilon"]
    return f", privacy spent {privacy['epsilon']:.4g}" + (f" of {limit:g}" if limit else "")


def _cluster_facts(view: fleet_pb2.ClusterView, away_seconds: float) -> Facts:
    status = view.status
    waited_for = view.identity != "revoked" and not (status.finished if view.HasField("status") else view.last_finished)
    return {
        "cluster": view.cluster,
        "incarnation": view.incarnation,
        "seconds_since_heard": view.seconds_since_heard if view.seconds_since_heard >= 0.0 else None,
        "away": waited_for and 0.0 < away_seconds < view.seconds_since_heard,
        "assigned_version": view.assigned_version,
        "held": view.held,
        "contested": view.contested,
        "identity": view.identity or None,
        "reported": view.HasField("status"),
        "acting_version": status.acting_version if view.HasField("status") else view.last_acting_version,
        "rollout": status.rollout or None,
        "rollout_role": status.rollout_role or None,
        "beside_version": status.beside_version or None,
        "refused_version": status.refused_version or None,
        "refused_reason": status.refused_reason or None,
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
        "simulated": status.simulated,
        "quarantined_until_unix_seconds": view.quarantined_until_unix_seconds or None,
        "speed_statistics": view.speed_statistics,
        "speed_observations": view.speed_observations,
    }


_FLEET_OF_PROGRAMS = (
    *("cluster", "heard", "jobs running", "jobs waiting", "jobs done", "avg JCT", "acts on", "beside", "to act on"),
    *("held", "updates", "rejected", "stale", "speeds", "remarks"),
)


def fleet_table(fleet: Facts, place: str = "", *, revoked: bool = False) -> FittedTable:
    """All clusters, with the head in the title; what is wrong with a cluster in words.

    Args:
        place: the learner, as the title begins with it.
        revoked: also the clusters that were turned out.
    """
    columns = (
        Column("cluster"),
        Column("heard", 3, text=True),
        Column("jobs\nrun/wait/done", 4),
        Column("avg JCT", 5),
        Column("acts\non"),
        Column("to act\non"),
        Column("updates", 6),
        Column("rejected", 7),
        Column("stale", 8),
        Column("speeds", 9),
        Column("remarks", words=True),
    )
    shown = [view for view in fleet["clusters"] if revoked or view["identity"] != "revoked"]
    rows = [
        (
            view["cluster"],
            _heard(view),
            f"{view['jobs_running']}/{view['jobs_waiting']}/{view['jobs_done']}" if view["reported"] else NOTHING,
            f"{view['avg_jct_seconds'] / _HOUR_SECONDS:.1f} h" if view["reported"] else NOTHING,
            _acts_on(view),
            ("held " if view["held"] else "") + version_name(view["assigned_version"]),
            str(view["updates_accepted"]),
            str(sum(view["updates_rejected"].values())),
            str(view["last_staleness"]),
            str(view["speed_statistics"]),
            "; ".join(_remarks(view)),
        )
        for view in shown
    ]
    for_programs = [
        (
            view["cluster"],
            NOTHING if view["seconds_since_heard"] is None else f"{view['seconds_since_heard']:.3f}",
            *(str(view[f"jobs_{what}"]) if view["reported"] else NOTHING for what in ("running", "waiting", "done")),
            f"{view['avg_jct_seconds']:.3f}" if view["reported"] else NOTHING,
            version_name(view["acting_version"]),
            version_name(view["beside_version"]),
            version_name(view["assigned_version"]),
            "yes" if view["held"] else "no",
            *row[6:],
        )
        for view, row in zip(shown, rows, strict=True)
    ]
    title = (
        f"{place + ': ' if place else ''}head step {fleet['head_step']}, "
        f"newest version {version_name(fleet['latest_version'])}, "
        f"{fleet['updates_accepted']} updates applied, {fleet['updates_rejected']} rejected"
        f"{_privacy_words(fleet['privacy'])}"
    )
    hidden = len(fleet["clusters"]) - len(rows)
    turned_out = (
        f"not shown: {counted(hidden, 'revoked cluster')}; `policyctl cluster list` names all" if hidden else ""
    )
    lines = (
        _upstream_line(fleet["upstream"]),
        _disk_line(fleet),
        _numbers_line(fleet),
        *(damaged_words(file["version"], file["is_head"]) for file in fleet["damaged_files"]),
        turned_out,
        "" if rows else _NOBODY,
    )
    below = [line for line in lines if line]
    return FittedTable(title, columns, rows, below, for_programs, _FLEET_OF_PROGRAMS)


def _acts_on(view: Facts) -> str:
    acting = version_name(view["acting_version"])
    if view["rollout_role"] == _ALTERNATES and view["beside_version"]:
        return f"{version_name(view['assigned_version'])}/{version_name(view['beside_version'])}"
    return acting


def _remarks(view: Facts) -> list[str]:
    """What people should know of a cluster beyond its figures."""
    remarks = ["away"] if view["away"] else []
    if view["contested"]:
        remarks.append(f"two agents call themselves {view['cluster']}: name each cluster differently, or stop one")
    if view["ahead"]:
        knows = f"acts on {version_name(view['acting_version'])}, learned at head step {view['learning_step']}"
        remarks.append(f"ahead of the learner: {knows}")
    if view["rollout_role"] == _ALTERNATES:
        remarks.append(f"alternates in rollout {view['rollout']}")
    elif view["rollout_role"]:
        remarks.append(f"{view['rollout_role']} of v{view['beside_version']} in rollout {view['rollout']}")
    if not view["reported"] and view["identity"] != "revoked":
        remarks.append("has not reported since the learner started")
    if view["refused_version"]:
        remarks.append(refused_words(view["refused_version"], view["refused_reason"]))
    if view["quarantined_until_unix_seconds"]:
        remarks.append(f"quarantined until {moment(view['quarantined_until_unix_seconds'])} UTC")
    if view["updates_rejected"]:
        counts = ", ".join(f"{count} {reason}" for reason, count in view["updates_rejected"].items())
        remarks.append(f"rejected: {counts}")
    return remarks


def _heard(view: Facts) -> str:
    """When a cluster was heard, or why nobody waits to hear it."""
    if view["identity"] == "revoked":
        return "revoked"
    if view["finished"]:
        return "finished"
    heard = view["seconds_since_heard"]
    return "never" if heard is None else f"{heard:.0f} s ago"


def _upstream_line(above: Facts | None) -> str:
    """How a region stands with the learner above; empty where there is none."""
    if above is None:
        return ""
    heard = above["seconds_since_heard"]
    when = "never heard" if heard is None else f"heard {heard:.0f} s ago"
    parts = [
        f"region {above['name']} of {above['address']}: {when}, teaching at its step {above['base_step']}",
        f"{above['waiting_updates']} updates wait for the next push",
    ]
    if above["open_push_updates"]:
        parts.append(f"{above['open_push_updates']} for an answer")
    return ", ".join(parts) + (f"; FAULT: {above['fault']}" if above["fault"] else "")


def _disk_line(fleet: Facts) -> str:
    if fleet["disk_full"]:
        return f"DISK FULL: {fleet['disk_full']}"
    return f"the learner's state takes {sum(fleet['disk_bytes'].values()) / 1e6:.1f} MB"


def _numbers_line(fleet: Facts) -> str:
    if not fleet["numbers_through"]:
        return ""
    known = f"clusters know versions up to v{fleet['numbers_through']}, and this learner does not"
    return f"{known}: an older state was restored (`policyctl audit`); the next gets a number above it"


def moment(unix_seconds: float) -> str:
    """A moment in UTC, to the minute."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M")


def whole_moment(unix_seconds: float) -> str:
    """A moment in UTC as ISO 8601 has it, to the millisecond."""
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="milliseconds")


def moment_or_nothing(unix_seconds: float | None) -> str:
    """A moment in UTC; a dash where there is none."""
    return NOTHING if unix_seconds is None else moment(unix_seconds)


def whole_moment_or_nothing(unix_seconds: float | None) -> str:
    """A moment in UTC as ISO 8601 has it; a dash where there is none."""
    return NOTHING if unix_seconds is None else whole_moment(unix_seconds)


def version_name(number: int | None) -> str:
    """A version's name; a dash for none."""
    return f"v{number}" if number else NOTHING


def certificates_table(of_whom: Sequence[Column], rows: Sequence[tuple[tuple[str, ...], Facts]]) -> FittedTable:
    """Clusters or people, with the state and the certificate of each.

    Args:
        of_whom: the columns that say whose certificate it is.
        rows: their cells, and the facts of the certificate.
    """
    columns = (
        *of_whom,
        Column("state", text=True),
        Column("until\nUTC", 1, text=True),
        Column("issued\nUTC", 2, text=True),
        Column("certificate", 3, text=True),
    )
    cells = [
        (
            *names,
            entry["state"],
            moment_or_nothing(entry["revoked_unix_seconds"] or entry["expires_unix_seconds"]),
            moment_or_nothing(entry["issued_unix_seconds"]),
            (entry["fingerprint"] or NOTHING)[:SHOWN_OF_A_KEY],
        )
        for names, entry in rows
    ]
    for_programs = [
        (
            *names,
            entry["state"],
            whole_moment_or_nothing(entry["revoked_unix_seconds"] or entry["expires_unix_seconds"]),
            whole_moment_or_nothing(entry["issued_unix_seconds"]),
            entry["fingerprint"] or NOTHING,
        )
        for names, entry in rows
    ]
    return FittedTable("", columns, cells, for_programs=for_programs)
