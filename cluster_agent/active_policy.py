"""The active policy, which decides, its successor, which waits for the end of the present decision, and a challenger.

Any thread may propose a successor; only the loop makes it active, between two decisions, so that every decision is made
by one policy from beginning to end.

A policy is asked in a thread of its own, under a deadline. Nothing can interrupt a thread, so one that misses its
deadline thinks on and is not asked again until it has answered; the fallback decides meanwhile.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import structlog

import policy_net.baselines  # noqa: F401  (registers the schedulers' names)
from cluster_agent.guard import ChallengerDecision, GuardedDecision, Proposal
from cluster_agent.settings import PolicySettings
from foundation.files import is_file
from policy_net.dl2.policy import ActingMode, JobAwareExploration, LearnedPolicy, TaughtJobs
from policy_net.domain import ClusterState, Decision, PolicyContext, Progress, Trigger
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import digest_of, parse_policy_file
from policy_net.exchange.shipped import SHIPPED_FILES
from policy_net.exchange.spec import PolicySpec, SetSpec, Weights, WeightSpec, weights_to_bytes
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.policy import Samples, SchedulerPolicy, build_policy, policy_names
from policy_net.set_policy.policy import SetPolicy
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs
from policy_net.throughput.parametric import OnlineFit

_log = structlog.get_logger()

_DEADLINE_SECONDS = 5.0
"""Where no settings say another."""


@dataclass(frozen=True, slots=True)
class PolicyIdentity:
    """Identity of a policy in the log; `version` is 0 unless it was assigned.

    `digest` is of the policy file's bytes or of a head's weights; a heuristic's is its name.
    """

    name: str
    version: int = 0
    head_step: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy and its identity; `spec` is None for heuristics, `file` (a policy file's bytes) also for heads."""

    policy: SchedulerPolicy
    identity: PolicyIdentity
    spec: WeightSpec | None = None
    weights: Weights | None = None
    file: bytes | None = None

    def untaught(self, state: ClusterState) -> str:
        """See `Proposal`."""
        taught = self.policy.taught if isinstance(self.policy, LearnedPolicy) else None
        lacking = "" if taught is None else taught.lacking(len(state.jobs), {job.kind for job in state.jobs})
        return lacking and f"{self.identity.name} {lacking}"

    @property
    def spec_to_register(self) -> str:
        """Digest of the spec that a learner must have; empty for what was chosen by name, which suits any learner."""
        return "" if self.spec is None or self.identity.name in SHIPPED_FILES else self.spec.digest

    @property
    def kind(self) -> str:
        """Kind of the policy as its file says it, such as `set`; empty for heuristics."""
        return "" if self.spec is None else self.spec.policy

    @property
    def beliefs(self) -> GaussianProcessBeliefs | None:
        """What the policy believes of speeds, where that outlives it; None for those that start anew every time."""
        return self.policy.beliefs if isinstance(self.policy, SetPolicy) else None


