"""Operator's commands on versions and the head: publish, restore, reset; what is assigned, `RolloutDriver` looks after.

Each is durable, and in the audit log, before it is answered. What changes the registry runs on its one thread, in the
order in which it was asked. The head is reset on the event loop, between two updates, as a record of the log.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import structlog

from global_learner.aggregation.region import RegionAggregator
from global_learner.errors import BadRequest, ChangedSince, LogBroken, UnknownCluster
from global_learner.maintenance import Maintenance
from global_learner.registry.cards import VersionCard
from global_learner.registry.signing import Signing
from global_learner.rollout.state import check_reason
from global_learner.settings import PublishSettings
from global_learner.storage.audit import KEEPER, Order
from global_learner.storage.snapshot import AdamState, AggregatorState, Snapshot, parse_snapshot, snapshot_parts
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from global_learner.updates.parts import DurableStores, Learned, Process
from global_learner.updates.rounds import Rounds
from policy_net.errors import PolicyFileError
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.policy_file import LESSONS, TAUGHT, digest_of, parse_policy_file
from policy_net.exchange.signed_documents import KeyRole, SignedDocument
from policy_net.exchange.wire import GradientUpdate

_log = structlog.get_logger()


class Operator:
    """Carries out an operator's commands on one event loop; `rounds` begin anew when the head is another one.

    Raises of all methods:
        UnknownPolicyVersion: there is no version of this number, or its file is no longer kept.
        BadRequest: the note cannot be used.
        LearnerError: it cannot be written, as the disk is full (NotNow) or broken (LogBroken: the learner ends).
    """

    def __init__(
        self,
        settings: PublishSettings,
        learned: Learned,
        stores: DurableStores,
        maintenance: Maintenance,
        process: Process,
        rounds: Rounds | None,
    ) -> None:
        self._spec = learned.spec
        self._head = learned.head
        self._fleet = learned.fleet
        self._quarantine = learned.quarantine
        self._log = stores.log
        self._registry = stores.registry
        self._maintenance = maintenance
        self._telemetry = process.telemetry
        self._wall_clock = process.wall_clock
        self._failed = process.failed
        self._rounds = rounds
        self._telemetry.auto_assign.set(settings.auto_assign)

    async def publish(self, data: bytes, note: str, order: Order) -> VersionCard:
        """Make a policy that was trained elsewhere the next version; the head does not go on from it.

        It takes a step of the head, which names it, and the fleet's own beliefs of speeds, as every version. Nothing
        acts on it by that, unless every new version does (`publish.auto_assign`).

        Raises:
            BadRequest: no policy file, or one of another spec.
        """
        check_reason(note, "note")
        head = self._head
        if isinstance(head.aggregator, RegionAggregator):
            raise BadRequest("a region's versions come from the learner above: publish it there")
        try:
            policy = await asyncio.to_thread(parse_policy_file, data, "the policy file")
        except PolicyFileError as error:
            raise BadRequest(str(error)) from error
        if policy.spec.digest != self._spec.digest:
            raise BadRequest(
                f"the policy file is of spec {policy.spec.digest[:12]}, the fleet's is {self._spec.digest[:12]}: "
                "agents cannot run it"
            )
        await self._maintenance.wait_for_space()
        applied = self._record(UpdateKind.PUBLISHED, order.actor, 0, head.step)
        entered = self._maintenance.commit_published(applied, policy, note.strip(), order.actor)
        self._restart_rounds()
        await self._followed(entered)
        if not entered.done():
            raise LogBroken("the learner ends before the version is entered; start it, and look at `version list`")
        return entered.result()

    async def restore(self, version: int, data: bytes, order: Order) -> bool:
        """Put a version's file back; see `Registry.restore`, of which it has the errors."""
        registry = self._registry.registry
        restored = await self._registry.call(registry.restore, version, data, order)
        if restored:
            await self._registry.call(registry.sign_versions)  # it may be due since, as keys were rotated meanwhile
            _log.info("version-restored", version=version, actor=order.actor)
        return restored

    @property
    def damaged_files(self) -> list[tuple[int, bool]]:
        """Versions of which a file was found damaged or gone, and whether it is the head's, with the moments."""
        return sorted(self._registry.registry.damaged)

    def lost_digest(self, *versions: int) -> str:
        """The digest of the first of these versions whose policy file was found damaged or gone; empty if none is."""
        damaged = self._registry.registry.damaged
        return next((damaged[version, False] for version in versions if (version, False) in damaged), "")

    async def take_back(self, data: bytes, cluster: str) -> bool:
        """Put a policy file back of which a cluster has a copy; False if no file of this digest is missed."""
        digest = await asyncio.to_thread(digest_of, data)
        missed = list(self._registry.registry.damaged.items())
        version = next((version for (version, is_head), lost in missed if lost == digest and not is_head), 0)
        order = Order(KEEPER, self._wall_clock(), f"the copy of cluster {cluster}")
        return version > 0 and await self.restore(version, data, order)

    async def release(self, cluster: str, order: Order) -> bool:
        """End a cluster's quarantine; False if it was in none.

        Raises:
            UnknownCluster: no such cluster is registered.
        """
        if self._fleet.get(cluster) is None:
            raise UnknownCluster(f"no cluster {cluster[:63]!r} is registered; `policyctl fleet` shows which are")
        released = self._quarantine.release(cluster)
        if released:
            await self.note(order.actor, "released", cluster, order.words("out of quarantine"))
        return released

    async def note(self, actor: str, action: str, subject: str, detail: str) -> None:
        """Write down an act that is kept elsewhere."""
        await self._registry.call(self._registry.registry.note, actor, action, subject, detail, self._wall_clock())

    async def note_refusal(self, cluster: str, version: int, reason: str) -> None:
        """Write down, once, that a cluster does not act on a version, and why."""
        await self._registry.call(self._registry.registry.note_refusal, cluster, version, reason, self._wall_clock())

    async def note_ahead(self, cluster: str, version: int, detail: str) -> None:
        """Write down that a cluster knows what this learner does not, and give no version a number that it knows.

        The `version` is the highest number that it knows, and 0 if that is none above the newest.
        """
        await self._registry.call(self._note_ahead, cluster, version, detail)

    def _note_ahead(self, cluster: str, version: int, detail: str) -> None:
        registry = self._registry.registry
        if version > registry.newest_ever:
            registry.pass_over(version)
        registry.note(KEEPER, "cluster-ahead", cluster, detail, self._wall_clock())

    @property
    def numbers_through(self) -> int:
        """Up to this number versions were given elsewhere that are not here; 0: none above the newest."""
        known = self._registry.registry.newest_ever
        return known if known > self._maintenance.newest_version else 0

    @property
    def signing(self) -> Signing | None:
        """What signs versions and assignments."""
        return self._registry.registry.signing

    async def rotate_key(self, role: str, root: SignedDocument | None, order: Order, seen_root: int = 0) -> bytes:
        """Put a new key in a role's place; what is still to be signed elsewhere, where the root's key is not here.

        Args:
            seen_root: the number of the newest root when the operator looked; 0: not compared.

        Raises:
            BadRequest: no such role, or a root that does not follow the present one.
            ChangedSince: another root is the newest by now.
        """
        if role not in list(KeyRole):
            raise BadRequest(f"there is no role {role[:20]!r}: it is root, version or timestamp")
        return await self._registry.call(self._rotate_key, KeyRole(role), root, order, seen_root)

    def _rotate_key(self, role: KeyRole, root: SignedDocument | None, order: Order, seen_root: int) -> bytes:
        signing, registry = self.signing, self._registry.registry
        if signing is None:
            raise BadRequest("this learner signs nothing")
        keys, actor = signing.keys, order.actor
        if seen_root and seen_root != keys.root.number:
            raise ChangedSince(
                f"root {keys.root.number} is the newest by now, not {seen_root} as when you looked, so no key was "
                "replaced: look at `policyctl key show`, and ask again"
            )
        if root is not None:
            signing.install(role, root)
        elif keys.root_key_present:
            signing.rotate(role)
        else:
            return keys.next_root(role)
        registry.note(
            actor,
            "key-rotated",
            role,
            f"root {keys.root.number}, key {keys.root.keys[role][0][:16]}",
            order.unix_seconds,
        )
        signed, unsound = registry.sign_versions()
        _log.info("key-rotated", role=role, actor=actor, root=keys.root.number, versions_signed=signed, unsound=unsound)
        return b""

    async def reset_head(self, version: int, order: Order, seen_step: int | None = None) -> fleet_pb2.ResetHeadReply:
        """Let the head go on from a version: its weights and moments, at the head's next step.

        Gradients computed at the head that is given up are refused from then on (`head-reset`). Asking again before
        anything was learned changes nothing.

        Args:
            order: its reason stands in the audit log as a line of its own.
            seen_step: the head's when the operator looked; None: not compared.

        Raises:
            StateUnusable: one of the version's files is damaged.
            BadRequest: it is of another spec.
            ChangedSince: the head was reset since the operator looked.
        """
        if isinstance(self._head.aggregator, RegionAggregator):
            raise BadRequest("a region's head is the one of the learner above: reset it there")
        card, target, moments_kept = await self._registry.call(self._target, version)
        self._check_seen(seen_step)
        if order.dry_run:
            step, there = self._head.step, self._is_at(card)
            return _reset(step, step + (not there), moments_kept)
        await self._maintenance.wait_for_space()
        head = self._head
        from_step = head.step
        self._check_seen(seen_step)
        # From here to the log nothing else happens: no update comes between the judgement and the reset.
        if self._is_at(card):
            await self._log.durable(from_step)
            return _reset(from_step, from_step, moments_kept)
        applied = self._record(UpdateKind.RESET, order.actor, version, card.head_step, target)
        noted = self._maintenance.commit_reset(applied)
        self._restart_rounds()
        await self._log.durable(applied.step)
        await self._followed(noted)
        if order.why:
            await self.note(order.actor, "head-reset-reason", f"v{version}", order.words(f"step {applied.step}"))
        self._telemetry.head_resets.inc()
        _log.info("head-reset", actor=order.actor, version=version, from_step=from_step, head_step=applied.step)
        return _reset(from_step, applied.step, moments_kept)

    def _record(self, kind: UpdateKind, actor: str, version: int, base_step: int, head: bytes = b"") -> AppliedUpdate:
        """The log's next record, of an operator's act; see `AppliedUpdate`."""
        nothing = np.empty(0, np.float32)
        update = GradientUpdate(actor, 0, version, base_step, self._spec.digest, nothing, 0, 0.0)
        return AppliedUpdate(self._head.step + 1, 0.0, 0, self._wall_clock(), update, kind, head)

    def _restart_rounds(self) -> None:
        if self._rounds is not None:
            self._rounds.restart()

    async def _followed(self, work: asyncio.Future[Any]) -> None:
        """Wait until work is done that follows from a record, or the learner ends."""
        await asyncio.wait((work, self._failed), return_when=asyncio.FIRST_COMPLETED)

    def _check_seen(self, seen_step: int | None) -> None:
        reset_step = self._head.ledger.reset_step
        if seen_step is not None and reset_step > seen_step:
            raise ChangedSince(
                f"the head was reset since you looked: at step {reset_step}, and you saw step {seen_step}; nothing was "
                "changed: look at `policyctl audit`, and ask again"
            )

    def _is_at(self, card: VersionCard) -> bool:
        """Whether the head is exactly that version's: nothing was learned since it was published or reset to."""
        ledger = self._head.ledger
        if ledger.reset_step == self._head.step and ledger.reset_version:
            return ledger.reset_version == card.version
        return self._head.step == card.head_step

    def _target(self, version: int) -> tuple[VersionCard, bytes, bool]:
        """A version's card, its head as snapshots have it, and whether the moments are its own; blocks.

        In place of a ledger the head has the lessons of the version's own card, which the log then keeps with it.
        """
        registry = self._registry.registry
        card, data = registry.policy_bytes(version)
        if card.spec_digest != self._spec.digest:
            raise BadRequest(
                f"v{version} is of spec {card.spec_digest[:12]}, the head of {self._spec.digest[:12]}; it cannot go on "
                "from there"
            )
        policy = parse_policy_file(data, f"v{version}")
        kept = registry.head_bytes(version)
        if kept is not None:
            found = parse_snapshot(kept, self._spec.digest, f"the head of v{version}")
            return card, _with_lessons(found, policy.card), True
        # The first version begins without moments anyway.
        state = AdamState.start(policy.weights)
        state = dataclasses.replace(state, average=state.weights)
        fresh = Snapshot(self._spec.digest, state, {}, {}, AggregatorState())
        return card, _with_lessons(fresh, policy.card), card.head_step == 0


def _reset(from_step: int, head_step: int, moments_kept: bool) -> fleet_pb2.ResetHeadReply:
    """What a reset did; the moments are those of the version, or else begin at zero."""
    changed = head_step != from_step
    return fleet_pb2.ResetHeadReply(
        from_step=from_step, head_step=head_step, moments_kept=moments_kept, changed=changed
    )


def _with_lessons(head: Snapshot, card: Mapping[str, Any]) -> bytes:
    """A version's head with the lessons that its card counts; none where that says nothing of them."""
    said = card.get(TAUGHT)
    counts = said.get(LESSONS) if isinstance(said, dict) else None
    lessons = {
        name: count for name, count in (counts.items() if isinstance(counts, dict) else ()) if isinstance(count, int)
    }
    return b"".join(snapshot_parts(dataclasses.replace(head, ledger={LESSONS: lessons})))
