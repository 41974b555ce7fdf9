"""One row a cluster: who it is, how it is, what it acts on, how its jobs fare, what it contributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from global_learner.report.words import silence
from policy_net.exchange.generated import fleet_pb2

LOST_SECONDS = 60.0
"""A cluster that was silent for longer is lost: heartbeats come every few seconds, retries within fifteen."""


def cluster_rows(
    views: Sequence[fleet_pb2.ClusterView],
    identities: Sequence[fleet_pb2.ClusterIdentity],
    now: float,
    ended: bool = False,
) -> list[dict[str, Any]]:
    """All clusters by name, also those that were invited and never came.

    Args:
        now: Unix seconds.
        ended: the learner is no longer there to hear anybody.
    """
    standings = {identity.cluster: identity.state for identity in identities}
    present = {view.cluster: view for view in views}
    names = sorted(present.keys() | standings.keys())
    unheard = fleet_pb2.ClusterView
    return [_row(present.get(name) or unheard(cluster=name), standings.get(name), now, ended) for name in names]


def attention(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence for every cluster that somebody should look after."""
    return [f"{row['cluster']}: {row['state']['detail']}" for row in rows if row["state"]["tone"] == "bad"]


def _row(view: fleet_pb2.ClusterView, standing: str | None, now: float, ended: bool) -> dict[str, Any]:
    told = None if ended else view.status  # what clusters said of themselves is in no file
    status = view.status
    registered = view.incarnation > 0
    heard = registered and view.seconds_since_heard >= 0.0
    return {
        "cluster": view.cluster,
        "identity": standing,
        "registered": registered,
        "state": _state(view, standing, now, ended),
        "seconds_since_heard": view.seconds_since_heard if heard else None,
        "assigned_version": view.assigned_version,
        "held": view.held,
        "acting_version": told and told.acting_version,
        "learning_step": told and told.learning_step,
        "jobs_waiting": told and told.jobs_waiting,
        "jobs_running": told and told.jobs_running,
        "jobs_done": told and told.jobs_done,
        "jobs_total": told and told.jobs_total,
        "decisions": told and told.decisions,
        "avg_jct_seconds": status.avg_jct_seconds if status.jobs_done else None,
        "baseline_jct_seconds": status.baseline_jct_seconds or None,
        "updates_accepted": view.updates_accepted,
        "updates_duplicate": view.updates_duplicate,
        "updates_rejected": dict(sorted(view.updates_rejected.items())),
        "last_staleness": view.last_staleness,
        "interventions": told and sum(told.guard_interventions.values()),
    }


def _state(view: fleet_pb2.ClusterView, standing: str | None, now: float, ended: bool) -> dict[str, str]:
    """A word, how much it matters (good, idle or bad), and a sentence; the first that holds."""
    until, silent, came = view.quarantined_until_unix_seconds, view.seconds_since_heard, view.incarnation > 0
    states = (
        (standing == "revoked", "turned out", "idle", "its certificates were revoked"),
        (not came and standing == "invited", "invited", "idle", "its agent has not come yet"),
        (not came and standing == "enrolled", "enrolled", "idle", "its agent has not registered yet"),
        (not came, "expired", "bad", "its token or certificate ran out; enroll it again"),
        (until > now, "quarantined", "bad", f"its updates are not looked at for {silence(until - now)} more"),
        (view.status.finished, "finished", "idle", "all its jobs are done"),
        (ended, "not known", "idle", "the learner has ended"),
        (silent < 0.0, "not heard", "bad", "not heard since the learner started"),
        (silent > LOST_SECONDS, "lost", "bad", f"not heard for {silence(silent)}"),
        (standing == "expired", "expired", "bad", "its certificate ran out; enroll it again"),
        (True, "connected", "good", f"heard {silence(silent)} ago"),
    )
    _, word, tone, detail = next(state for state in states if state[0])
    return {"word": word, "tone": tone, "detail": detail}