class CandidateFactory:
    """Builds policies the way this agent is configured to use them; `cluster` may have taught them."""

    def __init__(self, settings: PolicySettings, cluster: str = "") -> None:
        self._settings = settings
        self._cluster = cluster
        self._priors: tuple[SpeedStatistic, ...] = ()

    def from_name_or_file(self, name_or_path: str) -> Candidate:
        """A registered scheduler or a policy file.

        Raises:
            UnknownPolicy, PolicyFileError: neither, or a file that cannot be used.
        """
        if name_or_path in SHIPPED_FILES:
            return self.from_bytes(SHIPPED_FILES[name_or_path].read_bytes(), PolicyIdentity(name_or_path))
        if name_or_path in policy_names() or not is_file(Path(name_or_path)):
            policy = build_policy(name_or_path, PolicyContext(seed=self._settings.seed))
            return Candidate(policy, PolicyIdentity(policy.name, digest=policy.name))
        data = Path(name_or_path).read_bytes()
        return self.from_bytes(data, PolicyIdentity(Path(name_or_path).name))

    def from_bytes(self, data: bytes, identity: PolicyIdentity) -> Candidate:
        """A policy file's content.

        Raises:
            PolicyFileError: it cannot be used.
        """
        content = parse_policy_file(data, identity.name)
        if isinstance(content.spec, SetSpec):
            self._priors = content.priors
        identity = replace(identity, digest=digest_of(data))
        candidate = self._built(content.spec, content.weights, content.priors, identity)
        if isinstance(candidate.policy, LearnedPolicy):
            candidate.policy.taught = TaughtJobs.of_card(content.card, identity.name, self._cluster)
        return replace(candidate, file=data)

    def from_head(self, spec: WeightSpec, weights: Weights, step: int) -> Candidate:
        """The learner's head at a step; what it believes of speeds is what the last policy file said."""
        digest = sha256(weights_to_bytes(weights)).hexdigest()
        return self._built(spec, weights, self._priors, PolicyIdentity(f"head-{step}", head_step=step, digest=digest))

    def _built(
        self, spec: WeightSpec, weights: Weights, priors: tuple[SpeedStatistic, ...], identity: PolicyIdentity
    ) -> Candidate:
        seed, mode, exploration = self._settings.seed, ActingMode(self._settings.mode), self._settings.exploration
        policy: SchedulerPolicy
        if isinstance(spec, SetSpec):
            policy = SetPolicy(
                spec,
                weights,
                priors,
                seed=seed,
                greedy=mode is ActingMode.GREEDY,
                exploration=exploration,
                label=identity.name,
            )
        else:
            assert isinstance(spec, PolicySpec)  # noqa: S101  (the other kind that there is)
            explorer = JobAwareExploration(exploration) if exploration > 0 else None
            policy = LearnedPolicy(spec, weights, seed=seed, mode=mode, explorer=explorer, label=identity.name)
        return Candidate(policy, identity, spec, weights)


@runtime_checkable
class RecordingPolicy(SchedulerPolicy, Protocol):
    """A policy that can say what its choices were."""

    def decide_recorded(self, state: ClusterState, trigger: Trigger) -> tuple[Decision, Samples]:
        """Decide, and keep what a learner needs of every choice."""
        ...


_Question = tuple[SchedulerPolicy, ClusterState, Trigger, float, "Future[Proposal]"]
"""Whom to ask about what, when that began, and where the answer goes."""


