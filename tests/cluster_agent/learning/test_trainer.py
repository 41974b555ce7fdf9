import importlib
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from agent_fakes import SPEC, WEIGHTS, Clock, FakeLearner, make_experience

from cluster_agent.fleet.session import LearnerAccess, Session, retry_backoff
from cluster_agent.learning.experience import ExperienceQueue
from cluster_agent.learning.trainer import TrainedPolicy, Trainer
from cluster_agent.settings import LearningSettings, RetrySettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.exchange.spec import PolicySpec
from policy_net.exchange.wire import LearnerHead
from policy_net.learning.replay import Experience

ONE_SEGMENT = {"segments": 1, "segment_decisions": 20, "minimum_effective_samples": 1}
QUICK = RetrySettings(initial_seconds=0.001, maximum_seconds=0.002)


class World:
    """A trainer, the learner that it speaks to, and what is between them."""

    def __init__(self, spec: PolicySpec | None = SPEC, **settings: object) -> None:
        self.learner = FakeLearner()
        self.session = Session(self.learner, SPEC.digest, ("vgg-16",))
        self.queue = ExperienceQueue(int(str(settings.get("queue_decisions", 64))))
        self.clock = Clock()
        self.heads: list[LearnerHead] = []
        self.telemetry = AgentTelemetry()
        self.trainer = Trainer(
            LearnerAccess(self.learner, self.session, self.telemetry, retry_backoff(QUICK, "alpha")),
            self.queue,
            LearningSettings.model_validate({"actor_critic": ONE_SEGMENT} | settings),
            "alpha",
            TrainedPolicy(lambda: spec, lambda head, spec: self.heads.append(head)),
            self.clock,
        )

    def run_decisions(self, decisions: int, between: Callable[[int], None] = lambda index: None) -> None:
        """Let so many decisions be learned from, in the trainer's own thread."""
        self.trainer.start()
        for index in range(decisions):
            between(index)
            self.queue.put(make_experience(index))
            deadline = time.monotonic() + 60.0
            while self.queue.waiting:
                time.sleep(0.001)  # a busy loop would keep the trainer's thread from running
                assert time.monotonic() < deadline, "the trainer got stuck"
        self.trainer.finish(60.0)


@pytest.fixture(scope="module", autouse=True)
def _torch_is_there() -> None:
    """Import it before the clock of the first test runs: on a busy machine it takes longer than all of them."""
    importlib.import_module("torch")


def test_every_decision_brings_one_update_numbered_from_one() -> None:
    world = World()
    world.run_decisions(6)
    # The first decision alone has no advantage to speak of.
    assert world.learner.applied == [(1, sequence) for sequence in range(1, 6)]
    assert world.trainer.counts.pushed == world.trainer.counts.acknowledged == 5
    lengths = [len(make_experience(index).samples) for index in range(6)]
    assert [update.samples for update in world.learner.updates] == [sum(lengths[: 2 + index]) for index in range(5)]
    assert all(np.isfinite(update.gradient).all() for update in world.learner.updates)


def test_the_gradient_is_computed_at_the_head_that_came_with_the_last_answer() -> None:
    world = World()
    world.run_decisions(5)
    assert [update.base_step for update in world.learner.updates] == [0, 1, 2, 3]
    assert world.learner.pulls == 1
    assert world.trainer.counts.staleness_mean == 0.0
    assert [head.step for head in world.heads] == [0, 1, 2, 3, 4]


def test_a_head_that_has_grown_old_is_pulled_again() -> None:
    world = World(head_max_age_seconds=1.0)

    def grow_old(index: int) -> None:
        world.clock.now += 2.0

    world.run_decisions(4, grow_old)
    assert world.learner.pulls == 4


@pytest.mark.parametrize("lost", [1, 3])
def test_an_update_whose_answer_was_lost_is_offered_again_and_applied_once(lost: int) -> None:
    world = World()

    def misbehave(index: int) -> None:
        if index == 3:
            world.learner.lose_replies = lost

    world.run_decisions(6, misbehave)
    assert world.learner.applied == [(1, sequence) for sequence in range(1, 6)]
    counts = world.trainer.counts
    assert (counts.pushed, counts.acknowledged, counts.rejected) == (5, 5, {})


def test_after_an_outage_the_trainer_goes_on_by_itself_and_catches_up() -> None:
    world = World()

    def go_away(index: int) -> None:
        if index == 2:
            world.learner.away = 5

    world.run_decisions(6, go_away)
    assert world.learner.applied == [(1, sequence) for sequence in range(1, 6)]


