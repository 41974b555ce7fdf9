"""The trainer beside the loop: experience → replay → gradient at the learner's head → push.

One thread, one update at a time, numbered 1, 2, 3 … within an incarnation. An update without an answer is offered again
under its number until there is one, so that it is applied exactly once; it is given up only when the learner no longer
knows the incarnation, which then cannot apply it either. Meanwhile the loop decides on and the queue stays bounded.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import numpy as np
import structlog

from cluster_agent.fleet.session import LearnerAccess
from cluster_agent.learning.experience import ExperienceQueue
from cluster_agent.learning.learning_source import TwinSource
from cluster_agent.learning.noise import UpdateNoise
from cluster_agent.settings import LearningSettings
from policy_net.errors import LearnerRefused, LearnerUnreachable
from policy_net.exchange.spec import WeightSpec
from policy_net.exchange.wire import GradientUpdate, LearnerHead, PushAnswer, PushOutcome, Registration
from policy_net.learning.gradient import GradientResult, Gradients, NotEnoughSamples, permute_rewards
from policy_net.learning.replay import Experience, ExperienceReplay
from policy_net.policy_kinds import gradients_for, update_schedule_for

_log = structlog.get_logger()

_POLL_EVERY_SECONDS = 0.2
"""How often an idle trainer looks whether it is to stop."""

_AFTER_NOTHING_SECONDS = 10.0
"""Until the next lesson is asked for, where one taught nothing; twice as long each time it says why."""
_LONGEST_AFTER_NOTHING_SECONDS = 600.0
"""A cluster of few jobs has enough one day, and a second of a core is spent to see whether it has."""

LIVE_GRADIENT = "live-gradient"
"""The learner's word for a push from live experience where its steps are for replays."""
REGISTER_AGAIN = ("unknown-incarnation", "rounds-only")
"""The learner's words for a push that belongs to no registration it knows, or is not what it now asks for."""

OnHead = Callable[[LearnerHead, WeightSpec], None]


@dataclass(frozen=True, slots=True)
class TrainingCounts:
    """What this process sent to the learner; `acknowledged` updates were applied, now or before.

    `staleness_mean` is in head steps, over the applied ones.
    """

    pushed: int = 0
    acknowledged: int = 0
    rejected: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    dropped_decisions: int = 0
    staleness_mean: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainedPolicy:
    """What ties the trainer to the policy that decides; `on_head` is told of every new head.

    Experience of another spec than the head's is of no use.
    """

    acting_spec: Callable[[], WeightSpec | None]
    on_head: OnHead | None = None


