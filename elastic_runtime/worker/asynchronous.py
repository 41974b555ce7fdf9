"""A worker of asynchronous training: takes leased batches, pushes each gradient, goes on with what comes back.

Nobody waits for another worker: no votes, no common step. A worker that is told to leave, or to halt, ends the update
in hand, tells what it has done, and gives back the rest.

Source: DL2 §2.2, §5 (asynchronous training).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import structlog
import torch
from torch import nn

from elastic_runtime.asynchronous_messages import Update
from elastic_runtime.control.messages import LeasedRange
from elastic_runtime.errors import ElasticError, ProtocolError
from elastic_runtime.layout import Kind, Layout
from elastic_runtime.member_environment import MemberEnvironment
from elastic_runtime.messages import Header, unpack
from elastic_runtime.outbox import Outbox, traffic_bytes
from elastic_runtime.plan import Phase, Role, View
from elastic_runtime.training import Training
from elastic_runtime.transport import Message, Part, Region
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.eviction import Eviction
from elastic_runtime.worker.first_checkpoint import write_first_checkpoint
from elastic_runtime.worker.flat_model import FlatModel
from elastic_runtime.worker.gate import Gate
from elastic_runtime.worker.lease_queue import LeaseQueue
from elastic_runtime.worker.updates import LAST, Updates

_log = structlog.get_logger()
_ASK_FIRST_SECONDS = 0.25
_ASK_MOST_SECONDS = 5.0
"""Between two questions for what is outstanding: the first is early, as a connection may just have been made."""
_SUSPECT_SECONDS = 5.0
"""A parameter server that owes values for so long is named to the coordinator."""
_REPORT_SECONDS = 0.25
_START_SECONDS = 600.0
"""Until the job's tasks are all there, or a new worker is named in a plan."""
_PATIENCE_SECONDS = 300.0
"""Without a coordinator, for leases or for values that do not come."""
_ENDED = {Phase.FINISHED, Phase.SUSPENDED}


