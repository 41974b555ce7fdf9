"""The deadline of a decision: a policy is asked, and no longer waited for when its time is over.

The policy thinks in a thread of its own. One that returns late is measured by the injected clock; one that does not
return is left to itself, and is not asked again until it has: the fallback decides meanwhile. Nothing can interrupt a
thread, and a policy that is torn away in the middle of a decision could not be trusted with the next one.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from cluster_agent.guard import Proposal
from policy_net.domain import ClusterState, Decision, Trigger
from policy_net.policy import Samples, SchedulerPolicy


@runtime_checkable
class RecordingPolicy(SchedulerPolicy, Protocol):
    """A policy that can say what its choices were."""

    def decide_recorded(self, state: ClusterState, trigger: Trigger) -> tuple[Decision, Samples]:
        """Decide, and keep what a learner needs of every choice."""
        ...


_Answer = Future[tuple[Decision, Samples | None]]
_Question = tuple[SchedulerPolicy, ClusterState, Trigger, _Answer]


class DeadlineAsker:
    """Asks one policy at a time; an `Asker` for the guard once it has been told whom to ask."""

    def __init__(self, deadline_seconds: float, clock: Callable[[], float]) -> None:
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._overdue: _Answer | None = None
        # A daemon, unlike an executor's threads: a policy that hangs must not keep the agent from ending.
        threading.Thread(target=_think, args=(self._questions,), name="policy", daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a policy is still at a decision that nobody waits for any more."""
        return self._overdue is not None and not self._overdue.done()

    def ask(self, policy: SchedulerPolicy, state: ClusterState, trigger: Trigger) -> Proposal:
        """The policy's proposal, or what kept it from making one; never raises what the policy raised."""
        began = self._clock()
        if self.busy:
            return Proposal(None, None, 0.0, TimeoutError("still at an earlier decision"), asked=False)
        self._overdue = None
        future: _Answer = Future()
        self._questions.put((policy, state, trigger, future))
        try:
            decision, samples = future.result(timeout=self._deadline_seconds)
        except TimeoutError as error:
            if future.done():  # the policy's own TimeoutError, not ours
                return Proposal(None, None, self._clock() - began, error)
            self._overdue = future
            return Proposal(None, None, max(self._deadline_seconds, self._clock() - began), error)
        except Exception as error:  # whatever a policy raises, the cluster still needs a decision
            return Proposal(None, None, self._clock() - began, error)
        return Proposal(decision, samples, self._clock() - began)

    def close(self) -> None:
        """Let the thread end; one that still thinks is not waited for."""
        self._questions.put(None)


def _think(questions: queue.SimpleQueue[_Question | None]) -> None:
    while (question := questions.get()) is not None:
        policy, state, trigger, answer = question
        try:
            answer.set_result(decide_recorded(policy, state, trigger))
        except Exception as error:  # handed over to whoever asked
            answer.set_exception(error)


def decide_recorded(policy: SchedulerPolicy, state: ClusterState, trigger: Trigger) -> tuple[Decision, Samples | None]:
    """A policy's decision, and its choices if it can say what they were."""
    if isinstance(policy, RecordingPolicy):
        return policy.decide_recorded(state, trigger)
    return policy.decide(state, trigger), None
