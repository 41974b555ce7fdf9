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

from cluster_agent.acting.active_policy import Candidate
from cluster_agent.guard import GuardedDecision
from cluster_agent.recording.decision_log import DecisionLog
from cluster_agent.recording.decision_record import Checkpoint, CheckpointReason, DecisionRecord
from cluster_agent.settings import PolicySettings
from policy_net.domain import ClusterState, Progress, Trigger
from policy_net.policy import SchedulerPolicy
from policy_net.throughput.beliefs import beliefs_of


@dataclass(frozen=True, slots=True)
class Before:
    """The state of beliefs before a decision; `held` is the policy beside the acting one."""

    checkpoint: Checkpoint
    reason: CheckpointReason | None
    beliefs_digest: str | None
    held: Candidate | None = None
    held_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """The policy that is held beside the acting one, and whether it is still at an earlier decision."""

    candidate: Candidate
    busy: bool


class DecisionRecorder:
    """Writes one agent's log; used by the loop's thread alone.

    Args:
        wall_clock: Unix seconds.
    """

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
        self._digest_shown: str | None = None
        self._observed: tuple[Progress, ...] = ()
        self._observed_by: tuple[str, ...] = ()
        self._held_digest_shown: str | None = None
        self._beside: Mapping[str, Any] | None = None

    def begin(self, number: int, candidate: Candidate, *, fresh: bool, busy: bool, held: Held | None = None) -> Before:
        """Capture how things stand before a decision.

        Args:
            fresh: whether the policy became active just now, or another one is held beside it.
            busy: whether it is still at an earlier decision; then nobody may look into it.
            held: the policy beside it.
        """
        beliefs = None if busy else beliefs_of(candidate.policy)
        digest = None if beliefs is None else beliefs.digest()
        if digest is not None and self._digest_shown not in (None, digest):
            self._due = CheckpointReason.BELIEFS
        other = None if held is None or held.busy else beliefs_of(held.candidate.policy)
        other_digest = None if other is None else other.digest()
        if other_digest is not None and self._held_digest_shown not in (None, other_digest):
            self._due = CheckpointReason.BELIEFS
        if fresh:
            self._due = CheckpointReason.POLICY
        blind = busy or (held is not None and held.busy)
        if self._blind and not blind:
            self._due = CheckpointReason.GAP
        fallback_beliefs = beliefs_of(self._fallback)
        identity = candidate.identity
        checkpoint = Checkpoint(
            number=number,
            wall_time_seconds=self._wall_clock(),
            policy=asdict(identity),
            settings=self._settings,
            busy=busy,
            beliefs=None if beliefs is None else beliefs.checkpoint(),
            fallback=self._fallback.name,
            fallback_beliefs=None if fallback_beliefs is None else fallback_beliefs.checkpoint(),
            program=self._program,
            beside=None
            if held is None
            else {
                "policy": asdict(held.candidate.identity),
                "busy": held.busy,
                "beliefs": None if other is None else other.checkpoint(),
            },
        )
        return Before(checkpoint, self._due, digest, None if held is None else held.candidate, other_digest)

    def write(
        self,
        before: Before,
        candidate: Candidate,
        state: ClusterState,
        trigger: Trigger,
        guarded: GuardedDecision,
        previous_reward: float | None,
        rollout: Mapping[str, Any] | None = None,
    ) -> None:
        """Log a decision.

        Args:
            previous_reward: of the interval that ended with this decision; None before the first.
            rollout: in which it was made; None outside rollouts.

        Raises:
            OSError: it could not be written; the log goes on with a checkpoint.
        """
        identity, settings = candidate.identity, self._policy_settings
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
            beliefs_digest=before.beliefs_digest,
            observed=self._observed,
            observed_by=self._observed_by,
            rollout=rollout,
            beside=self._beside,
        )
        self._observed, self._observed_by, self._digest_shown = (), (), None
        self._beside, self._held_digest_shown = None, None
        if not self._log.append(record, before.checkpoint, before.reason):
            return
        beside = before.checkpoint.beside
        self._due, self._blind = None, before.checkpoint.busy or (beside is not None and bool(beside["busy"]))
        for each in (candidate, before.held):
            if each is not None and each.file is not None:
                self._log.archive.add(each.identity.digest, each.file)

    def on_beside(self, beside: Mapping[str, Any] | None) -> None:
        """Note what the policy beside would have done, for the line of the next decision."""
        self._beside = beside

    def on_observed(
        self, progress: Sequence[Progress], candidate: Candidate, *, by_policy: bool, by_held: Candidate | None = None
    ) -> None:
        """Note what beliefs were shown; the fallback's always are.

        Args:
            by_held: the policy beside the acting one, if it was shown it.
        """
        beliefs = beliefs_of(candidate.policy) if by_policy else None
        self._digest_shown = None if beliefs is None else beliefs.digest()
        held = None if by_held is None else beliefs_of(by_held.policy)
        self._held_digest_shown = None if held is None else held.digest()
        shown = {
            "policy": beliefs is not None,
            "fallback": beliefs_of(self._fallback) is not None,
            "beside": held is not None,
        }
        self._observed_by = tuple(who for who, saw in shown.items() if saw)
        # Written down whoever learns from it: what jobs did is what the next policy is judged by.
        self._observed = tuple(progress)

    def on_observations_lost(self) -> None:
        """Nobody knows what beliefs were shown: go on from a checkpoint."""
        self._due = CheckpointReason.GAP

    def close(self) -> None:
        """Close the log."""
        self._log.close()
