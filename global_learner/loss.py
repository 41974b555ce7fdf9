"""Loss of acknowledged state, accepted by an operator: the learner's last way out where there is no backup.

What can be read is kept and goes on; what it replaces is moved aside and never removed. No number is given twice: the
head goes on behind the highest step that anybody knows, so that versions, receipts and gradients of the lost updates
are never mistaken for those that come, and every cluster has to register again. The audit log says what was lost.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from foundation.files import PRIVATE, sync_folder, write_whole
from global_learner.aggregation.settings import AGGREGATION_NAME, write_settings
from global_learner.beliefs.belief_store import BeliefStore
from global_learner.enrollment.authority import ADMINISTRATOR_FILE
from global_learner.enrollment.identity_store import STORE as IDENTITIES
from global_learner.enrollment.identity_store import IdentityStore
from global_learner.errors import StateUnusable
from global_learner.recovery import LOST_FOLDER, Found, read_state, save
from global_learner.registry.fleet_keys import FOLDER as SIGNING_FOLDER
from global_learner.registry.fleet_keys import check_keys
from global_learner.registry.registry import Registry
from global_learner.settings import LearnerSettings
from global_learner.storage.commits import LOG, RECEIPTS, ROOTS, Losses
from global_learner.storage.receipts import REMOVED_NAME, Removed
from global_learner.storage.snapshot import snapshot_files
from global_learner.storage.state_dir import IDENTITY_FOLDER, StateDir
from global_learner.updates.quarantine import QuarantineRecord
from policy_net.exchange.identity_file import make_private_folder
from policy_net.exchange.policy_file import PolicyFile

_log = structlog.get_logger()


def find_losses(settings: LearnerSettings, initial: PolicyFile, unix_seconds: float) -> list[str]:
    """What would be lost, one line each; nothing is changed.

    Raises:
        StateUnusable: a learner runs on it, or it cannot be gone on from at all.
    """
    with StateDir(settings.state_dir, Losses.LIST) as state, contextlib.ExitStack() as opened:
        try:
            read_stores(state, settings, initial, unix_seconds, opened)
        except (OSError, SQLAlchemyError) as error:
            raise StateUnusable(f"state_dir {state.path}: cannot be read ({error})") from error
        return list(dict.fromkeys(state.commits.losses))


def accept_losses(settings: LearnerSettings, initial: PolicyFile, actor: str, unix_seconds: float) -> list[str]:
    """Go on without what is lost, and write that down; the lines of `find_losses`.

    Raises:
        StateUnusable: a learner runs on it, or it cannot be gone on from at all.
    """
    with StateDir(settings.state_dir, Losses.ACCEPT) as state, contextlib.ExitStack() as opened:
        try:
            stores = read_stores(state, settings, initial, unix_seconds, opened)
            losses = list(dict.fromkeys(state.commits.losses))
            if losses:
                _accept(state, stores, losses, actor, unix_seconds)
        except (OSError, SQLAlchemyError) as error:
            raise StateUnusable(f"state_dir {state.path}: cannot be written ({error}); nothing is lost yet") from error
        return losses


@dataclass(frozen=True, slots=True)
class StateStores:
    """All that a state directory holds, opened and checked; `keys_usable` is whether the fleet's keys are."""

    registry: Registry
    identities: IdentityStore | None
    beliefs: BeliefStore
    quarantine: QuarantineRecord
    keys_usable: bool
    found: Found


def read_stores(
    state: StateDir, settings: LearnerSettings, initial: PolicyFile, unix_seconds: float, opened: contextlib.ExitStack
) -> StateStores:
    """Open all that a start opens, in its order, and check each against the others; `opened` closes them.

    Raises:
        StateUnusable: it cannot be gone on from, whatever is accepted.
        OSError, SQLAlchemyError: it cannot be read.
    """
    try:
        registry = opened.enter_context(contextlib.closing(Registry(state.path, state.commits)))
        folder = state.path / IDENTITY_FOLDER
        identities = None
        if folder.is_dir() or state.commits.count(IDENTITIES):
            if state.commits.rule is Losses.ACCEPT:
                make_private_folder(folder)
            identities = IdentityStore(folder, state.commits)
            opened.callback(identities.close)
        beliefs = opened.enter_context(contextlib.closing(BeliefStore(state.path, settings.beliefs, state.commits)))
        if registry.newest() is None:
            raise StateUnusable(
                f"{state.path / 'registry.sqlite'}: holds no version to go on from; restore the state directory from a "
                "backup; without one, begin in an empty state_dir"
            )
        keys_usable = check_keys(state.path / SIGNING_FOLDER, state.commits)
        quarantine = QuarantineRecord(state.path, state.commits, unix_seconds)
        found = read_state(state, registry, settings, initial, unix_seconds)
        return StateStores(registry, identities, beliefs, quarantine, keys_usable, found)
    except (SQLAlchemyError, ValueError, TypeError, KeyError) as error:
        # A start would have refused the damaged file; whoever reads on may meet any value in it.
        if not state.commits.losses:
            raise
        raise StateUnusable(
            f"{'; '.join(state.commits.losses)}; it cannot be gone on from, as what it holds cannot be read "
            f"({type(error).__name__}): restore it from a backup"
        ) from error


