"""Rollouts as messages of fleet.proto."""

from __future__ import annotations

import dataclasses
import math

from global_learner.rollout.evidence_store import KeptVerdict
from global_learner.rollout.overview import Overview
from global_learner.rollout.queries import ShownQuery
from global_learner.rollout.replays import FrozenSketch, incumbents_of, replayed_on
from global_learner.rollout.rollout_store import RolloutRecord, Taken
from global_learner.rollout.state import RolloutMember
from global_learner.rollout.verdicts.gate import Replayed
from policy_net.exchange.generated import fleet_pb2

AUTO_ASSIGN_NOTE = (
    "publish.auto_assign is on: it passes over the rollout's clusters until the rollout ends; the next version then "
    "acts in all of them at once, unjudged; set it to false"
)


def record_message(record: RolloutRecord) -> fleet_pb2.Rollout:
    """A rollout without its clusters."""
    state = record.state
    return fleet_pb2.Rollout(
        number=state.number,
        candidate_version=state.candidate,
        phase=state.phase.value,
        stage=state.stage,
        stages=[stage.kind for stage in state.plan.stages],
        reason=state.reason,
        started_unix_seconds=state.started_unix_seconds,
        stage_unix_seconds=state.stage_unix_seconds,
        latest_unix_seconds=state.latest_unix_seconds,
        actor=record.actor,
        why=record.why,
        plan_json=state.plan.model_dump_json(),
        event_number=state.events,
    )


def taken_message(taken: Taken) -> fleet_pb2.Rollout:
    """A rollout with its clusters, after an operator's order."""
    if taken.record is None:
        return fleet_pb2.Rollout()
    message = record_message(taken.record)
    message.members.extend(_member(member) for member in taken.record.state.members)
    return message


def change_lines(taken: Taken) -> list[str]:
    """What came of it, or would, a line each."""
    return [line.words for line in taken.lines]


def overview_message(shown: Overview) -> fleet_pb2.Rollout:
    """A rollout with everything that people are shown of it."""
    message = record_message(shown.record)
    for member in shown.record.state.members:
        row = _member(member)
        row.blocks = shown.blocks.get(member.cluster, 0)
        shadowed = shown.shadowed.get(member.cluster)
        if shadowed is not None:
            row.shadow_decisions, row.shadow_agreed = shadowed.decisions, shadowed.agreed
        message.members.append(row)
    state = shown.record.state
    incumbents = incumbents_of(state)
    message.sketches.extend(
        _sketch(sketch, replayed_on(sketch, state.candidate, incumbents)) for sketch in shown.sketches
    )
    message.queries.extend(_query(query) for query in shown.queries)
    message.verdicts.extend(_verdict(verdict) for verdict in shown.verdicts)
    message.events.extend(fleet_pb2.RolloutEvent(**dataclasses.asdict(event)) for event in shown.events)
    return message


def _member(member: RolloutMember) -> fleet_pb2.RolloutMember:
    return fleet_pb2.RolloutMember(
        cluster=member.cluster,
        incumbent_version=member.incumbent,
        role=member.role.value,
        acting_version=member.acting or 0,
        away=member.away,
        since_stage=member.since_stage,
    )


def _sketch(sketch: FrozenSketch, found: Replayed | str | None) -> fleet_pb2.RolloutSketch:
    message = fleet_pb2.RolloutSketch(cluster=sketch.cluster, state="waiting")
    if isinstance(found, str):
        message.state, message.reason = "dropped", found
    elif found is not None:
        message.state, message.candidate_jct_seconds = "replayed", found.candidate
        message.incumbent_jct_seconds = found.incumbent if math.isfinite(found.incumbent) else 0.0
        message.heuristic_jct_seconds = found.heuristic if math.isfinite(found.heuristic) else 0.0
    return message


def _query(query: ShownQuery) -> fleet_pb2.RolloutQuery:
    message = fleet_pb2.RolloutQuery(name=query.name, state=query.state, said=query.said)
    if query.standing is not None:
        message.asked_unix_seconds = query.standing.asked_unix_seconds
        message.answered_unix_seconds = query.standing.answered_unix_seconds or 0.0
        message.since_unix_seconds = query.standing.run_unix_seconds
        message.fault = query.standing.fault
        if query.standing.value is not None:
            message.value = query.standing.value
        if query.standing.incumbent is not None:
            message.incumbent_value = query.standing.incumbent
    return message


def _verdict(verdict: KeptVerdict) -> fleet_pb2.RolloutVerdict:
    content = dataclasses.asdict(verdict)
    content["loss_lower"] = -math.inf if verdict.loss_lower is None else verdict.loss_lower
    content["loss_upper"] = math.inf if verdict.loss_upper is None else verdict.loss_upper
    return fleet_pb2.RolloutVerdict(**content)
