"""A parameter server in asynchronous training: no sockets, no threads, no clock of its own.

Each worker's update is applied to a block when it comes, once, and answered with the block as it is then. A block that
changes its owner is frozen when it is sent; whoever still pushes to the old owner is told so, and the new owner lets
pushes wait until the block has come.

A worker on the same host reads an answer's values in place, perhaps while another worker's update is applied to them:
some of the elements may then be one update newer than the answer says. No element is torn, as the processor writes
aligned elements whole. Workers that share nothing but memory train like this too (Hogwild, Recht et al. 2011); a copy
for each answer would double the memory traffic of a server, which is what bounds it.

Source: DL2 §5 (asynchronous: the PS buffers and redirects).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from torch import Tensor

from elastic_runtime.errors import ProtocolError
from elastic_runtime.model.layout import Layout
from elastic_runtime.protocol.block_runs import Payload, block_runs, flat_view, run_of
from elastic_runtime.protocol.messages import Adopted, Current, Fetch, Handover, Header, Moved, Outgoing, Update
from elastic_runtime.protocol.plan import Timeline, View
from elastic_runtime.server.protocol.applied_updates import AppliedUpdates, Staleness
from elastic_runtime.server.protocol.asynchronous_handover import LiveHandover
from elastic_runtime.server.protocol.part import ServerPart
from elastic_runtime.server.protocol.snapshots import Snapshots
from elastic_runtime.server.store import BlockStore


class AsynchronousPart(ServerPart):
    """One PS's part in asynchronous training.

    Args:
        name: the task's.
        layout: the model's.
        store: holds the blocks.
        snapshots: takes copies of blocks for checkpoints.
        clock: seconds, monotonic.
        resend_seconds: after how long an unconfirmed block is sent again.
    """

    _handover: LiveHandover

    def __init__(
        self,
        name: str,
        layout: Layout,
        store: BlockStore,
        snapshots: Snapshots,
        clock: Callable[[], float],
        resend_seconds: float = 2.0,
    ) -> None:
        super().__init__(name, layout, store, snapshots, clock)
        self._updates = AppliedUpdates(layout, store, snapshots, self.dropped)
        self._handover = LiveHandover(name, layout, store, self._updates, clock, resend_seconds)
        self._timeline: Timeline | None = None
        self._checkpointed = 0

    @property
    def staleness(self) -> Staleness:
        """Of the newest updates."""
        return self._updates.staleness

    @property
    def staleness_versions(self) -> int:
        """Median of the newest updates."""
        return self._updates.staleness.median

    @property
    def _plans(self) -> Timeline:
        if self._timeline is None:
            raise RuntimeError("no view has come yet")
        return self._timeline

    def _begin(self, view: View) -> tuple[int, ...]:
        self._updates.start()
        self._handover.start(view.generation)
        self._checkpointed = 0
        return view.start_plan.blocks_of(self.name)

    def _on_view(self, view: View) -> list[Outgoing]:
        self._timeline = timeline = Timeline(view)
        self._updates.follow(view.members)
        out = self._handover.on_view(timeline, view)
        for change in view.changes:
            if change.checkpoint and change.number > self._checkpointed:
                self._checkpointed = change.number
                blocks = timeline.at(change.clock).blocks_of(self.name)
                self._snapshots.request(
                    change.number, change.clock, {block: self._store.version(block) for block in blocks}
                )
        return out

    def _on_sender(self, peer: str) -> None:
        """Nobody waits for anybody's part here: who lives does not matter."""

    def _remind(self) -> list[Outgoing]:
        return [*self._handover.send_again(), *self._handover.depart()]

    def _act(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        match header:
            case Update() | Fetch():
                if header.after > self._plans.newest:
                    return self._hold(peer, header, payload)
                return self._on_asked(peer, header, payload)
            case Handover():
                came = self._handover.on_handover(peer, header, payload)
                if came is None:
                    return self._hold(peer, header, payload)
                out, blocks = came
                return [*out, *self._answer_waiting(blocks)]
            case Adopted():
                return self._handover.on_adopted(peer, header)
            case _:
                raise ProtocolError(f"{peer} sent a {type(header).__name__} message, which no server gets here")

    def _on_asked(self, peer: str, header: Update | Fetch, payload: Payload) -> list[Outgoing]:
        """A worker pushes to blocks, or asks for them: they are here, still to come, or have left."""
        blocks = run_of(self.layout.blocks, header.first, header.count)
        numbers: Tensor | None = None
        if isinstance(header, Update):
            if not self._updates.is_from_member(peer, header):
                self.dropped["not a member"] += 1
                return []
            numbers = flat_view(payload, 0, self.layout.segments[blocks[0].segment], blocks)
        here: list[tuple[int, Tensor | None]] = []
        left: dict[int, list[int]] = defaultdict(list)
        for block in blocks:
            own = None
            if numbers is not None:
                own = numbers[block.start - blocks[0].start : block.stop - blocks[0].start]
            departure = self._handover.migration.departure(block.index)
            if self._handover.migration.arrival(block.index) is not None:
                self._handover.let_wait(block.index, peer, header, own)
            elif departure is not None and departure.sent_seconds is not None:
                left[departure.change].append(block.index)
            elif block.index in self._store.owned:
                here.append((block.index, own))
            else:
                left[self._plans.newest].append(block.index)
        out = self._answer(peer, header, here)
        for change, gone in left.items():
            for first, count in block_runs(self.layout.blocks, gone, lambda block: (block.segment,)):
                out.append((peer, Moved(self.generation, change, header.sequence, first, count)))
        return out

    def _answer(self, peer: str, header: Update | Fetch, blocks: Iterable[tuple[int, Tensor | None]]) -> list[Outgoing]:
        """Apply what is new of an update; the blocks as they are then."""
        if isinstance(header, Update):
            known = self._updates.apply(header, [(block, own) for block, own in blocks if own is not None])
        else:
            known = [block for block, _ in blocks]
        store = self._store
        return [
            (peer, Current(self.generation, header.sequence, store.version(first), first, count))
            for first, count in block_runs(
                self.layout.blocks, known, lambda block: (block.segment, store.version(block.index))
            )
        ]

    def _answer_waiting(self, blocks: Iterable[int]) -> list[Outgoing]:
        """Blocks have come: what was asked of them can be answered, unless its worker is no member any more."""
        out: list[Outgoing] = []
        for block in blocks:
            for peer, one in self._handover.take_waiting(block).items():
                if isinstance(one.header, Fetch) or self._updates.is_from_member(peer, one.header):
                    out += self._answer(peer, one.header, [(block, one.numbers)])
        return out
