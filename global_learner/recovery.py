"""Recovery of the head from disk: the last snapshot, then every logged update since, as it was applied then.

It does not matter how the learner ended. What was acknowledged is in the snapshot or the log; what was not may be there
too and is then kept: the cluster offers it again and is told that it is a duplicate. `read_state` finds out where the
learner was, and changes nothing, but that a new directory gets its v1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from foundation.files import PARTIAL
from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import (
    AGGREGATION_NAME,
    AggregationSettings,
    ChosenUnits,
    OptimizerSettings,
    read_settings,
    write_settings,
)
from global_learner.beliefs.priors import PriorsSource, priors_for
from global_learner.errors import DatabaseAway, StateUnusable
from global_learner.postgres.server import is_away
from global_learner.registry.cards import FIRST_VERSION, VersionCard, first_details
from global_learner.registry.policy_store import LostFile
from global_learner.registry.registry import Registry
from global_learner.settings import LearnerSettings
from global_learner.storage.audit import KEEPER, Order
from global_learner.storage.commits import LOG, RECEIPTS, SETTINGS, WAY_OUT, Losses
from global_learner.storage.disk import is_disk_full
from global_learner.storage.receipts import check_receipts, cut_log, drop_unfinished
from global_learner.storage.snapshot import (
    PARTIAL_NAME,
    AdamState,
    Earlier,
    Snapshot,
    read_earlier_snapshot,
    read_newest_snapshot,
    write_snapshot,
)
from global_learner.storage.state_dir import StateDir
from global_learner.storage.update_log import LogDamaged, first_step, read_records, segments
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from global_learner.updates.head import Head, Publication, due_publication, note_reset
from global_learner.updates.ledger import Ledger
from policy_net.exchange.policy_file import PolicyFile, digest_of, parse_policy_file
from policy_net.exchange.spec import Spec, WeightSpec
from policy_net.learning.adam import TrustRegion

_log = structlog.get_logger()

LOST_FOLDER = "lost"
"""In the state directory: what was moved aside, a folder for each time, named by its Unix seconds (and -2, -3, ...)."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where to go on.

    Attributes:
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
    """Read the state directory, or begin one with `initial` as v1; `priors` go into versions that are published now.

    Raises:
        StateUnusable: damaged, behind what was acknowledged, not writable, or of another spec than `initial`.
        DatabaseAway: the database server cannot be asked.
    """
    try:
        found = read_state(state, registry, settings, initial, unix_seconds)
        if priors is not None:
            priors.begin(found.first.priors)
        try:
            return _settle(found, state, registry, settings, priors)
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
    desired, optimizer = settings.aggregation, settings.optimizer_for(first.spec)
    changed = logged != (desired, optimizer)
    if changed:
        if head.aggregator.close_early(head.state):
            _log.warning("cohort-closed-early", head_step=head.step, reason="the aggregation settings were changed")
        head.aggregator = build_aggregator(desired, optimizer, first.spec)
        if logged[1].units is not optimizer.units:
            head.state.forget_moves()
            _log.info("optimizer-begins-anew", head_step=head.step, units=optimizer.units.value)
        before = head.weights.copy()
        head.bound(trust_region(first, (desired, optimizer)))
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
    registry.prune(settings.publish.keep_versions)
    write_settings(state.path, desired, optimizer)
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


@dataclass(frozen=True, slots=True)
class Found:
    """What a state directory holds, read and checked.

    Attributes:
        first: v1.
        events: versions that fell due in the log, and resets, in order.
        logged: the settings of the log; with `settings_lost` the configuration's, as those cannot be read.
        lost_files: of versions.
        earlier: the snapshot that was gone on from, where the newest is lost.
    """

    first: PolicyFile
    spec_digest: str
    head: Head
    counters: Mapping[str, Any]
    events: Sequence[Publication | AppliedUpdate]
    replayed: int
    checksum: int
    logged: tuple[AggregationSettings, OptimizerSettings]
    settings_lost: bool
    lost_files: Sequence[LostFile]
    earlier: Earlier | None


