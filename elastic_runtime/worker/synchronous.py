"""A worker of a job with parameter servers: computes its slices of each step, pushes gradients, takes the new values.

The script's thread does all of it between two batches; a control thread only brings views. While a step's values are
outstanding the model keeps the old ones, so that the slice of a worker that died can be computed with them.

Source: DL2 §5.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog
import torch
from torch import nn

from elastic_runtime.control.messages import MemberReport
from elastic_runtime.errors import ElasticError, ProtocolError
from elastic_runtime.layout import Kind, Layout
from elastic_runtime.member_environment import MemberEnvironment
from elastic_runtime.messages import Header, Push, unpack
from elastic_runtime.outbox import Outbox, traffic_bytes
from elastic_runtime.plan import Phase, Role, View
from elastic_runtime.training import Training
from elastic_runtime.transport import Message, Part, Region
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.eviction import Eviction
from elastic_runtime.worker.exchange import Exchange
from elastic_runtime.worker.first_checkpoint import write_first_checkpoint
from elastic_runtime.worker.flat_model import FlatModel
from elastic_runtime.worker.gate import Gate, Turn

_log = structlog.get_logger()
_ASK_FIRST_SECONDS = 0.25
_ASK_MOST_SECONDS = 5.0
"""Between two questions for what is outstanding: the first is early, as a connection may just have been made."""
_SUSPECT_SECONDS = 5.0
"""A parameter server that owes values for so long is named to the coordinator."""
_REPORT_SECONDS = 0.25
"""Between two reports of progress; votes and news go at once."""
_ENDED = {Phase.FINISHED, Phase.SUSPENDED}
_START_SECONDS = 600.0
"""Until the job's tasks are all there, or a new worker is named in a plan."""
_PATIENCE_SECONDS = 300.0
"""Without a coordinator: for a proposal to be resolved, or for values that do not come."""


