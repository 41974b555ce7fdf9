"""Twins that answer, crash, hang and are killed: blocks lose their figures and nothing else."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from agent_fakes import Clock
from assignment_worlds import EXPIRES, RolloutLearner, SimulatedAgent, alternating

from cluster_agent.rollout.block_question import BlockQuestion, Figures, PolicyAtBlock
from cluster_agent.rollout.block_twins import BlockId, BlockTwins, TwinRecord, TwinWorker, twin_command
from cluster_agent.rollout.rollout_part import RolloutPart
from cluster_agent.settings import PolicySettings
from foundation.question_process import CoreShare

DEADLINE_SECONDS = 180.0
Found = TypeVar("Found")


class FakeTwin:
    """Keeps questions; answers when it is told to."""

    def __init__(self, free_capacity: bool = True) -> None:
        self.free_capacity = free_capacity
        self.questions: list[BlockQuestion] = []
        self.given: dict[BlockId, Figures | None] = {}
        self.closed = False

    def ask(self, question: BlockQuestion) -> bool:
        if self.free_capacity:
            self.questions.append(question)
        return self.free_capacity

    @property
    def unanswered(self) -> int:
        return len(self.questions)

    def answers(self) -> dict[BlockId, Figures | None]:
        given, self.given = self.given, {}
        return given

    def close(self) -> None:
        self.closed = True

    def answer(self, figures: Figures | None) -> None:
        self.given |= {BlockId(question.rollout, question.number): figures for question in self.questions}


def agent_with(folder: Path, twin: FakeTwin, learner: RolloutLearner | None = None) -> SimulatedAgent:
    learner = learner or RolloutLearner()
    learner.assigned, learner.rollout_assignment, learner.expires = 1, alternating(), EXPIRES
    agent = SimulatedAgent(folder, learner, Clock())
    rollout_part = agent.rollout_part
    rollout_part.twins = BlockTwins(twin, 60.0)
    return agent


def live_until(agent: SimulatedAgent, done: object) -> None:
    assert callable(done)
    for _ in range(400):
        if done():
            return
        agent.beat()
        agent.decide()
    raise AssertionError("it never came to pass")


def a_question() -> BlockQuestion:
    """Of a real agent's, so of real policies and beliefs."""
    return _questions[0]


_questions: list[BlockQuestion] = []


