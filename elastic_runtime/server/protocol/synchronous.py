"""A parameter server in synchronous training: no sockets, no threads, no clock of its own.

One block goes through a step like this: pushes of all slices come, in any order and maybe twice; they are summed in
slice order and applied, once; the new values go to every worker of the next step. A push for a block that has not
arrived yet waits for it. Whoever hears nothing asks again (`Pull`); whatever comes twice is recognised.

Workers whose part of a step does not come although other workers are heard are named to the coordinator after a while.
A worker that still computes is named too; only the coordinator, which hears from the worker itself whether it waits,
can tell the two apart. A server that hears nobody names nobody: it may be the one that is cut off.

Source: DL2 §5. Deviation: a push is identified by its slice, not by its worker, so that a dead worker's slice can be
computed by another one without any of it being applied twice. With two holders buffers are merged by one: see `pushes`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from elastic_runtime.errors import ProtocolError
from elastic_runtime.model.layout import Layout
from elastic_runtime.protocol.block_runs import Payload
from elastic_runtime.protocol.messages import (
    Adopted,
    Header,
    Missing,
    Norms,
    Outgoing,
    Pull,
    Push,
    State,
    Values,
    runs_of,
)
from elastic_runtime.protocol.plan import View
from elastic_runtime.server.protocol.block_table import BlockTable, Rules
from elastic_runtime.server.protocol.handover import SynchronousHandover
from elastic_runtime.server.protocol.part import ServerPart
from elastic_runtime.server.protocol.pushes import Lacking, StepPushes
from elastic_runtime.server.protocol.snapshots import Snapshots
from elastic_runtime.server.store import BlockStore

_OVERDUE_SECONDS = 5.0


class SynchronousPart(ServerPart):
    """One PS's part in synchronous training."""

    _handover: SynchronousHandover

    def __init__(
        self,
        name: str,
        layout: Layout,
        store: BlockStore,
        rules: Rules,
        snapshots: Snapshots,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(name, layout, store, snapshots, clock)
        self._table = BlockTable(name, layout, store, rules)
        self._handover = SynchronousHandover(self._table, clock)
        self._pushes = StepPushes(self._table, self._handover, snapshots, clock)
        self._overdue = Overdue()
        self._suspects: tuple[str, ...] = ()

    @property
    def suspects(self) -> tuple[str, ...]:
        """Workers whose part of a step has not come for long, as of the last tick."""
        return self._suspects

    def _begin(self, view: View) -> tuple[int, ...]:
        self._table.start(view)
        self._handover.start()
        self._pushes = StepPushes(self._table, self._handover, self._snapshots, self._clock)
        return view.start_plan.all_blocks_of(self.name)

    def _on_view(self, view: View) -> list[Outgoing]:
        table = self._table
        table.follow(view)
        out = self._handover.on_view(view)
        for change in view.changes:
            if change.checkpoint:
                blocks = table.plans.at(change.clock).blocks_of(table.name)
                self._snapshots.request(
                    change.number, change.clock, {block: table.due(block, change.clock) for block in blocks}
                )
        return [*out, *self._pushes.go_on(self._store.owned)]  # nobody reads what a lost server was to get

    def _on_sender(self, peer: str) -> None:
        self._overdue.on_message(peer, self._clock())

    def _remind(self) -> list[Outgoing]:
        self._suspects = self._overdue.poll(self._pushes.lacking(), self._clock())
        return [*self._handover.send_again(), *self._pushes.remind()]

    def _act(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        out: list[Outgoing] = []
        match header:
            case Push(after=after) if after > self._table.plans.newest:
                out = self._keep(peer, header, payload)
            case Push():
                out = self._pushes.on_push(peer, header, payload)
            case Pull():
                out = self._on_pull(peer, header)
            case State():
                out = self._on_state(peer, header, payload)
            case Values():
                out = self._pushes.on_merged(peer, header, payload)
            case Norms():
                out = self._pushes.on_norms(peer, header)
            case Adopted():
                out = self._pushes.go_on(self._handover.on_adopted(peer, header))
            case _:
                raise ProtocolError(f"{peer} sent a {type(header).__name__} message, which only workers get")
        return out

    def _on_state(self, peer: str, header: State, payload: Payload) -> list[Outgoing]:
        came = self._handover.on_state(peer, header, payload, self._pushes.complete_seconds)
        if came is None:
            return self._keep(peer, header, payload)
        out, blocks = came
        return [*out, *self._pushes.on_arrived(blocks)]

    def _on_pull(self, peer: str, header: Pull) -> list[Outgoing]:
        table, step = self._table, header.version - 1
        have: list[int] = []
        missing: dict[int, list[int]] = defaultdict(list)
        for first, count in header.runs:
            if first + count > len(self.layout.blocks):
                raise ProtocolError(f"{peer} asked for block {first + count - 1}, which this model does not have")
            for block in range(first, first + count):
                if block in self._store.owned and self._store.version(block) >= table.due(block, header.version):
                    have.append(block)
                    continue
                table.add_waiting(peer, block, header.version)
                if step < table.plans.start_step or not table.holds(block, step):
                    continue
                for k in table.plans.at(step).slices_of(peer):
                    if k in table.slices(step) and not self._pushes.has_slice(block, k):
                        missing[k].append(block)
        lacking = [(peer, Missing(table.generation, step, k, runs_of(blocks))) for k, blocks in missing.items()]
        plans = [table.plans.at(max(at, table.plans.start_step)) for at in (step, step + 1)]
        return [*table.messages_about(peer, have, *plans), *lacking]


class Overdue:
    """Who was heard when, and how long the same pushes have been outstanding.

    Args:
        overdue_seconds: after how long workers are named. Others count as heard for twice as long: who waits asks
            every 5 s.
    """

    def __init__(self, overdue_seconds: float | None = None) -> None:
        self._overdue_seconds = _OVERDUE_SECONDS if overdue_seconds is None else overdue_seconds
        self._heard_seconds: dict[str, float] = {}
        self._lacking: Lacking | None = None
        self._since_seconds = 0.0

    def on_message(self, peer: str, now_seconds: float) -> None:
        """A message of this worker or server came."""
        self._heard_seconds[peer] = now_seconds

    def poll(self, lacking: Lacking | None, now_seconds: float) -> tuple[str, ...]:
        """Workers that are overdue, in order, given the pushes that are lacking now (None: none)."""
        if lacking != self._lacking:
            self._lacking, self._since_seconds = lacking, now_seconds
        if lacking is None or now_seconds - self._since_seconds < self._overdue_seconds:
            return ()
        recently = now_seconds - 2 * self._overdue_seconds
        if all(self._heard_seconds.get(worker, recently) <= recently for worker in lacking.others):
            return ()
        late = now_seconds - self._overdue_seconds
        return tuple(worker for worker in lacking.workers if self._heard_seconds.get(worker, late) <= late)
