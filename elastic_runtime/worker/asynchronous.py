"""A worker's way through asynchronous training: takes leased batches, pushes updates, goes on with what comes back.

Nobody waits for another worker: no votes, no common step. Updates go to the blocks' owners, wherever these move. A
worker that is told to leave, or to halt, ends the update in hand, tells what it has done, and gives back the rest.

Source: DL2 §2.2, §5 (asynchronous training).
"""

from __future__ import annotations

import structlog

from elastic_runtime.errors import ElasticError
from elastic_runtime.member.outbox import Outbox
from elastic_runtime.model.sample_leases import SampleLease
from elastic_runtime.protocol.block_runs import Payload
from elastic_runtime.protocol.messages import Header, Outgoing, Update
from elastic_runtime.protocol.plan import JobPhase, View
from elastic_runtime.transport import RegionPart
from elastic_runtime.worker.batches import Batch
from elastic_runtime.worker.flat_model import clip_gradients
from elastic_runtime.worker.lease_queue import LeaseQueue
from elastic_runtime.worker.membership import PATIENCE_SECONDS
from elastic_runtime.worker.parameter_servers import ParameterServerMode, WorkerWaits
from elastic_runtime.worker.protocol.updates import LAST, Updates

_log = structlog.get_logger()

_TAKE_SECONDS = 0.05
"""For a lease to come, before it is looked whether there is something else to do."""


