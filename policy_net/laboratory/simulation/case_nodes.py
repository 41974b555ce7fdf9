"""Nodes of a case of the compiled twin: which there are, and which come and go as its clock goes on.

They change some hundred times in a run, so the compiled code asks the reference's own timeline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from policy_net.domain import Node, Resources
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.node_changes import NodeTimeline
from policy_net.placement.layout import blocking_sums, layout_of
from policy_net.twin.believed import address_of
from policy_net.twin.memory import CHANGE, CaseMemory


def all_node_ids(environment: Environment) -> list[str]:
    """The nodes that are ever there, each once."""
    ids = [node.node_id for node in environment.node_list]
    return list(dict.fromkeys([*ids, *(change.node_id for change in environment.node_changes)]))


class CaseNodes:
    """The nodes of a case in arrays that the compiled code reads, as they are now.

    Args:
        classes: demand classes in placing order.
    """

    def __init__(self, environment: Environment, classes: Sequence[Resources]) -> None:
        ids = all_node_ids(environment)
        self._numbers = {node_id: number for number, node_id in enumerate(ids)}
        self._classes = tuple(classes)
        self._timeline = NodeTimeline(environment)
        self._cpu, self._gpu = np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
        self._number = np.zeros(len(ids), dtype=np.int64)
        self._limits = np.zeros(len(classes), dtype=np.int64)
        self._lost_at = np.full(len(ids), math.inf)
        self._nodes: tuple[Node, ...] | None = None
        self.failure: BaseException | None = None
        """What a change has raised: the run ends, and the caller raises it again."""

    def fill(self, memory: CaseMemory) -> None:
        """State the nodes of the beginning, and how to ask for later ones; `memory` is kept."""
        self._memory = memory
        memory.most_nodes = len(self._numbers)
        memory.node, memory.lost_at = address_of(self._number), address_of(self._lost_at)
        memory.node_cpu, memory.node_gpu = address_of(self._cpu), address_of(self._gpu)
        memory.class_limit = address_of(self._limits)
        memory.change = CHANGE(self._change)
        self._state()

    def _change(self, until: float) -> int:
        """Let nodes come and go up to and including a time; called by the compiled code."""
        try:
            lost = self._timeline.advance(until)
            self._lost_at.fill(math.inf)
            for time_seconds, node_id in reversed(lost):  # of a node that was lost twice, the first time stays
                self._lost_at[self._numbers[node_id]] = time_seconds
            self._state()
        except BaseException as failure:
            self.failure = failure
            return 1
        return 0

    def _state(self) -> None:
        memory, timeline = self._memory, self._timeline
        memory.next_change_seconds = timeline.next_change_seconds
        memory.nodes_pending = timeline.planned_changes_pending
        memory.gpu_seconds_before, memory.changed_at_seconds = timeline.gpu_seconds_before, timeline.changed_at_seconds
        if timeline.nodes == self._nodes:
            return
        self._nodes = nodes = timeline.nodes
        layout = layout_of(nodes)
        memory.nodes = len(nodes)
        self._cpu[: len(nodes)], self._gpu[: len(nodes)] = layout.cpu_milli, layout.gpu
        self._number[: len(nodes)] = [self._numbers[node.node_id] for node in nodes]
        self._limits[:] = blocking_sums(layout, self._classes)
