"""Fakes that several tests of the agent share: states, policies, a learner that can misbehave, a clock."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_agent.backends.base import BackendStatus
from cluster_agent.fleet.learner_client import AgentStatus
from cluster_agent.learning.experience import BelievedReward
from policy_net.dl2.network import initial_weights
from policy_net.dl2.policy import ActingMode, DecisionSamples, LearnedPolicy
from policy_net.domain import Allocation, ClusterState, Decision, Job, Node, Progress, Resources, RewardKind, Trigger
from policy_net.errors import LearnerRefused, LearnerUnreachable, VersionUnavailable
from policy_net.exchange.policy_file import PolicyFile, digest_of
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.exchange.wire import (
    Assignment,
    FetchedPolicy,
    GradientUpdate,
    LearnerHead,
    PushAnswer,
    PushOutcome,
    Registration,
    ShareAnswer,
)
from policy_net.exchange.workload_sketch import WorkloadSketch
from policy_net.learning.replay import Experience
from policy_net.throughput.parametric import OnlineFit

SPEC = PolicySpec(jobs_per_batch=4, type_columns=3, job_types=("other", "vgg-16"), hidden=(8,))
WEIGHTS = initial_weights(SPEC, seed=1)
STATUS = AgentStatus(BackendStatus(0.0, 0, 0, 0, 0, 0.0), 0, 0, 0)


def make_job(number: int, **changes: object) -> Job:
    values: dict[str, object] = {
        "job_id": f"job-{number}",
        "job_type": "vgg-16",
        "submit_time_seconds": float(number),
        "worker_demand": Resources(2000, 1),
        "ps_demand": Resources(2000),
        "samples_per_epoch": 115,
        "total_epochs": 100.0,
        "remaining_epochs": 40.5,
    }
    return Job(**(values | changes))  # type: ignore[arg-type]


def make_state(jobs: int = 2, nodes: int = 2, time_seconds: float = 0.0) -> ClusterState:
    return ClusterState(
        time_seconds,
        tuple(Node(f"n{index}", Resources(8000, 2)) for index in range(nodes)),
        tuple(make_job(number) for number in range(jobs)),
        1200.0,
    )


def make_samples(number: int = 0) -> DecisionSamples:
    """What a policy recorded of a decision on two jobs and four nodes; its admissible choices were several."""
    policy = LearnedPolicy(SPEC, WEIGHTS, seed=number, mode=ActingMode.SAMPLE)
    _, samples = policy.decide_recorded(make_state(nodes=4), Trigger.SLOT)
    return samples


def make_experience(number: int) -> Experience:
    """A lesson of its own for every number: the higher, the faster its first job trained."""
    rate = 0.001 * (number + 1)
    progress = [Progress("job-0", "vgg-16", Allocation(1, 1), 1200.0, 115 * 1200 * rate, 1200 * rate, 40.5)]
    reward = BelievedReward(RewardKind.SLOT_UTILITY, OnlineFit())
    state = make_state(nodes=4, time_seconds=1200.0 * number)
    _, experience = reward.learn_from(state, progress, 1200.0, make_samples(number))
    assert experience is not None
    return experience


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False


class FixedPolicy:
    """Decides what it was given; or raises it."""

    name = "fixed"

    def __init__(self, answer: Decision | Exception, samples: DecisionSamples | None = None) -> None:
        self.answer = answer
        self.samples = samples
        self.seen: list[Progress] = []

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def observe(self, progress: Sequence[Progress]) -> None:
        self.seen.extend(progress)


class FixedRecordingPolicy(FixedPolicy):
    """The same, with samples."""

    def decide_recorded(self, state: ClusterState, trigger: Trigger) -> tuple[Decision, DecisionSamples]:
        assert self.samples is not None
        return self.decide(state, trigger), self.samples


PAIRS = Decision({"job-0": Allocation(1, 1), "job-1": Allocation(1, 1)})


def policy_bytes(weights: Weights = WEIGHTS, spec: PolicySpec = SPEC) -> bytes:
    return PolicyFile(spec, weights).to_bytes()


class FakeLearner:
    """Applies every update once; `lose_replies`, `away` and `refuse` make it misbehave.

    Attributes:
        applied: (incarnation, sequence) of every update, in order of application.
        lose_replies: so many pushes are applied, and the answer is lost on the way.
        away: so many calls find nobody; `away_as` is what is said then.
    """

    def __init__(self) -> None:
        self.incarnation = 0
        self.known: set[int] = set()
        self.applied: list[tuple[int, int]] = []
        self.updates: list[GradientUpdate] = []
        self.pulls = 0
        self.heartbeats: list[AgentStatus] = []
        self.fetches: list[int] = []
        self.lose_replies = 0
        self.away = 0
        self.away_as = "nobody there"
        self.refuse = 0
        self.assigned = 0
        self.learning = True
        self.send_head_with_answers = True
        self.versions: dict[int, FetchedPolicy] = {}
        self.reported: list[tuple[int, int, tuple[SpeedStatistic, ...]]] = []
        self.sketches: list[WorkloadSketch | None] = []
        self.left_out: tuple[str, ...] = ()
        self.lost_digest = ""
        self.damaged: set[int] = set()
        self.given_back: list[bytes] = []

    @property
    def step(self) -> int:
        return len(self.applied)

    def publish(self, version: int, data: bytes, digest: str | None = None) -> None:
        self.versions[version] = FetchedPolicy(version, data, digest or digest_of(data))
        self.assigned = version

    def forget_everybody(self) -> None:
        self.known.clear()

    def register(self, spec_digest: str, job_types: Sequence[str]) -> Registration:
        self._answer()
        self.incarnation += 1
        self.known.add(self.incarnation)
        return Registration(self.incarnation, SPEC, self.step, self.assigned, self.learning)

    def pull_head(self, registration: Registration, have_step: int | None) -> LearnerHead | None:
        self._answer()
        self.pulls += 1
        return None if have_step == self.step else LearnerHead(self.step, WEIGHTS)

    def push(self, update: GradientUpdate, spec: PolicySpec) -> PushAnswer:
        self._answer()
        head = LearnerHead(self.step, WEIGHTS)
        if update.incarnation not in self.known:
            return PushAnswer(PushOutcome.REJECTED, "unknown-incarnation", self.step, 0, head)
        name = (update.incarnation, update.sequence)
        outcome = PushOutcome.DUPLICATE if name in self.applied else PushOutcome.APPLIED
        staleness = self.step - update.base_step
        if outcome is PushOutcome.APPLIED:
            self.applied.append(name)
            self.updates.append(update)
        if self.lose_replies:
            self.lose_replies -= 1
            raise LearnerUnreachable("the reply was lost")
        sent = LearnerHead(self.step, WEIGHTS) if self.send_head_with_answers else None
        return PushAnswer(outcome, "", self.step, staleness, sent)

    def heartbeat(self, incarnation: int, status: AgentStatus) -> Assignment:
        self._answer()
        self.heartbeats.append(status)
        return Assignment(self.assigned, self.step, incarnation not in self.known, lost_digest=self.lost_digest)

    def share_beliefs(
        self, registration: Registration, revision: int, statistics: Sequence[SpeedStatistic]
    ) -> ShareAnswer:
        self._answer()
        self.reported.append((registration.incarnation, revision, tuple(statistics)))
        return ShareAnswer(True, self.left_out)

    def share_sketch(self, registration: Registration, sketch: WorkloadSketch | None) -> bool:
        self._answer()
        self.sketches.append(sketch)
        return True

    def return_policy(self, registration: Registration, data: bytes) -> bool:
        self._answer()
        self.given_back.append(data)
        taken = digest_of(data) == self.lost_digest
        self.lost_digest = ""
        return taken

    def fetch_policy(self, version: int) -> FetchedPolicy:
        self._answer()
        self.fetches.append(version)
        if version in self.damaged:
            raise VersionUnavailable(f"the file of v{version} is damaged")
        if version not in self.versions:
            raise LearnerRefused(f"no version {version}")
        return self.versions[version]

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise LearnerUnreachable(self.away_as)
        if self.refuse:
            self.refuse -= 1
            raise LearnerRefused("no")