def read_state(
    state: StateDir, registry: Registry, settings: LearnerSettings, initial: PolicyFile, unix_seconds: float
) -> Found:
    """Find out where the learner was.

    Raises:
        StateUnusable: as `recover`; where losses are accepted, only what cannot be gone on from.
        OSError, SQLAlchemyError: it cannot be read.
    """
    newest = registry.newest()
    _check_begins(state, newest)
    if newest is None:
        newest = registry.publish(initial, 0, unix_seconds, {}, 0.0, assign_all=False, details=first_details(initial))
        _log.info("state-begun", state_dir=str(state.path), digest=newest.digest[:12])
    card, first = _first(state, registry, initial, unix_seconds)
    if card.spec_digest != initial.spec.digest:
        raise StateUnusable(
            f"state_dir {state.path}: of spec {card.spec_digest[:12]}, but initial_policy is of "
            f"{initial.spec.digest[:12]}; use another state_dir, or the policy that it began with"
        )
    lost_files = registry.lost_files()
    for lost in lost_files:
        if state.commits.rule is Losses.REFUSE:
            # The head needs none but v1: clusters that have it act on it, and whoever asks for it is refused.
            _log.error(
                "version-file-damaged",
                version=lost.version,
                what=lost.what,
                advice=f"put it back with `policyctl version restore v{lost.version} --from FILE`",
            )
        else:
            state.commits.lose(lost.what)
    window = settings.ingest.active_window_updates
    snapshot, earlier = _snapshot(state, card.spec_digest)
    if snapshot is not None:
        state.commits.claim("the snapshot", snapshot.commits)
    logged, settings_lost = _logged_settings(state, settings, first.spec)
    aggregator = build_aggregator(*logged, first.spec)
    # A region's head is the one above, bit for bit, and no version is made of it.
    average_decay = (
        0.0
        if logged[0].passes_up
        else settings.publish.decay_for(first.spec, only_replays=settings.only_replays(first.spec))
    )
    region = trust_region(first, logged)
    if snapshot is None:
        head = Head(AdamState.start(first.weights), Ledger(window), aggregator, average_decay, region)
    else:
        head = Head(snapshot.state, Ledger.from_json(snapshot.ledger, window), aggregator, average_decay, region)
        kept = snapshot.aggregator
        others = settings_lost and kept.facts.get("strategy") != logged[0].strategy
        (aggregator.reset if others else aggregator.restore)(kept)
    counters = {} if snapshot is None else snapshot.counters
    events, replayed, checksum = _replay(state, head, card.spec_digest, settings.publish.every_steps)
    _check_head(state, registry, newest, head)
    return Found(
        first, card.spec_digest, head, counters, events, replayed, checksum, logged, settings_lost, lost_files, earlier
    )


def _first(
    state: StateDir, registry: Registry, initial: PolicyFile, unix_seconds: float
) -> tuple[VersionCard, PolicyFile]:
    """v1, which the head is measured from; the initial policy is the same file unless it was replaced since.

    Raises:
        StateUnusable: it is damaged or gone, and there is no other copy.
    """
    try:
        card, data = registry.policy_bytes(FIRST_VERSION)
    except StateUnusable as error:
        card, _ = registry.version(FIRST_VERSION)
        data = initial.to_bytes()
        if digest_of(data) != card.digest or state.commits.rule is Losses.LIST:
            what = str(error).rpartition("; ")[0] or str(error)
            raise StateUnusable(
                f"{what} (the policy of v{FIRST_VERSION}, which the head is measured from); put a copy back with "
                f"`global-learner restore-version v{FIRST_VERSION} --from FILE --config CONFIG`: agents that act on it "
                "and backups have one"
            ) from error
        registry.restore(FIRST_VERSION, data, Order(KEEPER, unix_seconds, "the initial policy is the same"))
        _log.warning("version-restored", version=FIRST_VERSION, copied_from="initial_policy", reason=str(error))
    return card, parse_policy_file(data, f"v{FIRST_VERSION}")


def trust_region(first: PolicyFile, settings: tuple[AggregationSettings, OptimizerSettings]) -> TrustRegion | None:
    """Where the head stays, under these settings; a region's stays where the learner above lets its own be."""
    aggregation, optimizer = settings
    return (
        None
        if aggregation.passes_up
        else TrustRegion.around(first.weights, optimizer.radius_for(first.spec), optimizer.units_for(first.spec))
    )


def _snapshot(state: StateDir, spec_digest: str) -> tuple[Snapshot | None, Earlier | None]:
    """The snapshot to go on from, if there is one; and where the newest is lost, the file that it is in."""
    try:
        newest = read_newest_snapshot(state.snapshots, spec_digest)
    except StateUnusable as error:
        earlier = read_earlier_snapshot(state.snapshots, spec_digest)
        if earlier is None:
            raise
        how = str(error).rpartition("; ")[0]
    else:
        log = segments(state.log)
        if newest is not None or (first_step(log[0]) == 1 if log else not state.commits.count(LOG)):
            return newest, None
        earlier = read_earlier_snapshot(state.snapshots, spec_digest)
        if earlier is None:
            return None, None
        how = f"{state.snapshots}: the snapshot is gone"
    state.commits.lose(f"{how}; the one before it is of step {earlier.snapshot.state.step}")
    return earlier.snapshot, earlier


