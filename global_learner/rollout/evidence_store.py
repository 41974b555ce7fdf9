"""Evidence and verdicts of rollouts: a cluster's call is checked whole, then kept in tables of the registry's database.

Numbers out of range, blocks out of order, or a version that the coin did not choose refuse the whole call. What passes
may still be a lie: a verdict holds whichever cluster is left out. The first report of a block stands: later ones change
nothing. Blocks for which there was no time yet by the learner's clock are not taken. Methods of the store block; the
learner calls them on the registry's thread.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sqlalchemy import String, cast, func, or_, select

from global_learner.errors import EvidenceRefusal, EvidenceRefused
from global_learner.registry.registry import Registry
from global_learner.registry.tables import (
    ClusterRow,
    RolloutBlockRow,
    RolloutEventRow,
    RolloutRow,
    RolloutShadowRow,
    RolloutVerdictRow,
)
from global_learner.rollout.state import RolloutState
from global_learner.rollout.verdicts.evidence import Shadowed, SwitchbackBlock, TwinSays
from global_learner.rollout.verdicts.verdict import Verdict
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment, candidate_acts

MOST_BLOCKS_A_CALL = 64
MOST_BLOCKS = 4096
"""Of one cluster in a rollout; at two hours each eleven months."""
_MOST_JOBS = 1e7
_LONGEST_SECONDS = 1e12
_MOST_DECISIONS = 10**12
_LARGEST_GAIN = 100.0
"""Of a log; nothing is e^100 times faster."""


def checked_blocks(messages: Sequence[fleet_pb2.SwitchbackBlock]) -> tuple[SwitchbackBlock, ...]:
    """The blocks of a call.

    Raises:
        EvidenceRefused: too many, out of order, or out of range.
    """
    if len(messages) > MOST_BLOCKS_A_CALL:
        raise EvidenceRefused(
            EvidenceRefusal.TOO_MANY, f"{len(messages)} blocks; at most {MOST_BLOCKS_A_CALL} are taken in a call"
        )
    before = -1
    blocks = []
    for message in messages:
        if not before < message.number < MOST_BLOCKS:
            raise EvidenceRefused(
                EvidenceRefusal.OUT_OF_ORDER,
                f"block {message.number} behind {before}: numbers rise, and stay below {MOST_BLOCKS}",
            )
        before = message.number
        blocks.append(_block(message))
    return tuple(blocks)


def check_assigned(blocks: Sequence[SwitchbackBlock], cluster: str, rollout_assignment: RolloutAssignment) -> None:
    """Check that a cluster was asked for these blocks.

    Raises:
        EvidenceRefused: it only shadows, or the version that acted in one is not its coin's.
    """
    if blocks and rollout_assignment.role is not AssignmentRole.ALTERNATING:
        raise EvidenceRefused(EvidenceRefusal.NOT_ASKED, f"cluster {cluster} only shadows, and sends blocks")
    for block in blocks:
        if block.candidate is not candidate_acts(rollout_assignment.seed, cluster, block.number):
            acted = "the candidate" if block.candidate else "the incumbent"
            raise EvidenceRefused(
                EvidenceRefusal.WRONG_COIN, f"block {block.number}: {acted} acted in it, and its coin says the other"
            )


def checked_shadow(message: fleet_pb2.ShadowSums) -> Shadowed:
    """The sums of a cluster that shadows.

    Raises:
        EvidenceRefused: out of range, or contradictory.
    """
    counts = {
        name: getattr(message, name)
        for name in ("agreed", "failed", "incumbent_interventions", "candidate_interventions")
    }
    if message.decisions > _MOST_DECISIONS:
        raise _out_of_range("shadow.decisions", message.decisions)
    for name, count in counts.items():
        if count > message.decisions:
            raise _out_of_range(f"shadow.{name}", count)
    if counts["agreed"] + counts["failed"] > message.decisions:
        raise _out_of_range("shadow.agreed and shadow.failed together", counts["agreed"] + counts["failed"])
    for name in ("incumbent_latency_p99_seconds", "candidate_latency_p99_seconds"):
        _within(f"shadow.{name}", getattr(message, name), 0.0, _LONGEST_SECONDS)
    _within("shadow.believed_gain", message.believed_gain, -_LARGEST_GAIN, _LARGEST_GAIN)
    return Shadowed(
        message.decisions,
        **counts,
        incumbent_latency_p99_seconds=message.incumbent_latency_p99_seconds,
        candidate_latency_p99_seconds=message.candidate_latency_p99_seconds,
        believed_gain=message.believed_gain,
    )


def block_json(block: SwitchbackBlock) -> dict[str, Any]:
    """A block as it is stored."""
    return asdict(block)


def block_of(content: Mapping[str, Any]) -> SwitchbackBlock:
    """The inverse."""
    twin = content["twin"]
    return SwitchbackBlock(**{**content, "twin": None if twin is None else TwinSays(**twin)})


def _block(message: fleet_pb2.SwitchbackBlock) -> SwitchbackBlock:
    where = f"block {message.number}"
    for name in ("jobs", "jobs_at_start", "arrivals"):
        _within(f"{where}: {name}", getattr(message, name), 0.0, _MOST_JOBS)
    _within(f"{where}: usual_jobs", message.usual_jobs, 1e-6, _MOST_JOBS)
    _within(f"{where}: guard_share", message.guard_share, 0.0, 1.0)
    _within(f"{where}: starved_jobs", message.starved_jobs, 0, _MOST_JOBS)
    _within(f"{where}: latency_p99_seconds", message.latency_p99_seconds, 0.0, _LONGEST_SECONDS)
    _within(f"{where}: decisions", message.decisions, 0, _MOST_DECISIONS)
    _within(f"{where}: begin_seconds", message.begin_seconds, -_LONGEST_SECONDS, _LONGEST_SECONDS)
    _within(f"{where}: end_seconds", message.end_seconds, message.begin_seconds, _LONGEST_SECONDS)
    twin = None
    if message.has_twin:
        for name in ("twin_priced", "twin_incumbent", "twin_candidate"):
            _within(f"{where}: {name}", getattr(message, name), 0.0, _MOST_JOBS)
        twin = TwinSays(message.twin_priced, message.twin_incumbent, message.twin_candidate)
    reported = {item.name: getattr(message, item.name) for item in fields(SwitchbackBlock) if item.name != "twin"}
    return SwitchbackBlock(**reported, twin=twin)


def _within(what: str, value: float, least: float, most: float) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        raise _out_of_range(what, value)


def _out_of_range(what: str, value: float) -> EvidenceRefused:
    return EvidenceRefused(EvidenceRefusal.OUT_OF_RANGE, f"{what} is {value:g}, which cannot have been")


MOST_VERDICTS = 500
MOST_EVENTS = 200
"""Shown; all are kept."""
_QUIET = ("seen", "away")
"""Events that are shown only if something came of them: there are many."""
BLOCKS_AHEAD = 2
"""Blocks that a cluster may bring beyond those for which there was time: a pair, as its clock may be fast."""


@dataclass(frozen=True, slots=True)
class Brought:
    """Evidence of a rollout, by cluster."""

    blocks: Mapping[str, Sequence[SwitchbackBlock]] = field(default_factory=dict)
    shadowed: Mapping[str, Shadowed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """A cluster's blocks after a call.

    Attributes:
        next_block: number of the next one to send.
        waiting: blocks of this call for which there was no time yet.
    """

    next_block: int
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class KeptVerdict:
    """A verdict as it is stored; unknown bounds are None.

    Attributes:
        loss_at_least, loss_at_most: whichever cluster is left out; older verdicts were stored without them.
        rests_on: the cluster without which it would be known otherwise on which side of nought the loss lies; or empty.
    """

    unix_seconds: float
    stage: int
    outcome: str
    loss: float
    loss_lower: float | None
    loss_upper: float | None
    pairs: int
    held: tuple[str, ...]
    reasons: tuple[str, ...]
    loss_at_least: float | None = None
    loss_at_most: float | None = None
    rests_on: str = ""

    @classmethod
    def of(cls, verdict: Verdict, stage: int, pairs: int, now: float) -> KeptVerdict:
        """A stage's verdict, from `pairs` pairs of blocks, at `now` in Unix seconds."""
        return cls(
            now,
            stage,
            verdict.outcome.value,
            verdict.loss.estimate,
            _known(verdict.loss.lower),
            _known(verdict.loss.upper),
            pairs,
            verdict.held,
            tuple(reason[:500] for reason in verdict.reasons[:20]),
            _known(verdict.decides.lower),
            _known(verdict.decides.upper),
            verdict.rests_on,
        )


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event for people: what happened, to whom, its audit lines, and the actor's reason."""

    number: int
    unix_seconds: float
    actor: str
    what: str
    subject: str
    came_of_it: tuple[str, ...]
    why: str = ""


