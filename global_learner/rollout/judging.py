"""Judging of a rollout's present stage: which test applies, on which clusters, and the event that follows. No I/O."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from global_learner.rollout.evidence_store import Brought
from global_learner.rollout.plan import GateStage, ShadowStage, VerdictSettings
from global_learner.rollout.queries import QueryStanding, with_queries
from global_learner.rollout.state import RolloutPhase, RolloutState, StageVerdict, VersionRole
from global_learner.rollout.verdicts.evidence import Shadowed, SwitchbackBlock, pairs_of
from global_learner.rollout.verdicts.gate import GateReplayed, judge_gate
from global_learner.rollout.verdicts.verdict import ClusterEvidence, Rule, StageOutcome, Verdict, evidence_of, judge

_HOUR_SECONDS, _DAY_SECONDS = 3600.0, 86_400.0
_LEAST_SHADOWS = 2
"""Clusters with enough decisions, before the shadow stage passes by itself."""


class Judge:
    """Judges rollouts; keeps a cluster's sums until it brings more blocks, so that frequent polls cost little."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int, Rule], ClusterEvidence]] = {}

    def judge(
        self,
        state: RolloutState,
        brought: Brought,
        replays: GateReplayed | str | None,
        standings: Mapping[str, QueryStanding],
        now: float,
    ) -> Verdict:
        """The verdict on what is known now.

        Args:
            replays: of the gate; None: they are still being computed; a text: why there are none.
            standings: of the plan's queries in this stage, by name; without one, there was no answer yet.
            now: Unix seconds.
        """
        verdict, stage = self._judge(state, brought, replays, now), state.current_stage
        if isinstance(stage, GateStage):
            return verdict
        lasts = stage.hours * _HOUR_SECONDS if isinstance(stage, ShadowStage) else stage.days * _DAY_SECONDS
        queries = [query for query in state.plan.queries if query.is_of(stage.kind)]
        began = state.stage_unix_seconds
        over = max(now, state.latest_unix_seconds) - began - lasts
        return with_queries(verdict, queries, standings, now, stage_unix_seconds=began, over_seconds=over)

    def _judge(self, state: RolloutState, brought: Brought, replays: GateReplayed | str | None, now: float) -> Verdict:
        stage, settings = state.current_stage, state.plan.verdict
        lasted = max(now, state.latest_unix_seconds) - state.stage_unix_seconds
        if isinstance(stage, GateStage):
            if replays is None:
                return Verdict(StageOutcome.WAIT, reasons=("replays are being computed",))
            if isinstance(replays, str):
                return Verdict(StageOutcome.INCONCLUSIVE, reasons=(replays,))
            return judge_gate(replays.fixed, replays.own, settings.rule.margin)
        there = [
            member.cluster
            for member in state.members
            if member.role in (VersionRole.SHADOW, VersionRole.ALTERNATING)
            and not member.away
            and member.incumbent != state.candidate
        ]
        if isinstance(stage, ShadowStage):
            over = lasted >= stage.hours * _HOUR_SECONDS
            return judge_shadow(brought.shadowed, there, settings, time_over=over)
        counted = {member.cluster for member in state.members if member.role is not VersionRole.PINNED}
        evidence = {
            cluster: self._evidence(state.number, cluster, blocks, settings.rule)
            for cluster, blocks in brought.blocks.items()
            if cluster in counted
        }
        over = lasted >= stage.days * _DAY_SECONDS
        return judge(evidence, there, settings.rule, time_over=over)

    def _evidence(self, rollout: int, cluster: str, blocks: Sequence[SwitchbackBlock], rule: Rule) -> ClusterEvidence:
        key = (rollout, len(blocks), rule)
        known = self._known.get(cluster)
        if known is None or known[0] != key:
            known = (key, evidence_of(pairs_of(blocks), rule))
            self._known[cluster] = known
        return known[1]


