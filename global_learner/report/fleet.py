"""Section of the fleet: a row a cluster, how often guards stood in for the policy, and lives of single jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from foundation.figures import shown
from global_learner.registry.version_words import PASSING_REFUSALS, refused_words
from global_learner.report.savings import compared_label, comparison, is_simulated
from global_learner.report.words import policy_label, silence
from policy_net.exchange.generated import fleet_pb2

LOST_SECONDS = 60.0
"""A cluster that is silent for longer is lost: heartbeats come every few seconds, retries within fifteen."""
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "nan": "the policy's numbers were not finite; the fallback decided",
        "exception": "the policy failed; the fallback decided",
        "deadline": "the policy thought for too long; the fallback decided",
        "malformed": "the decision was no decision; the fallback decided",
        "idle": "no job would have trained; the fallback decided",
        "untaught": "the policy was never taught jobs like these; the fallback decided",
        "exceptional": "the decision was unlike the recent past; the fallback decided",
        "unknown-job": "the decision named a job that was not there; that part was left out",
        "over-cap": "a job would have got more tasks than it may have; it got what it may",
        "over-capacity": "the cluster has less than was decided; jobs got what there was, in order of arrival",
        "fallback-failed": "the fallback failed too; jobs kept what they had",
    }
)
"""The words of the agents' guards; others are shown as they are."""


def cluster_rows(
    views: Sequence[fleet_pb2.ClusterView],
    identities: Sequence[fleet_pb2.ClusterIdentity],
    now: float,
    ended: bool = False,
) -> list[dict[str, Any]]:
    """All clusters by name, also those that were invited and never came.

    Args:
        now: Unix seconds.
        ended: whether the learner has ended.
    """
    statuses = {identity.cluster: identity.state for identity in identities}
    present = {view.cluster: view for view in views}
    names = sorted(present.keys() | statuses.keys())
    unheard = fleet_pb2.ClusterView
    return [_row(present.get(name) or unheard(cluster=name), statuses.get(name), now, ended) for name in names]


