"""Twins of finished blocks: which wait for figures, and which are reported without.

A block's figures can be asked for once the next blocks are over too, as jobs come in them that the twin has to know.
Until then the block is not reported. Whatever goes wrong, it is reported without figures; also after a kill, since what
the twin needs to know (who came and left, how much work it took, how things stood) is in memory alone.
"""

from __future__ import annotations

import json
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import structlog

from cluster_agent.active_policy import Candidate
from cluster_agent.backend_settings import SimulatedBackendSettings
from cluster_agent.rollout.alternation import BlockTally, FinishedBlock
from cluster_agent.rollout.block_question import (
    AGENTS_PRIORITY,
    LEFT_BEHIND_BLOCKS,
    BlockQuestion,
    ClusterStanding,
    Figures,
    PolicyAtBlock,
    TwinJob,
)
from cluster_agent.settings import AgentSettings, PolicySettings
from foundation.question_process import POLL_SECONDS, ask_process
from policy_net.domain import ClusterState, Job, Progress, SpeedModel
from policy_net.errors import BadInput
from policy_net.set_policy.policy import SetPolicy

MOST_JOBS = 5000
"""That are kept, those that have ended included; a cluster with more in four blocks is one the twin cannot keep up
with."""


@dataclass(frozen=True, slots=True)
class BlockId:
    """Which block the twin is asked about, and for which rollout."""

    rollout: int
    number: int


@dataclass
class _Seen:
    job: Job
    came: float
    done_epochs: float
    left: float | None = None
    finished: bool = False

    def known(self) -> TwinJob:
        """For a question; work is known where the job ended by itself, else as the job shows it."""
        done, job = self.done_epochs, self.job
        work = done if self.finished else done + job.remaining_epochs
        return TwinJob(job, self.came, self.left, work)


@dataclass
class _Block:
    block_id: BlockId
    begin: float
    end: float
    at_begin: ClusterStanding
    incumbent: PolicyAtBlock
    candidate: PolicyAtBlock
    at_end: ClusterStanding | None = None

    @property
    def until(self) -> float:
        return self.end + LEFT_BEHIND_BLOCKS * (self.end - self.begin)


@dataclass
class TwinRecord:
    """One cluster's; `debounce_seconds` is the shortest time between two decisions that are not at fixed slots."""

    debounce_seconds: float
    _now: float | None = None
    _slotted: bool = True
    _jobs: dict[str, _Seen] = field(default_factory=dict)
    _ended: dict[str, float] = field(default_factory=dict)
    _blocks: list[_Block] = field(default_factory=list)

    def clear(self) -> None:
        """Forget all: what comes does not follow on what was."""
        self._now, self._slotted = None, True
        self._jobs, self._ended, self._blocks = {}, {}, []

    def follows(self, block_id: BlockId) -> bool:
        """Whether the block is on record, and its figures may be asked for later."""
        return any(block.block_id == block_id for block in self._blocks)

    def moved_to(self, state: ClusterState) -> bool:
        """Take in a state before its decision; False where all had to be forgotten."""
        now, kept = state.time_seconds, True
        if self._now is not None and now < self._now:
            self.clear()
            kept = False
        self._slotted = self._slotted and now % state.slot_seconds == 0.0
        present = {job.job_id: job for job in state.jobs}
        for job_id, seen in self._jobs.items():
            if seen.left is None and job_id not in present:
                seen.left = min(self._ended.get(job_id, now), now)
        for job_id, job in present.items():
            seen_before = self._jobs.get(job_id)
            if seen_before is None:
                came = job.submit_time_seconds if self._now is None else max(job.submit_time_seconds, self._now)
                done = max(job.total_epochs - job.remaining_epochs, 0.0)
                self._jobs[job_id] = _Seen(job, min(max(came, 0.0), now), done)
            else:
                seen_before.job = job
        self._now, self._ended = now, {}
        for block in self._blocks:
            if block.at_end is None and now >= block.end:
                block.at_end = self._standing(state)
        earliest = min((block.begin for block in self._blocks), default=now)
        self._jobs = {key: seen for key, seen in self._jobs.items() if seen.left is None or seen.left > earliest}
        if len(self._jobs) > MOST_JOBS and self._blocks:
            self._blocks = []
            return False
        return kept

    def carried_out(self, decided_seconds: float, progress: Sequence[Progress]) -> None:
        """Take in what jobs did after the decision at a time."""
        for entry in progress:
            seen = self._jobs.get(entry.job_id)
            if seen is None:
                continue
            seen.done_epochs += entry.epochs
            if entry.finished:
                seen.finished = True
                self._ended[entry.job_id] = decided_seconds + entry.paused_seconds + entry.seconds

    def open(
        self,
        block_id: BlockId,
        begin: float,
        end: float,
        state: ClusterState,
        incumbent: PolicyAtBlock,
        candidate: PolicyAtBlock,
    ) -> None:
        """A block has begun, and this is the first state in it, which was taken in already."""
        self._blocks.append(_Block(block_id, begin, end, self._standing(state), incumbent, candidate))

    def due(self, speeds: SpeedModel, pause_seconds: float, awaited: Collection[BlockId]) -> list[BlockQuestion]:
        """The blocks of which all is known now: those that are wanted as questions; the others are forgotten."""
        now = self._now
        if now is None:
            return []
        over = [block for block in self._blocks if now >= block.until]
        self._blocks = [block for block in self._blocks if now < block.until]
        return [self._question(block, speeds, pause_seconds) for block in over if block.block_id in awaited]

    def _question(self, block: _Block, speeds: SpeedModel, pause_seconds: float) -> BlockQuestion:
        assert block.at_end is not None  # noqa: S101  (the end was before now)
        jobs = [
            seen.known()
            for seen in self._jobs.values()
            if seen.came <= block.until and (seen.left is None or seen.left > block.begin)
        ]
        jobs = [each for each in sorted(jobs, key=lambda each: each.came) if each.work_epochs > 0.0]
        return BlockQuestion(
            block.block_id.rollout,
            block.block_id.number,
            block.begin,
            block.end,
            block.at_begin,
            block.at_end,
            tuple(jobs),
            {name: speeds.grid(name).tolist() for name in {each.job.job_type for each in jobs}},
            block.incumbent,
            block.candidate,
            self._slotted,
            self.debounce_seconds,
            pause_seconds,
        )

    def _standing(self, state: ClusterState) -> ClusterStanding:
        return ClusterStanding(state, {job.job_id: self._jobs[job.job_id].done_epochs for job in state.jobs})


