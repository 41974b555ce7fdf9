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
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class _Thought:
    """What came of a question, and when it was over."""

    answer: tuple[Decision, Samples | None] | None
    error: Exception | None
    ended: float


_Question = tuple[SchedulerPolicy, ClusterState, Trigger, "Future[_Thought]"]


class DeadlineAsker:
    """Asks one policy at a time; an `Asker` for the guard once it has been told whom to ask."""

    def __init__(self, deadline_seconds: float, clock: Callable[[], float]) -> None:
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._under_way: Future[_Thought] | None = None
        # A daemon, unlike an executor's threads: a policy that hangs must not keep the agent from ending.
        threading.Thread(target=self._think, name="policy", daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a policy is still at a decision, one that nobody waits for any more included."""
        return self._under_way is not None and not self._under_way.done()

    def ask(self, policy: SchedulerPolicy, state: ClusterState, trigger: Trigger) -> Proposal:
        """The policy's proposal, or what kept it from making one; never raises what the policy raised."""
        return self.begin(policy, state, trigger)(self._deadline_seconds)

    def begin(self, policy: SchedulerPolicy, state: ClusterState, trigger: Trigger) -> Callable[[float], Proposal]:
        """Put the question and do not wait; what is returned gives the proposal, within so many seconds."""
        began = self._clock()
        if self.busy:
            late = Proposal(None, None, 0.0, TimeoutError("still at an earlier decision"), asked=False)
            return lambda _: late
        future: Future[_Thought] = Future()
        self._under_way = future
        self._questions.put((policy, state, trigger, future))
        return lambda seconds: self._collected(future, began, seconds)

    def _collected(self, future: Future[_Thought], began: float, seconds: float) -> Proposal:
        try:
            thought = future.result(timeout=seconds)
        except TimeoutError as error:
            return Proposal(None, None, max(self._deadline_seconds, self._clock() - began), error)
        decision, samples = (None, None) if thought.answer is None else thought.answer
        return Proposal(decision, samples, thought.ended - began, thought.error)

    def close(self) -> None:
        """Let the thread end; one that still thinks is not waited for."""
        self._questions.put(None)

    def _think(self) -> None:
        while (question := self._questions.get()) is not None:
            policy, state, trigger, future = question
            answer, failure = None, None
            try:
                answer = decide_recorded(policy, state, trigger)
            except Exception as error:  # whatever a policy raises, the cluster still needs a decision
                failure = error
            future.set_result(_Thought(answer, failure, self._clock()))


def decide_recorded(policy: SchedulerPolicy, state: ClusterState, trigger: Trigger) -> tuple[Decision, Samples | None]:
    """A policy's decision, and its choices if it can say what they were."""
    if isinstance(policy, RecordingPolicy):
        return policy.decide_recorded(state, trigger)
    return policy.decide(state, trigger), None
