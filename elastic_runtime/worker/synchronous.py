"""A worker's way through the steps of synchronous training: enters, computes its slices, waits for values, leaves.

The script's thread does all of it between two batches; a control thread only brings views. While a step's values are
outstanding the model keeps the old ones, so that the slice of a worker that died can be computed with them: a worker
has one slice of a step as a rule, and more if it computes in place of others.

Source: DL2 §5.
"""

from __future__ import annotations

from dataclasses import replace

import structlog

from elastic_runtime.control.messages import MemberReport
from elastic_runtime.errors import ElasticError
from elastic_runtime.member.outbox import Outbox
from elastic_runtime.protocol.messages import Header, Push
from elastic_runtime.protocol.plan import JobPhase, View
from elastic_runtime.transport import RegionPart
from elastic_runtime.worker.batches import Batch
from elastic_runtime.worker.parameter_servers import ParameterServerMode, WorkerWaits
from elastic_runtime.worker.protocol.exchange import WorkerExchange
from elastic_runtime.worker.protocol.step_turns import Vote, WorkerTurn

_log = structlog.get_logger()


class SynchronousMode(ParameterServerMode):
    """One worker's part in synchronous training with parameter servers."""

    global_step = 0

    def _start(self) -> None:
        member, flat, merge_steps = self._member, self._model.flat, self._training.buffer_merge_steps
        self._total_steps = self._batches.order.total_steps
        self._warm = self._computing = self._has_ended_job = False
        self._switching_seconds = 0.0
        self._slice = 0
        self._exchange = WorkerExchange(member.layout, flat, merge_steps, self._total_steps)
        self._outbox = Outbox(member.endpoint, self._parts)
        self._waiting = WorkerWaits(member, self._outbox, self._exchange, self._exchange.handle)
        member.follow(self._vote, self._refresh)

    @property
    def is_first(self) -> bool:
        """Whether this worker computes the first slice of the step in hand."""
        view = self._barrier.view
        if view is None or not view.start_plan.workers:
            return False
        step = min(max(self.global_step, view.start_step), max(self._total_steps - 1, view.start_step))
        return self._barrier.timeline.at(step).workers[0] == self._task

    @property
    def finished(self) -> bool:
        """Whether the job's last step is applied."""
        view, last = self._barrier.view, self._total_steps
        if view is not None and view.ends_at is not None and view.generation == self._exchange.generation:
            last = view.ends_at  # a script has ended the job
        return self._has_ended_job or self.global_step >= last

    @property
    def stall_seconds(self) -> float:
        """How long this worker waited for changes to be resolved, and what it took to go over to new plans."""
        return self._barrier.waited_seconds + self._switching_seconds

    def synchronize(self) -> None:
        """Take the step's values, if this worker has computed all its slices of it."""
        generation = self._exchange.generation
        while self._computing and self._stays(self._member.view(), generation):
            if self._exchange.is_complete:
                self._advance()
            elif self.finished or self._open_slices():
                return
            else:
                self._waiting.until_complete(self._keeps_waiting)

    def end(self) -> None:
        """Tell that no step is left here, after the one whose slices were all computed here: so none is applied."""
        if self._member.left or self.finished:
            return
        self.synchronize()
        self._computing = False
        generation = self._exchange.generation
        if self._stays(self._member.view(), generation):
            self._has_ended_job = True
            self._report(finished=True)
        try:
            self._see_out(generation)
        except ElasticError:
            self._has_ended_job = False
            raise

    def _go_on(self, view: View) -> Batch | None:
        if self._member.is_let_go(view):
            self._member.leave()
            return None
        if view.generation != self._exchange.generation or not view.generation:
            self._computing = False
            self._enter(view)
            return None
        if self._computing and self.finished:
            self._computing = False  # another script has ended the job: nobody applies this step
        if not self._computing:
            self._begin()
            return None
        batch = self._next_slice()
        if batch is None and self._exchange.is_complete:
            self._advance()
        elif batch is None:
            self._waiting.until_complete(self._keeps_waiting)
        return batch

    def _on_computed(self, batch: Batch, value: float | None) -> None:
        self._meter.on_computed(value, batch.size)
        if self._exchange.merges_buffers:
            self._model.take_buffers(len(self._exchange.pushed))
        self._outbox.send(self._exchange.push(self._slice))

    # ---- entering

    def _enter(self, view: View) -> None:
        """Come to the generation's first step, or to the one at which this worker joins; it practises before that."""
        self._write_first_checkpoint(view)
        if view.generation == 0:
            self._member.newer(view)
            return
        timeline = self._barrier.timeline
        if timeline.generation != view.generation:
            return  # a newer view has come in between
        self._outbox.forget()
        self._outbox.connect(view.members, self._task)
        joins_at = timeline.first_step_of(self._task)
        if joins_at is None:
            if self._warm:
                self._member.newer(view)
            else:
                self._get_ready(view)
            return
        # In this order: what is reported in between (see `_refresh`) is not of the new generation yet.
        self.global_step = joins_at
        self._outbox.send(self._exchange.start(timeline, joins_at))
        if not self._waiting.until_complete(self._keeps_waiting):
            return
        self._model.flat.swap()
        self._model.flat.load_buffers()
        # Who had finished before the job went back has steps to do again.
        self._member.link.report(generation=view.generation, step=self.global_step, ready=True, finished=self.finished)
        _log.info("generation-entered", generation=view.generation, step=self.global_step)

    def _get_ready(self, view: View) -> None:
        """Practise with a batch, as the job should not wait for this worker's first one."""
        step = min(max((change.clock for change in view.changes), default=view.start_step), self._total_steps - 1)
        self._practise(self._batches.batch(step, 0, 1 if self._training.global_batch < 2 else 2).data)
        self._warm = True
        self._member.link.report(ready=True, generation=self._member.view().generation)

    # ---- steps

    def _begin(self) -> None:
        if self.finished:
            self._stop()
            return
        waited, began = self._barrier.waited_seconds, self._clock()
        if not self._barrier.may_begin(self.global_step, self._exchange.generation):
            self._report()  # whom this step waits for may wait to hear that all are here
        turn = self._barrier.begin(self.global_step, self._exchange.generation)
        if turn is WorkerTurn.GO:
            timeline = self._barrier.timeline
            self._exchange.follow(timeline)
            self._exchange.begin(self.global_step)
            self._computing = True
            if timeline.changes_at(self.global_step):
                self._switching_seconds += self._clock() - began - (self._barrier.waited_seconds - waited)
        elif turn is WorkerTurn.LEAVE:
            self._stop()
        elif turn is WorkerTurn.EXPELLED:
            self._member.check()
        elif turn is WorkerTurn.SILENT:
            raise self._member.unreachable()

    def _next_slice(self) -> Batch | None:
        """The slice to compute next, whose gradient goes into a bank of its own; None if all are pushed."""
        step, timeline = self.global_step, self._barrier.timeline
        self._exchange.follow(timeline)
        slices = self._open_slices()
        if not slices:
            return None
        self._model.flat.use_gradients(len(self._exchange.pushed))
        self._slice = slices[0]
        batch = self._batches.batch(step, self._slice, len(timeline.at(step).workers), last=len(slices) == 1)
        if len(slices) == 1:
            coming = timeline.at(step + 1)
            self._batches.expect(step + 1, coming.slices_of(self._task), len(coming.workers))
        return batch

    def _open_slices(self) -> list[int]:
        step, order = self.global_step, self._batches.order
        plan = self._barrier.timeline.at(step)
        return [
            k
            for k in plan.slices_of(self._task)
            if k not in self._exchange.pushed and len(order.slice_indices(step, k, len(plan.workers)))
        ]

    def _keeps_waiting(self, view: View) -> bool:
        """While values are waited for: act on the newest view; False if there is something else to do than to wait."""
        if (
            view.generation != self._exchange.generation
            or view.phase is JobPhase.FAILED
            or self._member.is_let_go(view)
        ):
            return False
        self._outbox.connect(view.members, self._task)
        self._exchange.follow(self._barrier.timeline)
        return not (self._computing and (self.finished or self._open_slices()))

    def _advance(self) -> None:
        self._model.flat.swap()
        if self._exchange.merges_buffers:
            self._model.flat.load_buffers()
        self.global_step += 1
        self._computing = False
        self._meter.on_stepped()
        if self._meter.is_due:
            self._report()

    def _stop(self) -> None:
        """No step is left to begin here: wait to be let go, as a lost server may still make the job go back."""
        self._report(finished=self.finished)
        generation = self._exchange.generation
        view = self._member.wait_for(
            lambda view: (
                self._member.is_let_go(view)
                or view.generation != generation
                or (not self.finished and self._barrier.may_begin(self.global_step, generation))
            )
        )
        if self._member.is_let_go(view):
            self._member.leave()

    # ---- what is sent, and what is told

    def _parts(self, header: Header) -> list[RegionPart]:
        if not isinstance(header, Push):
            return []
        return [self._model.part(*self._exchange.part(header), self._exchange.pushed.index(header.slice))]

    def _vote(self, view: View, vote: Vote) -> None:
        """In a control thread: what this worker says to a proposal, and at which step it says so."""
        entered = self._exchange.generation == view.generation
        step = self.global_step if entered else view.start_step
        answer = {"accepted": vote.accepted} if vote.accepted else {"refused": vote.refused}
        self._member.link.report(step=step, generation=view.generation, finished=entered and self.finished, **answer)

    def _refresh(self, report: MemberReport) -> MemberReport:
        """In a control thread: the step of now, unreported so far by a worker that stands after quick steps."""
        return replace(report, step=self.global_step) if report.generation == self._exchange.generation else report

    def _report(self, **progress: bool) -> None:
        workers = len(self._barrier.timeline.at(max(self.global_step - 1, self._barrier.timeline.start_step)).workers)
        self._meter.report(
            generation=self._exchange.generation,
            step=self.global_step,
            samples_per_second=self._meter.per_second(self._training.global_batch) / max(workers, 1),
            stall_seconds=self.stall_seconds,
            **progress,
        )
