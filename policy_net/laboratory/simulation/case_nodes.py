"""Nodes of a case of the compiled twin: which there are, and which come and go as its clock goes on.

They change some hundred times in a run, so the compiled code asks here. When they do follows from the environment
alone, so the stages are found once for all that replay the same jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import Resources
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.node_changes import NodeTimeline
from policy_net.placement.layout import blocking_sums, layout_of
from policy_net.twin.believed import address_of
from policy_net.twin.memory import CHANGE, CaseMemory

Integers = NDArray[np.int64]
MOST_KEPT = 1000
"""Stages that are kept for the next replay: a run of which more comes, comes to few of the same."""


def all_node_ids(environment: Environment) -> list[str]:
    """The nodes that are ever there, each once."""
    ids = [node.node_id for node in environment.node_list]
    return list(dict.fromkeys([*ids, *(change.node_id for change in environment.node_changes)]))


@dataclass(frozen=True, slots=True)
class NodeStage:
    """The nodes from one change to the next.

    Attributes:
        numbers: of the nodes that are up, each one's for good.
        limits: of every demand class, as `blocking_sums`.
        lost: numbers of the nodes that were lost as it began.
        pending: whether nodes are still to come, return or go by plan.
        gpu_seconds_before: GPUs that were up, over the time from zero to its beginning.
    """

    numbers: Integers
    cpu_milli: Integers
    gpu: Integers
    limits: Integers
    lost: Sequence[int]
    began_seconds: float
    ended_seconds: float
    pending: bool
    gpu_seconds_before: float


class NodeStages:
    """All stages of an environment, in order; the first `MOST_KEPT` are found when somebody comes to them first."""

    def __init__(self, environment: Environment, classes: Sequence[Resources]) -> None:
        self.numbers = {node_id: number for number, node_id in enumerate(all_node_ids(environment))}
        self.classes = tuple(classes)
        self._environment = environment
        self._source = self._find()
        self._kept: list[NodeStage] = []
        self._lock = Lock()

    def __iter__(self) -> Iterator[NodeStage]:
        for index in range(MOST_KEPT):
            with self._lock:
                if index == len(self._kept):
                    self._keep_next()
            yield self._kept[index]
        yield from islice(self._find(), MOST_KEPT, None)

    def _keep_next(self) -> None:
        try:
            self._kept.append(next(self._source))
        except BaseException:  # an interrupt ends a generator, and there may be a next run
            self._source = islice(self._find(), len(self._kept), None)
            raise

    def _find(self) -> Iterator[NodeStage]:
        timeline, lost = NodeTimeline(self._environment), list[tuple[float, str]]()
        while True:
            layout = layout_of(timeline.nodes)
            yield NodeStage(
                np.array([self.numbers[node.node_id] for node in timeline.nodes], dtype=np.int64),
                layout.cpu_milli,
                layout.gpu,
                np.array(blocking_sums(layout, self.classes), dtype=np.int64),
                [self.numbers[node_id] for _, node_id in lost],
                timeline.changed_at_seconds,
                timeline.next_change_seconds,
                timeline.planned_changes_pending,
                timeline.gpu_seconds_before,
            )
            lost = timeline.advance(timeline.next_change_seconds)


class CaseNodes:
    """The nodes of a case in arrays that the compiled code reads, as they are now."""

    def __init__(self, stages: NodeStages) -> None:
        most = len(stages.numbers)
        self._stages = iter(stages)
        self._now = next(self._stages)
        self._cpu, self._gpu = np.zeros(most, dtype=np.int64), np.zeros(most, dtype=np.int64)
        self._number = np.zeros(most, dtype=np.int64)
        self._limits = np.zeros(len(stages.classes), dtype=np.int64)
        self._lost_at = np.full(most, math.inf)
        self.failure: BaseException | None = None
        """What a change has raised: the run ends, and the caller raises it again."""

    def fill(self, memory: CaseMemory) -> None:
        """State the nodes of the beginning, and how to ask for later ones; `memory` is kept."""
        self._memory = memory
        memory.most_nodes = len(self._number)
        memory.node, memory.lost_at = address_of(self._number), address_of(self._lost_at)
        memory.node_cpu, memory.node_gpu = address_of(self._cpu), address_of(self._gpu)
        memory.class_limit = address_of(self._limits)
        memory.change = CHANGE(self._change)
        self._state()

    def _change(self, until: float) -> int:
        """Let nodes come and go up to and including a time; called by the compiled code."""
        try:
            self._lost_at.fill(math.inf)
            while self._now.ended_seconds <= until:
                self._now = now = next(self._stages)
                self._lost_at[now.lost] = np.minimum(self._lost_at[now.lost], now.began_seconds)
            self._state()
        except BaseException as failure:
            self.failure = failure
            return 1
        return 0

    def _state(self) -> None:
        memory, stage = self._memory, self._now
        nodes = len(stage.numbers)
        memory.nodes = nodes
        self._cpu[:nodes], self._gpu[:nodes], self._number[:nodes] = stage.cpu_milli, stage.gpu, stage.numbers
        self._limits[:] = stage.limits
        memory.next_change_seconds, memory.changed_at_seconds = stage.ended_seconds, stage.began_seconds
        memory.nodes_pending, memory.gpu_seconds_before = stage.pending, stage.gpu_seconds_before
