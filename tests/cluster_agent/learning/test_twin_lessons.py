"""Lessons of the twin: asked of a process, answered by replays of the agent's own past, and pushed like any update."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_fakes import SPEC as OTHER_SPEC
from agent_fakes import WEIGHTS as OTHER_WEIGHTS
from agent_fakes import Clock, FakeLearner, make_state
from log_worlds import live, make_tape

from cluster_agent.active_policy import CandidateFactory
from cluster_agent.fleet.session import LearnerAccess, Session, retry_backoff
from cluster_agent.learning import learning_source, lesson_process
from cluster_agent.learning.experience import ExperienceQueue
from cluster_agent.learning.learning_source import TwinSource
from cluster_agent.learning.lesson_process import answer
from cluster_agent.learning.trainer import TrainedPolicy, Trainer
from cluster_agent.learning.twin_lesson import LessonQuestion, TwinAnswer, head_file
from cluster_agent.recording.log_reading import CURRENT
from cluster_agent.settings import LearningSettings, PolicySettings, RetrySettings, TwinLearningSettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.dl2.network import initial_weights
from policy_net.errors import PolicyNetError
from policy_net.exchange.spec import PolicySpec, WeightSpec, split_weights
from policy_net.exchange.wire import GradientUpdate, LearnerHead, PushAnswer, Registration
from policy_net.laboratory.workloads.decided import RecordedJobs
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Workload, WorkloadOptions
from policy_net.learning.gradient import GradientResult
from policy_net.learning.settings import GroupSettings
from policy_net.set_policy.policy import default_set_file, set_spec_of
from policy_net.throughput.parametric import OnlineFit

FILE = default_set_file()
SPEC = set_spec_of(FILE, "set")
SOURCE = "dl2:jobs=40,seed=3"
SETTINGS = TwinLearningSettings.model_validate({"history": [SOURCE], "window_jobs": 40, "gradient": {"pairs": 2}})
DEADLINE_SECONDS = 60.0


def question(folder: Path, settings: TwinLearningSettings = SETTINGS, seed: int = 1) -> LessonQuestion:
    return LessonQuestion(head_file(SPEC, FILE.weights, FILE.priors), folder, settings, seed)


@pytest.fixture
def lived(tmp_path: Path) -> Path:
    """The state directory of an agent that has decided a few times."""
    live(tmp_path, make_tape(4), CandidateFactory(PolicySettings()).from_name_or_file("set"))
    return tmp_path


def nothing() -> None:
    pass


def test_a_question_comes_back_as_it_was_put(tmp_path: Path) -> None:
    asked = LessonQuestion(b"\x00\xff", tmp_path, SETTINGS, 7, permute=True)
    line = asked.to_line()
    assert line.count(b"\n") == 1
    assert LessonQuestion.from_line(line) == asked


def test_an_answer_comes_back_as_it_was_given() -> None:
    gradient = np.linspace(-1.0, 1.0, SPEC.parameter_count, dtype=np.float32)
    given = TwinAnswer(GradientResult(gradient, 40, 40.0, {"clipped_share": 0.5}), 0.75)
    back = TwinAnswer.from_line(given.to_line().encode(), SPEC)
    assert back.result is not None
    assert np.array_equal(back.result.gradient, gradient)
    assert (back.agreement, back.result.samples, back.result.statistics) == (0.75, 40, {"clipped_share": 0.5})
    none = TwinAnswer(None, 0.0, "why")
    assert TwinAnswer.from_line(none.to_line().encode(), SPEC) == none


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content.pop("agreement"),
        lambda content: content.update(gradient="AAAA"),
        lambda content: content.update(gradient="not base64!"),
        lambda content: content.update(samples="many"),
    ],
)
def test_a_damaged_answer_is_none(spoil: Any) -> None:
    gradient = np.zeros(SPEC.parameter_count, dtype=np.float32)
    content = json.loads(TwinAnswer(GradientResult(gradient, 4, 4.0, {}), 1.0).to_line())
    spoil(content)
    with pytest.raises((ValueError, KeyError, PolicyNetError)):
        TwinAnswer.from_line(json.dumps(content).encode(), SPEC)


def test_a_gradient_that_is_not_finite_is_refused() -> None:
    gradient = np.full(SPEC.parameter_count, np.nan, dtype=np.float32)
    line = TwinAnswer(GradientResult(gradient, 4, 4.0, {}), 1.0).to_line()
    with pytest.raises(ValueError, match="not finite"):
        TwinAnswer.from_line(line.encode(), SPEC)


def test_the_past_of_a_cluster_teaches_on_the_first_day(lived: Path) -> None:
    steps = []
    first, again = (answer(question(lived), lambda: steps.append(1)) for _ in range(2))
    assert first.result is not None, first.reason
    assert again.result is not None
    assert first.agreement is None, "nothing that could be compared has ended here"
    assert np.array_equal(first.result.gradient, again.result.gradient)
    assert np.isfinite(first.result.gradient).all()
    assert first.result.gradient.any()
    assert first.result.samples == 2 * 40
    assert steps, "it may rest between simulated decisions"
    other = answer(question(lived, seed=2), nothing)
    assert other.result is not None
    assert not np.array_equal(other.result.gradient, first.result.gradient)


NETWORK = PolicySpec(jobs_per_batch=5, job_types=("other", "vgg-16"), hidden=(16,))


def network_question(folder: Path, seed: int = 1, *, permute: bool = False) -> LessonQuestion:
    few = SETTINGS.model_copy(update={"groups": GroupSettings(draws=4, micro_actions=500)})
    return LessonQuestion(head_file(NETWORK, initial_weights(NETWORK, 2), ()), folder, few, seed, permute)


def test_the_past_of_a_cluster_teaches_a_network_by_groups_of_decisions(lived: Path) -> None:
    steps = []
    first, again = (answer(network_question(lived), lambda: steps.append(1)) for _ in range(2))
    assert first.result is not None, first.reason
    assert again.result is not None
    assert np.array_equal(first.result.gradient, again.result.gradient)
    assert np.isfinite(first.result.gradient).all()
    parts = split_weights(first.result.gradient, NETWORK)
    assert all(part.any() == name.startswith("actor") for name, part in parts.items()), "the critic learns nothing"
    assert first.result.samples == first.result.effective_samples >= 500
    assert 0.0 < first.result.statistics["utility"] <= 1.0
    assert first.result.statistics["entropy"] > 0.0
    assert steps, "it may rest between simulated decisions"
    for other in (network_question(lived, seed=2), network_question(lived, permute=True)):
        found = answer(other, nothing)
        assert found.result is not None
        assert not np.array_equal(found.result.gradient, first.result.gradient)


def test_steps_along_lessons_of_a_past_find_what_jobs_gain_by(lived: Path) -> None:
    weights = initial_weights(NETWORK, 2)
    utilities = []
    steps = GroupSettings(draws=4, micro_actions=500, batch_samples=64, learning_rate=3e-3)
    for number in range(30):
        question = replace(
            network_question(lived, number),
            policy=head_file(NETWORK, weights, ()),
            settings=SETTINGS.model_copy(update={"groups": steps}),
        )
        found = answer(question, nothing)
        assert found.result is not None
        utilities.append(found.result.statistics["utility"])
        weights = weights - found.result.gradient
    assert np.mean(utilities[-10:]) > 1.1 * np.mean(utilities[:10])


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ([], "no 20 jobs have ended here yet, and learning.twin.history names no recording"),
        (["none.csv"], "none.csv"),
        (["dl2:jobs=3,seed=1"], "has 3 jobs; 20 are the least"),
        (["sacct:none.txt"], "none.txt"),
    ],
)
def test_a_past_that_cannot_be_used_is_one_line(lived: Path, history: Sequence[str], said: str) -> None:
    few = SETTINGS.model_copy(update={"history": tuple(history)})
    for asked in (question(lived, few), replace(network_question(lived), settings=few)):
        found = answer(asked, nothing)
        assert found.result is None
        assert said in found.reason
        assert "\n" not in found.reason


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
def test_a_head_that_cannot_decide_any_more_is_one_line(lived: Path) -> None:
    huge = np.full(NETWORK.parameter_count, 1e30, np.float32)
    found = answer(replace(network_question(lived), policy=head_file(NETWORK, huge, ())), nothing)
    assert found.result is None
    assert "the head cannot decide: the network's logits are not finite" in found.reason


def test_jobs_of_types_that_nobody_knows_teach_by_what_is_believed_of_any_type(lived: Path) -> None:
    spec = PolicySpec(jobs_per_batch=5, hidden=(16,), critic=False)
    asked = replace(network_question(lived), policy=head_file(spec, initial_weights(spec, 2), ()))
    found = answer(asked, nothing)
    assert found.result is not None, found.reason
    assert np.isfinite(found.result.gradient).all()
    assert found.result.gradient.any()
    assert 0.0 < found.result.statistics["utility"] <= 1.0


def test_before_the_first_decision_there_is_no_cluster_to_replay_on(tmp_path: Path) -> None:
    assert answer(question(tmp_path), nothing).reason == "nothing was decided here yet"


def test_a_log_that_was_changed_teaches_nothing(lived: Path) -> None:
    log = lived / CURRENT
    log.write_bytes(log.read_bytes().replace(b"job-3", b"job-7"))
    found = answer(question(lived, SETTINGS.model_copy(update={"history": ()})), nothing)
    assert found.result is None
    assert found.reason


def test_a_line_in_the_middle_that_was_changed_teaches_nothing_with_a_recording_either(lived: Path) -> None:
    log = lived / CURRENT
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:2], lines[2].replace(b"job-3", b"job-7"), *lines[3:]]))
    found = answer(question(lived), nothing)
    assert found.result is None
    assert "damaged" in found.reason


def test_a_twin_that_is_believed_in_part_teaches_as_often(lived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = replace(read_recorded_stand_in(), capacities={tuple(node.capacity for node in make_state(2).nodes): 1.0})
    monkeypatch.setattr(lesson_process, "log_of", lambda _: seen)
    monkeypatch.setattr(lesson_process, "agreement_of", lambda *_, **__: 0.3)
    answers = [answer(question(lived, seed=seed), nothing) for seed in range(20)]
    taught = [each for each in answers if each.result is not None]
    assert 1 <= len(taught) <= 12
    assert all(each.agreement == 0.3 and not each.reason for each in answers)
    assert all(each.result is not None and each.result.samples == 2 * 40 for each in taught)


def read_recorded_stand_in() -> RecordedJobs:
    """A log of one job, too few to be drawn from."""
    job = load_workload("dl2:jobs=1,seed=1", WorkloadOptions()).jobs[0]
    return RecordedJobs(Workload("log", (job,)), 0.0, {}, {}, OnlineFit(), 600.0, 0.0, 0)


class Source:
    """A source whose process is a program of the test's."""

    def __init__(self, folder: Path, program: str, seconds: float = 600.0, cluster: str = "alpha") -> None:
        self.telemetry = AgentTelemetry()
        settings = LearningSettings(source="twin", twin=SETTINGS)
        command = (sys.executable, "-c", program)
        self.source = TwinSource(settings, cluster, folder, lambda: FILE.priors, self.telemetry, command, seconds)

    def ask(self, *, ending: bool = False) -> GradientResult | None:
        return self.source.gradient(lambda: LearnerHead(0, FILE.weights), SPEC, 1, lambda: ending)


