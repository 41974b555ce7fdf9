"""Evidence as clusters send it: a call is checked whole before anything of it is kept.

Numbers out of range, blocks out of order, or a version that the coin did not choose refuse the whole call. What passes
may still be a lie: a verdict holds whichever cluster is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from global_learner.errors import EvidenceRefusal, EvidenceRefused
from global_learner.rollout.shadow import Shadowed
from global_learner.rollout.verdicts.evidence import SwitchbackBlock, TwinSays
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


def check_asked(blocks: Sequence[SwitchbackBlock], cluster: str, rollout_assignment: RolloutAssignment) -> None:
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