class AsynchronousMode:
    """One worker's part in asynchronous training with parameter servers.

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
        self._regions: dict[str, Region] = {}
        self._closed = self._left = self._finished = False
        self._entered = self._merging = self._initialised = False
        self._settled = 0
        self._leased: LeasedRange | None = None
        self._pushed = False
        self._samples = self._samples_unmerged = self._unmerged = 0
        self._loss: float | None = None
        self._stall_seconds = 0.0
        self._reported_seconds = self._began_seconds = clock()
        self._step_seconds = 0.0
        self._endpoint = self._environment.open_endpoint()
        self._gate = Gate(self._task, clock, _PATIENCE_SECONDS)
        self._link = self._environment.open_link(Role.WORKER)
        try:
            self._link.register(self._endpoint.address, layout.to_json(), training.to_json())
            self._model = FlatModel(model, layout, self._allocate)
        except BaseException:
            self._link.close()
            self._endpoint.close()
            raise
        self._updates = Updates(self._environment.incarnation, layout, self._model)
        self._outbox = Outbox(self._endpoint, self._parts)
        self._leases = LeaseQueue(self._link.lease, clock)
        self._link.follow(self._receive)
        grace_seconds = self._environment.grace_seconds
        self._eviction = Eviction(lambda: self._link.report(draining=True), grace_seconds)

    # ---- what `Job` asks

    @property
    def is_first(self) -> bool:
        """Whether this is the first worker of the plan."""
        if self._gate.view is None:
            return False
        workers = self._gate.timeline.at(LAST).workers
        return bool(workers) and workers[0] == self._task

    @property
    def global_step(self) -> int:
        """Updates applied, as far as this worker knows; with work that was done again not more than there are."""
        total = self._batches.order.total_steps
        return total if self._finished else min(self._updates.version, total)

    @property
    def finished(self) -> bool:
        """Whether every sample of every epoch is done, and the model is what came of it."""
        return self._finished

    @property
    def stall_seconds(self) -> float:
        """How long this worker waited after it had been told that a block had left for another server."""
        return self._stall_seconds

    def next_batch(self) -> Batch | None:
        """The next leased batch; None once this worker has nothing more to do.

        Raises:
            ElasticError: the job failed, or this worker was taken for dead.
        """
        while not self._left:
            view = self._view()
            if view.phase is Phase.FAILED:
                raise ElasticError(f"the job failed: {view.failure}")
            if view.phase in _ENDED or (self._task in view.leaving and not self._entered):
                self._leave()
            elif view.generation != self._updates.generation or not view.generation:
                self._entered = self._pushed = False
                self._enter(view)
            elif not self._entered:
                self._take_values()
            elif self._pushed:
                self._complete()
            elif self._leases.finished and self._task not in view.leaving:
                self._finish()
            elif self._is_to_stop(view):
                self._stop(view)
            else:
                batch = self._next()
                if batch is not None:
                    return batch
        return None

    def step(self, batch: Batch, loss: torch.Tensor) -> None:
        """Backward pass of a batch, whose gradient is pushed."""
        self._model.begin_step()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        self._model.finish_backward()
        self._clip()
        self._loss = float(loss.detach())
        self._samples += batch.size
        self._samples_unmerged += batch.size
        self._unmerged += 1
        merged = 0
        if self._unmerged >= self._training.buffer_merge_steps or self._leases.last:
            merged = self._samples_unmerged
            self._collect_buffers()
        self._outbox.send(self._updates.push(merged))
        if merged:
            self._unmerged = self._samples_unmerged = 0
            self._merging = True
        else:
            self._merging = False
        self._pushed = True

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
        self._leases.close()
        self._batches.close()
        self._link.close()
        self._endpoint.close()
        self._model.release()

    # ---- entering

    def _enter(self, view: View) -> None:
        """Come to a generation, once a plan of it names this worker."""
        if view.initialiser == self._task and view.generation == 0 and not self._initialised:
            folder = self._environment.checkpoints / view.start_checkpoint
            write_first_checkpoint(folder, self._task, self._layout, self._training.optimizer, self._model)
            self._initialised = True  # not again: servers may read it before a view says that it is there
            self._link.report(initialised=True)
        named = view.generation and self._task in self._gate.timeline.at(LAST).workers
        if not named:
            if view.generation:
                self._link.report(ready=True, generation=view.generation)
            newer = self._newer(view)
            if newer.phase in _ENDED or self._task in newer.leaving:
                self._leave()
            return
        self._outbox.forget()
        self._outbox.connect(view.members, self._task)
        self._leases.begin(view.generation)
        self._outbox.send(self._updates.start(self._gate.timeline))

    def _take_values(self) -> None:
        """Wait for the values that a generation, or this worker's part in it, begins with."""
        if self._pump():
            self._swap(buffers=True)
            self._entered = True
            self._began_seconds = self._clock()
            self._report(self._clock(), ready=True)
            _log.info("entered", generation=self._updates.generation, version=self._updates.version)

    # ---- batches

    def _next(self) -> Batch | None:
        """The next batch, if one is leased; else what there is to be done without."""
        self._leased = self._leases.take(0.05)
        if self._leased is None:
            self._watch()
            if self._leases.failure is not None:
                raise self._leases.failure
            self._follow(idle=True)
            self._report_sometimes()
            return None
        leased, following = self._leased, self._leases.next
        ends_epoch = self._leases.last if following is None else following.epoch != leased.epoch
        batch = self._batches.leased(self.global_step, leased.epoch, leased.start, leased.stop, ends_epoch=ends_epoch)
        if following is not None:
            self._batches.expect_leased(following.epoch, following.start, following.stop)
        return batch

    def _complete(self) -> None:
        """Take the values that answer the update in hand."""
        if not self._pump():
            return
        self._swap(buffers=self._merging)
        self._pushed = False
        if self._leased is not None:
            self._leases.done(self._leased)
            self._leased = None
        now = self._clock()
        seconds, self._began_seconds = now - self._began_seconds, now
        self._step_seconds += 0.1 * (seconds - self._step_seconds) if self._step_seconds else seconds
        self._follow(idle=False)
        self._report_sometimes()

    def _swap(self, *, buffers: bool) -> None:
        self._model.swap()
        if buffers:
            self._model.load_buffers()

    def _clip(self) -> None:
        """Scale the gradient down to the global norm: it is all here, as the batch is this worker's own."""
        limit = self._training.optimizer.clip_norm
        if limit is None:
            return
        segments = [segment.index for segment in self._layout.segments if segment.kind is Kind.PARAMETER]
        gradients = [self._model.gradients(segment) for segment in segments]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g.float()) for g in gradients]))
        scale = float(limit / (norm + 1e-6))
        if scale < 1.0:
            torch._foreach_mul_(gradients, scale)

    def _collect_buffers(self) -> None:
        self._model.collect_buffers()
        for segment in self._layout.segments:
            if segment.kind is Kind.BUFFER and segment.elements:
                name = f"sent-buffers-{segment.index}"
                if name not in self._regions:
                    self._allocate(name, segment.elements * segment.element_bytes)
                flat = self._model.buffers(segment.index)
                torch.frombuffer(self._regions[name].memory, dtype=flat.dtype).copy_(flat)

    # ---- the end

    def _is_to_stop(self, view: View) -> bool:
        timeline = self._gate.timeline
        halted = timeline.halts_at() is not None
        return (
            halted or view.phase in _ENDED or self._task in view.leaving or self._task not in timeline.at(LAST).workers
        )

    def _stop(self, view: View) -> None:
        """Tell what is done, give back the rest, and wait to be let go; a lost server may make the job go on."""
        self._leases.stop(_PATIENCE_SECONDS)
        self._follow(idle=True, stopped=True)
        self._report(self._clock())
        if self._leases.finished and view.phase not in _ENDED and self._task not in view.leaving:
            return
        if view.phase not in _ENDED and self._task not in view.leaving and self._gate.timeline.halts_at() is not None:
            generation = self._updates.generation
            view = self._newer(view)
            if view.generation != generation:
                return
        if view.phase in _ENDED or self._task in view.leaving or self._gate.timeline.halts_at() is None:
            self._leave()

    def _finish(self) -> None:
        """Nothing is left to lease: take the final values, and wait for the job's end."""
        self._follow(idle=True)
        self._outbox.send(self._updates.fetch())
        generation = self._updates.generation
        if not self._pump():
            return
        self._swap(buffers=True)
        self._finished = True
        self._report(self._clock(), finished=True)
        view = self._view()
        while view.generation == generation:
            self._follow(idle=True, stopped=True)
            if view.phase in _ENDED or self._task in view.leaving:
                self._leave()
                return
            if view.phase is Phase.FAILED:
                raise ElasticError(f"the job failed: {view.failure}")
            view = self._newer(view)
        self._finished = False

    def _leave(self) -> None:
        self._link.report(left=True)
        self._link.flush(_PATIENCE_SECONDS)
        self._left = True

    # ---- messages

    def _pump(self) -> bool:
        """Wait for values, ask for those that do not come; whether all are there. Returns when a view has come too."""
        generation = self._updates.generation
        began = asked = self._clock()
        ask_seconds = _ASK_FIRST_SECONDS
        waited = 0.0
        redirected_seconds: float | None = None
        while not self._updates.complete:
            kept = self._outbox.flush()
            event = self._endpoint.receive(0.001 if kept else 0.05)
            if isinstance(event, Message):
                self._handle(event)
                if self._updates.redirected and redirected_seconds is None:
                    redirected_seconds = self._clock()
                asked, ask_seconds = self._clock(), _ASK_FIRST_SECONDS
                continue
            view = self._view()
            if view.generation != generation or view.phase in {Phase.FAILED, *_ENDED}:
                return False
            if self._task in view.leaving and not self._entered:
                return False
            self._follow(idle=False)
            now = self._clock()
            waited = now - began
            if now - asked >= ask_seconds:
                self._outbox.send(self._updates.ask())
                asked, ask_seconds = now, min(ask_seconds * 2, _ASK_MOST_SECONDS)
            if waited >= _SUSPECT_SECONDS:
                self._link.report(suspects=tuple(sorted(self._updates.owners_waited_for())))
            self._watch(waited)
        if waited >= _SUSPECT_SECONDS:
            self._link.report(suspects=())
        if redirected_seconds is not None:
            self._stall_seconds += self._clock() - redirected_seconds
        return True

    def _watch(self, waited: float = _PATIENCE_SECONDS) -> None:
        silent = self._link.coordinator_silent_seconds
        if waited >= _PATIENCE_SECONDS and silent >= _PATIENCE_SECONDS:
            raise self._environment.unreachable(silent)
        if self._link.failure is not None:
            raise self._link.failure
        if self._link.expelled.is_set():
            raise ElasticError(f"the coordinator took {self._task} for dead; another worker computes its part")

    def _handle(self, message: Message) -> None:
        try:
            self._outbox.send(self._updates.handle(message.peer, unpack(message.header), message.payload))
        except ProtocolError as error:
            _log.warning("message_refused", peer=message.peer, error=str(error))

    def _allocate(self, name: str, size_bytes: int) -> memoryview:
        if not size_bytes:
            return memoryview(bytearray())
        self._regions[name] = self._endpoint.region(name, size_bytes, shared=name.startswith(("gradients", "sent")))
        return self._regions[name].memory

    def _parts(self, header: Header) -> list[Part]:
        if not isinstance(header, Update):
            return []
        segment, start, stop = self._updates.part(header)
        place = self._layout.segments[segment]
        name = f"sent-buffers-{segment}" if place.kind is Kind.BUFFER else f"gradients-{segment}"
        return [self._regions[name].part(start * place.element_bytes, stop * place.element_bytes)]

    # ---- control

    def _receive(self, view: View) -> None:
        self._gate.receive(view)
        self._endpoint.wake()

    def _follow(self, *, idle: bool, stopped: bool = False) -> None:
        """Take up the newest view; tell the coordinator once nothing is asked of former owners any more."""
        view, timeline = self._view(), self._gate.timeline
        if view.generation != self._updates.generation:
            return
        self._outbox.connect(view.members, self._task)
        self._outbox.send(self._updates.follow(timeline))
        if idle and self._updates.complete:
            self._outbox.send(self._updates.settle())
        settled = self._updates.settled
        halt = next((change.number for change in timeline.changes if change.halt), None)
        if halt is not None and not stopped:
            settled = min(settled, halt - 1)
        if settled != self._settled:
            self._settled = settled
            self._link.report(arrived=settled, generation=view.generation)

    def _view(self) -> View:
        """The newest view, waited for if none has come."""
        return self._gate.view or self._wait_for(lambda _: True)

    def _newer(self, view: View) -> View:
        return self._wait_for(lambda newer: newer.number > view.number)

    def _wait_for(self, ready: Callable[[View], bool]) -> View:
        view = self._gate.wait(ready, _START_SECONDS)
        self._watch(0.0)
        if view is None:
            seconds = f"{_START_SECONDS:.0f} s"
            raise ElasticError(f"{self._task} was neither needed nor let go within {seconds}; see the job's status")
        return view

    def _report_sometimes(self) -> None:
        now = self._clock()
        if now - self._reported_seconds >= _REPORT_SECONDS:
            self._report(now)

    def _report(self, now: float, **changes: bool) -> None:
        self._reported_seconds = now
        sent, received = traffic_bytes(self._endpoint)
        self._link.report(
            generation=self._updates.generation,
            step=self.global_step,
            loss=self._loss,
            samples=self._samples,
            samples_per_second=self._batches.order.global_batch / self._step_seconds if self._step_seconds else 0.0,
            step_seconds=self._step_seconds,
            stall_seconds=self._stall_seconds,
            bytes_sent=sent,
            bytes_received=received,
            **changes,
        )
