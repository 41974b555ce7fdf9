"""Store of workload sketches: each cluster's latest one, and the set that a rollout's gate began with.

The set is copied in the transaction that begins the rollout, so that a learner that goes on after a kill replays the
same sketches. Every method blocks; the learner calls them on the registry's thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from global_learner.registry.registry import Registry
from global_learner.registry.tables import RolloutSketchRow, WorkloadSketchRow
from global_learner.rollout.verdicts.gate import FrozenSketch
from policy_net.exchange.workload_sketch import WorkloadSketch

MOST_FROZEN = 32
"""Sketches of a rollout; of more clusters these are drawn by its seed."""
_LONGEST_REASON = 300


class SketchStore:
    """Sketches of all clusters, and of all rollouts."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def keep(self, cluster: str, sketch: WorkloadSketch | None, now: float) -> bool:
        """Keep a cluster's sketch in place of the one before, or forget it; False if that changes nothing."""
        with self._registry.transaction() as session:
            row = session.get(WorkloadSketchRow, cluster)
            if sketch is None:
                if row is not None:
                    session.delete(row)
                return row is not None
            content = sketch.to_json()
            if row is not None and WorkloadSketch.from_json(row.sketch) == sketch:
                return False
            session.merge(WorkloadSketchRow(cluster=cluster, unix_seconds=now, sketch=content))
            return True

    def frozen(self, rollout: int) -> list[FrozenSketch]:
        """The set that a rollout's gate began with, by cluster, and its replays."""
        ours = select(RolloutSketchRow).where(RolloutSketchRow.rollout == rollout)
        with self._registry.session() as session:
            return [
                FrozenSketch(row.cluster, row.seed, row.sketch, row.jct_seconds, row.dropped)
                for row in session.scalars(ours.order_by(RolloutSketchRow.cluster))
            ]

    def note(self, rollout: int, cluster: str, jct_seconds: Mapping[str, float | None], dropped: str = "") -> None:
        """Add results of replays, or the reason why the sketch does not count."""
        with self._registry.transaction() as session:
            row = session.get(RolloutSketchRow, (rollout, cluster))
            if row is not None:
                row.jct_seconds = {**row.jct_seconds, **jct_seconds}
                row.dropped = dropped[:_LONGEST_REASON]


def freeze(session: Session, rollout: int, seed: int, clusters: Collection[str]) -> None:
    """Copy the clusters' sketches for a rollout that begins in this transaction."""
    reported = [row for row in session.scalars(select(WorkloadSketchRow)) if row.cluster in clusters]
    reported.sort(key=lambda row: seed_of(seed, row.cluster))
    for row in reported[:MOST_FROZEN]:
        session.add(
            RolloutSketchRow(
                rollout=rollout,
                cluster=row.cluster,
                seed=seed_of(seed, row.cluster),
                sketch=row.sketch,
                jct_seconds={},
                dropped="",
            )
        )


def seed_of(rollout_seed: int, cluster: str) -> int:
    """The seed of a cluster's simulated work in a rollout."""
    digest = hashlib.sha256(f"sketch {rollout_seed} {cluster}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