class EvidenceStore:
    """Evidence and verdicts of all rollouts."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def add(
        self,
        rollout: int,
        cluster: str,
        blocks: Sequence[SwitchbackBlock],
        shadowed: Shadowed | None,
        now: float,
        real_time_factor: float = 1.0,
    ) -> StoredEvidence | None:
        """Keep a cluster's evidence; None, and nothing is kept, if the rollout is over or asks nothing of the cluster.

        Args:
            now: Unix seconds.
            real_time_factor: most seconds of a cluster's own time that pass in one of the learner's.
        """
        with self._registry.transaction() as session:
            row = session.get(RolloutRow, rollout) if rollout < 2**31 else None
            own = session.get(ClusterRow, cluster)
            rollout_assignment = {} if own is None or own.rollout_assignment is None else own.rollout_assignment
            if row is None or row.over or rollout_assignment.get("rollout") != rollout:
                return None
            ours = (RolloutBlockRow.rollout == rollout, RolloutBlockRow.cluster == cluster)
            newest = session.scalars(select(func.max(RolloutBlockRow.number)).where(*ours)).one()
            last = -1 if newest is None else newest
            new = [block for block in blocks if block.number > last]
            taken = new
            if new:
                state = RolloutState.model_validate_json(row.state)
                now = max(now, state.latest_unix_seconds)
                since = _since(state, cluster)
                count = select(func.count()).where(*ours, RolloutBlockRow.unix_seconds >= since)
                there_was_time_for = math.floor(
                    (now - since) * real_time_factor / float(rollout_assignment["block_seconds"])
                )
                taken = new[: max(there_was_time_for + BLOCKS_AHEAD - session.scalars(count).one(), 0)]
            for block in taken:
                session.add(
                    RolloutBlockRow(
                        rollout=rollout,
                        cluster=cluster,
                        number=block.number,
                        unix_seconds=now,
                        block=block_json(block),
                    )
                )
                last = block.number
            if shadowed is not None:
                known = session.get(RolloutShadowRow, (rollout, cluster))
                if known is None:
                    session.add(RolloutShadowRow(rollout=rollout, cluster=cluster, sums=asdict(shadowed)))
                elif shadowed.decisions >= known.sums["decisions"]:  # an agent that lost its state begins at 0 again
                    known.sums = asdict(shadowed)
            return StoredEvidence(last + 1, len(new) - len(taken))

    def brought(self, rollout: int) -> Brought:
        """All evidence of a rollout."""
        blocks: dict[str, list[SwitchbackBlock]] = {}
        with self._registry.session() as session:
            of_all = select(RolloutBlockRow).where(RolloutBlockRow.rollout == rollout)
            for row in session.scalars(of_all.order_by(RolloutBlockRow.cluster, RolloutBlockRow.number)):
                blocks.setdefault(row.cluster, []).append(block_of(row.block))
            shadows = session.scalars(select(RolloutShadowRow).where(RolloutShadowRow.rollout == rollout))
            return Brought(blocks, {row.cluster: Shadowed(**row.sums) for row in shadows})

    def block_counts(self, rollout: int) -> dict[str, int]:
        """Number of blocks, by cluster."""
        counts = select(RolloutBlockRow.cluster, func.count()).where(RolloutBlockRow.rollout == rollout)
        with self._registry.session() as session:
            return {row[0]: row[1] for row in session.execute(counts.group_by(RolloutBlockRow.cluster))}

    def shadowed(self, rollout: int) -> dict[str, Shadowed]:
        """Sums of the shadow stage, by cluster."""
        shadows = select(RolloutShadowRow).where(RolloutShadowRow.rollout == rollout)
        with self._registry.session() as session:
            return {row.cluster: Shadowed(**row.sums) for row in session.scalars(shadows)}

    def keep(self, rollout: int, verdict: KeptVerdict) -> None:
        """Add a verdict."""
        of_all = select(func.max(RolloutVerdictRow.number)).where(RolloutVerdictRow.rollout == rollout)
        with self._registry.transaction() as session:
            number = (session.scalars(of_all).one() or 0) + 1
            session.add(RolloutVerdictRow(rollout=rollout, number=number, verdict=asdict(verdict)))

    def verdicts(self, rollout: int) -> list[KeptVerdict]:
        """The newest verdicts of a rollout, oldest first."""
        newest = select(RolloutVerdictRow).where(RolloutVerdictRow.rollout == rollout)
        with self._registry.session() as session:
            rows = session.scalars(newest.order_by(RolloutVerdictRow.number.desc()).limit(MOST_VERDICTS)).all()
            return [_kept_verdict(row.verdict) for row in reversed(rows)]

    def events(self, rollout: int, *, quiet: bool = False) -> list[KeptEvent]:
        """The newest events of a rollout, oldest first; `quiet` ones too, of which nothing came, if asked for."""
        newest = select(RolloutEventRow).where(RolloutEventRow.rollout == rollout)
        for kind in () if quiet else _QUIET:  # as pydantic writes it; quotes of an operator's words are escaped
            loud = RolloutEventRow.event.not_like(f'%"kind":"{kind}"%')
            newest = newest.where(or_(loud, cast(RolloutEventRow.came_of_it, String) != "[]"))
        with self._registry.session() as session:
            rows = session.scalars(newest.order_by(RolloutEventRow.number.desc()).limit(MOST_EVENTS)).all()
            return [_kept_event(row) for row in reversed(rows)]


def _since(state: RolloutState, cluster: str) -> float:
    """When a cluster began to alternate; the rollout's begin where that was not kept."""
    member = state.member(cluster)
    known = None if member is None else member.since_unix_seconds
    return state.started_unix_seconds if known is None else known


def _known(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def _kept_verdict(content: Mapping[str, Any]) -> KeptVerdict:
    return KeptVerdict(**{**content, "held": tuple(content["held"]), "reasons": tuple(content["reasons"])})


def _kept_event(row: RolloutEventRow) -> KeptEvent:
    what: Mapping[str, Any] = json.loads(row.event)["what"] if row.event else {"kind": "start"}
    subject = what.get("cluster") or (f"v{what['version']}" if "version" in what else what.get("outcome", ""))
    came_of_it, why = tuple(row.came_of_it), str(what.get("why", ""))
    return KeptEvent(row.number, row.unix_seconds, row.actor, what["kind"], str(subject), came_of_it, why)
