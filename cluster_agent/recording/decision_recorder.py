"""The decision recorder, which keeps the decision log complete.

It captures what was believed before a decision, and what beliefs were shown since the last. Deciding changes beliefs
too (a fit that was due is made, a type is introduced), so that all is captured before the policy is asked, and written
after it has answered.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cluster_agent.acting.active_policy import Decider, DecisionTurn
from cluster_agent.guard import ChallengerDecision, GuardedDecision
from cluster_agent.recording.decision_log import Checkpoint, CheckpointReason, DecisionLog, DecisionRecord
from cluster_agent.settings import PolicySettings
from policy_net.domain import ClusterState, Progress, Trigger
from policy_net.policy import SchedulerPolicy
from policy_net.throughput.beliefs import beliefs_of


@dataclass(frozen=True, slots=True)
class _Before:
    """The state of beliefs before a decision; digests are by the words of `observed_by`."""

    turn: DecisionTurn
    checkpoint: Checkpoint
    reason: CheckpointReason | None
    digests: Mapping[str, str | None]
    blind: bool


class DecisionRecorder:
    """Writes one agent's log; used by the loop's thread alone."""

    def __init__(
        self,
        log: DecisionLog,
        fallback: SchedulerPolicy,
        settings: PolicySettings,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._policy_settings = settings
        self._wall_clock = wall_clock
        self._log = log
        self._fallback = fallback
        self._settings = settings.model_dump(mode="json", exclude={"initial", "acting"})
        self._program = importlib.metadata.version("fedl2")
        self._due: CheckpointReason | None = None
        self._blind = False
        self._digests_shown: Mapping[str, str] = {}
        self._observed: tuple[Progress, ...] = ()
        self._observed_by: tuple[str, ...] = ()
        self._challenger: Mapping[str, Any] | None = None
        self._before: _Before

    def begin(self, number: int, turn: DecisionTurn) -> None:
        """Capture how things stand before a decision, which the other methods are about."""
        held: dict[str, Decider] = {"policy": turn.acting}
        if turn.challenger is not None:
            held["beside"] = turn.challenger
        stand: dict[str, dict[str, Any]] = {}
        digests: dict[str, str | None] = {}
        for who, decider in held.items():
            busy = decider.busy
            beliefs = None if busy else beliefs_of(decider.candidate.policy)
            digest = digests[who] = None if beliefs is None else beliefs.digest()
            if digest is not None and self._digests_shown.get(who, digest) != digest:
                self._due = CheckpointReason.BELIEFS
            stand[who] = {
                "policy": asdict(decider.candidate.identity),
                "busy": busy,
                "beliefs": None if beliefs is None else beliefs.checkpoint(),
            }
        if turn.fresh:
            self._due = CheckpointReason.POLICY
        blind = any(each["busy"] for each in stand.values())
        if self._blind and not blind:
            self._due = CheckpointReason.GAP
        fallback_beliefs = beliefs_of(self._fallback)
        checkpoint = Checkpoint(
            number=number,
            wall_time_seconds=self._wall_clock(),
            **stand["policy"],
            settings=self._settings,
            fallback=self._fallback.name,
            fallback_beliefs=None if fallback_beliefs is None else fallback_beliefs.checkpoint(),
            program=self._program,
            challenger=stand.get("beside"),
        )
        self._before = _Before(turn, checkpoint, self._due, digests, blind)

    def write(
        self,
        state: ClusterState,
        trigger: Trigger,
        guarded: GuardedDecision,
        previous_reward: float | None,
        rollout: Mapping[str, Any] | None = None,
    ) -> None:
        """Log a decision.

        Raises:
            OSError: it could not be written; the log goes on with a checkpoint.
        """
        before = self._before
        identity, settings = before.turn.acting.candidate.identity, self._policy_settings
        record = DecisionRecord(
            number=before.checkpoint.number,
            wall_time_seconds=self._wall_clock(),
            state=state,
            trigger=trigger,
            policy=identity.name,
            version=identity.version,
            head_step=identity.head_step,
            digest=identity.digest,
            seed=settings.seed,
            mode=settings.mode,
            exploration=settings.exploration,
            decision=guarded.decision,
            samples=guarded.samples,
            interventions=tuple(intervention.value for intervention in guarded.interventions),
            decide_seconds=guarded.decide_seconds,
            previous_reward=previous_reward,
            asked=guarded.asked,
            beliefs_digest=before.digests["policy"],
            observed=self._observed,
            observed_by=self._observed_by,
            rollout=rollout,
            challenger=self._challenger,
        )
        self._observed, self._observed_by, self._digests_shown, self._challenger = (), (), {}, None
        if not self._log.append(record, before.checkpoint, before.reason):
            return
        self._due, self._blind = None, before.blind
        for decider in (before.turn.acting, before.turn.challenger):
            if decider is not None and decider.candidate.file is not None:
                self._log.archive.add(decider.candidate.identity.digest, decider.candidate.file)

    def on_challenged(self, decision: ChallengerDecision) -> None:
        """Note what the challenger would have done, for the line of the next decision."""
        before = self._before
        if before.turn.challenger is not None:
            identity = before.turn.challenger.candidate.identity
            self._challenger = decision.to_json() | {
                "number": before.checkpoint.number,
                "policy": identity.name,
                "version": identity.version,
                "digest": identity.digest,
                "beliefs_digest": before.digests["beside"],
            }

    def on_observed(self, progress: Sequence[Progress], shown: Mapping[str, Decider]) -> None:
        """Note what beliefs were shown, of the policies in `shown` (`policy`, `beside`); the fallback's always are."""
        policies = {who: decider.candidate.policy for who, decider in shown.items()}
        policies["fallback"] = self._fallback
        beliefs = {who: beliefs_of(policies[who]) for who in ("policy", "fallback", "beside") if who in policies}
        self._observed_by = tuple(who for who, each in beliefs.items() if each is not None)
        self._digests_shown = {
            who: each.digest() for who, each in beliefs.items() if each is not None and who != "fallback"
        }
        # Written down whoever learns from it: what jobs did is what the next policy is judged by.
        self._observed = tuple(progress)

    def on_observations_lost(self) -> None:
        """Nobody knows what beliefs were shown: go on from a checkpoint."""
        self._due = CheckpointReason.GAP

    def close(self) -> None:
        """Close the log."""
        self._log.close()