def printed(content: TwinAnswer) -> str:
    return f"print({content.to_line()!r})"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise SystemExit('out of luck')", "out of luck"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended with -9"),
        ("print('no answer')", "Expecting value"),
        ("print('{}')", "agreement"),
        (printed(TwinAnswer(None, reason="no past")), "no past"),
    ],
)
def test_whatever_goes_wrong_costs_a_lesson_and_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: str, said: str
) -> None:
    source = Source(tmp_path, program)
    assert source.ask() is None
    assert source.ask() is None
    out = capsys.readouterr().out
    assert said in out
    assert out.count("twin-teaches-nothing") == 1


def test_a_process_that_hangs_is_given_up_and_one_that_nobody_waits_for_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hang = "import time; time.sleep(100000)"
    assert Source(tmp_path, hang, seconds=0.1).ask() is None
    assert "not done in 0.1 s" in capsys.readouterr().out
    assert Source(tmp_path, hang).ask(ending=True) is None
    assert "twin-teaches-nothing" not in capsys.readouterr().out, "an agent that ends has nothing to complain of"


def test_without_the_compiled_twin_lessons_take_longer_and_it_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning_source, "notice", lambda: "the compiled twin was not built: set up again")
    source = Source(tmp_path, printed(TwinAnswer(None, reason="no past")))
    for _ in range(2):
        source.ask()
    out = capsys.readouterr().out
    assert out.count("twin-is-slow") == 1
    assert "the compiled twin was not built" in out


