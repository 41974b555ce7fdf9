"""Output of `policyctl fleet`, and what all output is made of: plain values for `-o json`, tables for people."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Mapping, MutableSequence, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from google.protobuf.message import Message

from foundation.figures import counted
from foundation.tables import NOTHING, Column, FactSheet, FittedTable
from global_learner.errors import UnknownCluster
from global_learner.registry.version_words import damaged_words, refused_words
from policy_net.exchange.generated import fleet_pb2

Facts = dict[str, Any]


def facts_of(message: Message, *, without: Collection[str] = (), or_none: Collection[str] = ()) -> Facts:
    """Fields of a message by their names in fleet.proto, as JSON shows them; None for an optional one that is not set.

    Args:
        without: fields that are not shown, or otherwise.
        or_none: fields of which 0 and an empty text stand for nothing, which JSON shows as None.
    """
    facts: Facts = {}
    for field in message.DESCRIPTOR.fields:
        if field.name in without:
            continue
        value = getattr(message, field.name)
        if isinstance(value, Mapping):
            value = dict(sorted(value.items()))
        elif isinstance(value, MutableSequence):
            value = list(value)
        elif (field.has_presence and not message.HasField(field.name)) or (field.name in or_none and not value):
            value = None
        facts[field.name] = value
    return facts


UNCHANGED = "nothing was changed: --dry-run"
SHOWN_OF_A_KEY = 16
"""Characters of a key, or of a certificate's fingerprint, that tell it apart."""
_HOUR_SECONDS = 3600.0
_ALTERNATES = "alternating"
_NOBODY = "no cluster has registered yet: `policyctl cluster enroll NAME` invites one, and its agent does the rest"


class FleetColumn(StrEnum):
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
    FleetColumn.HEARD: "seconds_since_heard",
    FleetColumn.RUNNING: "jobs_running",
    FleetColumn.WAITING: "jobs_waiting",
    FleetColumn.DONE: "jobs_done",
    FleetColumn.JCT: "avg_jct_seconds",
    FleetColumn.UPDATES: "updates_accepted",
    FleetColumn.REJECTED: "updates_rejected",
    FleetColumn.STALE: "last_staleness",
    FleetColumn.SPEEDS: "speed_statistics",
}


def _ordered(clusters: list[Facts], order: FleetColumn) -> list[Facts]:
    """Of those with the same figure the names from A on; of whom nothing is known at the end."""
    by_name = sorted(clusters, key=lambda view: str(view["cluster"]))
    if order is FleetColumn.CLUSTER:
        return by_name

    def figure(view: Facts) -> float:
        value = view[_FIGURES[order]]
        of_status = order in (FleetColumn.RUNNING, FleetColumn.WAITING, FleetColumn.DONE, FleetColumn.JCT)
        if value is None or (of_status and not view["reported"]):
            return math.inf
        return -float(sum(value.values()) if isinstance(value, dict) else value)

    return sorted(by_name, key=figure)


def fleet_facts(reply: fleet_pb2.GetFleetReply, only: Collection[str] = (), order: FleetColumn | None = None) -> Facts:
    """The fleet as JSON shows it.

    Args:
        only: clusters to show; all if empty.
        order: of the clusters; as in the learner's answer, unless given.

    Raises:
        UnknownCluster: there is none of such a name.
    """
    known = [view.cluster for view in reply.clusters]
    for name in only:
        if name not in known:
            near = difflib.get_close_matches(name[:63], known, 1)
            advice = f"did you mean {near[0]}?" if near else "`policyctl fleet` shows which are"
            raise UnknownCluster(f"no cluster {name[:63]!r} is registered; {advice}")
    clusters = [
        {**_cluster_facts(view, reply.away_seconds), "ahead": _is_ahead(view, reply)}
        for view in reply.clusters
        if not only or view.cluster in only
    ]
    upstream = reply.upstream
    return {
        **facts_of(
            reply,
            without=("clusters", "privacy", "upstream", "damaged_files", "tries_people"),
            or_none=("numbers_through", "disk_full", "away_seconds"),
        ),
        "damaged_files": [facts_of(file) for file in reply.damaged_files],
        "upstream": {
            **facts_of(upstream, or_none=("version_above", "fault")),
            "seconds_since_heard": _or_never(upstream.seconds_since_heard),
        }
        if reply.HasField("upstream")
        else None,
        "privacy": privacy_facts(reply),
        "clusters": clusters if order is None else _ordered(clusters, order),
    }


def _is_ahead(view: fleet_pb2.ClusterView, reply: fleet_pb2.GetFleetReply) -> bool:
    """Whether a cluster knows what the learner does not, as where an older state of the learner was restored."""
    status = view.status
    knows_version = 0 < reply.latest_version < status.acting_version
    return knows_version or status.learning_step > reply.head_step


