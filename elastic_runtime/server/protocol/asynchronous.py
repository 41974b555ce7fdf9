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

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from torch import Tensor

from elastic_runtime.errors import ProtocolError
from elastic_runtime.model.layout import Block, Layout
from elastic_runtime.protocol.block_runs import Payload, block_runs, flat_view, part_of, run_of
from elastic_runtime.protocol.messages import (
    RUN_BYTES,
    Adopted,
    Current,
    Fetch,
    Handover,
    Header,
    Mark,
    Moved,
    Outgoing,
    Update,
)
from elastic_runtime.protocol.plan import Member, Timeline, View
from elastic_runtime.server.protocol.handover import MovingBlocks, arrived_tensors
from elastic_runtime.server.protocol.part import ServerPart
from elastic_runtime.server.protocol.snapshots import Snapshots
from elastic_runtime.server.store import BlockStore

_WINDOW_BYTES = 2 * RUN_BYTES
"""Blocks on their way at once: workers wait for these only, while the rest of a resize is still to come."""
_KEPT_AGES = 1000
"""Of the newest updates; some seconds of a busy job."""


class AppliedUpdates:
    """The updates applied to one server's blocks, each once, in one generation after the other.

    A block's marks say up to which of its updates each worker's are applied; they move with the block.
    """

    def __init__(self, layout: Layout, store: BlockStore, snapshots: Snapshots) -> None:
        self._ages: deque[int] = deque(maxlen=_KEPT_AGES)
        self._buffers = layout.buffer_blocks
        self._store = store
        self._snapshots = snapshots
        self._incarnations: dict[str, int] = {}
        self._marks: dict[int, dict[int, Mark]] = defaultdict(dict)
        self._merged_samples: Counter[int] = Counter()

    @property
    def staleness_versions(self) -> int:
        """Median age of the newest updates, in versions of their blocks; 0 without any.

        Source: Ho et al. 2013 (stale synchronous parallel).
        """
        return int(median(self._ages)) if self._ages else 0

    def start(self) -> None:
        """A generation begins: nothing is applied to its blocks."""
        self._marks.clear()
        self._merged_samples.clear()

    def follow(self, members: Iterable[Member]) -> None:
        """Take updates of these processes, and of no others."""
        self._incarnations = {member.task: member.incarnation for member in members}

    def is_from_member(self, peer: str, header: Update) -> bool:
        """Whether the update is of the process that the job knows as `peer`."""
        return self._incarnations.get(peer) == header.incarnation

    def apply(self, header: Update, blocks: Sequence[tuple[int, Tensor]]) -> list[int]:
        """Apply an update once; returns the blocks that it is applied to, now or before."""
        known: list[int] = []
        fresh: dict[int, list[tuple[int, Tensor]]] = defaultdict(list)
        for block, numbers in blocks:
            mark = self._marks[block].get(header.incarnation)
            if mark is not None and header.sequence < mark.sequence:
                continue
            known.append(block)
            if mark is None or header.sequence > mark.sequence:
                fresh[self._store.version(block)].append((block, numbers))
        for version, members in fresh.items():
            self._snapshots.before_apply(self._store, [block for block, _ in members])
            if members[0][0] in self._buffers:
                self._merge(header, members, version)
            else:
                self._step(header, members, version)
        return known

    def _step(self, header: Update, members: Sequence[tuple[int, Tensor]], version: int) -> None:
        blocks = [block for block, _ in members]
        self._store.apply(blocks, [[numbers] for _, numbers in members], version)
        for block in blocks:
            self._marks[block][header.incarnation] = Mark(header.incarnation, header.sequence)
        self._ages.append(max(version - header.version, 0))

    def _merge(self, header: Update, members: Sequence[tuple[int, Tensor]], version: int) -> None:
        """A worker's statistics count by its share in the samples that were merged since it merged last.

        One worker alone replaces them; of k equal ones each counts for 1/k. Whole numbers: the largest.
        """
        for block, numbers in members:
            mark = self._marks[block].get(header.incarnation)
            before = self._merged_samples[block]
            others = before - (mark.samples if mark is not None else 0)
            own = self._store.view(block).parameters.clone()
            self._store.apply([block], [[own, numbers]], version, (others, header.samples))
            self._merged_samples[block] = before + header.samples
            self._marks[block][header.incarnation] = Mark(header.incarnation, header.sequence, before + header.samples)

    def marks(self, block: int) -> tuple[Mark, ...]:
        """The marks of a block, but those of processes that are no more: their updates are not taken anyway."""
        live = set(self._incarnations.values())
        marks = sorted(self._marks[block].values(), key=lambda mark: mark.incarnation)
        return tuple(mark for mark in marks if mark.incarnation in live)

    def merged_samples(self, block: int) -> int:
        """How many samples a block's statistics hold."""
        return self._merged_samples[block]

    def take_over(self, block: int, header: Handover) -> None:
        """Take over a block's marks and merged samples."""
        self._marks[block] = {mark.incarnation: mark for mark in header.marks}
        self._merged_samples[block] = header.samples


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """What a worker asked of a block that is still to come; `numbers` of an update, None of a question for values."""

    header: Update | Fetch
    numbers: Tensor | None
    since_seconds: float


