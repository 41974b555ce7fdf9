"""View of the fleet as callers of the learner are shown it: the head, every cluster, what each said last."""

from __future__ import annotations

from global_learner.enrollment.registrar import Registrar
from global_learner.fleet import ClusterEntry
from global_learner.learner import Learner
from policy_net.exchange.generated import fleet_pb2


async def fleet_message(learner: Learner, registrar: Registrar, *, with_jobs: bool = False) -> fleet_pb2.GetFleetReply:
    """The head and all clusters, as they are now; `with_jobs` also timelines of jobs and curves of load."""
    statuses = {entry.cluster: entry.state for entry in await registrar.clusters()}
    return fleet_pb2.GetFleetReply(
        head_step=learner.log.durable_step,
        updates_accepted=learner.head.ledger.accepted,
        updates_rejected=sum(entry.rejected.total() for entry in learner.fleet.entries()),
        staleness_p50=learner.head.ledger.staleness_p50,
        clusters=[
            _cluster_view(learner, entry, with_jobs, statuses.get(entry.cluster, ""))
            for entry in learner.fleet.entries()
        ],
        latest_version=learner.maintenance.newest_version,
        disk_bytes=await learner.disk_use(),
        log_limit_bytes=learner.maintenance.max_log_bytes,
        disk_full=str(learner.disk_full or ""),
        upstream=learner.upstream_view(),
        privacy=fleet_pb2.Privacy(**learner.privacy) if learner.privacy else None,
        away_seconds=learner.rollouts.away_seconds,
        tries_people=True,
        numbers_through=learner.operator.numbers_through,
        damaged_files=[
            fleet_pb2.DamagedFile(version=version, is_head=is_head)
            for version, is_head in learner.operator.damaged_files
        ],
    )


def _cluster_view(learner: Learner, entry: ClusterEntry, with_jobs: bool, identity: str) -> fleet_pb2.ClusterView:
    record = learner.head.ledger.clusters.get(entry.cluster)
    speeds = learner.beliefs.summary(entry.cluster)
    view = fleet_pb2.ClusterView(
        cluster=entry.cluster,
        incarnation=entry.incarnation,
        seconds_since_heard=learner.fleet.seconds_since_heard(entry),
        updates_accepted=record.accepted if record else 0,
        updates_duplicate=entry.duplicates,
        updates_rejected=dict(entry.rejected),
        last_staleness=record.last_staleness if record else 0,
        assigned_version=entry.assigned_version,
        status=entry.status,
        compared=entry.compared,
        last_acting_version=0 if entry.heard_before is None else entry.heard_before.acting_version,
        last_finished=entry.heard_before is not None and entry.heard_before.finished,
        held=entry.held,
        contested=learner.fleet.is_contested(entry),
        quarantined_until_unix_seconds=learner.quarantine.until(entry.cluster) or 0.0,
        identity=identity,
        speed_statistics=speeds.statistics,
        speed_observations=speeds.observations,
    )
    if not with_jobs and view.HasField("status"):
        view.status.ClearField("job_timelines")
        view.status.ClearField("load")
        view.status.ClearField("replayed")
    return view