def _logged_settings(
    state: StateDir, settings: LearnerSettings, spec: WeightSpec
) -> tuple[tuple[AggregationSettings, OptimizerSettings], bool]:
    """What is in the log was taken under the settings of then, and is replayed under them; whether they are lost."""
    configured = (settings.aggregation, settings.optimizer_for(spec))
    try:
        written = read_settings(state.path)
    except StateUnusable as error:
        how = str(error).rpartition("; ")[0]
    else:
        if written is not None:
            return written, False
        if not state.commits.count(SETTINGS):
            # Logs older than the copy were written under the defaults of then.
            counted = settings.optimizer.model_copy(update={"units": ChosenUnits.WEIGHTS})
            old = counted.resolved(spec, settings.aggregation, noisy=False) if segments(state.log) else configured[1]
            return (AggregationSettings(), old), False
        how = f"{state.path / AGGREGATION_NAME}: gone"
    state.commits.lose(f"{how}; without it the log can be read under the configured settings only")
    return configured, True


def _check_begins(state: StateDir, newest: VersionCard | None) -> None:
    """See that a registry without versions is a new one: over another's log it would begin to count anew."""
    snapshots, log = list(state.snapshots.iterdir()), segments(state.log)
    left = sorted(path.name for path in (*snapshots, *log, *state.receipts.iterdir()))
    if left and newest is None:
        raise StateUnusable(
            f"state_dir {state.path}: its registry.sqlite holds no version, yet {left[0]} is there: it was emptied or "
            "is gone; restore the state directory from a copy, or begin in an empty one"
        )
    if snapshots and not log:
        _log.warning(
            "log-missing", folder=str(state.log), advice="a crash amid a start can leave none; nothing else should"
        )


def _check_head(state: StateDir, registry: Registry, newest: VersionCard, head: Head) -> None:
    """See that the head is not behind what any store knows of it, nor the registry behind the ledger.

    Raises:
        StateUnusable: something that was acknowledged is missing.
    """
    commits, log = state.commits, segments(state.log)
    commits.claim(f"v{newest.version} of the registry", {LOG: newest.head_step})
    try:
        receipts = check_receipts(state.receipts)
    except StateUnusable as error:
        commits.lose(str(error).removesuffix(f"; {WAY_OUT}"))
    else:
        commits.claim("receipts", {LOG: receipts})
        commits.found(RECEIPTS, receipts, str(state.receipts))
    if log:
        commits.claim(log[-1].name, {LOG: first_step(log[-1]) - 1})
    commits.found(LOG, head.step, str(state.log))
    known = {entry.cluster: entry.incarnation for entry in registry.registrations()}
    for cluster, record in head.ledger.clusters.items():
        incarnation = record.sequences.incarnation
        if known.get(cluster, incarnation) < incarnation:
            commits.lose(
                f"{state.path / 'registry.sqlite'}: cluster {cluster} is at incarnation {known[cluster]}, yet "
                f"updates of its incarnation {incarnation} were applied: it fell back to an older state"
            )


def _replay(
    state: StateDir, head: Head, spec_digest: str, publish_every_steps: int
) -> tuple[list[Publication | AppliedUpdate], int, int]:
    """Apply the log; the versions that fell due and the resets in order, how many records, the last one's checksum."""
    commits = state.commits
    expected = commits.check(LOG, commits.step)
    checksum = (expected or 0) if commits.step == head.step else 0
    events: list[Publication | AppliedUpdate] = []
    replayed = 0
    try:
        for applied, found in read_records(state.log, spec_digest):
            if applied.step == commits.step and None not in (expected, found) and found != expected:
                commits.lose(f"{state.log}: update {applied.step} is another one than was acknowledged")
            if applied.step <= head.step:
                continue
            if applied.step != head.step + 1:
                commits.lose(
                    f"{state.log}: update {head.step + 1} is missing, the next one is {applied.step}, and "
                    f"{state.snapshots} holds no snapshot of step {applied.step - 1}"
                )
                break
            try:
                head.apply(applied)
            except StateUnusable as error:  # of a kind that the settings do not know
                commits.lose(str(error).rpartition("; ")[0])
                break
            replayed, checksum = replayed + 1, found or 0
            if applied.kind is UpdateKind.RESET:
                events.append(applied)
            due = due_publication(head, publish_every_steps, applied.unix_seconds)
            if due is not None:
                events.append(due)
    except LogDamaged as error:
        commits.lose(error.what)
    return events, replayed, checksum
