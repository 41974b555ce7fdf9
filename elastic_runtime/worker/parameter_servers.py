"""Training with parameter servers: what a worker does whether all take each step together, or each its own.

It may have to write the job's first checkpoint: the model as its script made it. It tells the coordinator of its
progress (samples, loss, speed, traffic), not too often.

Source: DL2 §5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import structlog
import torch
from torch import nn

from elastic_runtime.checkpoint.manifest import write_manifest
from elastic_runtime.checkpoint.writer import ShardWriter
from elastic_runtime.control.member_link import member_clock
from elastic_runtime.errors import ElasticError, ProtocolError
from elastic_runtime.member.outbox import Outbox, traffic_bytes
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.layout import Layout, TensorKind
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.block_runs import Payload
from elastic_runtime.protocol.messages import Header, Outgoing, unpack
from elastic_runtime.protocol.plan import JobPhase, View
from elastic_runtime.transport import Endpoint, Message, Region, RegionPart
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.flat_model import FlatModel
from elastic_runtime.worker.membership import LEAVE_SECONDS, Membership
from elastic_runtime.worker.mode import TrainingMode
from elastic_runtime.worker.protocol.part import WorkerPart

_log = structlog.get_logger()

Practice = Callable[[Any], torch.Tensor]

_REPORT_SECONDS = 0.25
"""Between two reports of progress; votes and news go at once."""
_NEWEST_COUNTS = 0.1
"""The share of the newest step in the average step time."""
_RECEIVE_SECONDS = 0.05
_RETRY_SECONDS = 0.001
"""Until what found no room is tried again."""
_ASK_FIRST_SECONDS = 0.25
_ASK_MOST_SECONDS = 5.0
"""Between two questions for what is outstanding: the first is early, as a connection may just have been made."""
_SUSPECT_SECONDS = 5.0
"""A parameter server that owes values for so long is named to the coordinator."""
_SENT = ("gradients", "sent-buffers")
"""Regions whose names begin so are sent; the others stay private."""


class SharedModel:
    """A flat model in memory that parameter servers read: a region for each segment's gradients and buffers.

    A bank is what the gradients of one slice of a step lie in: while servers read bank 0, a worker that computes
    another slice of the same step needs bank 1.

    Raises:
        ElasticError: see `FlatModel`.
    """

    def __init__(self, endpoint: Endpoint, layout: Layout, model: nn.Module) -> None:
        self._endpoint = endpoint
        self._layout = layout
        self._regions: dict[str, Region] = {}
        self.flat = FlatModel(model, layout, self._allocate)

    def take_buffers(self, bank: int = 0) -> None:
        """Copy the model's buffers to where they are sent from; servers know how much they count."""
        self.flat.collect_buffers()
        for segment in self._layout.segments:
            if segment.kind is TensorKind.BUFFER and segment.elements:
                name = _region_name(segment.index, segment.kind, bank)
                if name not in self._regions:
                    self._allocate(name, segment.elements * segment.element_bytes)
                buffers = self.flat.buffers(segment.index)
                torch.frombuffer(self._regions[name].memory, dtype=buffers.dtype).copy_(buffers)

    def part(self, segment: int, start: int, stop: int, bank: int = 0) -> RegionPart:
        """Elements `start` to `stop` (exclusive) of a segment, as they are sent: gradients, or buffers."""
        place = self._layout.segments[segment]
        region = self._regions[_region_name(segment, place.kind, bank)]
        return region.part(start * place.element_bytes, stop * place.element_bytes)

    def _allocate(self, name: str, size_bytes: int) -> memoryview:
        if not size_bytes:
            return memoryview(bytearray())
        self._regions[name] = self._endpoint.region(name, size_bytes, shared=name.startswith(_SENT))
        return self._regions[name].memory


def _region_name(segment: int, kind: TensorKind, bank: int) -> str:
    """Gradients lie where the flat model asked for memory; see `FlatModel`."""
    if kind is TensorKind.BUFFER:
        return f"sent-buffers-{bank}-{segment}"
    return f"gradients{bank or ''}-{segment}"