_log = structlog.get_logger()


LONGEST_SECONDS = 3600.0
"""For one block, rests included; blocks last two hours at least."""
MOST_WAITING = 8
"""Questions, each of a few megabytes at most."""
_ENDING_SECONDS = 10.0


def twin_command(cpu_percent: float, policy: PolicySettings, *, modest: bool = True) -> list[str]:
    """The command of the twin's process; a `modest` one takes only what nobody else wants of the processor."""
    settings = policy.model_dump_json(include={"mode", "exploration", "seed"})
    # Whoever asks for its parent may ask too late: an agent that was killed meanwhile is no longer that.
    words = [str(cpu_percent), settings, str(os.getpid()), *([] if modest else [AGENTS_PRIORITY])]
    return [sys.executable, "-m", "cluster_agent.rollout.block_process", *words]


class TwinWorker:
    """A thread that begins a process for every question; the command reads it and writes three figures."""

    def __init__(
        self,
        command: Sequence[str],
        longest_seconds: float = LONGEST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = list(command)
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._questions: queue.Queue[BlockQuestion] = queue.Queue(MOST_WAITING)
        self._lock = threading.Lock()
        self._answers: dict[BlockId, Figures | None] = {}
        self._unanswered = 0
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def ask(self, question: BlockQuestion) -> bool:
        """Take a question without waiting; False if there is no room."""
        try:
            self._questions.put_nowait(question)
        except queue.Full:
            _log.warning("twin-gave-up", block=question.number, reason="earlier blocks are still at work")
            return False
        with self._lock:
            self._unanswered += 1
        if self._thread is None:  # most agents are in no rollout
            self._thread = threading.Thread(target=self._work, name="twin", daemon=True)
            self._thread.start()
        return True

    def answers(self) -> dict[BlockId, Figures | None]:
        """What was answered since this was last asked; None where there are no figures."""
        with self._lock:
            given, self._answers = self._answers, {}
            return given

    @property
    def unanswered(self) -> int:
        """Questions that were taken and have no answer yet."""
        with self._lock:
            return self._unanswered

    def close(self) -> None:
        """End, and what is under way with it."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(_ENDING_SECONDS)

    def _work(self) -> None:
        while not self._ending.is_set():
            try:
                question = self._questions.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            figures = None
            try:
                figures = self._figures(question)
            except Exception as error:  # whatever a twin does, a block is reported
                _log.warning("twin-gave-up", block=question.number, reason=str(error) or repr(error))
            with self._lock:
                self._answers[BlockId(question.rollout, question.number)] = figures
                self._unanswered -= 1

    def _figures(self, question: BlockQuestion) -> Figures:
        """The figures.

        Raises:
            TimeoutError, ValueError, OSError: there are none.
        """
        out = ask_process(self._command, question.to_line(), self._longest_seconds, self._ending.is_set, self._clock)
        figures = tuple(float(value) for value in json.loads(out))
        if len(figures) != 3 or not all(math.isfinite(value) and value >= 0.0 for value in figures):
            raise ValueError("its figures are no numbers from 0 on")
        return figures


class BlockTwins:
    """One agent's; used under the lock of its `RolloutPart`."""

    def __init__(self, twin: TwinWorker, debounce_seconds: float) -> None:
        self._twin = twin
        self._record = TwinRecord(debounce_seconds)
        self._awaited: set[BlockId] = set()
        self._sent: set[BlockId] = set()
        self._pause_seconds = 0.0
        self._closed = False

    def moved_to(self, state: ClusterState) -> None:
        """Take in a state before its decision; never raises."""
        self._guarded("state", lambda: self._moved_to(state))

    def carried_out(self, decided_seconds: float, progress: Sequence[Progress]) -> None:
        """Take in what jobs did."""
        self._guarded("progress", lambda: self._record.carried_out(decided_seconds, progress))

    def opened(
        self, rollout: int, tally: BlockTally, state: ClusterState, incumbent: Candidate, candidate: Candidate
    ) -> None:
        """A block has begun; takes down what both policies believe."""
        block_id = BlockId(rollout, tally.number)
        if self._record.follows(block_id) or tally.decisions > 0 or state.time_seconds >= tally.end:
            return

        def take_down() -> None:
            incumbent_now, candidate_now = PolicyAtBlock.of(incumbent), PolicyAtBlock.of(candidate)
            if incumbent_now is not None and candidate_now is not None:
                self._record.open(block_id, tally.begin, tally.end, state, incumbent_now, candidate_now)
                policy = incumbent.policy
                if isinstance(policy, SetPolicy) and policy.beliefs is not None:
                    self._pause_seconds = policy.beliefs.restarts.seconds

        self._guarded("beliefs", take_down)

    def finished(self, rollout: int, blocks: Sequence[FinishedBlock]) -> None:
        """Blocks that are to be reported: those on record wait for figures."""
        for block in blocks:
            block_id = BlockId(rollout, block.number)
            if self._record.follows(block_id):
                self._awaited.add(block_id)

    def ask(self, speeds: SpeedModel) -> None:
        """Ask about the blocks of which all is known now; to be called once in every decision."""
        self._guarded("question", lambda: self._ask(speeds))

    def reported(self, rollout: int, finished: Sequence[FinishedBlock]) -> list[FinishedBlock]:
        """The same blocks with the figures that have come meanwhile."""
        given = self._twin.answers()
        self._sent -= given.keys()
        answered = [
            replace(block, twin=given[block_id])
            if block.twin is None and (block_id := BlockId(rollout, block.number)) in given
            else block
            for block in finished
        ]
        self._awaited &= {BlockId(rollout, block.number) for block in finished}
        return answered

    def waiting(self, rollout: int, block: FinishedBlock) -> bool:
        """Whether figures of it may still come."""
        block_id = BlockId(rollout, block.number)
        return not self._closed and block.twin is None and (block_id in self._awaited or block_id in self._sent)

    def unanswered(self) -> int:
        """How many questions the twin has not answered yet; callable from any thread."""
        return self._twin.unanswered

    def close(self) -> None:
        """No figures come any more."""
        self._closed = True
        self._twin.close()

    def _moved_to(self, state: ClusterState) -> None:
        if not self._record.moved_to(state):
            self._awaited = set()

    def _ask(self, speeds: SpeedModel) -> None:
        for question in self._record.due(speeds, self._pause_seconds, self._awaited):
            block_id = BlockId(question.rollout, question.number)
            if self._twin.ask(question):
                self._sent.add(block_id)
        self._awaited = {block_id for block_id in self._awaited if self._record.follows(block_id)}

    def _guarded(self, what: str, step: Callable[[], None]) -> None:
        """A fault in here costs figures, and no decision."""
        try:
            step()
        except (ArithmeticError, BadInput, LookupError, RuntimeError, TypeError, ValueError) as error:
            self._record.clear()
            self._awaited = set()
            _log.warning("twin-gave-up", reason=f"{what}: {error!r}")


def twins_of(settings: AgentSettings) -> BlockTwins | None:
    """The twin of an agent that may alternate, and whose operator lets it have one."""
    learner, backend = settings.learner, settings.backend
    if learner is None or learner.twin_cpu_percent == 0.0 or learner.rollouts != "follow":
        return None
    paced = backend.environment if isinstance(backend, SimulatedBackendSettings) else backend
    # A clock that waits for the twin would stand as long as anybody else wants the processor.
    awaited = isinstance(backend, SimulatedBackendSettings) and backend.wait_for_twin
    worker = TwinWorker(twin_command(learner.twin_cpu_percent, settings.policy, modest=not awaited))
    return BlockTwins(worker, paced.debounce_seconds)
