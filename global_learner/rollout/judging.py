"""Judging of a rollout's present stage: which test applies, on which clusters, and the event that follows. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from global_learner.rollout.events import StageVerdict
from global_learner.rollout.evidence_store import Brought
from global_learner.rollout.plan import GateStage, ShadowStage
from global_learner.rollout.queries import QueryStanding, with_queries
from global_learner.rollout.replays import GateReplayed
from global_learner.rollout.shadow import judge_shadow
from global_learner.rollout.state import RolloutPhase, RolloutState, VersionRole
from global_learner.rollout.verdicts.evidence import SwitchbackBlock, pairs_of
from global_learner.rollout.verdicts.gate import judge_gate
from global_learner.rollout.verdicts.verdict import ClusterEvidence, Rule, StageOutcome, Verdict, evidence_of, judge

_HOUR_SECONDS, _DAY_SECONDS = 3600.0, 86_400.0


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