@pytest.fixture(autouse=True, scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Sequence[BlockQuestion]:
    twin = FakeTwin()
    agent = agent_with(tmp_path_factory.mktemp("asking"), twin)
    live_until(agent, lambda: len(twin.questions) >= 2)
    _questions[:] = twin.questions
    return _questions


def wait_for(worker: TwinWorker, count: int = 1) -> dict[BlockId, Figures | None]:
    found: dict[BlockId, Figures | None] = {}
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline
        found |= worker.answers()
        time.sleep(0.02)
    return found


def test_blocks_wait_for_their_figures_and_are_told_in_order(tmp_path: Path) -> None:
    twin, learner = FakeTwin(), RolloutLearner()
    agent = agent_with(tmp_path, twin, learner)
    live_until(agent, lambda: len(twin.questions) >= 2)
    agent.beat()
    assert learner.blocks == {}, "they wait"
    twin.answer((3.0, 2.0, 1.0))
    agent.beat()
    assert [block.twin for block in learner.blocks.values()] == [(3.0, 2.0, 1.0)] * 2
    assert sorted(learner.blocks) == [0, 1]
    assert [question.number for question in twin.questions] == [0, 1]


@pytest.mark.parametrize("free_capacity", [True, False])
def test_a_twin_without_room_or_figures_costs_the_figures_alone(tmp_path: Path, free_capacity: bool) -> None:
    twin, learner = FakeTwin(free_capacity), RolloutLearner()
    agent = agent_with(tmp_path, twin, learner)

    def answered() -> bool:
        twin.answer(None)
        return len(learner.blocks) >= 4

    live_until(agent, answered)
    assert all(block.twin is None for block in learner.blocks.values())
    assert sorted(learner.blocks)[:4] == [0, 1, 2, 3]


def test_what_waits_when_the_agent_ends_or_is_killed_is_told_without_figures(tmp_path: Path) -> None:
    twin, learner = FakeTwin(), RolloutLearner()
    agent = agent_with(tmp_path, twin, learner)
    live_until(agent, lambda: len(twin.questions) >= 2)
    agent.rollout_part.close()
    again = RolloutPart(tmp_path, "north", agent.active, agent.beliefs, Clock())
    evidence = again.evidence()
    assert evidence is not None
    assert [block.number for block in evidence.blocks][:2] == [0, 1]
    agent.rollout_part.stop_twin()
    assert twin.closed
    agent.beat()
    assert {0, 1} <= learner.blocks.keys()


def test_a_faulty_record_costs_no_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin, learner = FakeTwin(), RolloutLearner()
    agent = agent_with(tmp_path, twin, learner)

    def fails(*_: object) -> bool:
        raise ValueError("a state that nobody thought of")

    monkeypatch.setattr(TwinRecord, "moved_to", fails)
    live_until(agent, lambda: len(learner.blocks) >= 2)
    assert all(block.twin is None for block in learner.blocks.values())


@pytest.mark.heavy
def test_the_process_answers_for_the_policies_of_a_real_agent() -> None:
    worker = TwinWorker(twin_command(100.0, PolicySettings()))
    asked = a_question()
    try:
        assert worker.ask(asked)
        assert worker.ask(replace(asked, candidate=asked.incumbent, number=99))
        answers = wait_for(worker, 2)
    finally:
        worker.close()
    figures = answers[BlockId(asked.rollout, asked.number)]
    assert figures is not None
    assert min(figures) > 0.0
    equal = answers[BlockId(asked.rollout, 99)]
    assert equal is not None
    assert equal[1] == equal[2], "two equal versions"
    assert worker.unanswered == 0


@pytest.mark.parametrize(
    "program",
    [
        "import os; os.kill(os.getpid(), 9)",
        "raise SystemExit(3)",
        "print('no figures')",
        "print([1.0, 2.0])",
        "print([1.0, 2.0, float('nan')])",
        "print([1.0, 2.0, -3.0])",
    ],
)
def test_a_process_that_crashes_or_talks_nonsense_leaves_the_next_question_answered(program: str) -> None:
    once = f"import sys; number = sys.stdin.readline().split(',')[1]\nif number == '0':\n    {program}\nelse:"
    worker = TwinWorker((sys.executable, "-c", once + " print([3.0, 2.0, 1.0])"))
    try:
        first, second = _questions[:2]
        assert worker.ask(first)
        assert worker.ask(second)
        answers = wait_for(worker, 2)
    finally:
        worker.close()
    assert answers == {BlockId(1, 0): None, BlockId(1, 1): (3.0, 2.0, 1.0)}


def test_a_process_that_hangs_is_ended() -> None:
    worker = TwinWorker((sys.executable, "-c", "import time; time.sleep(100000)"), longest_seconds=0.0)
    try:
        assert worker.ask(a_question())
        assert list(wait_for(worker).values()) == [None]
    finally:
        worker.close()


def test_a_program_that_is_not_there_gives_no_figures() -> None:
    worker = TwinWorker(("/no/such/program",))
    try:
        assert worker.ask(a_question())
        assert list(wait_for(worker).values()) == [None]
    finally:
        worker.close()


def test_closing_ends_what_is_under_way_and_asks_nobody_to_wait() -> None:
    worker = TwinWorker((sys.executable, "-c", "import time; time.sleep(100000)"))
    assert worker.ask(a_question())
    took = [worker.ask(a_question()) for _ in range(20)]
    assert not all(took), "there is no more room"
    assert worker.unanswered == 1 + sum(took)
    worker.close()
    assert worker._thread is not None
    assert not worker._thread.is_alive()


_AGENT = """
import sys, time
from pathlib import Path
from cluster_agent.rollout.block_question import BlockQuestion
from cluster_agent.rollout.block_twins import TwinWorker, twin_command
from cluster_agent.settings import PolicySettings

worker = TwinWorker(twin_command(0.01, PolicySettings()))
worker.ask(BlockQuestion.from_line(Path(sys.argv[1]).read_bytes()))
time.sleep(1000)
"""
"""Whose twin has so little of a core that it would rest for hours."""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("nice", [os.nice(0), 19], ids=["as it starts", "at work"])
def test_no_twin_outlives_an_agent_that_is_killed(tmp_path: Path, nice: int) -> None:
    question = tmp_path / "question"
    question.write_bytes(a_question().to_line())
    agent = subprocess.Popen([sys.executable, "-c", _AGENT, str(question)])
    try:
        twin = found(lambda: next((pid for pid in processes() if fields(pid)[1] == str(agent.pid)), None))
        found(lambda: fields(twin)[16] == str(nice) or None)
    finally:
        os.kill(agent.pid, signal.SIGKILL)
        agent.wait(DEADLINE_SECONDS)
    found(lambda: fields(twin)[0] in ("Z", "X", "") or None)


def processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def fields(pid: int) -> list[str]:
    """State, parent and so on, as /proc has them behind a process's name; empty words of one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return [""] * 50


def found(poll: Callable[[], Found | None]) -> Found:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (what := poll()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return what


def test_a_share_of_a_core_is_kept() -> None:
    now = used = 0.0
    rests: list[float] = []

    def rest(seconds: float) -> None:
        nonlocal now
        rests.append(seconds)
        now += seconds

    share = CoreShare(0.05, lambda: used, lambda: now, rest)
    for _ in range(200):
        used += 0.01
        now += 0.01
        share.keep()
        assert used <= 0.05 * (now + 0.06)
    assert now == pytest.approx(used / 0.05, abs=0.1), "and no less is used"
    now += 1000.0
    share.keep()
    assert sum(rests) == pytest.approx(38.0, abs=0.2), "nobody rests who was slow"


def test_a_policy_of_weights_alone_has_no_twin(tmp_path: Path) -> None:
    agent = agent_with(tmp_path, FakeTwin())
    agent.beat()
    acting = agent.decide()
    held = PolicyAtBlock.of(acting)
    assert held is not None
    assert json.dumps(held.beliefs)
    assert PolicyAtBlock.of(replace(acting, file=None)) is None