def test_clusters_with_one_seed_ask_for_other_windows_and_one_cluster_each_time_for_another(tmp_path: Path) -> None:
    keep = (
        f"import sys; open({str(tmp_path / 'asked')!r}, 'ab').write(sys.stdin.buffer.readline()); raise SystemExit(1)"
    )
    for cluster in ("alpha", "beta"):
        source = Source(tmp_path, keep, cluster=cluster)
        assert source.ask() is source.ask() is None
    asked = [LessonQuestion.from_line(line) for line in (tmp_path / "asked").read_bytes().splitlines()]
    assert len({question.seed for question in asked}) == 4


def test_how_far_the_twin_is_believed_is_a_metric(tmp_path: Path) -> None:
    source = Source(tmp_path, printed(TwinAnswer(None, 0.0, "off by half")))
    assert source.ask() is None
    assert source.telemetry.registry.get_sample_value("fedl2_agent_twin_agreement") == 0.0


class SetLearner(FakeLearner):
    """Whose policy is `set`."""

    def register(self, spec_digest: str, job_types: Sequence[str]) -> Registration:
        found = super().register(spec_digest, job_types)
        return Registration(found.incarnation, SPEC, self.step, self.assigned, self.learning)

    def pull_head(self, registration: Registration, have_step: int | None) -> LearnerHead | None:
        found = super().pull_head(registration, have_step)
        return None if found is None else LearnerHead(found.step, FILE.weights)

    def push(self, update: GradientUpdate, spec: Any) -> PushAnswer:
        answered = super().push(update, spec)
        head = None if answered.head is None else LearnerHead(answered.head.step, FILE.weights)
        return PushAnswer(answered.outcome, answered.reason, answered.head_step, answered.staleness, head)


