"""Where gradients come from, by settings, policy and learner; and a trainer that follows it."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_fakes import SPEC as DL2
from agent_fakes import WEIGHTS, FakeLearner, make_experience

from cluster_agent.fleet.session import LearnerAccess, Session, retry_backoff
from cluster_agent.learning.experience import ExperienceQueue
from cluster_agent.learning.learning_source import LearningSource, TwinSource
from cluster_agent.learning.trainer import TrainedPolicy, Trainer
from cluster_agent.learning.twin_lesson import TwinAnswer
from cluster_agent.settings import AgentSettings, LearningSettings, RetrySettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.exchange.spec import SetSpec, WeightSpec
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.exchange.wire import GradientUpdate, LearnerHead, PushAnswer, PushOutcome, Registration
from policy_net.learning.gradient import GradientResult

SET = SetSpec()
HEAD = np.zeros(SET.parameter_count, dtype=np.float32)
DEADLINE_SECONDS = 120.0


def settings(**sections: Any) -> AgentSettings:
    return AgentSettings.model_validate(
        {
            "cluster": "north",
            "state_dir": "state",
            "learner": {"address": "127.0.0.1:7070"},
            "backend": {"kind": "simulated", "workloads": [{"source": "dl2:jobs=5"}]},
            **sections,
        }
    )


class Place:
    """A source whose policy and learner the test changes."""

    def __init__(self, **sections: Any) -> None:
        self.spec: WeightSpec | None = SET
        self.rounds = False
        self.telemetry = AgentTelemetry()
        self.source = LearningSource(settings(**sections), lambda: self.spec, lambda: self.rounds, self.telemetry)

    @property
    def shown(self) -> float | None:
        return self.telemetry.registry.get_sample_value("fedl2_agent_twin_teaching_flag")


def test_unless_told_otherwise_the_twin_teaches_either_kind(capsys: pytest.CaptureFixture[str]) -> None:
    place = Place()
    assert place.source.may_be_twin
    assert [place.source.is_twin() for _ in range(3)] == [True] * 3
    assert place.shown == 1.0
    place.spec = DL2
    assert place.source.is_twin()
    place.rounds = True
    assert not place.source.is_twin()
    assert place.shown == 0.0
    out = capsys.readouterr().out
    assert out.count("learning-source") == 3, "once for each choice"
    assert "the policy is of kind set" in out
    assert "the policy is of kind dl2" in out


def test_a_scheduler_without_weights_is_nobodys_pupil_and_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    place = Place()
    place.spec = None
    assert not place.source.is_twin()
    assert "learning-source" not in capsys.readouterr().out


def test_rounds_and_a_missing_log_leave_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    place = Place()
    place.rounds = True
    assert not place.source.is_twin()
    assert "works in rounds" in capsys.readouterr().out
    unlogged = Place(decision_log={"enabled": False})
    assert not unlogged.source.may_be_twin
    assert not unlogged.source.is_twin()
    assert "decision_log.enabled is off" in capsys.readouterr().out


@pytest.mark.parametrize("source", ["live", "twin"])
def test_what_is_said_holds_whatever_decides(source: str) -> None:
    place = Place(learning={"source": source})
    for spec in (SET, DL2, None):
        place.spec = spec
        place.rounds = not place.rounds
        assert place.source.is_twin() is (source == "twin")
    assert place.source.may_be_twin is (source == "twin")


def test_experience_is_kept_only_while_it_teaches() -> None:
    place, queue = Place(), ExperienceQueue(8)
    keep = place.source.live_into(queue)
    keep(make_experience(0))
    assert queue.waiting == 0
    place.rounds = True
    keep(make_experience(1))
    assert queue.waiting == 1


class Kinds(FakeLearner):
    """A learner of a kind that the test changes; with `only_replays` as one that counts in spreads."""

    def __init__(self) -> None:
        super().__init__()
        self.spec: WeightSpec = SET
        self.only_replays = True
        self.refused = 0

    def register(self, spec_digest: str, job_types: Sequence[str]) -> Registration:
        found = super().register(spec_digest, job_types)
        return Registration(found.incarnation, self.spec, self.step, self.assigned, self.learning)

    def pull_head(self, registration: Registration, have_step: int | None) -> LearnerHead | None:
        found = super().pull_head(registration, have_step)
        return None if found is None else replace(found, weights=HEAD if self.spec is SET else WEIGHTS)

    def push(self, update: GradientUpdate, spec: Any) -> PushAnswer:
        if self.only_replays and not update.replayed:
            self.refused += 1
            return PushAnswer(PushOutcome.REJECTED, "live-gradient", self.step, 0, None)
        answered = super().push(update, spec)
        return replace(answered, head=None)


def trainer_of(
    learner: Kinds,
    place: Place,
    folder: Path,
    queue: ExperienceQueue,
    answered: TwinAnswer,
    session: Session | None = None,
) -> Trainer:
    learning = LearningSettings(head_max_age_seconds=0.0)
    command = (sys.executable, "-c", f"print({answered.to_line()!r})")
    twin = TwinSource(
        learning, "north", folder, tuple[SpeedStatistic, ...], place.telemetry, command, applies=place.source.is_twin
    )
    retry = retry_backoff(RetrySettings(initial_seconds=0.001, maximum_seconds=0.002), "north")
    access = LearnerAccess(learner, session or Session(learner, "", ()), place.telemetry, retry)
    policy = TrainedPolicy(lambda: place.spec)
    return Trainer(access, queue, learning, "north", policy, time.monotonic, twin=twin)


def wait_until(condition: Any) -> None:
    deadline, pause = time.monotonic() + DEADLINE_SECONDS, threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.005)


def test_a_trainer_follows_its_source_and_nobody_waits_for_old_experience(tmp_path: Path) -> None:
    learner, place, queue = Kinds(), Place(), ExperienceQueue(8)
    gradient = np.full(SET.parameter_count, 0.5, dtype=np.float32)
    session = Session(learner, "", ())
    answer = TwinAnswer(GradientResult(gradient, 80, 80.0, {}), 1.0)
    trainer = trainer_of(learner, place, tmp_path, queue, answer, session)
    queue.put(make_experience(0))
    trainer.start()
    wait_until(lambda: len(learner.updates) >= 2)
    assert queue.waiting == 0
    assert all(update.replayed for update in learner.updates)
    # The learner begins anew with a policy of the other kind, and the agent acts on it; its source is live from now on.
    place.spec, learner.spec, place.rounds = DL2, DL2, True
    learner.only_replays = False
    learner.forget_everybody()
    if (
        registered := session.registration
    ) is not None:  # what an agent hears with its next heartbeat, if not by an update
        session.forget(registered.incarnation)
    taught = len(learner.updates)
    keep = place.source.live_into(queue)
    deadline = time.monotonic() + DEADLINE_SECONDS
    for number in itertools.count():
        # Of a source that is not live yet nothing is kept, and nothing waits: experience comes on until it is.
        assert time.monotonic() < deadline
        keep(make_experience(number))
        wait_until(lambda: queue.waiting < 4)
        if len(learner.updates) > taught + 1 and not learner.updates[-1].replayed:
            break
        time.sleep(0.001)
    trainer.finish(DEADLINE_SECONDS)
    assert not learner.updates[-1].replayed
    assert learner.updates[-1].gradient.shape == WEIGHTS.shape


def test_a_learner_that_wants_replays_alone_is_understood_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner, place, queue = Kinds(), Place(learning={"source": "live"}), ExperienceQueue(64)
    place.spec = learner.spec = DL2  # any that learns from what happened; the learner's word is the same
    trainer = trainer_of(learner, place, tmp_path, queue, TwinAnswer(None))
    for number in range(40):
        trainer.remember(make_experience(number))
    for _ in range(3):
        trainer.update()
    assert learner.refused == 3
    out = capsys.readouterr().out
    assert out.count("live-gradients-refused") == 1
    assert "learning.source" in out
    assert "see optimizer.units of the learner" in out


def test_an_actor_alone_is_not_taught_by_what_happened_and_that_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner, place, queue = Kinds(), Place(learning={"source": "live"}), ExperienceQueue(64)
    place.spec = learner.spec = DL2.model_copy(update={"critic": False})
    trainer = trainer_of(learner, place, tmp_path, queue, TwinAnswer(None))
    for number in range(40):
        trainer.remember(make_experience(number))
    for _ in range(3):
        assert trainer.update() is None
    assert learner.refused == 0
    assert not learner.updates
    out = capsys.readouterr().out
    assert out.count("live-gradients-refused") == 1
    assert "no critic" in out
    assert "leave learning.source at auto" in out
    assert "optimizer.units" not in out, "no setting of the learner makes such a policy learn so"


def test_a_twin_without_a_past_is_asked_ever_more_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, place, queue = Kinds(), Place(), ExperienceQueue(8)
    trainer = trainer_of(learner, place, tmp_path, queue, TwinAnswer(None, reason="no 20 jobs have ended here yet"))
    waits: list[float] = []
    monkeypatch.setattr(trainer.draining, "wait", waits.append)
    assert trainer.twin is not None
    for _ in range(9):
        trainer.teach(trainer.twin)
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0, 600.0]
    assert not learner.updates
