"""Noise on a cluster's own updates: nothing leaves without it, and what was spent outlives the agent."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from agent_fakes import SPEC, WEIGHTS, Clock, FakeLearner, make_experience
from pydantic import ValidationError

from cluster_agent.errors import StateDamaged
from cluster_agent.fleet.session import LearnerAccess, Session, retry_backoff
from cluster_agent.learning.experience import ExperienceQueue
from cluster_agent.learning.noise import SPENT_NAME, UpdateNoise
from cluster_agent.learning.rounds import RoundWork
from cluster_agent.learning.trainer import TrainedPolicy, Trainer
from cluster_agent.settings import AgentSettings, LearningSettings, RetrySettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.exchange.wire import RoundKind, RoundTask
from policy_net.privacy.settings import NoiseSettings, declaration

NOISE = NoiseSettings(clip_norm=0.5, noise_multiplier=4.0, target_epsilon=2.0)
MOST = 4
"""Updates that it allows."""


class World:
    """A trainer that adds noise (none without a folder), and the learner that it speaks to."""

    def __init__(self, folder: Path | None = None) -> None:
        self.learner = FakeLearner()
        self.telemetry = AgentTelemetry()
        self.queue = ExperienceQueue(64)
        one_segment = {"segments": 1, "segment_decisions": 20, "minimum_effective_samples": 1}
        retry = RetrySettings(initial_seconds=0.001, maximum_seconds=0.002)
        session = Session(self.learner, SPEC.digest, ("vgg-16",))
        self.trainer = Trainer(
            LearnerAccess(self.learner, session, self.telemetry, retry_backoff(retry, "alpha")),
            self.queue,
            LearningSettings.model_validate({"actor_critic": one_segment}),
            "alpha",
            TrainedPolicy(lambda: SPEC, None),
            Clock(),
            None if folder is None else UpdateNoise(NOISE, folder),
        )

    def run_decisions(self, decisions: int) -> None:
        """Let so many decisions be learned from, in the trainer's own thread."""
        importlib.import_module("torch")  # before anything waits: on a busy machine it takes longer than all else
        self.trainer.start()
        for index in range(decisions):
            self.queue.put(make_experience(index))
        self.trainer.finish(120.0)


def test_what_leaves_is_noised_says_so_and_nothing_else_and_ends_at_the_limit(tmp_path) -> None:
    plain = World()
    plain.run_decisions(8)
    world = World(tmp_path)
    world.run_decisions(8)
    assert len(world.learner.updates) == MOST < len(plain.learner.updates)
    for update in world.learner.updates:
        assert update.statistics == declaration(NOISE)
        assert (update.samples, update.effective_samples) == (1, 1.0)
        deviation = float(np.std(update.gradient))
        assert 1.5 < deviation < 2.5  # 0.5 × 4, of some hundred parameters
    assert world.telemetry.registry.get_sample_value("fedl2_agent_updates_total", {"outcome": "privacy-spent"}) > 0


def test_a_restart_goes_on_where_the_budget_was(tmp_path) -> None:
    World(tmp_path).run_decisions(3)
    again = World(tmp_path)
    again.run_decisions(8)
    assert len(again.learner.updates) == MOST - 2
    third = World(tmp_path)
    third.run_decisions(4)
    assert third.learner.updates == []


@pytest.mark.parametrize("content", ["", "{}", '{"updates": 1, "spent": 0.0, "checksum": 3}', "[1]"])
def test_a_damaged_budget_is_no_new_budget(tmp_path, content) -> None:
    (tmp_path / SPENT_NAME).write_text(content)
    with pytest.raises(StateDamaged, match=r"privacy\.json: damaged"):
        UpdateNoise(NOISE, tmp_path)


def test_a_round_gets_no_answer_from_a_cluster_that_adds_noise() -> None:
    work = RoundWork(lambda _spec: [[make_experience(1)]], LearningSettings(), private=True)
    answer = work.answer(RoundTask("t", RoundKind.TRAIN, WEIGHTS, SPEC.digest, {}), SPEC)
    assert "privacy" in answer.error
    assert answer.weights.size == 0


def test_noise_without_anything_to_put_it_on_is_a_contradiction(tmp_path) -> None:
    content = {
        "cluster": "north",
        "state_dir": tmp_path,
        "backend": {"workloads": [{"source": "dl2:jobs=2"}]},
        "policy": {"initial": "drf"},
        "privacy": NOISE.model_dump(),
    }
    with pytest.raises(ValidationError, match="privacy is noise on what this cluster teaches, and it teaches nothing"):
        AgentSettings.model_validate(content)