def trainer_of(learner: FakeLearner, source: Source, acting: WeightSpec | None = SPEC) -> Trainer:
    session = Session(learner, SPEC.digest, ())
    retry = RetrySettings(initial_seconds=0.001, maximum_seconds=0.002)
    access = LearnerAccess(learner, session, source.telemetry, retry_backoff(retry, "alpha"))
    settings = LearningSettings(source="twin", twin=SETTINGS)
    policy = TrainedPolicy(lambda: acting)
    return Trainer(access, ExperienceQueue(8), settings, "alpha", policy, Clock(), twin=source.source)


def test_lessons_are_pushed_one_after_the_other_and_each_once_though_answers_are_lost(tmp_path: Path) -> None:
    gradient = np.full(SPEC.parameter_count, 0.5, dtype=np.float32)
    source = Source(tmp_path, printed(TwinAnswer(GradientResult(gradient, 80, 80.0, {"clipped_share": 0.0}), 1.0)))
    learner = SetLearner()
    learner.lose_replies, learner.away = 2, 1
    trainer = trainer_of(learner, source)
    trainer.start()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(learner.updates) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    trainer.finish(DEADLINE_SECONDS)
    assert learner.applied == [(1, sequence) for sequence in range(1, len(learner.applied) + 1)]
    assert all(np.array_equal(update.gradient, gradient) and update.samples == 80 for update in learner.updates)


def test_a_lesson_that_had_to_wait_for_its_turn_is_of_the_head_of_then(tmp_path: Path) -> None:
    gradient = np.zeros(SPEC.parameter_count, dtype=np.float32)
    source = Source(tmp_path, printed(TwinAnswer(GradientResult(gradient, 80, 80.0, {}), 1.0)))
    learner = SetLearner()
    trainer = trainer_of(learner, source)
    budget, others = source.source.budget, object()
    budget.waiting.append(others)
    trainer.start()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(budget.waiting) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    learner.applied = [(9, sequence) for sequence in range(7)]  # another cluster's, meanwhile
    with budget._turns:
        budget.waiting.remove(others)
        budget._turns.notify_all()
    while not learner.updates:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    trainer.finish(DEADLINE_SECONDS)
    assert learner.updates[0].base_step == 7


def test_a_policy_of_another_kind_is_taught_nothing(tmp_path: Path) -> None:
    source = Source(tmp_path, "raise SystemExit('asked')")
    learner = FakeLearner()
    trainer = trainer_of(learner, source, acting=None)
    assert trainer.update() is None
    assert not learner.updates
    assert OTHER_WEIGHTS.size != SPEC.parameter_count


def test_a_network_is_taught_by_lessons_too(tmp_path: Path) -> None:
    gradient = np.full(OTHER_SPEC.parameter_count, 0.5, dtype=np.float32)
    source = Source(tmp_path, printed(TwinAnswer(GradientResult(gradient, 80, 80.0, {"utility": 0.5}), 1.0)))
    learner = FakeLearner()
    trainer = trainer_of(learner, source, acting=OTHER_SPEC)
    assert trainer.update() is not None
    (update,) = learner.updates
    assert update.replayed
    assert np.array_equal(update.gradient, gradient)


def test_a_learner_in_rounds_asks_for_no_lessons_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(tmp_path, "raise SystemExit('asked')")
    learner = SetLearner()
    registered = learner.register
    monkeypatch.setattr(
        learner, "register", lambda digest, job_types: replace(registered(digest, job_types), rounds=True)
    )
    trainer = trainer_of(learner, source)
    for _ in range(2):
        assert trainer.update() is None
    assert not learner.updates
    out = capsys.readouterr().out
    assert "asked" not in out
    assert out.count("the learner works in rounds") == 1