class ParameterServerMode(TrainingMode, ABC):
    """One worker's part in training with parameter servers.

    The script's thread does all of it between two batches; control threads only bring views.

    Args:
        practice: computes a loss of a batch's data, to practise with; None: something small without the model.

    Raises:
        ElasticError: the coordinator refuses this worker, or is not reached.
    """

    def __init__(
        self,
        model: nn.Module,
        layout: Layout,
        training: Training,
        batches: Batches,
        environment: Mapping[str, str],
        practice: Practice | None = None,
    ) -> None:
        self._training, self._batches, self._clock = training, batches, member_clock()
        self._device, self._loss_of = next(model.parameters()).device, practice
        self._member = Membership(environment, layout, training, self._clock)
        self._task, self._barrier = self._member.task, self._member.barrier
        try:
            self._model = SharedModel(self._member.endpoint, layout, model)
        except BaseException:
            self._member.close()
            raise
        self._first_checkpoint_written = False
        self._meter = Meter(self._member)
        self._start()

    def next_batch(self) -> Batch | None:
        """The next batch, waited for; None once this worker has nothing more to do."""
        self._member.poll_signals()
        while not self._member.left:
            view = self._member.view()
            if view.phase is JobPhase.FAILED:
                raise ElasticError(f"the job failed: {view.failure}")
            batch = self._go_on(view)
            if batch is not None:
                return batch
        return None

    def step(self, batch: Batch, loss: torch.Tensor | None, value: float | None) -> None:
        """Backward pass of a batch, whose gradient is pushed."""
        flat = self._model.flat
        # The mean over a slice counts by the slice's share; the servers only add.
        flat.begin_backward(batch.weight)
        if loss is not None:
            (loss * batch.weight).backward()  # type: ignore[no-untyped-call]  # torch's
        flat.finish_backward()
        self._on_computed(batch, value)

    @property
    def is_drained(self) -> bool:
        """Whether the script's own handler got SIGTERM."""
        return self._member.is_drained

    def leave(self) -> None:
        """Tell the coordinator that this worker is gone, and that nothing has failed."""
        self._member.leave(LEAVE_SECONDS)

    def fail(self, error: BaseException) -> None:
        """Tell the coordinator that the script raised."""
        self._member.fail(error)

    def close(self) -> None:
        """Leave the job."""
        self._batches.close()
        self._member.close()
        self._model.flat.release()

    def _write_first_checkpoint(self, view: View) -> None:
        """Write what every server begins from at step 0, once, if this view asks this worker for it.

        Raises:
            CheckpointError: the disk refuses.
        """
        member, model, layout = self._member, self._model.flat, self._member.layout
        if view.initialiser != member.task or view.generation or self._first_checkpoint_written:
            return
        folder = member.environment.checkpoints / view.start_checkpoint
        writer = ShardWriter(folder, member.task, layout, self._training.optimizer, range(len(layout.blocks)))
        for block in layout.blocks:
            segment = layout.segments[block.segment]
            flat = model.buffers if segment.kind is TensorKind.BUFFER else model.active
            writer.add(BlockState(block.index, 0, flat(segment.index)[block.start : block.stop].clone(), {}))
        write_manifest(folder, 0, layout, self._training.optimizer, [writer.finish()], {})
        self._first_checkpoint_written = True  # not again: servers may read it before a view says that it is there
        member.link.report(initialised=True)

    def _practise(self, data: Any) -> None:
        """Compute a loss and its gradient, and throw it away: the first use of a model is slow."""
        self._model.flat.begin_backward()
        loss = _loss_of_nothing(self._device) if self._loss_of is None else self._loss_of(data)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        self._model.flat.finish_backward()

    def _stays(self, view: View, generation: int) -> bool:
        """Whether this worker works on in its generation, as far as this view says.

        Raises:
            ElasticError: the job failed.
        """
        if view.phase is JobPhase.FAILED:
            raise ElasticError(f"the job failed: {view.failure}")
        return view.generation == generation and not self._member.is_let_go(view)

    def _see_out(self, generation: int) -> None:
        """Wait for the job's end after this worker's, as its script has left its loop.

        Raises:
            ElasticError: the job failed, or went back to a checkpoint: what is done again is done by others.
        """
        while self._stays(view := self._member.view(), generation):
            self._member.newer(view)
        if self._member.is_let_go(view) and not self._member.left:
            self._member.leave()
        if view.phase is not JobPhase.FINISHED:
            raise ElasticError(
                f"{self._task} has left its loop, and the job did not end with that: it goes on from a checkpoint"
            )

    @abstractmethod
    def _start(self) -> None:
        """Make what this kind of training needs, and take views from now on."""

    @abstractmethod
    def _go_on(self, view: View) -> Batch | None:
        """Do what is next, given the newest view; a batch if one is to be computed."""

    @abstractmethod
    def _on_computed(self, batch: Batch, value: float | None) -> None:
        """The gradient of the batch that was given last lies in its bank: push it."""


