"""Record of what the twin needs to know of a cluster: who came and left, how much work it took, how things stood.

It follows every decision, whoever acts, and is in memory alone: after a kill the blocks that it was needed for are
reported without figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cluster_agent.rollout.twin_question import (
    LEFT_BEHIND_BLOCKS,
    BlockQuestion,
    ClusterStanding,
    PolicyAtBlock,
    TwinJob,
)
from policy_net.domain import ClusterState, Job, Progress, SpeedModel

MOST_JOBS = 5000
"""That are kept, those that have ended included; a cluster with more in four blocks is one the twin cannot keep up
with."""


@dataclass(frozen=True, slots=True)
class AskedBlock:
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
    asked: AskedBlock
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

    def follows(self, asked: AskedBlock) -> bool:
        """Whether the block is on record, and its figures may be asked for later."""
        return any(block.asked == asked for block in self._blocks)

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
        asked: AskedBlock,
        begin: float,
        end: float,
        state: ClusterState,
        incumbent: PolicyAtBlock,
        candidate: PolicyAtBlock,
    ) -> None:
        """A block has begun, and this is the first state in it, which was taken in already."""
        self._blocks.append(_Block(asked, begin, end, self._standing(state), incumbent, candidate))

    def due(self, speeds: SpeedModel, pause_seconds: float, wanted: Mapping[AskedBlock, bool]) -> list[BlockQuestion]:
        """The blocks of which all is known now: those that are wanted as questions; the others are forgotten."""
        now = self._now
        if now is None:
            return []
        over = [block for block in self._blocks if now >= block.until]
        self._blocks = [block for block in self._blocks if now < block.until]
        return [self._question(block, speeds, pause_seconds) for block in over if wanted.get(block.asked)]

    def _question(self, block: _Block, speeds: SpeedModel, pause_seconds: float) -> BlockQuestion:
        assert block.at_end is not None  # noqa: S101  (the end was before now)
        jobs = [
            seen.known()
            for seen in self._jobs.values()
            if seen.came <= block.until and (seen.left is None or seen.left > block.begin)
        ]
        jobs = [each for each in sorted(jobs, key=lambda each: each.came) if each.work_epochs > 0.0]
        return BlockQuestion(
            block.asked.rollout,
            block.asked.number,
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
