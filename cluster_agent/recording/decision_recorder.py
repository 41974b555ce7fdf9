"""The decision recorder, which keeps the decision log complete.

It captures what was believed before a decision, and what beliefs were shown since the last. Deciding changes beliefs
too (a fit that was due is made, a type is introduced), so that all is captured before the policy is asked, and written
after it has answered.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cluster_agent.acting.active_policy import Turn
from cluster_agent.recording.decision_log import Checkpoint, CheckpointReason, DecisionLog, DecisionRecord
from cluster_agent.settings import PolicySettings
from policy_net.policy import SchedulerPolicy
from policy_net.throughput.beliefs import beliefs_of


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
        self._last: Turn | None = None
        self._digests_shown: Mapping[str, str] = {}
        self._checkpoint: Checkpoint

    def begin(self, turn: Turn) -> None:
        """Capture what is believed before a decision."""
        if self._last is not None and self._last.progress is not None and self._last.observed_by is None:
            self._due = CheckpointReason.GAP  # nobody knows what beliefs were shown
        before: dict[str, dict[str, Any]] = {}
        digests: dict[str, str | None] = {}
        for role, decider in turn.deciders.items():
            busy = decider.busy
            beliefs = None if busy else beliefs_of(decider.candidate.policy)
            digest = digests[role] = None if beliefs is None else beliefs.digest()
            if digest is not None and self._digests_shown.get(role, digest) != digest:
                self._due = CheckpointReason.BELIEFS
            before[role] = {
                "policy": asdict(decider.candidate.identity),
                "busy": busy,
                "beliefs": None if beliefs is None else beliefs.checkpoint(),
            }
        if turn.fresh:
            self._due = CheckpointReason.POLICY
        turn.digests = digests
        fallback_beliefs = beliefs_of(self._fallback)
        self._checkpoint = Checkpoint(
            number=turn.number,
            wall_time_seconds=self._wall_clock(),
            **before["policy"],
            settings=self._settings,
            fallback=self._fallback.name,
            fallback_beliefs=None if fallback_beliefs is None else fallback_beliefs.checkpoint(),
            program=self._program,
            challenger=before.get("beside"),
        )
        if self._blind and not self._checkpoint.is_blind:
            self._due = CheckpointReason.GAP

    def write(self, turn: Turn, previous_reward: float | None) -> None:
        """Log a decision, with what came of the one before.

        Raises:
            OSError: it could not be written; the log goes on with a checkpoint.
        """
        identity, guarded, settings = turn.identity, turn.guarded, self._policy_settings
        last, self._last, self._digests_shown = self._last, turn, {}
        observed_by = () if last is None or last.observed_by is None else last.observed_by
        record = DecisionRecord(
            number=turn.number,
            wall_time_seconds=self._wall_clock(),
            state=turn.state,
            trigger=turn.trigger,
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
            beliefs_digest=turn.digests["policy"],
            observed=() if last is None or last.observed_by is None else tuple(last.progress or ()),
            observed_by=observed_by,
            rollout=turn.rollout,
            challenger=None if last is None else _challenger_of(last),
        )
        if not self._log.append(record, self._checkpoint, self._due):
            return
        self._due, self._blind = None, self._checkpoint.is_blind
        for decider in turn.deciders.values():
            if decider.candidate.file is not None:
                self._log.archive.add(decider.candidate.identity.digest, decider.candidate.file)

    def on_observed(self, turn: Turn, shown: Sequence[str]) -> None:
        """Note whose beliefs were shown what jobs did: those of the roles in `shown`, and the fallback's."""
        policies = {role: decider.candidate.policy for role, decider in turn.deciders.items() if role in shown}
        policies["fallback"] = self._fallback
        beliefs = {role: beliefs_of(policies[role]) for role in ("policy", "fallback", "beside") if role in policies}
        turn.observed_by = tuple(role for role, each in beliefs.items() if each is not None)
        self._digests_shown = {
            role: each.digest() for role, each in beliefs.items() if each is not None and role != "fallback"
        }

    def close(self) -> None:
        """Close the log."""
        self._log.close()


def _challenger_of(turn: Turn) -> dict[str, Any] | None:
    """What a decision's challenger would have done, for the line of the next decision; None if it was not asked."""
    if turn.challenger is None or turn.challenged is None:
        return None
    identity = turn.challenger.candidate.identity
    return turn.challenged.to_json() | {
        "number": turn.number,
        "policy": identity.name,
        "version": identity.version,
        "digest": identity.digest,
        "beliefs_digest": turn.digests["beside"],
    }
