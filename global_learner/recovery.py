"""Recovery of the head from disk: the last snapshot, then every logged update since, as it was applied then.

It does not matter how the learner ended. What was acknowledged is in the snapshot or the log; what was not may be there
too and is then kept: the cluster offers it again and is told that it is a duplicate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from foundation.files import PARTIAL
from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import write_settings
from global_learner.beliefs.priors import PriorsSource, priors_for
from global_learner.errors import DatabaseAway, StateUnusable
from global_learner.postgres.server import is_away
from global_learner.registry.registry import Registry
from global_learner.settings import LearnerSettings
from global_learner.state_reading import Found, read_state, trust_region
from global_learner.storage.commits import LOG, RECEIPTS, SETTINGS
from global_learner.storage.disk import is_disk_full
from global_learner.storage.receipts import check_receipts, cut_log, drop_unfinished
from global_learner.storage.snapshot import PARTIAL_NAME, write_snapshot
from global_learner.storage.state_dir import StateDir
from global_learner.storage.update_records import AppliedUpdate
from global_learner.updates.head import Head
from global_learner.updates.publication import Publication, note_reset
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import Spec

_log = structlog.get_logger()

LOST_FOLDER = "lost"
"""In the state directory: what was moved aside, a folder for each time, named by its Unix seconds (and -2, -3, ...)."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where to go on.

    Attributes:
        counters: see `Snapshot.counters`.
        replayed: updates taken from the log.
        checksum: of the log's record of the head's step; 0 where it is not known.
        unsettled: versions that fell due and resets that could not be entered, as the disk is full; None if all was.
    """

    spec: Spec
    head: Head
    counters: Mapping[str, Any]
    replayed: int
    checksum: int = 0
    unsettled: Sequence[Publication | AppliedUpdate] | None = None


def recover(
    state: StateDir,
    registry: Registry,
    settings: LearnerSettings,
    initial: PolicyFile,
    unix_seconds: float,
    priors: PriorsSource | None = None,
) -> Recovered:
    """Read the state directory, or begin one with `initial` as v1.

    `priors` go into versions that were due and are published now.

    Raises:
        StateUnusable: damaged, behind what was acknowledged, not writable, or of another spec than `initial`.
        DatabaseAway: the database server cannot be asked.
    """
    try:
        found = read_state(state, registry, settings, initial, unix_seconds)
        if priors is not None:
            priors.begin(found.first.priors)
        try:
            return _settle(found, state, registry, settings, unix_seconds, priors)
        except (OSError, SQLAlchemyError) as error:
            # What is on disk is all there: it can be read and told, and goes on when there is room.
            if not is_disk_full(error) or found.logged != (settings.aggregation, settings.optimizer_for(initial.spec)):
                raise
            _log.error("disk-full", state_dir=str(state.path), reason=str(error), head_step=found.head.step)
            newest = registry.newest()
            done = 0 if newest is None else newest.head_step
            left = [event for event in found.events if isinstance(event, AppliedUpdate) or event.head_step > done]
            return Recovered(found.first.spec, found.head, found.counters, found.replayed, found.checksum, left)
    except (OSError, SQLAlchemyError) as error:
        if is_away(error):
            raise DatabaseAway(f"the database cannot be asked ({error}); start again") from error
        raise StateUnusable(
            f"state_dir {state.path}: cannot be read and written ({error}); free space or mend the disk"
        ) from error


def _settle(
    found: Found,
    state: StateDir,
    registry: Registry,
    settings: LearnerSettings,
    unix_seconds: float,
    priors: PriorsSource | None,
) -> Recovered:
    """Publish what fell due, and leave a snapshot in place of the log."""
    head, first, logged = found.head, found.first, found.logged
    for partial in state.path.rglob(f"*{PARTIAL}"):
        # What is in `lost` is never removed; the snapshot's is the one before the newest.
        if partial.name != PARTIAL_NAME and LOST_FOLDER not in partial.relative_to(state.path).parts:
            partial.unlink()
    orphans = registry.collect_orphans()
    if orphans:
        _log.info("orphans-removed", files=orphans)
    newest = registry.newest()
    for event in found.events:
        if isinstance(event, AppliedUpdate):
            note_reset(registry, event)
        elif newest is None or event.head_step > newest.head_step:
            event.publish(
                registry,
                first.spec,
                priors_for(first.spec, priors),
                logged[0],
                {},
                settings.publish.auto_assign,
                settings.privacy,
            )
    wanted, optimizer = settings.aggregation, settings.optimizer_for(first.spec)
    changed = logged != (wanted, optimizer)
    if changed:
        if head.aggregator.close_early(head.state):
            _log.warning("cohort-closed-early", head_step=head.step, reason="the aggregation settings were changed")
        head.aggregator = build_aggregator(wanted, optimizer, first.spec)
        if logged[1].units is not optimizer.units:
            head.state.forget_moves()
            _log.info("optimizer-begins-anew", head_step=head.step, units=optimizer.units.value)
        before = head.weights.copy()
        head.bound(trust_region(first, (wanted, optimizer)))
        cut = int((head.weights != before).sum())
        if cut:
            _log.warning(
                "weights-cut",
                parameters=cut,
                reason="they were further from the first version than the new optimizer settings let them be",
            )
    if found.replayed or changed:
        # What was replayed need not be replayed again, and a torn tail goes with the segment that it ends.
        save(state, head, found.spec_digest, found.counters)
    registry.prune(settings.publish.retention, unix_seconds)
    write_settings(state.path, wanted, optimizer)
    if not state.commits.count(SETTINGS):
        state.commits.committed(SETTINGS, 1)
    limit = settings.durability.max_receipts_bytes
    drop_unfinished(state.receipts)
    cut_log(state.log, state.receipts, head.step, with_newest=True, max_receipts_bytes=limit)
    state.commits.committed(RECEIPTS, check_receipts(state.receipts))
    state.commits.committed(LOG, head.step, found.checksum or None)
    state.commits.sync()
    return Recovered(first.spec, head, found.counters, found.replayed, found.checksum)


def save(state: StateDir, head: Head, spec_digest: str, counters: Mapping[str, Any]) -> None:
    """Write a snapshot of the head, with what all stores have come to.

    Raises:
        OSError: it could not be written.
    """
    snapshot = head.snapshot(spec_digest, counters)
    write_snapshot(state.snapshots, replace(snapshot, commits=state.commits.counts()))
