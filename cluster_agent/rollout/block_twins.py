"""Twins of finished blocks: which wait for figures, and which are reported without.

A block's figures can be asked for once the next blocks are over too, as jobs come in them that the twin has to know.
Until then the block is not reported. Whatever goes wrong, it is reported without figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from cluster_agent.acting.active_policy import Candidate
from cluster_agent.backend_settings import SimulatedBackendSettings
from cluster_agent.rollout.block_tally import BlockTally, FinishedBlock
from cluster_agent.rollout.twin_question import PolicyAtBlock
from cluster_agent.rollout.twin_record import AskedBlock, TwinRecord
from cluster_agent.rollout.twin_worker import Twin, TwinWorker, twin_command
from cluster_agent.settings import AgentSettings
from policy_net.domain import ClusterState, Progress, SpeedModel
from policy_net.errors import BadInput
from policy_net.set_policy.policy import SetPolicy

_log = structlog.get_logger()


class BlockTwins:
    """One agent's; used under the lock of its conduct."""

    def __init__(self, twin: Twin, debounce_seconds: float) -> None:
        self._twin = twin
        self._record = TwinRecord(debounce_seconds)
        self._wanted: dict[AskedBlock, bool] = {}
        self._asked: set[AskedBlock] = set()
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
        asked = AskedBlock(rollout, tally.number)
        if self._record.follows(asked) or tally.decisions > 0 or state.time_seconds >= tally.end:
            return

        def take_down() -> None:
            held = PolicyAtBlock.of(incumbent), PolicyAtBlock.of(candidate)
            if held[0] is not None and held[1] is not None:
                self._record.open(asked, tally.begin, tally.end, state, held[0], held[1])
                policy = incumbent.policy
                if isinstance(policy, SetPolicy) and policy.beliefs is not None:
                    self._pause_seconds = policy.beliefs.restarts.seconds

        self._guarded("beliefs", take_down)

    def finished(self, rollout: int, blocks: Sequence[FinishedBlock]) -> None:
        """Blocks that are to be reported: those on record wait for figures."""
        for block in blocks:
            asked = AskedBlock(rollout, block.number)
            if self._record.follows(asked):
                self._wanted[asked] = True

    def ask(self, speeds: SpeedModel) -> None:
        """Ask about the blocks of which all is known now; to be called once in every decision."""
        self._guarded("question", lambda: self._ask(speeds))

    def reported(self, rollout: int, finished: Sequence[FinishedBlock]) -> list[FinishedBlock]:
        """The same blocks with the figures that have come meanwhile."""
        given = self._twin.answers()
        self._asked -= given.keys()
        answered = [
            replace(block, twin=given[asked])
            if block.twin is None and (asked := AskedBlock(rollout, block.number)) in given
            else block
            for block in finished
        ]
        still = {AskedBlock(rollout, block.number) for block in finished}
        self._wanted = {asked: True for asked in self._wanted if asked in still}
        return answered

    def waiting(self, rollout: int, block: FinishedBlock) -> bool:
        """Whether figures of it may still come."""
        asked = AskedBlock(rollout, block.number)
        return not self._closed and block.twin is None and (asked in self._wanted or asked in self._asked)

    def unanswered(self) -> int:
        """How many questions the twin has not answered yet; callable from any thread."""
        return self._twin.unanswered

    def close(self) -> None:
        """No figures come any more."""
        self._closed = True
        self._twin.close()

    def _moved_to(self, state: ClusterState) -> None:
        if not self._record.moved_to(state):
            self._wanted = {}

    def _ask(self, speeds: SpeedModel) -> None:
        for question in self._record.due(speeds, self._pause_seconds, self._wanted):
            asked = AskedBlock(question.rollout, question.number)
            if self._twin.ask(question):
                self._asked.add(asked)
        self._wanted = {asked: True for asked in self._wanted if self._record.follows(asked)}

    def _guarded(self, what: str, step: Callable[[], None]) -> None:
        """A fault in here costs figures, and no decision."""
        try:
            step()
        except (ArithmeticError, BadInput, LookupError, RuntimeError, TypeError, ValueError) as error:
            self._record.clear()
            self._wanted = {}
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
