"""Report of a learner that has ended, from its state directory; it lacks what clusters reported of themselves."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path

from global_learner.enrollment.authority import ADMINISTRATOR_FILE
from global_learner.enrollment.identity_store import IdentityStore
from global_learner.errors import BadLearnerConfig, StateUnusable
from global_learner.fleet import ClusterEntry, Fleet
from global_learner.registry.cards import version_message
from global_learner.registry.registry import Registry
from global_learner.report.events import ACTS, MOST_EVENTS
from global_learner.rollout.evidence_store import EvidenceStore
from global_learner.rollout.rollout_messages import latest_overviews, overview_message
from global_learner.rollout.rollout_store import RolloutStore
from global_learner.settings import IngestSettings
from global_learner.storage.audit_chain import AuditLine
from global_learner.storage.commits import Commits
from global_learner.storage.snapshot import read_newest_snapshot
from global_learner.storage.state_dir import IDENTITY_FOLDER, StateDir
from global_learner.updates.ledger import Ledger
from policy_net.exchange.generated import fleet_pb2


def report_of_files(state_dir: Path, now: float) -> fleet_pb2.GetReportReply:
    """The learner's answer as of its last snapshot.

    Raises:
        BadConfig: no learner's state directory.
        StateUnusable: a learner holds it, or it is damaged.
    """
    if not (state_dir / "registry.sqlite").is_file():
        raise BadLearnerConfig(f"{state_dir}: no learner's state directory; name the state_dir of its configuration")
    with _held(state_dir) as state, contextlib.closing(Registry(state.path, state.commits)) as registry:
        cards = registry.versions()
        snapshot = read_newest_snapshot(state.snapshots, cards[0].spec_digest) if cards else None
        window = IngestSettings().active_window_updates
        ledger = Ledger(window) if snapshot is None else Ledger.from_json(snapshot.ledger, window)
        fleet = Fleet(registry.registrations(), {} if snapshot is None else snapshot.counters, lambda: 0.0)
        acts = registry.acts(ACTS, MOST_EVENTS)
        identities, of_identities = _identities(state.path / IDENTITY_FOLDER, now, state.commits)
        rollouts = latest_overviews(RolloutStore(registry), EvidenceStore(registry))
    return fleet_pb2.GetReportReply(
        made_unix_seconds=now,
        ended=True,
        fleet=fleet_pb2.GetFleetReply(
            head_step=0 if snapshot is None else snapshot.state.step,
            updates_accepted=ledger.accepted,
            updates_rejected=sum(entry.rejected.total() for entry in fleet.entries()),
            staleness_p50=ledger.staleness_p50,
            clusters=[_view(entry, ledger) for entry in fleet.entries()],
            latest_version=cards[-1].version if cards else 0,
        ),
        versions=[version_message(card) for card in cards],
        enrolls=identities is not None,
        identities=identities or [],
        staleness=[
            fleet_pb2.StalenessCounts(cluster=cluster, updates=counts)
            for cluster, counts in ledger.recent_staleness().items()
        ],
        rollouts=[overview_message(entry) for entry in rollouts],
        acts=[fleet_pb2.AuditEntry(**asdict(line)) for line in (*acts, *of_identities)],
    )


def _held(state_dir: Path) -> StateDir:
    try:
        return StateDir(state_dir)
    except StateUnusable as error:
        raise StateUnusable(f"{error}. Of a learner that runs, ask for the report: leave --state-dir out") from error


def _identities(
    folder: Path, now: float, commits: Commits
) -> tuple[list[fleet_pb2.ClusterIdentity] | None, list[AuditLine]]:
    """Identities of clusters, None where the learner signed no certificates; and acts of people on identities."""
    if not (folder / ADMINISTRATOR_FILE).is_file():
        return None, []
    with contextlib.closing(IdentityStore(folder, commits)) as store:
        return store.clusters(now), store.acts(ACTS, MOST_EVENTS)


def _view(entry: ClusterEntry, ledger: Ledger) -> fleet_pb2.ClusterView:
    record = ledger.clusters.get(entry.cluster)
    return fleet_pb2.ClusterView(
        cluster=entry.cluster,
        incarnation=entry.incarnation,
        seconds_since_heard=-1.0,
        updates_accepted=record.accepted if record else 0,
        updates_duplicate=entry.duplicates,
        updates_rejected=dict(entry.rejected),
        last_staleness=record.last_staleness if record else 0,
        assigned_version=entry.assigned_version,
    )