def _loss_of_nothing(device: torch.device) -> torch.Tensor:
    """A loss for which the device, and torch's threads for it, have to be there."""
    weight = torch.ones(4, 1, 3, 3, device=device, requires_grad=True)
    return nn.functional.conv2d(torch.ones(2, 1, 8, 8, device=device), weight).mean()


class Meter:
    """One worker's progress."""

    def __init__(self, member: Membership) -> None:
        self._member = member
        self._clock = member.clock
        self._loss: float | None = None
        self._samples = 0
        self._step_seconds = 0.0
        self._reported_seconds = self._began_seconds = member.clock()

    def on_computed(self, loss: float | None, samples: int) -> None:
        """A batch was computed; None: nothing is told of its loss."""
        self._loss = self._loss if loss is None else loss
        self._samples += samples

    def begin(self) -> None:
        """The time of a step counts from now."""
        self._began_seconds = self._clock()

    def on_stepped(self) -> None:
        """A step ends here, and the next one begins."""
        now = self._clock()
        seconds, self._began_seconds = now - self._began_seconds, now
        newest = _NEWEST_COUNTS * (seconds - self._step_seconds)
        self._step_seconds += newest if self._step_seconds else seconds

    def per_second(self, samples_per_step: float) -> float:
        """Samples a second, given the samples of a step; 0 before the first step has ended."""
        return samples_per_step / self._step_seconds if self._step_seconds else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the last report is so old that progress is to be told anew."""
        return self._clock() - self._reported_seconds >= _REPORT_SECONDS

    def report(self, **progress: float) -> None:
        """Tell how far this worker is; the arguments are further fields of `MemberReport`."""
        self._reported_seconds = self._clock()
        sent, received = traffic_bytes(self._member.endpoint)
        self._member.link.report(
            loss=self._loss,
            samples=self._samples,
            step_seconds=self._step_seconds,
            bytes_sent=sent,
            bytes_received=received,
            **progress,
        )


class WorkerWaits:
    """One worker's waits for values: it takes what comes, asks for what does not, and says who keeps it waiting.

    Args:
        handle: acts on a message: peer, header and payload; returns what is to be sent.
    """

    def __init__(
        self,
        member: Membership,
        outbox: Outbox,
        expected: WorkerPart,
        handle: Callable[[str, Header, Payload], list[Outgoing]],
    ) -> None:
        self._member = member
        self._outbox = outbox
        self._expected = expected
        self._handle = handle
        self._clock = member.clock
        self._suspected = False

    def until_complete(self, goes_on: Callable[[View], bool]) -> bool:
        """Wait until everything is there; whether it is.

        Args:
            goes_on: acts on the newest view whenever no message has come for a while; False ends the wait.

        Raises:
            ElasticError: see `Membership.check`.
        """
        try:
            return self._wait(goes_on)
        finally:
            if self._suspected:
                self._suspected = False
                self._member.link.report(suspects=())

    def _wait(self, goes_on: Callable[[View], bool]) -> bool:
        ask_seconds = _ASK_FIRST_SECONDS
        began = last_question = self._clock()
        lost = self._member.view().lost_servers
        while not self._expected.is_complete:
            kept = self._outbox.flush()
            event = self._member.endpoint.receive(_RETRY_SECONDS if kept else _RECEIVE_SECONDS)
            if isinstance(event, Message):
                self._take(event)
                last_question, ask_seconds = self._clock(), _ASK_FIRST_SECONDS
                continue
            view = self._member.view()
            if not goes_on(view):
                return False
            now = self._clock()
            waited = now - began
            if view.lost_servers != lost:  # what one owed others owe now, who do not know what was delivered
                lost, ask_seconds = view.lost_servers, 0.0
            if now - last_question >= ask_seconds:
                ask_seconds = max(ask_seconds, _ASK_FIRST_SECONDS / 2)
                self._outbox.send(self._expected.ask())
                last_question, ask_seconds = now, min(ask_seconds * 2, _ASK_MOST_SECONDS)
            if waited >= _SUSPECT_SECONDS:
                self._suspected = True
                self._member.link.report(suspects=tuple(sorted(self._expected.owners_waited_for())))
            self._member.check(waited)
        return True

    def _take(self, message: Message) -> None:
        try:
            self._outbox.send(self._handle(message.peer, unpack(message.header), message.payload))
        except ProtocolError as error:
            _log.warning("message-refused", peer=message.peer, error=str(error))