class AsynchronousMode(ParameterServerMode):
    """One worker's part in asynchronous training with parameter servers.

    Attributes:
        stall_seconds: waited after a server had said that a block had left for another one.
    """

    finished = False
    stall_seconds = 0.0

    def _start(self) -> None:
        # Once it has entered, this worker ends the update in hand even where it is to leave.
        self._entered = self._pushed = self._merging = self._has_ended_job = False
        self._leased: SampleLease | None = None
        self._samples_unmerged = self._unmerged = 0
        self._routed_change = 0
        self._redirected_seconds: float | None = None
        self._updates = Updates(self._member.environment.incarnation, self._member.layout, self._model.flat)
        self._outbox = Outbox(self._member.endpoint, self._parts)
        self._waiting = WorkerWaits(self._member, self._outbox, self._updates, self._handle)
        self._leases = LeaseQueue(self._member.link.lease, self._clock)
        self._member.follow()

    @property
    def is_first(self) -> bool:
        """Whether this is the first worker of the plan."""
        if self._barrier.view is None:
            return False
        workers = self._barrier.timeline.at(LAST).workers
        return bool(workers) and workers[0] == self._task

    @property
    def global_step(self) -> int:
        """Updates applied, as far as this worker knows; with work that was done again not more than there are."""
        total, view = self._batches.order.total_steps, self._barrier.view
        whole = self.finished and not self._has_ended_job and (view is None or view.ends_at is None)
        return total if whole else min(self._updates.version, total)

    def synchronize(self) -> None:
        """Take the values that answer the update in hand."""
        generation = self._updates.generation
        while self._pushed and self._stays(self._member.view(), generation):
            self._complete()

    def end(self) -> None:
        """Tell that nothing is left to do; the others compute nothing beyond the update in hand."""
        if self._member.left or self.finished:
            return
        self.synchronize()
        self._has_ended_job = True
        self._leases.stop(PATIENCE_SECONDS)
        generation = self._updates.generation
        while not self._member.left and self._stays(self._member.view(), generation):
            self._finish()
        self._see_out(generation)

    def close(self) -> None:
        """Leave the job."""
        self._leases.close()
        super().close()

    def _go_on(self, view: View) -> Batch | None:
        if self._member.is_over(view) or (self._task in view.leaving and not self._entered):
            self._member.leave()
        elif view.generation != self._updates.generation or not view.generation:
            self._entered = self._pushed = False
            self._enter(view)
        elif not self._entered:
            self._take_values()
        elif self._pushed:
            self._complete()
        elif (self._leases.finished or view.ends_at is not None) and self._task not in view.leaving:
            self._finish()
        elif self._is_to_stop(view):
            self._stop(view)
        else:
            return self._next()
        return None

    def _on_computed(self, batch: Batch, value: float | None) -> None:
        clip_norm = self._training.optimizer.clip_norm
        if clip_norm is not None:
            clip_gradients(self._model.flat, self._member.layout, clip_norm)
        self._meter.on_computed(value, batch.size)
        self._samples_unmerged += batch.size
        self._unmerged += 1
        self._merging = self._unmerged >= self._training.buffer_merge_steps or self._leases.is_last_taken
        if self._merging:
            self._model.take_buffers()
        self._outbox.send(self._updates.push(self._samples_unmerged if self._merging else 0))
        if self._merging:
            self._unmerged = self._samples_unmerged = 0
        self._pushed = True

    # ---- entering

    def _enter(self, view: View) -> None:
        self._write_first_checkpoint(view)
        named = view.generation and self._task in self._barrier.timeline.at(LAST).workers
        if not named:
            if view.generation:
                self._member.link.report(ready=True, generation=view.generation)
            newer = self._member.newer(view)
            if self._member.is_let_go(newer):
                self._member.leave()
            return
        self._leases.begin(view.generation)
        self._outbox.forget()
        self._outbox.connect(view.members, self._task)
        self._outbox.send(self._updates.start(self._barrier.timeline))

    def _take_values(self) -> None:
        """Wait for the values that a generation, or this worker's part in it, begins with."""
        if self._wait():
            self._swap(buffers=True)
            self._entered = True
            self._meter.begin()
            self._report(ready=True)
            _log.info("generation-entered", generation=self._updates.generation, version=self._updates.version)

    # ---- batches

    def _next(self) -> Batch | None:
        """Next batch, if one is leased; None: there is other work to do."""
        self._leased = self._leases.take(_TAKE_SECONDS)
        if self._leased is None:
            self._member.check(PATIENCE_SECONDS)
            if self._leases.failure is not None:
                raise self._leases.failure
            self._follow(idle=True)
            self._report_if_due()
            return None
        leased, following = self._leased, self._leases.next
        ends_epoch = self._leases.is_last_taken if following is None else following.epoch != leased.epoch
        batch = self._batches.leased(self.global_step, leased.epoch, leased.start, leased.stop, ends_epoch=ends_epoch)
        if following is not None:
            self._batches.expect_leased(following.epoch, following.start, following.stop)
        return batch

    def _complete(self) -> None:
        if not self._wait():
            return
        self._swap(buffers=self._merging)
        self._pushed = False
        if self._leased is not None:
            self._leases.on_done(self._leased)
            self._leased = None
        self._meter.on_stepped()
        self._follow(idle=False)
        self._report_if_due()

    def _swap(self, *, buffers: bool) -> None:
        self._model.flat.swap()
        if buffers:
            self._model.flat.load_buffers()

    # ---- the end

    def _is_to_stop(self, view: View) -> bool:
        timeline = self._barrier.timeline
        halted = timeline.halts_at() is not None
        return halted or self._member.is_let_go(view) or self._task not in timeline.at(LAST).workers

    def _stop(self, view: View) -> None:
        """Report finished batches, give back the rest, and wait to be let go; a lost server may make the job go on."""
        self._leases.stop(PATIENCE_SECONDS)
        self._follow(idle=True, stopped=True)
        self._report()
        if not self._member.is_let_go(view):
            if self._leases.finished:
                return
            if self._barrier.timeline.halts_at() is not None:
                generation = self._updates.generation
                view = self._member.newer(view)
                if view.generation != generation:
                    return
        if self._member.is_let_go(view) or self._barrier.timeline.halts_at() is None:
            self._member.leave()

    def _finish(self) -> None:
        """Nothing is left to lease: take the final values, and wait for the job's end."""
        generation = self._updates.generation
        self._follow(idle=True)
        self._outbox.send(self._updates.fetch())
        if not self._wait():
            return
        self._swap(buffers=True)
        self.finished = True
        self._report(finished=True)
        view = self._member.view()
        while view.generation == generation:
            self._follow(idle=True, stopped=True)
            if self._member.is_let_go(view):
                self._member.leave()
                return
            if view.phase is JobPhase.FAILED:
                raise ElasticError(f"the job failed: {view.failure}")
            view = self._member.newer(view)
        self.finished = False

    def _report_if_due(self) -> None:
        if self._meter.is_due:
            self._report()

    def _report(self, **progress: bool) -> None:
        self._meter.report(
            generation=self._updates.generation,
            step=self.global_step,
            samples_per_second=self._meter.per_second(self._batches.order.global_batch),
            stall_seconds=self.stall_seconds,
            **progress,
        )

    # ---- updates on their way

    def _wait(self) -> bool:
        """Wait for outstanding values; whether all of them came."""
        self._redirected_seconds = None
        if not self._waiting.until_complete(self._goes_on):
            return False
        if self._redirected_seconds is not None:
            self.stall_seconds += self._clock() - self._redirected_seconds
        return True

    def _follow(self, *, idle: bool, stopped: bool = False) -> None:
        """Take up the newest view; tell the coordinator once nothing is asked of former owners any more.

        Args:
            stopped: nothing will be pushed before the job goes on: this worker stands where the job halts.
        """
        view, timeline = self._member.view(), self._barrier.timeline
        if view.generation != self._updates.generation:
            return
        self._outbox.connect(view.members, self._task)
        self._outbox.send(self._updates.follow(timeline))
        if idle and self._updates.is_complete:
            self._outbox.send(self._updates.reroute())
        routed = self._updates.routed_change
        halt = next((change.number for change in timeline.changes if change.halt), None)
        if halt is not None and not stopped:
            routed = min(routed, halt - 1)
        if routed != self._routed_change:
            self._routed_change = routed
            self._member.link.report(arrived=routed, generation=view.generation)

    def _goes_on(self, view: View) -> bool:
        """While values are waited for: act on the newest view; False if there is something else to do than to wait."""
        if view.generation != self._updates.generation or view.phase is JobPhase.FAILED or self._member.is_over(view):
            return False
        if self._task in view.leaving and not self._entered:
            return False
        self._follow(idle=False)
        return True

    def _handle(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        out = self._updates.handle(peer, header, payload)
        if self._updates.redirected and self._redirected_seconds is None:
            self._redirected_seconds = self._clock()
        return out

    def _parts(self, header: Header) -> list[RegionPart]:
        return [self._model.part(*self._updates.part(header))] if isinstance(header, Update) else []