class LiveHandover(MovingBlocks):
    """What one server gives away and takes over in asynchronous training."""

    def __init__(
        self,
        name: str,
        layout: Layout,
        store: BlockStore,
        updates: AppliedUpdates,
        clock: Callable[[], float],
        resend_seconds: float,
    ) -> None:
        super().__init__(name, clock, resend_seconds)
        self._layout = layout
        self._store = store
        self._updates = updates
        self._waiting: dict[int, dict[str, WaitingRequest]] = defaultdict(dict)
        self._generation = 0

    def start(self, generation: int) -> None:
        """A generation begins: nothing is on its way."""
        self.migration.start()
        self._generation = generation
        self._waiting.clear()

    def on_view(self, timeline: Timeline, view: View) -> list[Outgoing]:
        """Take up the changes of a newer view: forget committed moves, freeze and send blocks that may leave now."""
        for block in self.migration.release(view.committed):
            self._store.release(block)
        self.migration.on_changes(timeline, view.changes)
        return self.depart()

    def let_wait(self, block: int, peer: str, header: Update | Fetch, numbers: Tensor | None) -> None:
        """A worker asks something of a block that is still to come; only its newest question counts."""
        known = self._waiting[block].get(peer)
        since_seconds = known.since_seconds if known is not None else self._clock()
        self._waiting[block][peer] = WaitingRequest(header, numbers, since_seconds)

    def depart(self) -> list[Outgoing]:
        """Freeze and send the next blocks that are to leave, as many as may be on their way at once."""
        waiting = self.migration.to_send()
        if not waiting:
            return []
        on_the_way = self.migration.on_the_way()
        free_bytes = _WINDOW_BYTES - sum(self._layout.blocks[block].size_bytes for block in on_the_way)
        chosen: list[int] = []
        for block in waiting:
            free_bytes -= self._layout.blocks[block].size_bytes
            if free_bytes < 0 and (chosen or on_the_way):
                break
            chosen.append(block)
        return self._send(chosen)

    def send_again(self) -> list[Outgoing]:
        """Blocks whose arrival nobody confirmed."""
        return self._send(sorted(self.migration.to_send_again(self._clock())))

    def on_handover(self, peer: str, header: Handover, payload: Payload) -> tuple[list[Outgoing], list[int]] | None:
        """Blocks have come.

        Returns:
            The answer, and the blocks; None if nobody has said yet that they come here.

        Raises:
            ProtocolError: they are not due from this peer, or not what this optimizer has; nothing was changed.
        """
        blocks = run_of(self._layout.blocks, header.first, header.count)
        coming = [block for block in blocks if self.migration.arrival(block.index) is not None]
        adopted = [(peer, Adopted(self._generation, header.first, header.count))]
        if not coming:
            # A copy that is kept of a block that left is not it: its way back is in a view that has not come yet.
            here = all(b.index in self._store.owned and self.migration.departure(b.index) is None for b in blocks)
            return ([*adopted], []) if here else None
        segment = self._layout.segments[blocks[0].segment]
        tensors = arrived_tensors(peer, payload, self._store.state_names(header.first), segment, blocks)
        for block in coming:
            arrival = self.migration.arrival(block.index)
            if arrival is not None and arrival.source != peer:
                raise ProtocolError(f"{peer} sent block {block.index}, which {arrival.source} is to send")
        waiting = [one.since_seconds for block in coming for one in self._waiting.get(block.index, {}).values()]
        if waiting:
            self.stall_seconds += self._clock() - min(waiting)  # the longest: they wait at the same time
        for block in coming:
            self._store.adopt(block.index, *tensors[block.index], header.version)
            self._updates.take_over(block.index, header)
            self.migration.on_arrived(block.index)
            self.moved_bytes += block.size_bytes
        return [*adopted], [block.index for block in coming]

    def on_adopted(self, peer: str, header: Adopted) -> list[Outgoing]:
        """Another server has got blocks; the next ones may leave."""
        for block in run_of(self._layout.blocks, header.first, header.count):
            self.migration.on_adopted(block.index, peer)
        return self.depart()

    def take_waiting(self, block: int) -> dict[str, WaitingRequest]:
        """What workers asked of a block until it came; they wait no longer."""
        return self._waiting.pop(block, {})

    def _send(self, blocks: Iterable[int]) -> list[Outgoing]:
        def key(block: Block) -> tuple[object, ...]:
            target = self.migration.departures(block.index)[0].target
            past = (self._updates.marks(block.index), self._updates.merged_samples(block.index))
            return (block.segment, self._store.version(block.index), target, *past)

        out: list[Outgoing] = []
        now = self._clock()
        for first, count in block_runs(self._layout.blocks, blocks, key):
            version, samples = self._store.version(first), self._updates.merged_samples(first)
            header = Handover(self._generation, version, samples, first, count, self._updates.marks(first))
            out.append((self.migration.departures(first)[0].target, header))
            for block in range(first, first + count):
                self.migration.departures(block)[0].sent_seconds = now
        return out