class DeadlineAsker:
    """Asks one policy at a time for its proposal, in a thread of its own, and does not wait for ever."""

    def __init__(self, deadline_seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.deadline_seconds = deadline_seconds
        self._clock = clock
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._under_way: Future[Proposal] | None = None
        # A daemon, unlike an executor's threads: a policy that hangs must not keep the agent from ending.
        threading.Thread(target=self._think, name="policy", daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a policy is still at a decision, one that nobody waits for any more included."""
        return self._under_way is not None and not self._under_way.done()

    def ask(self, policy: SchedulerPolicy, state: ClusterState, trigger: Trigger) -> Proposal:
        """The policy's proposal, or what kept it from making one; never raises what the policy raised."""
        return self.begin(policy, state, trigger)(self.deadline_seconds)

    def begin(self, policy: SchedulerPolicy, state: ClusterState, trigger: Trigger) -> Callable[[float], Proposal]:
        """Put the question and do not wait; what is returned gives the proposal, within so many seconds."""
        began = self._clock()
        if self.busy:
            late = Proposal(None, None, 0.0, TimeoutError("still at an earlier decision"), asked=False)
            return lambda _: late
        future: Future[Proposal] = Future()
        self._under_way = future
        self._questions.put((policy, state, trigger, began, future))

        def collected(seconds: float) -> Proposal:
            try:
                return future.result(timeout=seconds)
            except TimeoutError as error:
                return Proposal(None, None, max(self.deadline_seconds, self._clock() - began), error)

        return collected

    def close(self) -> None:
        """Let the thread end; one that still thinks is not waited for."""
        self._questions.put(None)

    def _think(self) -> None:
        while (question := self._questions.get()) is not None:
            policy, state, trigger, began, future = question
            decision, samples, failure = None, None, None
            try:
                decision, samples = decide_recorded(policy, state, trigger)
            except Exception as error:  # whatever a policy raises, the cluster still needs a decision
                failure = error
            future.set_result(Proposal(decision, samples, self._clock() - began, failure))


def decide_recorded(policy: SchedulerPolicy, state: ClusterState, trigger: Trigger) -> tuple[Decision, Samples | None]:
    """A policy's decision, and its choices if it can say what they were."""
    if isinstance(policy, RecordingPolicy):
        return policy.decide_recorded(state, trigger)
    return policy.decide(state, trigger), None


@dataclass(frozen=True, slots=True)
class Decider:
    """A policy, and the thread in which it decides: one that hangs holds up no other."""

    candidate: Candidate
    asker: DeadlineAsker

    @property
    def busy(self) -> bool:
        """Whether it is still at an earlier decision; then nobody may look into it."""
        return self.asker.busy

    @property
    def beliefs(self) -> GaussianProcessBeliefs | None:
        """`Candidate.beliefs`; None also while it is busy."""
        return None if self.busy else self.candidate.beliefs

    def ask(self, state: ClusterState, trigger: Trigger) -> Proposal:
        """Its proposal, within the deadline; never raises what the policy raised."""
        return self.begin(state, trigger)(self.asker.deadline_seconds)

    def begin(self, state: ClusterState, trigger: Trigger) -> Callable[[float], Proposal]:
        """Put the question and do not wait; what is returned gives the proposal, within so many seconds."""
        collected = self.asker.begin(self.candidate.policy, state, trigger)
        untaught = self.candidate.untaught(state)
        return lambda seconds: replace(collected(seconds), untaught=untaught)

    def show(self, progress: Sequence[Progress]) -> Exception | None:
        """Show it what jobs did; what it raised, if anything."""
        try:
            self.candidate.policy.observe(progress)
        except Exception as error:  # a challenger's fault is its own
            return error
        return None


@dataclass(slots=True)
class Turn:
    """One decision: who makes it about what, and all that came of it, which the loop fills in from top to bottom.

    Attributes:
        number: counts the agent's decisions from 0, over all of its lives.
        acting: makes the decision.
        challenger: is asked the same and not obeyed; None where there is none.
        fresh: whether a policy was replaced, or began to act, at this decision.
        activated: whether the acting policy began to act at this decision.
        guarded: the decision that is carried out; there is none until the guard has looked at the policy's.
        digests: of the beliefs before the decision, by role (`policy`, `beside`); filled in where there is a log.
        rollout: in which rollout it is made, who acts and in which block; None outside rollouts.
        challenged: what the challenger would have done; None if it was not asked.
        progress: what every job did; None if the decision was not carried out.
        observed_by: whose beliefs have seen the progress (`policy`, `fallback`, `beside`); None if nobody knows.
    """

    number: int
    state: ClusterState
    trigger: Trigger
    acting: Decider
    challenger: Decider | None = None
    fresh: bool = False
    activated: bool = False
    guarded: GuardedDecision = field(init=False)
    digests: Mapping[str, str | None] = field(default_factory=dict)
    rollout: Mapping[str, Any] | None = None
    challenged: ChallengerDecision | None = None
    progress: Sequence[Progress] | None = None
    observed_by: tuple[str, ...] | None = None

    @property
    def identity(self) -> PolicyIdentity:
        """Of the acting policy."""
        return self.acting.candidate.identity

    @property
    def deciders(self) -> dict[str, Decider]:
        """The policies that are asked, by their role in the log."""
        deciders = {"policy": self.acting}
        return deciders if self.challenger is None else deciders | {"beside": self.challenger}


Choice = Callable[[ClusterState, Candidate, Candidate | None], bool]
"""Of a state, the assigned policy and the challenger: whether the challenger decides, as `RolloutPart` says."""


class ActivePolicy:
    """The assigned policy, its successor (the newest proposal), and a challenger that never takes its place.

    `assigned` decides unless the challenger does; `acting` decided last, or decides first.

    Args:
        seen: speeds that this cluster has seen, for a policy whose predecessor believed nothing.
        shares: whether a job type's speeds are shared with the fleet, and so part of what versions say.
        askers: of the assigned policy, and of the challenger.
    """

    def __init__(
        self,
        first: Candidate,
        seen: OnlineFit | None = None,
        shares: Callable[[str], bool] = lambda _: True,
        askers: tuple[DeadlineAsker, DeadlineAsker] | None = None,
    ) -> None:
        self._askers = askers or (DeadlineAsker(_DEADLINE_SECONDS), DeadlineAsker(_DEADLINE_SECONDS))
        self._seen = OnlineFit() if seen is None else seen
        self._shares = shares
        self.assigned = self.acting = first
        self._successor: Candidate | None = None
        self._challenger: Candidate | None = None
        self._next_challenger: tuple[Candidate, Mapping[str, object] | None] | None = None
        self._lock = threading.Lock()

    @property
    def challenger(self) -> Candidate | None:
        """The challenger, as of the latest decision."""
        return self._challenger

    @property
    def assigned_decider(self) -> Decider:
        """The assigned policy, with its thread."""
        return Decider(self.assigned, self._askers[0])

    @property
    def challenger_decider(self) -> Decider | None:
        """The challenger, with its own."""
        return None if self._challenger is None else Decider(self._challenger, self._askers[1])

    def close(self) -> None:
        """Let both threads end."""
        for asker in self._askers:
            asker.close()

    def propose(self, candidate: Candidate) -> None:
        """Let `candidate` decide from the next decision on; callable from any thread."""
        with self._lock:
            self._successor = candidate

    def set_challenger(self, candidate: Candidate | None, believed: Mapping[str, object] | None = None) -> None:
        """Set the challenger from the next decision on; it resumes `believed`, else the assigned policy's beliefs."""
        with self._lock:
            self._next_challenger = None if candidate is None else (candidate, believed)

    def begin_turn(
        self, number: int, state: ClusterState, trigger: Trigger, challenger_decides: Choice = lambda *_: False
    ) -> Turn:
        """Begin a decision and say who makes it; only the loop calls this.

        The random numbers of a decision follow from the seed and its number alone, whichever policy was active before.
        """
        with self._lock:
            successor, self._successor = self._successor, None
            following = self._next_challenger
        changed = successor is not None
        if successor is not None:
            if isinstance(successor.policy, SetPolicy):
                self._inherit_beliefs(successor.policy)
            self.assigned = successor
        candidate = None if following is None else following[0]
        if candidate is not self._challenger:
            changed = True
            if following is not None:
                self._begin_challenger(*following)
            self._challenger = candidate
        acting, challenger = self.assigned_decider, self.challenger_decider
        if challenger_decides(state, self.assigned, candidate) and challenger is not None:
            acting, challenger = challenger, acting
        activated = acting.candidate is not self.acting
        self.acting = acting.candidate
        for each in (self.assigned, candidate):
            if each is not None:
                number_decision(each.policy, number)
        return Turn(number, state, trigger, acting, challenger, changed or activated, activated)

    def _begin_challenger(self, candidate: Candidate, believed: Mapping[str, object] | None) -> None:
        """Give a challenger beliefs of its own, from what this cluster has seen: both are shown everything."""
        policy = candidate.policy
        if not isinstance(policy, SetPolicy) or policy.beliefs is None:
            return
        if believed is not None:
            try:
                policy.beliefs.restore(believed)
            except BadInput as error:
                _log.warning("beliefs-not-restored", policy=candidate.identity.name, error=str(error))
            else:
                return
        if isinstance(self.assigned.policy, SetPolicy):
            policy.inherit(self.assigned.policy, self._shares, copy=True)
        else:
            policy.beliefs.begin_from_observations(self._seen)
            policy.beliefs.leave_out_own(self._shares)

    def _inherit_beliefs(self, policy: SetPolicy) -> None:
        """Hand on what this cluster has seen: it outlives a version, and is not counted again in what the next says."""
        if isinstance(self.assigned.policy, SetPolicy):
            policy.inherit(self.assigned.policy, self._shares)
        elif policy.beliefs is not None:
            policy.beliefs.begin_from_observations(self._seen)
            policy.beliefs.leave_out_own(self._shares)


def number_decision(policy: SchedulerPolicy, number: int) -> None:
    """Let a policy draw the random numbers of this decision next."""
    if isinstance(policy, LearnedPolicy | SetPolicy):
        policy.decision_index = number
        policy.inference_seconds.clear()  # or it would grow for as long as the agent lives
