"""What a parameter server does with messages in synchronous training: no sockets, no threads, no clock of its own.

One block goes through a step like this: pushes of all slices come, in any order and maybe twice; they are summed in
slice order and applied, once; the new values go to every worker of the next step. A push for a block that has not
arrived yet waits for it. Whoever hears nothing asks again (`Pull`); whatever comes twice is recognised.

Source: DL2 §5. Deviation: a push is identified by its slice, not by its worker, so that a dead worker's slice can be
computed by another one without any of it being applied twice. With two holders buffers are merged by one: see `merges`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from elastic_runtime.errors import ProtocolError
from elastic_runtime.model.layout import Layout
from elastic_runtime.protocol.block_runs import Payload, run_of
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
from elastic_runtime.server.protocol.block_table import BlockBook, Rules
from elastic_runtime.server.protocol.handover import Handover
from elastic_runtime.server.protocol.migration import Migration
from elastic_runtime.server.protocol.overdue import Overdue
from elastic_runtime.server.protocol.part import ServerPart
from elastic_runtime.server.protocol.pushes import Pushes
from elastic_runtime.server.protocol.snapshots import Snapshots
from elastic_runtime.server.store import BlockStore

__all__ = ["Rules", "Serving"]


class Serving(ServerPart):
    """One PS's part in synchronous training.

    Args:
        name: the task's.
        layout: the model's.
        store: holds the blocks.
        rules: the job's.
        snapshots: takes copies of blocks for checkpoints.
        clock: seconds, monotonic.
    """

    _handover: Handover

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
        self._book = BlockBook(name, layout, store, rules)
        self._handover = Handover(self._book, clock)
        self._pushes = Pushes(self._book, self._handover, snapshots, clock)
        self._overdue = Overdue()
        self._suspects: tuple[str, ...] = ()

    def handle(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        """Act on a message, see `ServerPart`; and note that its sender lives."""
        self._overdue.heard(peer, self._clock())
        return super().handle(peer, header, payload)

    @property
    def suspects(self) -> tuple[str, ...]:
        """Workers whose part of a step has not come for long, as of the last tick."""
        return self._suspects

    @property
    def _migration(self) -> Migration:
        return self._book.migration

    def _begin(self, view: View) -> tuple[int, ...]:
        self._book.start(view)
        self._handover.forget_waits()
        self._pushes = Pushes(self._book, self._handover, self._snapshots, self._clock)
        return view.start_plan.held_by(self.name)

    def _learn(self, view: View) -> list[Outgoing]:
        book = self._book
        book.follow(view)
        for block in book.migration.release(view.committed):
            self._store.release(block)
        if not book.migration.arriving:
            self._handover.forget_waits()
        leaving = book.migration.learn(book.plans, view.changes)
        for change in view.changes:
            if change.checkpoint:
                blocks = book.plans.at(change.clock).blocks_of(book.name)
                self._snapshots.request(
                    change.number, change.clock, {block: book.due(block, change.clock) for block in blocks}
                )
        out = self._handover.depart(leaving)
        return [*out, *self._pushes.go_on(self._store.owned)]  # nobody reads what a lost server was to get

    def _remind(self) -> list[Outgoing]:
        self._suspects = self._overdue.look(self._pushes.lacking(), self._clock())
        again = (self._handover.send_again(), self._pushes.tell_norms_again(), self._pushes.ask_for_merges())
        return [message for messages in again for message in messages]

    def _act(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        out: list[Outgoing] = []
        match header:
            case Push(after=after) if after > self._book.plans.newest:
                out = self._hold(peer, header, payload)
            case Push():
                out = self._pushes.came(peer, header, payload)
            case Pull():
                out = self._pull(peer, header)
            case State():
                out = self._state(peer, header, payload)
            case Values():
                out = self._pushes.merged(peer, header, payload)
            case Norms():
                out = self._pushes.norms_came(peer, header)
            case Adopted():
                blocks = [block.index for block in run_of(self.layout.blocks, header.first, header.count)]
                for block in blocks:
                    self._book.migration.adopted(block, peer)
                out = self._pushes.go_on(blocks)
            case _:
                raise ProtocolError(f"{peer} sent a {type(header).__name__} message, which only workers get")
        return out

    def _state(self, peer: str, header: State, payload: Payload) -> list[Outgoing]:
        came = self._handover.came(peer, header, payload, self._pushes.complete_seconds)
        if came is None:
            return self._hold(peer, header, payload)
        out, blocks = came
        return [*out, *self._pushes.arrived(blocks)]

    def _pull(self, peer: str, header: Pull) -> list[Outgoing]:
        book, step = self._book, header.version - 1
        have: list[int] = []
        missing: dict[int, list[int]] = defaultdict(list)
        for first, count in header.runs:
            if first + count > len(self.layout.blocks):
                raise ProtocolError(f"{peer} asked for block {first + count - 1}, which this model does not have")
            for block in range(first, first + count):
                if block in self._store.owned and self._store.version(block) >= book.due(block, header.version):
                    have.append(block)
                    continue
                book.want(peer, block, header.version)
                if step < book.plans.start_step or not book.holds(block, step):
                    continue
                for k in book.plans.at(step).slices_of(peer):
                    if k in book.slices(step) and not self._pushes.has(block, k):
                        missing[k].append(block)
        lacking = [(peer, Missing(book.generation, step, k, runs_of(blocks))) for k, blocks in missing.items()]
        plans = [book.plans.at(max(at, book.plans.start_step)) for at in (step, step + 1)]
        return [*book.told(peer, have, *plans), *lacking]