def attention(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence for every cluster in trouble."""
    return [f"{row['cluster']}: {row['state']['detail']}" for row in rows if row["state"]["tone"] == "bad"]


@dataclass(frozen=True, slots=True)
class ClusterCounts:
    """How many of the page's clusters take part, and how many do not.

    Attributes:
        present: registered, and not revoked: those that `policyctl fleet` shows.
        not_yet: invited or enrolled, and never registered.
        turned_out: revoked.
    """

    present: int
    not_yet: int
    turned_out: int

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]]) -> ClusterCounts:
        """Counts of `cluster_rows`."""
        turned_out = sum(row["identity"] == "revoked" for row in rows)
        present = sum(row["registered"] and row["identity"] != "revoked" for row in rows)
        return cls(present, len(rows) - present - turned_out, turned_out)

    def __str__(self) -> str:
        rest = [
            f"{count} {what}"
            for count, what in ((self.not_yet, "not registered yet"), (self.turned_out, "revoked"))
            if count
        ]
        return f"{self.present}; beside them {', '.join(rest)}" if rest else str(self.present)


def _row(view: fleet_pb2.ClusterView, identity_state: str | None, now: float, ended: bool) -> dict[str, Any]:
    said = None if ended else view.status  # what clusters said of themselves is in no file
    status = view.status
    compared = comparison(view)
    registered = view.incarnation > 0
    heard = registered and view.seconds_since_heard >= 0.0
    return {
        "cluster": view.cluster,
        "identity": identity_state,
        "registered": registered,
        "simulated": said and is_simulated(said),
        "state": _state(view, identity_state, now, ended),
        "seconds_since_heard": view.seconds_since_heard if heard else None,
        "assigned_version": view.assigned_version,
        "held": view.held,
        "acting_version": said and said.acting_version,
        "refused_version": said and (said.refused_version or None),
        "refused_reason": said and (said.refused_reason or None),
        "learning_step": said and said.learning_step,
        "jobs_waiting": said and said.jobs_waiting,
        "jobs_running": said and said.jobs_running,
        "jobs_done": said and said.jobs_done,
        "jobs_total": said and said.jobs_total,
        "decisions": said and said.decisions,
        "avg_jct_seconds": status.avg_jct_seconds if status.jobs_done else None,
        "baseline_jct_seconds": status.baseline_jct_seconds or None,
        "baseline": policy_label(status.baseline_policy) if status.baseline_jct_seconds else None,
        "compared_jct_seconds": compared.policy_jct_seconds if compared else None,
        "compared_with": compared_label(compared.policy) if compared else None,
        "updates_accepted": view.updates_accepted,
        "updates_duplicate": view.updates_duplicate,
        "updates_rejected": dict(sorted(view.updates_rejected.items())),
        "last_staleness": view.last_staleness,
        "interventions": said and sum(said.guard_interventions.values()),
    }


def _state(view: fleet_pb2.ClusterView, identity_state: str | None, now: float, ended: bool) -> dict[str, str]:
    """The first state that holds: a word, its tone (good, idle or bad), and a sentence."""
    refused = view.status.refused_reason if view.status.refused_version else ""
    until, silent, came = view.quarantined_until_unix_seconds, view.seconds_since_heard, view.incarnation > 0
    states = (
        (identity_state == "revoked", "turned out", "idle", "its certificates were revoked"),
        (not came and identity_state == "invited", "invited", "idle", "its agent has not come yet"),
        (not came and identity_state == "enrolled", "enrolled", "idle", "its agent has not registered yet"),
        (not came, "expired", "bad", "its token or certificate ran out; enroll it again"),
        (until > now, "quarantined", "bad", f"its updates are not looked at for {silence(until - now)} more"),
        (view.status.finished, "finished", "idle", "all its jobs are done"),
        (ended, "not known", "idle", "the learner has ended"),
        (
            view.contested,
            "contested",
            "bad",
            f"two agents call themselves {view.cluster}; name each cluster differently, or stop one",
        ),
        (silent < 0.0, "not heard", "bad", "not heard since the learner started"),
        (silent > LOST_SECONDS, "lost", "bad", f"not heard for {silence(silent)}"),
        (identity_state == "expired", "expired", "bad", "its certificate ran out; enroll it again"),
        (
            bool(refused),
            "refuses",
            "idle" if refused in PASSING_REFUSALS else "bad",
            refused_words(view.status.refused_version, shown(refused)),
        ),
        (True, "connected", "good", f"heard {silence(silent)} ago"),
    )
    _, word, tone, detail = next(state for state in states if state[0])
    return {"word": word, "tone": tone, "detail": detail}


def interventions(views: Sequence[fleet_pb2.ClusterView]) -> dict[str, Any]:
    """Interventions of guards by reason, most frequent first, with those of each cluster, and all decisions."""
    totals: Counter[str] = Counter()
    for view in views:
        totals.update(view.status.guard_interventions)
    return {
        "decisions": sum(view.status.decisions for view in views),
        "total": totals.total(),
        "reasons": [
            {
                "reason": shown(reason),
                "meaning": MEANINGS.get(reason, ""),
                "total": count,
                "by": {
                    view.cluster: view.status.guard_interventions[reason]
                    for view in views
                    if reason in view.status.guard_interventions
                },
            }
            for reason, count in sorted(totals.items(), key=lambda item: (-item[1], item[0]))
            if count
        ],
    }


def reported_jobs(views: Sequence[fleet_pb2.ClusterView]) -> list[dict[str, Any]]:
    """Lives of all jobs, by cluster and number; times in seconds since submission, `held` as moment, workers, PSs."""
    return [
        {
            "id": f"{view.cluster}/job {timeline.number}",
            "cluster": view.cluster,
            "name": f"job {timeline.number}",
            "job_type": shown(timeline.job_type),
            "held": [[point.seconds, point.workers, point.ps] for point in timeline.held],
            "seconds": timeline.seconds,
            "completed": timeline.completed,
            "resizes": timeline.resizes,
            "interventions": [[mark.seconds, shown(mark.reason)] for mark in timeline.interventions],
        }
        for view in sorted(views, key=lambda view: view.cluster)
        for timeline in sorted(view.status.job_timelines, key=lambda timeline: timeline.number)
    ]
