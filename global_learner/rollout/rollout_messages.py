"""Rollouts for people, as messages of fleet.proto: state and evidence, bounded whatever their size.

`policyctl` shows all of one rollout; the report the newest ones, thinned: verdicts that changed something and a share
of the others, and of the audit lines of single clusters only those of held ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from global_learner.rollout.evidence_store import EvidenceStore, KeptEvent, KeptVerdict
from global_learner.rollout.queries import ShownQuery
from global_learner.rollout.rollout_store import RolloutRecord, RolloutStore, Taken
from global_learner.rollout.state import RolloutMember
from global_learner.rollout.verdicts.evidence import Shadowed
from global_learner.rollout.verdicts.gate import FrozenSketch, Replayed, replayed_on
from policy_net.exchange.generated import fleet_pb2

MOST_ROLLOUTS = 4
"""In a report; `policyctl rollout history` has all."""
MOST_VERDICTS = 160
"""Of each of them: more points than a chart can show apart."""
_OF_CLUSTERS, _HELD = "rollout-assigned ", "(held)"


@dataclass(frozen=True, slots=True)
class Overview:
    """A rollout and its evidence: blocks by cluster; verdicts and events, oldest first."""

    record: RolloutRecord
    blocks: Mapping[str, int]
    shadowed: Mapping[str, Shadowed]
    verdicts: Sequence[KeptVerdict]
    events: Sequence[KeptEvent]
    sketches: Sequence[FrozenSketch] = ()
    queries: Sequence[ShownQuery] = ()


def overview(
    record: RolloutRecord,
    evidence: EvidenceStore,
    sketches: Sequence[FrozenSketch] = (),
    queries: Sequence[ShownQuery] = (),
) -> Overview:
    """Overview of one rollout; the report has neither the gate's sketches nor the present stage's queries."""
    number = record.state.number
    return Overview(
        record,
        evidence.block_counts(number),
        evidence.shadowed(number),
        evidence.verdicts(number),
        evidence.events(number),
        sketches,
        queries,
    )


def latest_overviews(rollouts: RolloutStore, evidence: EvidenceStore) -> list[Overview]:
    """The newest rollouts for a report, newest first."""
    return [thinned(overview(record, evidence)) for record in rollouts.newest(MOST_ROLLOUTS)]


def thinned(shown: Overview) -> Overview:
    """The overview, thinned for the report."""
    return replace(shown, verdicts=thinned_verdicts(shown.verdicts), events=[_alone(each) for each in shown.events])


def thinned_verdicts(verdicts: Sequence[KeptVerdict], most: int = MOST_VERDICTS) -> list[KeptVerdict]:
    """At most `most` verdicts: first those where the outcome changes, then an even share of the others."""
    if len(verdicts) <= most:
        return list(verdicts)
    outcomes = [(verdict.stage, verdict.outcome) for verdict in verdicts]
    last = len(verdicts) - 1
    edges = {
        place
        for place in range(len(verdicts))
        if place in (0, last) or outcomes[place] != outcomes[place - 1] or outcomes[place] != outcomes[place + 1]
    }
    edges = set(sorted(edges)[-most:])
    left = most - len(edges)
    others = [place for place in range(len(verdicts)) if place not in edges]
    edges |= {others[number * len(others) // left] for number in range(left)} if left else set()
    return [verdicts[place] for place in sorted(edges)]


def _alone(event: KeptEvent) -> KeptEvent:
    lines = tuple(line for line in event.came_of_it if not line.startswith(_OF_CLUSTERS) or line.endswith(_HELD))
    return replace(event, came_of_it=lines)


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
    incumbents = state.incumbents
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