class Trainer:
    """Turns experience into updates until it is finished.

    Args:
        noise: put on every update before it leaves.
        twin: what gradients come from in place of experience, while it applies; a lesson takes this thread minutes.
    """

    def __init__(
        self,
        access: LearnerAccess,
        queue: ExperienceQueue,
        settings: LearningSettings,
        cluster: str,
        policy: TrainedPolicy,
        clock: Callable[[], float],
        noise: UpdateNoise | None = None,
        twin: TwinSource | None = None,
    ) -> None:
        self._noise = noise
        self.twin = twin
        self._learner = access.learner
        self._session = access.session
        self._telemetry = access.telemetry
        self._backoff = access.backoff
        self._queue = queue
        self._settings = settings
        self._cluster = cluster
        self._acting_spec = policy.acting_spec
        self._on_head = policy.on_head
        self._clock = clock
        self.replay = self._empty_replay()
        self._replay_lock = threading.Lock()
        self._form: Hashable = None
        self._random = np.random.default_rng((settings.seed, 1))
        self._computer: tuple[str, Gradients] | None = None
        self._incarnation = 0
        self._sequence = 0
        self._head: LearnerHead | None = None
        self._head_since = 0.0
        self._pushed = 0
        self._outcomes: Counter[str] = Counter()
        self._rejections: Counter[str] = Counter()
        self._staleness_steps = 0
        self.draining = threading.Event()
        self._abort = threading.Event()
        self._pause_seconds = _AFTER_NOTHING_SECONDS
        self._reported_live = False
        self._thread = threading.Thread(target=self._run, name="trainer", daemon=True)

    @property
    def head_step(self) -> int:
        """The step of the newest head seen; 0 before the first."""
        return 0 if self._head is None else self._head.step

    @property
    def counts(self) -> TrainingCounts:
        """What came of the updates so far."""
        applied = self._outcomes[PushOutcome.APPLIED]
        return TrainingCounts(
            pushed=self._pushed,
            acknowledged=applied + self._outcomes[PushOutcome.DUPLICATE],
            rejected=dict(self._rejections),
            dropped_decisions=self._queue.dropped,
            staleness_mean=self._staleness_steps / applied if applied else 0.0,
        )

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Work off what waits, for at most so long, and end."""
        self.draining.set()
        self._thread.join(seconds)
        self._abort.set()

    def _run(self) -> None:
        since_update = 0
        while not self._abort.is_set():
            if (twin := self._twin_now()) is not None:
                if self.draining.is_set():
                    return
                self.teach(twin)
                continue
            experience = self._queue.take(_POLL_EVERY_SECONDS)
            if experience is None:
                if self.draining.is_set():
                    return
                continue
            self.remember(experience)
            since_update += 1
            try:
                if since_update >= self._decisions_between_updates():
                    since_update = 0
                    self.update()
            except Exception:
                # A fault of ours must not end learning for good, nor pass unseen.
                self._telemetry.updates.labels("failed").inc()
                _log.exception("update-failed")
            finally:
                self._queue.done()
                self._telemetry.queue_decisions.set(self._queue.waiting)

    def _twin_now(self) -> TwinSource | None:
        return self.twin if self.twin is not None and self.twin.applies() else None

    def teach(self, twin: TwinSource) -> None:
        """One lesson of the twin, and a rest if it taught nothing; how many there are follows from its share of a core.

        Experience from before it taught is of no use, and nobody is to wait until it has been worked off.
        """
        while self._queue.take(0.0) is not None:
            self._queue.done()
        answer = None
        try:
            answer = self.update()
        except Exception:
            self._telemetry.updates.labels("failed").inc()
            _log.exception("update-failed")
        if answer is not None or not twin.applies():
            self._pause_seconds = _AFTER_NOTHING_SECONDS
            return
        self.draining.wait(self._pause_seconds)
        longer = min(2.0 * self._pause_seconds, _LONGEST_AFTER_NOTHING_SECONDS)
        # Who acts on the head sees it before each lesson, and has to see it often.
        self._pause_seconds = longer if twin.has_nothing and self._on_head is None else _AFTER_NOTHING_SECONDS

    def _decisions_between_updates(self) -> int:
        acting = self._acting_spec()
        if acting is None:
            return self._settings.update_every_decisions
        lesson = update_schedule_for(acting, self._settings.actor_critic, self._settings.residual)
        return max(lesson.every, self._settings.update_every_decisions)

    def remember(self, experience: Experience) -> None:
        """Keep it for replay; the first one of another form is of another spec, and makes the older ones useless."""
        form = experience.samples.form
        with self._replay_lock:
            if form != self._form:
                self._form = form
                self.replay = self._empty_replay()
            self.replay.add(experience)

    def segments(self, spec: WeightSpec) -> list[list[Experience]]:
        """A draw from this cluster's experience, for one update of such policies; callable from any thread."""
        lesson = update_schedule_for(spec, self._settings.actor_critic, self._settings.residual)
        with self._replay_lock:
            return lesson.draw(self.replay)

    def _empty_replay(self) -> ExperienceReplay:
        return ExperienceReplay(self._settings.replay_samples, self._settings.seed)

    def update(self) -> PushAnswer | None:
        """Compute one gradient at the head and have it answered; None if there was nothing to push, or no time."""
        while not self._abort.is_set():
            try:
                registration = self._session.registered()
                if registration.rounds:
                    if (twin := self._twin_now()) is not None:
                        twin.report(
                            "the learner works in rounds, which are answered from live experience alone; let it take"
                            " updates as they come, or see learning.source"
                        )
                    return None  # the learner asks, and `rounds` answers
                if not registration.learning:
                    self._count("unwanted")
                    return None
                update = self._prepare(registration)
                return None if update is None else self._push(update, registration)
            except LearnerUnreachable:
                self._abort.wait(self._backoff.next_seconds())
            except LearnerRefused as error:
                self._session.refusals.on_refused("update", error)
                self._count("refused")
                self._rejections["refused"] += 1
                self._head = None
                if self._session.registration is not None:
                    self._session.forget(self._session.registration.incarnation)
                self._abort.wait(self._backoff.next_seconds())
                return None
        return None

    def _prepare(self, registration: Registration) -> GradientUpdate | None:
        """An update that was not offered yet; None if experience does not suffice for one."""
        spec = registration.spec
        acting = self._acting_spec()
        if acting is None or acting.digest != spec.digest:
            self._count("other-spec")
            return None
        if self._noise is not None and self._noise.exhausted:
            self._count("privacy-spent")
            return None
        if registration.incarnation != self._incarnation:
            self._incarnation = registration.incarnation
            self._sequence = 0
            self._head = None
        twin = self._twin_now()
        if twin is None and not spec.learns_live:
            self._count("live-impossible")
            self._report_live("this dl2 policy has no critic, which rewards of decisions need", spec)
            return None
        if twin is None:
            segments = self.segments(spec)
            if self._settings.permute_rewards:
                segments = [permute_rewards(segment, self._random) for segment in segments]
            result = self.gradient(self._fresh_head(registration), segments, spec)
        else:
            head = partial(self._fresh_head, registration)
            result = twin.gradient(head, spec, registration.incarnation, self._is_ending)
        if result is None:
            self._count("not-enough-samples")
            return None
        self._sequence += 1
        update = GradientUpdate(
            cluster=self._cluster,
            incarnation=registration.incarnation,
            sequence=self._sequence,
            base_step=self.head_step,
            spec_digest=spec.digest,
            gradient=result.gradient,
            samples=result.samples,
            effective_samples=result.effective_samples,
            statistics=result.statistics,
            replayed=twin is not None,
        )
        return update if self._noise is None else self._noise.on(update)

    def _push(self, update: GradientUpdate, registration: Registration) -> PushAnswer | None:
        """Offer one update until it is answered; None if the agent ends first."""
        self._pushed += 1
        while not self._abort.is_set():
            try:
                answer = self._learner.push(update, registration.spec)
            except LearnerUnreachable as error:
                self._count("retried")
                _log.debug("push-unanswered", sequence=update.sequence, error=str(error))
                self._abort.wait(self._backoff.next_seconds())
                continue
            self._backoff.reset()
            self._session.refusals.on_answered("update")
            self._take(answer, update, registration)
            return answer
        return None

    def _take(self, answer: PushAnswer, update: GradientUpdate, registration: Registration) -> None:
        self._outcomes[answer.outcome] += 1
        self._count(answer.outcome)
        if answer.outcome is PushOutcome.REJECTED:
            self._rejections[answer.reason or "unnamed"] += 1
            if answer.reason == LIVE_GRADIENT:
                self._report_live("the learner takes gradients from replays alone", registration.spec)
            self._head = None  # whatever was wrong, the next gradient is computed at a head that is surely there
            if answer.reason in REGISTER_AGAIN:
                self._session.forget(registration.incarnation)
        elif answer.outcome is PushOutcome.APPLIED:
            self._staleness_steps += answer.staleness
            self._telemetry.staleness_steps.observe(answer.staleness)
        self._adopt(answer.head, registration.spec)
        _log.debug(
            "update-answered",
            sequence=update.sequence,
            base_step=update.base_step,
            outcome=answer.outcome,
            reason=answer.reason,
            staleness=answer.staleness,
            samples=update.samples,
            effective_samples=round(update.effective_samples, 1),
            **{name: round(value, 5) for name, value in update.statistics.items()},
        )

    def _fresh_head(self, registration: Registration) -> LearnerHead:
        """The head to compute at: what the last push returned, or pulled again if that is old."""
        head = self._head
        age = self._clock() - self._head_since
        if head is None or age > self._settings.head_max_age_seconds:
            pulled = self._learner.pull_head(registration, None if head is None else head.step)
            if pulled is not None:
                self._adopt(pulled, registration.spec)
            elif head is not None:
                self._head_since = self._clock()
        if self._head is None:
            raise LearnerRefused("PullHead: the learner calls the head unchanged before it ever sent one")
        return self._head

    def _adopt(self, head: LearnerHead | None, spec: WeightSpec) -> None:
        if head is None:
            return
        changed = self._head is None or head.step != self._head.step
        self._head = head
        self._head_since = self._clock()
        if changed and self._on_head is not None:
            self._on_head(head, spec)

    def gradient(
        self, head: LearnerHead, segments: Sequence[Sequence[Experience]], spec: WeightSpec
    ) -> GradientResult | None:
        """The gradient of segments at a head; None if they are too few effective samples."""
        settings = self._settings
        if self._computer is None or self._computer[0] != spec.digest:
            # Here, in the trainer's thread: what it imports takes a second for some kinds.
            self._computer = (spec.digest, gradients_for(spec, settings.actor_critic, settings.residual, settings.seed))
        try:
            result = self._computer[1].gradient(head.weights, segments)
        except NotEnoughSamples:
            return None
        with self._replay_lock:
            self.replay.revalue(segments, result.surprises)
        return result

    def _report_live(self, reason: str, spec: WeightSpec) -> None:
        """Say once why live gradients teach nothing."""
        if self._reported_live:
            return
        self._reported_live = True
        other = "; or see optimizer.units of the learner" if spec.learns_live else ""
        _log.warning(
            "live-gradients-refused",
            reason=f"{reason}: this cluster teaches nothing",
            advice=f"leave learning.source at auto, and decision_log on{other}",
        )

    def _is_ending(self) -> bool:
        return self.draining.is_set() or self._abort.is_set()

    def _count(self, outcome: str) -> None:
        self._telemetry.updates.labels(outcome).inc()
