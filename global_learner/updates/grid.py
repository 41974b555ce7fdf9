"""Flower's `Grid` over our own service, so that an unmodified strategy runs its rounds on the fleet.

A strategy runs in a thread of its own and blocks here; agents are answered on the event loop. What a strategy sends is
one record of arrays and one of configuration; what it gets is one of arrays (train) and one of metrics, which is what
Flower's own strategies expect. A cluster is a node as long as it polls. A task that is handed out and not answered is
handed out again, since the agent may have lost it; the first answer counts.
Source: flwr 1.41 `flwr.serverapp.grid.Grid`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Error, Message, MetricRecord, RecordDict
from flwr.app.message.message import make_message
from flwr.app.metadata import Metadata
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from global_learner.aggregation.flower import SAMPLES, array_record, flat_weights
from policy_net.exchange.spec import WeightSpec
from policy_net.exchange.wire import RoundAnswer, RoundKind, RoundTask

_ERROR_CODE = 1
_KINDS = {"train": RoundKind.TRAIN, "evaluate": RoundKind.EVALUATE}


class GridClosed(Exception):  # not the learner's root: it only unwinds a strategy's thread
    """The learner ends; the strategy is to stop."""


@dataclass(slots=True)
class _Sent:
    """A task on its way: whose it is, and the answer once it is there."""

    cluster: str
    message: Message
    task: RoundTask
    answer: RoundAnswer | None = None


class FleetGrid(Grid):
    """Nodes are clusters; safe to use from the strategy's thread and the event loop at once.

    Args:
        life: makes task names of this process differ from those of an earlier one.
        live_seconds: a cluster that has not polled for so long is no node.
        wake: is called when there are new tasks.

    Attributes:
        trained: answers to train tasks that the strategy was given since somebody last took them away.
    """

    def __init__(
        self,
        spec: WeightSpec,
        life: str,
        live_seconds: float,
        wake: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._life = life
        self._live_seconds = live_seconds
        self._wake = wake
        self._clock = clock
        self._changed = threading.Condition()
        self._nodes: dict[str, int] = {}
        self._polled: dict[str, float] = {}
        self._sent: dict[str, _Sent] = {}
        self._count = 0
        self._closed = False
        self.trained: list[tuple[str, RoundAnswer]] = []

    # What the event loop calls.

    def poll(self, cluster: str) -> RoundTask | None:
        """The oldest task that waits for this cluster's answer."""
        with self._changed:
            self._nodes.setdefault(cluster, len(self._nodes) + 1)
            self._polled[cluster] = self._clock()
            mine = (sent.task for sent in self._sent.values() if sent.cluster == cluster and sent.answer is None)
            return next(mine, None)

    def task(self, cluster: str, name: str) -> RoundTask | None:
        """A task of this cluster's that is still open."""
        sent = self._sent.get(name)
        return sent.task if sent is not None and sent.cluster == cluster and sent.answer is None else None

    def answer(self, cluster: str, answer: RoundAnswer) -> bool:
        """Take an answer; False if nobody waits for it (any more)."""
        with self._changed:
            if self.task(cluster, answer.task) is None:
                return False
            self._polled[cluster] = self._clock()
            self._sent[answer.task].answer = answer
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """Let the strategy's thread run out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # What a strategy calls: see `flwr.serverapp.Grid`.

    def set_run(self, run: Run) -> None:
        """There is but one."""

    @property
    def run(self) -> Run:
        """There is none of Flower's."""
        raise AttributeError("a fleet's grid has no Flower run")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """As `flwr.app.Message`."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """The clusters that poll now.

        Raises:
            GridClosed: the learner ends. Strategies wait here until there are nodes enough.
        """
        with self._changed:
            if self._closed:
                raise GridClosed
            since = self._clock() - self._live_seconds
            return [node for cluster, node in self._nodes.items() if self._polled[cluster] >= since]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Put tasks out for their clusters; the tasks' names."""
        names = []
        with self._changed:
            clusters = {node: cluster for cluster, node in self._nodes.items()}
            for message in messages:
                self._count += 1
                name = f"{self._life}-{self._count}"
                cluster = clusters[message.metadata.dst_node_id]
                self._sent[name] = _Sent(cluster, message, self._task(name, message))
                names.append(name)
        self._wake()
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The answers that are there, each once."""
        replies = []
        with self._changed:
            for name in message_ids:
                sent = self._sent.get(name)
                if sent is not None and sent.answer is not None:
                    del self._sent[name]
                    replies.append(self._reply(sent, sent.answer))
                    if sent.task.kind is RoundKind.TRAIN and not sent.answer.error:
                        self.trained.append((sent.cluster, sent.answer))
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Put tasks out and wait for the answers; those that are late are no longer waited for.

        Raises:
            GridClosed: the learner ends.
        """
        names = list(self.push_messages(messages))
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or all(self._sent[n].answer is not None for n in names), timeout
            )
            if self._closed:
                raise GridClosed
        replies = self.pull_messages(names)
        with self._changed:
            for name in names:
                self._sent.pop(name, None)
        return replies

    def _task(self, name: str, message: Message) -> RoundTask:
        kind = _KINDS.get(message.metadata.message_type)
        if kind is None:
            raise ValueError(f"messages of type {message.metadata.message_type!r} are not sent to clusters")
        (arrays,) = message.content.array_records.values()
        config: dict[str, Any] = {}
        for record in message.content.config_records.values():
            config |= record
        return RoundTask(
            name,
            kind,
            flat_weights(arrays, self._spec),
            self._spec.digest,
            {key: float(value) for key, value in config.items() if isinstance(value, (int, float))},
            {key: value for key, value in config.items() if isinstance(value, str)},
        )

    def _reply(self, sent: _Sent, answer: RoundAnswer) -> Message:
        request = sent.message.metadata
        metadata = Metadata(
            run_id=request.run_id,
            message_id=f"{answer.task}-reply",
            src_node_id=request.dst_node_id,
            dst_node_id=request.src_node_id,
            reply_to_message_id=answer.task,
            group_id=request.group_id,
            created_at=request.created_at,
            ttl=request.ttl,
            message_type=request.message_type,
        )
        if answer.error:
            return make_message(metadata, error=Error(_ERROR_CODE, answer.error))
        records: dict[str, Any] = {"metrics": MetricRecord({**answer.metrics, SAMPLES: float(answer.samples)})}
        if sent.task.kind is RoundKind.TRAIN:
            records["arrays"] = array_record(np.asarray(answer.weights), self._spec)
        return make_message(metadata, content=RecordDict(records))