def privacy_facts(message: fleet_pb2.GetFleetReply | fleet_pb2.VersionDetails) -> Facts | None:
    """Privacy that was spent, as JSON shows it; None where no noise is added."""
    return facts_of(message.privacy, or_none=("target_epsilon",)) if message.HasField("privacy") else None


def _privacy_words(privacy: Facts | None) -> str:
    if privacy is None:
        return ""
    limit = privacy["target_epsilon"]
    return f", privacy spent {privacy['epsilon']:.4g}" + (f" of {limit:g}" if limit else "")


def _cluster_facts(view: fleet_pb2.ClusterView, away_seconds: float) -> Facts:
    status, reported = view.status, view.HasField("status")
    waited_for = view.identity != "revoked" and not (status.finished if reported else view.last_finished)
    of_view = facts_of(
        view,
        without=("status", "last_acting_version", "last_finished", "compared"),
        or_none=("identity", "quarantined_until_unix_seconds"),
    )
    of_status = facts_of(
        status,
        without=("job_timelines", "baseline_policy", "load", "baselines", "replayed"),
        or_none=("rollout", "rollout_role", "beside_version", "refused_version", "refused_reason"),
    )
    return {
        **of_view,
        "seconds_since_heard": _or_never(view.seconds_since_heard),
        "away": waited_for and 0.0 < away_seconds < view.seconds_since_heard,
        "reported": reported,
        **of_status,
        "acting_version": status.acting_version if reported else view.last_acting_version,
    }


def _or_never(seconds: float) -> float | None:
    return seconds if seconds >= 0.0 else None


_FLEET_OF_PROGRAMS = (
    *("cluster", "heard", "jobs running", "jobs waiting", "jobs done", "avg JCT", "acts on", "beside", "to act on"),
    *("held", "updates", "rejected", "stale", "speeds", "remarks"),
)


def fleet_table(fleet: Facts, place: str = "", *, revoked: bool = False) -> FittedTable:
    """All clusters, with the head in the title; what is wrong with a cluster in words.

    Args:
        place: the learner, with which the title begins.
        revoked: whether revoked clusters are shown.
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
    if view["rollout_role"] == _ALTERNATES and view["beside_version"]:
        return f"{version_name(view['assigned_version'])}/{version_name(view['beside_version'])}"
    return version_name(view["acting_version"])


def _remarks(view: Facts) -> list[str]:
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
    if view["identity"] == "revoked":
        return "revoked"
    if view["finished"]:
        return "finished"
    heard = view["seconds_since_heard"]
    return "never" if heard is None else f"{heard:.0f} s ago"


def _upstream_line(above: Facts | None) -> str:
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


def moment(unix_seconds: float | None) -> str:
    """A moment in UTC, to the minute; a dash for none."""
    return NOTHING if unix_seconds is None else datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M")


def whole_moment(unix_seconds: float | None) -> str:
    """A moment in UTC as ISO 8601 has it, to the millisecond; a dash for none."""
    return (
        NOTHING
        if unix_seconds is None
        else datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="milliseconds")
    )


def version_name(number: int | None) -> str:
    """A version's name; a dash for none."""
    return f"v{number}" if number else NOTHING


def change_words(changed: bool) -> str:
    """Whether a command changed something."""
    return "yes" if changed else "no, it was so"


def tried_sheet(done: str, of_whom: str, rows: Sequence[tuple[str, str]], *, dry_run: bool) -> FactSheet:
    """What a command did, such as `revoked`, and its counts; or what it would do."""
    first = (f"would be {done}" if dry_run else done, of_whom)
    return FactSheet("", [first, *rows], [UNCHANGED] if dry_run else [])


def certificate_facts(entry: fleet_pb2.ClusterIdentity | fleet_pb2.OperatorIdentity) -> Facts:
    """A cluster's or a person's identity as JSON shows it; None where there is no such moment."""
    unknown = ("issued_unix_seconds", "expires_unix_seconds", "revoked_unix_seconds", "fingerprint")
    return facts_of(entry, or_none=unknown)


def certificates_table(entries: list[Facts], *whose: str) -> FittedTable:
    """Clusters or people, with the state and the certificate of each; `whose` are the facts that name them."""
    columns = (
        *(Column(name, text=True) for name in whose),
        Column("state", text=True),
        Column("until\nUTC", 1, text=True),
        Column("issued\nUTC", 2, text=True),
        Column("certificate", 3, text=True),
    )

    def rows(when: Callable[[float | None], str], shown_of_a_key: int | None) -> list[tuple[str, ...]]:
        return [
            (
                *(entry[name] for name in whose),
                entry["state"],
                when(entry["revoked_unix_seconds"] or entry["expires_unix_seconds"]),
                when(entry["issued_unix_seconds"]),
                (entry["fingerprint"] or NOTHING)[:shown_of_a_key],
            )
            for entry in entries
        ]

    return FittedTable("", columns, rows(moment, SHOWN_OF_A_KEY), for_programs=rows(whole_moment, None))