def judge_shadow(
    shadowed: Mapping[str, Shadowed], of_stage: Collection[str], settings: VerdictSettings, *, time_over: bool
) -> Verdict:
    """The verdict on the shadow stage so far; it passes when the stage's hours are over, and may fail before.

    Nothing is carried out there, so nothing can be said of completion times. A candidate fails that gives no decision
    in time, or that the guard would change more often than the incumbent, in two clusters; a single one is held.

    Args:
        shadowed: of every cluster that sent something.
        of_stage: clusters that shadow now, and are there.
    """
    faults = {cluster: found for cluster, own in sorted(shadowed.items()) if (found := _shadow_faults(own, settings))}
    reasons = tuple(f"{cluster}: {', '.join(found)}" for cluster, found in faults.items())
    if len(faults) >= _LEAST_SHADOWS:
        return Verdict(StageOutcome.FAIL, reasons=reasons)
    faulty = tuple(faults)
    enough = [
        cluster
        for cluster in of_stage
        if cluster not in faulty and cluster in shadowed and shadowed[cluster].decisions >= settings.shadow_decisions
    ]
    if not time_over:
        return Verdict(StageOutcome.WAIT, held=faulty, reasons=reasons)
    if len(enough) < _LEAST_SHADOWS:
        few = f"{len(enough)} clusters computed {settings.shadow_decisions} decisions twice; it takes {_LEAST_SHADOWS}"
        return Verdict(StageOutcome.INCONCLUSIVE, held=faulty, reasons=(*reasons, few))
    decisions = sum(shadowed[cluster].decisions for cluster in enough)
    agreed = sum(shadowed[cluster].agreed for cluster in enough) / decisions
    gain = sum(shadowed[cluster].believed_gain * shadowed[cluster].decisions for cluster in enough) / decisions
    passed = (
        f"{len(enough)} clusters, {decisions} decisions made twice: in {agreed:.1%} of them every job got the same; "
        f"believed progress of all jobs {math.expm1(gain):+.1%}, + is faster"
    )
    return Verdict(StageOutcome.PASS, held=faulty, reasons=(*reasons, passed))


def _shadow_faults(shadowed: Shadowed, settings: VerdictSettings) -> list[str]:
    """Faults of the candidate in a cluster that shadows, for people."""
    if shadowed.decisions < settings.shadow_decisions:
        return []
    found = []
    failed = shadowed.failed / shadowed.decisions
    if failed > settings.shadow_failed_percent / 100.0:
        found.append(f"no decision in time in {failed:.1%}")
    more = (shadowed.candidate_interventions - shadowed.incumbent_interventions) / shadowed.decisions
    if more > settings.shadow_guard_percent / 100.0:
        found.append(f"the guard would step in in {more:.1%} more")
    return found


def reported(state: RolloutState, verdict: Verdict, now: float) -> StageVerdict | None:
    """Event that a verdict makes; None where it would change nothing."""
    taking_part = {member.cluster for member in state.members if member.role.takes_part}
    worse_off = tuple(cluster for cluster in verdict.held if cluster in taking_part)
    match verdict.outcome:
        case StageOutcome.FAIL:
            matters = state.phase in (RolloutPhase.RUNNING, RolloutPhase.ASKING, RolloutPhase.PAUSED)
        case StageOutcome.PASS:
            going = state.phase in (RolloutPhase.RUNNING, RolloutPhase.ASKING)
            matters = going and state.plan.freeze_end(max(now, state.latest_unix_seconds)) is None
        case StageOutcome.INCONCLUSIVE:
            matters = state.phase is RolloutPhase.RUNNING
        case StageOutcome.WAIT:
            matters = False
    if not matters and not (
        worse_off and state.phase in (RolloutPhase.RUNNING, RolloutPhase.ASKING, RolloutPhase.PAUSED)
    ):
        return None
    return StageVerdict(
        stage=state.stage, outcome=verdict.outcome, held=worse_off, reason="; ".join(verdict.reasons)[:2000]
    )


def pairs_in(brought: Brought) -> int:
    """Pairs of blocks in all."""
    return sum(len(pairs_of(blocks)) for blocks in brought.blocks.values())