class SynchronousMode:
    """One worker's part in synchronous training with parameter servers.

    Args:
        model: what is trained.
        layout: how it is cut.
        training: how it is trained.
        batches: the data.
        environment: of this process; see `MemberEnvironment`.
        clock: seconds, monotonic.

    Raises:
        ElasticError: the coordinator refuses this worker, or is not reached.
    """

    name = "parameter-server"

    def __init__(
        self,
        model: nn.Module,
        layout: Layout,
        training: Training,
        batches: Batches,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environment = MemberEnvironment.read(environment)
        self._task = self._environment.task
        self._layout, self._training, self._batches, self._clock = layout, training, batches, clock
        self._total_steps = batches.order.total_steps
        self._regions: dict[str, Region] = {}
        self._closed = self._left = self._warm = self._computing = self._initialised = False
        self._step = self._slice = 0
        self._loss: float | None = None
        self._samples = 0
        self._switching_seconds = 0.0
        self._reported_seconds = self._step_began_seconds = clock()
        self._step_seconds = 0.0
        self._pushed_slices: list[int] = []
        self._endpoint = self._environment.open_endpoint()
        self._link = self._environment.open_link(Role.WORKER)
        self._gate = Gate(self._task, clock, _PATIENCE_SECONDS, self._link.expelled.is_set)
        try:
            self._link.register(self._endpoint.address, layout.to_json(), training.to_json())
            self._model = FlatModel(model, layout, self._allocate)
        except BaseException:
            self._link.close()
            self._endpoint.close()
            raise
        self._exchange = Exchange(self._task, layout, self._model, training.buffer_merge_steps, self._total_steps)
        self._outbox = Outbox(self._endpoint, self._parts)
        self._link.follow(self._receive, self._refresh)
        grace_seconds = self._environment.grace_seconds
        self._eviction = Eviction(lambda: self._link.report(draining=True), grace_seconds)

    # ---- what `Job` asks

    @property
    def is_first(self) -> bool:
        """Whether this worker computes the first slice."""
        view = self._gate.view
        if view is None or not view.start_plan.workers:
            return False
        step = min(max(self._step, view.start_step), max(self._total_steps - 1, view.start_step))
        return self._gate.timeline.at(step).workers[0] == self._task

    @property
    def global_step(self) -> int:
        """Steps applied."""
        return self._step

    @property
    def finished(self) -> bool:
        """Whether the job's last step is applied."""
        return self._step >= self._total_steps

    @property
    def stall_seconds(self) -> float:
        """How long this worker waited for changes to be resolved, and what it took to go over to new plans."""
        return self._gate.waited_seconds + self._switching_seconds

    def next_batch(self) -> Batch | None:
        """The next slice; None once this worker has nothing more to do.

        Raises:
            ElasticError: the job failed, or this worker was taken for dead.
        """
        while not self._left:
            view = self._view()
            if view.phase is Phase.FAILED:
                raise ElasticError(f"the job failed: {view.failure}")
            if self._let_go(view):
                self._leave()
                continue
            if view.generation != self._exchange.generation or not view.generation:
                self._computing = False
                batch = self._enter(view)
                if batch is not None:
                    return batch
                continue
            if not self._computing:
                self._begin()
                continue
            batch = self._next_slice()
            if batch is not None:
                return batch
            if self._exchange.complete:
                self._advance()
            else:
                self._pump()
        return None

    def step(self, batch: Batch, loss: torch.Tensor) -> None:
        """Backward pass of a slice, whose gradient is pushed."""
        self._model.begin_step()
        # The mean over the slice counts by the slice's share; the servers only add.
        (loss * batch.weight).backward()  # type: ignore[no-untyped-call]  # torch's
        self._model.finish_backward()
        if batch.warm_up:
            self._warm = True
            self._link.report(ready=True, generation=self._view().generation)
            return
        self._loss = float(loss.detach())
        self._samples += batch.size
        index = self._slice
        if self._exchange.merges_buffers:
            self._weigh_buffers(batch.weight)
        self._pushed_slices.append(index)
        self._outbox.send(self._exchange.push(index))

    def fail(self, error: BaseException) -> None:
        """Tell the coordinator that the script raised."""
        self._link.report(failure=f"{self._task}: {type(error).__name__}: {error}"[:1000])
        self._link.flush(5.0)

    def close(self) -> None:
        """Leave the job."""
        if self._closed:
            return
        self._closed = True
        self._eviction.close()
        self._batches.close()
        self._link.close()
        self._endpoint.close()
        self._model.release()

    # ---- entering

    def _enter(self, view: View) -> Batch | None:
        """Come to the generation's first step, or to the one at which this worker joins; maybe by way of a warm-up."""
        if view.initialiser == self._task and view.generation == 0 and not self._initialised:
            self._initialise(view)
        if view.generation == 0:
            self._wait_for(lambda newer: newer.number > view.number)
            return None
        self._outbox.forget()
        self._outbox.connect(view.members, self._task)
        timeline = self._gate.timeline
        joins_at = self._joins_at(view)
        if joins_at is None:
            if not self._warm:
                return self._warm_up(view)
            self._wait_for(lambda newer: newer.number > view.number)
            return None
        # In this order: what is reported in between (see `_refresh`) is not of the new generation yet.
        self._step = joins_at
        self._outbox.send(self._exchange.start(timeline, joins_at))
        while not self._exchange.complete:
            newest = self._view()
            if newest.generation != view.generation or newest.phase is Phase.FAILED or self._let_go(newest):
                return None
            self._pump()
        self._model.swap()
        self._model.load_buffers()
        # Who had finished before the job went back has steps to do again.
        self._link.report(generation=view.generation, step=self._step, ready=True, finished=self.finished)
        _log.info("entered", generation=view.generation, step=self._step)
        return None

    def _joins_at(self, view: View) -> int | None:
        """The first step of which this worker computes a slice; None if no plan names it yet."""
        timeline = self._gate.timeline
        steps = [view.start_step, *(c.clock + i for c in view.changes for i in range(max(len(c.stages), 1)))]
        named = [step for step in steps if timeline.at(step).slices_of(self._task)]
        return named[0] if named else None

    def _initialise(self, view: View) -> None:
        """Write the job's first checkpoint from the model as this script made it."""
        folder = self._environment.checkpoints / view.start_checkpoint
        write_first_checkpoint(folder, self._task, self._layout, self._training.optimizer, self._model)
        self._initialised = True  # not again: servers may read it before a view says that it is there
        self._link.report(initialised=True)

    def _warm_up(self, view: View) -> Batch:
        """A batch to practise with: the first use of a model is slow, and the job should not wait for it."""
        step = min(max((change.clock for change in view.changes), default=view.start_step), self._total_steps - 1)
        return self._batches.batch(step, 0, 1 if self._training.global_batch < 2 else 2, warm_up=True)

    # ---- steps

    def _begin(self) -> None:
        if self.finished:
            self._stop()
            return
        waited, began = self._gate.waited_seconds, self._clock()
        if not self._gate.may_begin(self._step, self._exchange.generation):
            self._report(began)  # whom this step waits for may wait to hear that all are here
        turn = self._gate.begin(self._step, self._exchange.generation)
        if turn is Turn.GO:
            timeline = self._gate.timeline
            self._exchange.follow(timeline)
            self._exchange.begin(self._step)
            self._pushed_slices.clear()
            self._computing = True
            if timeline.changes_at(self._step):
                self._switching_seconds += self._clock() - began - (self._gate.waited_seconds - waited)
        elif turn is Turn.LEAVE:
            self._stop()
        elif turn is Turn.EXPELLED:
            raise ElasticError(f"the coordinator took {self._task} for dead; another worker computes its part")
        elif turn is Turn.SILENT:
            raise self._environment.unreachable(self._link.coordinator_silent_seconds)

    def _next_slice(self) -> Batch | None:
        self._exchange.follow(self._gate.timeline)
        slices = self._open_slices()
        if not slices:
            return None
        self._model.use_gradients(len(self._pushed_slices))
        workers = len(self._gate.timeline.at(self._step).workers)
        self._slice = slices[0]
        batch = self._batches.batch(self._step, self._slice, workers, last=len(slices) == 1)
        if len(slices) == 1:
            coming = self._gate.timeline.at(self._step + 1)
            self._batches.expect(self._step + 1, coming.slices_of(self._task), len(coming.workers))
        return batch

    def _open_slices(self) -> list[int]:
        """This worker's slices of the step that are still to be computed."""
        plan = self._gate.timeline.at(self._step)
        order = self._batches.order
        return [
            k
            for k in plan.slices_of(self._task)
            if k not in self._exchange.pushed and len(order.slice_indices(self._step, k, len(plan.workers)))
        ]

    def _advance(self) -> None:
        self._model.swap()
        if self._exchange.merges_buffers:
            self._model.load_buffers()
        self._step += 1
        self._computing = False
        now = self._clock()
        seconds, self._step_began_seconds = now - self._step_began_seconds, now
        self._step_seconds += 0.1 * (seconds - self._step_seconds) if self._step_seconds else seconds
        if now - self._reported_seconds >= _REPORT_SECONDS:
            self._report(now)

    def _weigh_buffers(self, weight: float) -> None:
        self._model.collect_buffers()
        for segment in self._layout.segments:
            if segment.kind is Kind.BUFFER and segment.elements:
                flat = self._model.buffers(segment.index)
                sent = self._sent_buffers(segment.index, len(self._pushed_slices))
                sent.copy_(flat * weight if flat.is_floating_point() else flat)

    def _sent_buffers(self, segment: int, number: int) -> torch.Tensor:
        name = f"sent-buffers-{number}-{segment}"
        if name not in self._regions:
            place = self._layout.segments[segment]
            self._allocate(name, place.elements * place.element_bytes)
        return torch.frombuffer(self._regions[name].memory, dtype=self._model.buffers(segment).dtype)

    # ---- the end

    def _stop(self) -> None:
        """No step is left to begin here: wait to be let go, as a lost server may still make the job go back."""
        self._report(self._clock(), finished=self.finished)
        generation = self._exchange.generation
        view = self._wait_for(
            lambda view: (
                self._let_go(view)
                or view.generation != generation
                or (not self.finished and self._gate.may_begin(self._step, generation))
            )
        )
        if self._let_go(view):
            self._leave()

    def _let_go(self, view: View) -> bool:
        """Whether the coordinator needs this worker no more."""
        return view.phase in _ENDED or self._task in view.leaving

    def _leave(self) -> None:
        self._link.report(left=True)
        self._link.flush(_PATIENCE_SECONDS)
        self._left = True

    # ---- messages

    def _pump(self) -> None:
        """Wait for values, ask for those that do not come; returns after each message, or when a view has come."""
        waited = 0.0
        ask_seconds = _ASK_FIRST_SECONDS
        generation = self._exchange.generation
        began = asked = self._clock()
        while not self._exchange.complete:
            kept = self._outbox.flush()
            event = self._endpoint.receive(0.001 if kept else 0.05)
            if isinstance(event, Message):
                self._handle(event)
                asked = self._clock()
                ask_seconds = _ASK_FIRST_SECONDS
                continue
            view = self._view()
            if view.generation != generation or view.phase is Phase.FAILED or self._let_go(view):
                return
            self._outbox.connect(view.members, self._task)
            self._exchange.follow(self._gate.timeline)
            if self._computing and self._open_slices():
                return
            now = self._clock()
            waited = now - began
            if now - asked >= ask_seconds:
                self._outbox.send(self._exchange.ask())
                asked, ask_seconds = now, min(ask_seconds * 2, _ASK_MOST_SECONDS)
            if waited >= _SUSPECT_SECONDS:
                self._link.report(suspects=tuple(sorted(self._exchange.owners_waited_for())))
            silent = self._link.coordinator_silent_seconds
            if waited >= _PATIENCE_SECONDS and silent >= _PATIENCE_SECONDS:
                raise self._environment.unreachable(silent)
            if self._link.failure is not None:
                raise self._link.failure
            if self._link.expelled.is_set():
                raise ElasticError(f"the coordinator took {self._task} for dead; another worker computes its part")
        if waited >= _SUSPECT_SECONDS:
            self._link.report(suspects=())

    def _handle(self, message: Message) -> None:
        try:
            self._outbox.send(self._exchange.handle(message.peer, unpack(message.header), message.payload))
        except ProtocolError as error:
            _log.warning("message_refused", peer=message.peer, error=str(error))

    def _allocate(self, name: str, size_bytes: int) -> memoryview:
        if not size_bytes:
            return memoryview(bytearray())
        self._regions[name] = self._endpoint.region(name, size_bytes, shared=name.startswith(("gradients", "sent")))
        return self._regions[name].memory

    def _parts(self, header: Header) -> list[Part]:
        if not isinstance(header, Push):
            return []
        segment, start, stop = self._exchange.part(header)
        place = self._layout.segments[segment]
        number = self._pushed_slices.index(header.slice)
        if place.kind is Kind.BUFFER:
            name = f"sent-buffers-{number}-{segment}"
        else:
            name = f"gradients-{segment}" if number == 0 else f"gradients{number}-{segment}"
        return [self._regions[name].part(start * place.element_bytes, stop * place.element_bytes)]

    # ---- control

    def _receive(self, view: View) -> None:
        vote = self._gate.receive(view)
        changes: dict[str, int] = {}
        if vote.accepted:
            changes["accepted"] = vote.accepted
        if vote.refused:
            changes["refused"] = vote.refused
        if changes:
            entered = self._exchange.generation == view.generation
            step = self._step if entered else view.start_step
            finished = entered and self.finished
            self._link.report(step=step, generation=view.generation, finished=finished, **changes)
        self._endpoint.wake()

    def _refresh(self, report: MemberReport) -> MemberReport:
        """The step of now, for a worker that stands after some quick steps: nothing else would tell of the last."""
        return replace(report, step=self._step) if report.generation == self._exchange.generation else report

    def _view(self) -> View:
        """The newest view, waited for if none has come."""
        return self._gate.view or self._wait_for(lambda _: True)

    def _wait_for(self, ready: Callable[[View], bool]) -> View:
        view = self._gate.wait(ready, _START_SECONDS)
        if self._link.failure is not None:
            raise self._link.failure
        if self._link.expelled.is_set():
            raise ElasticError(f"the coordinator took {self._task} for dead; another worker computes its part")
        if view is None:
            seconds = f"{_START_SECONDS:.0f} s"
            raise ElasticError(f"{self._task} was neither needed nor let go within {seconds}; see the job's status")
        return view

    def _report(self, now: float, **changes: bool) -> None:
        self._reported_seconds = now
        sent, received = traffic_bytes(self._endpoint)
        rate = self._training.global_batch / self._step_seconds if self._step_seconds else 0.0
        workers = len(self._gate.timeline.at(max(self._step - 1, self._gate.timeline.start_step)).workers)
        self._link.report(
            generation=self._exchange.generation,
            step=self._step,
            loss=self._loss,
            samples=self._samples,
            samples_per_second=rate / max(workers, 1),
            step_seconds=self._step_seconds,
            stall_seconds=self.stall_seconds,
            bytes_sent=sent,
            bytes_received=received,
            **changes,
        )