def test_a_learner_that_forgot_the_agent_gets_a_new_registration_and_sequences_from_one() -> None:
    world = World()

    def forget(index: int) -> None:
        if index == 3:
            world.learner.forget_everybody()

    world.run_decisions(6, forget)
    # The update that the forgetful learner rejected is gone: nobody knows whether it was ever applied.
    assert world.learner.applied == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert world.trainer.counts.rejected == {"unknown-incarnation": 1}


def test_without_a_learner_experience_stays_bounded_and_the_oldest_goes() -> None:
    queue = ExperienceQueue(capacity=5)
    for index in range(12):
        queue.put(make_experience(index))
    assert queue.dropped == 7
    assert queue.waiting == 5
    taken = queue.take(0.0)
    assert taken is not None
    assert taken.reward == make_experience(7).reward
    assert queue.waiting == 5, "what is being worked on still waits to be done"
    queue.done()
    assert queue.waiting == 4


def test_a_refused_update_is_dropped_and_the_next_one_goes_through() -> None:
    world = World()

    def refuse(index: int) -> None:
        if index == 2:
            world.learner.refuse = 1

    world.run_decisions(5, refuse)
    assert world.trainer.counts.rejected == {"refused": 1}
    assert len(world.learner.applied) == 3


def test_a_cluster_whose_updates_are_not_wanted_pushes_nothing() -> None:
    world = World()
    world.learner.learning = False
    world.run_decisions(4)
    assert world.learner.applied == []
    assert world.trainer.counts.pushed == 0


def test_experience_of_a_policy_of_another_spec_is_not_pushed() -> None:
    world = World(spec=SPEC.model_copy(update={"hidden": (16,)}))
    world.run_decisions(4)
    assert world.learner.applied == []


def test_experience_of_another_shape_begins_a_new_replay() -> None:
    world = World()
    world.trainer.remember(make_experience(0))
    world.trainer.remember(make_experience(1))
    samples = make_experience(2).samples
    wider = replace(samples, masks_MA=np.ones((len(samples), SPEC.action_count + 3), dtype=np.bool_))
    world.trainer.remember(replace(make_experience(2), samples=wider))
    assert len(world.trainer.replay) == 1


def test_a_prioritised_replay_learns_how_surprising_its_decisions_were() -> None:
    world = World(actor_critic={**ONE_SEGMENT, "replay": "prioritised"})
    world.run_decisions(5)
    assert len(world.learner.applied) == 4
    surprises = [world.trainer.replay.surprises[id(entry)] for entry in world.trainer.replay.entries]
    assert len(surprises) == 5
    assert all(surprise != 1.0 for surprise in surprises)


def test_an_update_every_so_many_decisions() -> None:
    world = World(update_every_decisions=3)
    world.run_decisions(9)
    assert len(world.learner.applied) == 3


def test_with_permuted_rewards_gradients_are_of_rewards_dealt_out_anew() -> None:
    seen: dict[bool, list[list[float]]] = {}
    for permute in (False, True):
        world = World(permute_rewards=permute, actor_critic=ONE_SEGMENT)
        for index in range(20):
            world.trainer.replay.add(make_experience(index))

        def watch(
            head: LearnerHead, segments: list[list[Experience]], spec: PolicySpec, permute: bool = permute
        ) -> None:
            seen[permute] = [[entry.reward for entry in segment] for segment in segments]

        world.trainer.gradient = watch  # type: ignore[method-assign, assignment]
        world.trainer.update()
    rewards = [make_experience(index).reward for index in range(20)]
    assert seen[False] == [rewards]
    assert sorted(seen[True][0]) == pytest.approx(sorted(rewards))
    assert seen[True] != seen[False]


def test_finishing_does_not_wait_for_a_learner_that_is_away() -> None:
    world = World()
    world.learner.away = 10**9
    world.trainer.start()
    world.queue.put(make_experience(1))
    world.queue.put(make_experience(2))
    world.trainer.finish(0.05)
    assert world.learner.applied == []


def test_the_gradient_is_bit_for_bit_the_same_for_the_same_seed() -> None:
    first, second = World(seed=3), World(seed=3)
    for world in (first, second):
        world.run_decisions(8)
    pairs = zip(first.learner.updates, second.learner.updates, strict=True)
    assert all(np.array_equal(one.gradient, other.gradient) for one, other in pairs)
    assert len(WEIGHTS) == len(first.learner.updates[0].gradient)
