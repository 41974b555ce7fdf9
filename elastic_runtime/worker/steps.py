"""A worker's way through the steps of synchronous training: enters, computes its slices, waits for values, leaves.

The script's thread does all of it between two batches; a control thread only brings views. While a step's values are
outstanding the model keeps the old ones, so that the slice of a worker that died can be computed with them.

Source: DL2 §5.
"""

from __future__ import annotations

from dataclasses import replace

import structlog
import torch

from elastic_runtime.control.messages import MemberReport
from elastic_runtime.errors import ElasticError
from elastic_runtime.messages import Header, Push
from elastic_runtime.outbox import Outbox
from elastic_runtime.plan import Phase, View
from elastic_runtime.transport import Part
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.exchange import Exchange
from elastic_runtime.worker.first_checkpoint import FirstCheckpoint
from elastic_runtime.worker.gate import Turn, Vote
from elastic_runtime.worker.membership import Membership
from elastic_runtime.worker.meter import Meter
from elastic_runtime.worker.shared_model import SharedModel
from elastic_runtime.worker.slices import StepSlices
from elastic_runtime.worker.waiting import Waiting

_log = structlog.get_logger()


class Steps:
    """One worker's steps. `vote` and `refresh` are called by control threads, the rest by the script's.

    Args:
        member: this worker.
        model: what is trained.
        batches: the data.

    Attributes:
        applied: how many steps are.
    """

    def __init__(self, member: Membership, model: SharedModel, batches: Batches) -> None:
        self.applied = 0
        self._member, self._task, self._gate = member, member.task, member.gate
        self._model, self._batches = model, batches
        self._total_steps = batches.order.total_steps
        self._warm = self._computing = False
        self._switching_seconds = 0.0
        merge_steps = member.training.buffer_merge_steps
        self._exchange = Exchange(member.task, member.layout, model.flat, merge_steps, self._total_steps)
        self._slices = StepSlices(member.task, member.gate, self._exchange, batches, model.flat)
        self._outbox = Outbox(member.endpoint, self._parts)
        self._waiting = Waiting(member, self._outbox, self._exchange, self._exchange.handle)
        self._first_checkpoint = FirstCheckpoint(member, model.flat)
        self._meter = Meter(member)

    @property
    def computes_first_slice(self) -> bool:
        """Whether this worker computes the first slice of the step in hand."""
        view = self._gate.view
        if view is None or not view.start_plan.workers:
            return False
        step = min(max(self.applied, view.start_step), max(self._total_steps - 1, view.start_step))
        return self._gate.timeline.at(step).workers[0] == self._task

    @property
    def finished(self) -> bool:
        """Whether the job's last step is applied."""
        return self.applied >= self._total_steps

    @property
    def stall_seconds(self) -> float:
        """How long this worker waited for changes to be resolved, and what it took to go over to new plans."""
        return self._gate.waited_seconds + self._switching_seconds

    def next_slice(self) -> Batch | None:
        """The next slice to compute, waited for; None once this worker has nothing more to do.

        Raises:
            ElasticError: the job failed, or this worker was taken for dead.
        """
        while not self._member.left:
            view = self._member.view()
            if view.phase is Phase.FAILED:
                raise ElasticError(f"the job failed: {view.failure}")
            if self._member.let_go(view):
                self._member.leave()
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
            batch = self._slices.next()
            if batch is not None:
                return batch
            if self._exchange.complete:
                self._advance()
            else:
                self._waiting.until_complete(self._goes_on)
        return None

    def computed(self, batch: Batch, loss: torch.Tensor) -> None:
        """The gradient of the slice that `next_slice` gave lies in its bank: push it."""
        if batch.warm_up:
            self._warm = True
            self._member.link.report(ready=True, generation=self._member.view().generation)
            return
        self._meter.computed(float(loss.detach()), batch.size)
        if self._exchange.merges_buffers:
            self._model.take_buffers(self._slices.bank)
        self._outbox.send(self._slices.push())

    def vote(self, view: View, vote: Vote) -> None:
        """Tell the coordinator what this worker says to a proposal, and at which step it says so."""
        entered = self._exchange.generation == view.generation
        step = self.applied if entered else view.start_step
        answer = {"accepted": vote.accepted} if vote.accepted else {"refused": vote.refused}
        self._member.link.report(step=step, generation=view.generation, finished=entered and self.finished, **answer)

    def refresh(self, report: MemberReport) -> MemberReport:
        """The step of now, for a worker that stands after some quick steps: nothing else would tell of the last."""
        return replace(report, step=self.applied) if report.generation == self._exchange.generation else report

    # ---- entering

    def _enter(self, view: View) -> Batch | None:
        """Come to the generation's first step, or to the one at which this worker joins; maybe by way of a warm-up."""
        self._first_checkpoint.write_if_asked(view)
        if view.generation == 0:
            self._member.newer(view)
            return None
        timeline = self._gate.timeline
        if timeline.generation != view.generation:
            return None  # a newer view has come in between
        self._outbox.forget()
        self._outbox.connect(view.members, self._task)
        joins_at = timeline.first_step_of(self._task)
        if joins_at is None:
            if not self._warm:
                return self._warm_up(view)
            self._member.newer(view)
            return None
        # In this order: what is reported in between (see `refresh`) is not of the new generation yet.
        self.applied = joins_at
        self._outbox.send(self._exchange.start(timeline, joins_at))
        if not self._waiting.until_complete(self._goes_on):
            return None
        self._model.flat.swap()
        self._model.flat.load_buffers()
        # Who had finished before the job went back has steps to do again.
        self._member.link.report(generation=view.generation, step=self.applied, ready=True, finished=self.finished)
        _log.info("entered", generation=view.generation, step=self.applied)
        return None

    def _warm_up(self, view: View) -> Batch:
        """A batch to practise with: the first use of a model is slow, and the job should not wait for it."""
        step = min(max((change.clock for change in view.changes), default=view.start_step), self._total_steps - 1)
        return self._batches.batch(step, 0, 1 if self._member.training.global_batch < 2 else 2, warm_up=True)

    # ---- steps

    def _begin(self) -> None:
        if self.finished:
            self._stop()
            return
        waited, began = self._gate.waited_seconds, self._member.clock()
        if not self._gate.may_begin(self.applied, self._exchange.generation):
            self._report()  # whom this step waits for may wait to hear that all are here
        turn = self._gate.begin(self.applied, self._exchange.generation)
        if turn is Turn.GO:
            timeline = self._gate.timeline
            self._exchange.follow(timeline)
            self._exchange.begin(self.applied)
            self._slices.begin(self.applied)
            self._computing = True
            if timeline.changes_at(self.applied):
                self._switching_seconds += self._member.clock() - began - (self._gate.waited_seconds - waited)
        elif turn is Turn.LEAVE:
            self._stop()
        elif turn is Turn.EXPELLED:
            self._member.check()
        elif turn is Turn.SILENT:
            raise self._member.unreachable()

    def _goes_on(self, view: View) -> bool:
        """While values are waited for: act on the newest view; False if there is something else to do than to wait."""
        if view.generation != self._exchange.generation or view.phase is Phase.FAILED or self._member.let_go(view):
            return False
        self._outbox.connect(view.members, self._task)
        self._exchange.follow(self._gate.timeline)
        return not (self._computing and self._slices.open())

    def _advance(self) -> None:
        self._model.flat.swap()
        if self._exchange.merges_buffers:
            self._model.flat.load_buffers()
        self.applied += 1
        self._computing = False
        self._meter.stepped()
        if self._meter.due:
            self._report()

    def _stop(self) -> None:
        """No step is left to begin here: wait to be let go, as a lost server may still make the job go back."""
        self._report(finished=self.finished)
        generation = self._exchange.generation
        view = self._member.wait_for(
            lambda view: (
                self._member.let_go(view)
                or view.generation != generation
                or (not self.finished and self._gate.may_begin(self.applied, generation))
            )
        )
        if self._member.let_go(view):
            self._member.leave()

    # ---- what is sent, and what is told

    def _parts(self, header: Header) -> list[Part]:
        if not isinstance(header, Push):
            return []
        return [self._model.part(*self._exchange.part(header), self._slices.bank_of(header.slice))]

    def _report(self, **progress: bool) -> None:
        workers = len(self._gate.timeline.at(max(self.applied - 1, self._gate.timeline.start_step)).workers)
        self._meter.report(
            generation=self._exchange.generation,
            step=self.applied,
            samples_per_second=self._meter.per_second(self._member.training.global_batch) / max(workers, 1),
            stall_seconds=self.stall_seconds,
            **progress,
        )