class AsynchronousPart(ServerPart):
    """One PS's part in asynchronous training."""

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
        self._updates = AppliedUpdates(layout, store, snapshots)
        self._handover = LiveHandover(name, layout, store, self._updates, clock, resend_seconds)
        self._timeline: Timeline | None = None
        self._checkpointed = 0

    @property
    def staleness_versions(self) -> int:
        """Median of the newest updates."""
        return self._updates.staleness_versions

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
                    return self._keep(peer, header, payload)
                return self._on_request(peer, header, payload)
            case Handover():
                came = self._handover.on_handover(peer, header, payload)
                if came is None:
                    return self._keep(peer, header, payload)
                out, blocks = came
                return [*out, *self._answer_waiting(blocks)]
            case Adopted():
                return self._handover.on_adopted(peer, header)
            case _:
                raise ProtocolError(f"{peer} sent a {type(header).__name__} message, which no server gets here")

    def _on_request(self, peer: str, header: Update | Fetch, payload: Payload) -> list[Outgoing]:
        """A worker pushes to blocks, or asks for them: they are here, still to come, or have left."""
        blocks = run_of(self.layout.blocks, header.first, header.count)
        numbers: Tensor | None = None
        if isinstance(header, Update):
            if not self._updates.is_from_member(peer, header):
                return []
            numbers = flat_view(payload, 0, self.layout.segments[blocks[0].segment], blocks)
        here: list[tuple[int, Tensor | None]] = []
        left: dict[int, list[int]] = defaultdict(list)
        for block in blocks:
            own = None if numbers is None else part_of(numbers, blocks, block)
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
            for first, count in block_runs(self.layout.blocks, gone):
                out.append((peer, Moved(self.generation, change, header.sequence, first, count)))
        return out

    def _answer(self, peer: str, header: Update | Fetch, blocks: Iterable[tuple[int, Tensor | None]]) -> list[Outgoing]:
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
        """Answer requests that waited for blocks, unless their workers are no members any more."""
        out: list[Outgoing] = []
        for block in blocks:
            for peer, one in self._handover.take_waiting(block).items():
                if isinstance(one.header, Fetch) or self._updates.is_from_member(peer, one.header):
                    out += self._answer(peer, one.header, [(block, one.numbers)])
        return out
