"""Keeps the decision log complete: what was believed before a decision, and what beliefs were shown since the last.

Deciding changes beliefs too (a fit that was due is made, a type is introduced), so that all is taken down before the
policy is asked, and written after it has answered.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster_agent.acting.active_policy import Candidate
from cluster_agent.recording.decision_log import DecisionLog
from cluster_agent.recording.decision_record import Checkpoint, CheckpointReason, DecisionRecord
from cluster_agent.settings import PolicySettings
from policy_net.domain import Progress
from policy_net.policy import SchedulerPolicy
from policy_net.throughput.beliefs import beliefs_of


@dataclass(frozen=True, slots=True)
class Before:
    """What is taken down before a decision."""

    checkpoint: Checkpoint
    reason: CheckpointReason | None
    beliefs_digest: str | None


class Journal:
    """Writes one agent's log; used by the loop's thread alone."""

    def __init__(self, log: DecisionLog, fallback: SchedulerPolicy, settings: PolicySettings) -> None:
        self._log = log
        self._fallback = fallback
        self._settings = settings.model_dump(mode="json", exclude={"initial", "acting"})
        self._program = importlib.metadata.version("fedl2")
        self._due: CheckpointReason | None = None
        self._blind = False
        self._digest_shown: str | None = None
        self._observed: tuple[Progress, ...] = ()
        self._observed_by: tuple[str, ...] = ()

    def before(self, number: int, candidate: Candidate, wall_time_seconds: float, *, fresh: bool, busy: bool) -> Before:
        """Take down how things stand.

        Args:
            fresh: whether the policy is new in office.
            busy: whether it is still at an earlier decision; then nobody may look into it.
        """
        beliefs = None if busy else beliefs_of(candidate.policy)
        digest = None if beliefs is None else beliefs.digest()
        if digest is not None and self._digest_shown not in (None, digest):
            self._due = CheckpointReason.BELIEFS
        if fresh:
            self._due = CheckpointReason.POLICY
        if self._blind and not busy:
            self._due = CheckpointReason.GAP
        fallback_beliefs = beliefs_of(self._fallback)
        identity = candidate.identity
        checkpoint = Checkpoint(
            number=number,
            wall_time_seconds=wall_time_seconds,
            policy={
                "name": identity.name,
                "version": identity.version,
                "head_step": identity.head_step,
                "digest": identity.digest,
            },
            settings=self._settings,
            busy=busy,
            beliefs=None if beliefs is None else beliefs.checkpoint(),
            fallback=self._fallback.name,
            fallback_beliefs=None if fallback_beliefs is None else fallback_beliefs.checkpoint(),
            program=self._program,
        )
        return Before(checkpoint, self._due, digest)

    def write(self, record: DecisionRecord, before: Before, candidate: Candidate) -> None:
        """Log a decision.

        Raises:
            OSError: it could not be written; the log goes on with a checkpoint.
        """
        complete = replace(
            record,
            beliefs_digest=before.beliefs_digest,
            observed=self._observed,
            observed_by=self._observed_by,
        )
        self._observed, self._observed_by, self._digest_shown = (), (), None
        if not self._log.append(complete, before.checkpoint, before.reason):
            return
        self._due, self._blind = None, before.checkpoint.busy
        if candidate.file is not None:
            self._log.archive.add(candidate.identity.digest, candidate.file)

    def observed(self, progress: Sequence[Progress], candidate: Candidate, *, by_policy: bool) -> None:
        """Note what beliefs were shown; the fallback's always are."""
        beliefs = beliefs_of(candidate.policy) if by_policy else None
        self._digest_shown = None if beliefs is None else beliefs.digest()
        shown = {
            "policy": beliefs is not None,
            "fallback": beliefs_of(self._fallback) is not None,
        }
        self._observed_by = tuple(who for who, saw in shown.items() if saw)
        self._observed = tuple(progress) if self._observed_by else ()

    def lost(self) -> None:
        """Nobody knows what beliefs were shown: go on from a checkpoint."""
        self._due = CheckpointReason.GAP

    def close(self) -> None:
        """Close the log."""
        self._log.close()