def _accept(state: StateDir, stores: StateStores, losses: list[str], actor: str, unix_seconds: float) -> None:
    registry, found = stores.registry, stores.found
    head = found.head
    aside = _new_folder(state.path / LOST_FOLDER, f"{unix_seconds:.0f}")
    before, known = head.step, state.commits.count(LOG)
    step = max(before, known) + 1
    for line in losses:
        registry.note(actor, "loss-accepted", "state", line, unix_seconds)
    registry.note(actor, "loss-accepted", "state", f"the head of step {before} goes on at step {step}", unix_seconds)
    if found.lost_files:
        registry.give_up(found.lost_files, actor, unix_seconds)
    for orphan in registry.orphans():
        # The next start removes whatever no version refers to; these files may be all that is left of lost versions.
        _move_aside([orphan], aside / orphan.parent.name)
    state.commits.accept()
    registry.accept_lost_versions()
    if stores.quarantine.is_lost:
        _move_aside([stores.quarantine.path], aside)
        stores.quarantine.write(stores.quarantine.kept)
    if not stores.keys_usable:
        # The next start makes new ones, for another fleet as far as agents can tell.
        keys = state.path / SIGNING_FOLDER
        _move_aside(sorted(keys.glob("*")), aside / keys.name)
        state.commits.committed(ROOTS, 0)
        registry.forget_signatures()
    if stores.identities is not None:
        stores.identities.recount()
        if not stores.identities.known:
            # The next start makes another one: a book that does not know this one's certificate refuses it.
            _move_aside([state.path / IDENTITY_FOLDER / ADMINISTRATOR_FILE], aside / IDENTITY_FOLDER)
    stores.beliefs.recount()
    registry.chain_audit_anew()
    registry.renew_incarnations({name: row.sequences.incarnation for name, row in head.ledger.clusters.items()})
    head.skip_to(step)
    if found.earlier is not None:
        _move_aside(snapshot_files(state.snapshots)[-1:], aside / state.snapshots.name)
        found.earlier.adopt()
    save(state, head, found.spec_digest, found.counters)
    if found.settings_lost:
        _move_aside([state.path / AGGREGATION_NAME], aside)
        write_settings(state.path, *found.logged)
    counts: Counter[tuple[str, int]] = Counter()
    for name, record in head.ledger.clusters.items():
        counts[name, record.sequences.incarnation] = record.sequences.count
        counts[name, 0] = record.accepted - record.sequences.count
    for folder in (state.log, state.receipts):
        _move_aside(sorted(folder.iterdir()), aside / folder.name)
    write_whole(state.receipts / REMOVED_NAME, Removed(step, +counts).to_json(), alone=True, mode=PRIVATE)
    state.commits.committed(RECEIPTS, step)
    state.commits.committed(LOG, step)
    state.commits.sync()
    _log.warning("loss-accepted", actor=actor, head_step=step, before=before, aside=str(aside), losses=losses)


def _new_folder(parent: Path, name: str) -> Path:
    """A folder that nothing lies in: what an earlier acceptance moved there stays."""
    make_private_folder(parent)
    for number in itertools.count(1):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            break
    sync_folder(parent)
    return folder


def _move_aside(paths: Sequence[Path], aside: Path) -> None:
    """Move what is there of these files, whose folders last."""
    there = [path for path in paths if path.exists()]
    if not there:
        return
    make_private_folder(aside)
    for path in there:
        path.rename(aside / path.name)
    for folder in {aside, *(path.parent for path in there)}:
        sync_folder(folder)
