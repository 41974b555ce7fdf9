"""What a parameter server does with messages in asynchronous training: no sockets, no threads, no clock of its own.

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

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import torch

from elastic_runtime.asynchronous_messages import Current, Fetch, Handover, Mark, Moved, Update
from elastic_runtime.errors import ProtocolError
from elastic_runtime.layout import Block, Kind, Layout
from elastic_runtime.message_memory import Payload, flat_view, run_of
from elastic_runtime.messages import RUN_BYTES, Adopted, Header
from elastic_runtime.plan import Timeline, View
from elastic_runtime.server.migration import Migration
from elastic_runtime.server.snapshots import Snapshots
from elastic_runtime.server.staleness import Staleness
from elastic_runtime.server.store import BlockStore

Outgoing = tuple[str, Header]
_MOST_HELD = 65536
_WINDOW_BYTES = 2 * RUN_BYTES
"""Blocks on their way at once: workers wait for these only, while the rest of a resize is still to come."""


class Applying:
    """One PS's part in the protocol.

    Args:
        name: the task's.
        layout: the model's.
        store: holds the blocks.
        snapshots: takes copies of blocks for checkpoints.
        clock: seconds, monotonic.
        resend_seconds: after how long an unconfirmed block is sent again.
    """

    def __init__(
        self,
        name: str,
        layout: Layout,
        store: BlockStore,
        snapshots: Snapshots,
        clock: Callable[[], float],
        resend_seconds: float = 2.0,
    ) -> None:
        self.name = name
        self.generation = 0
        self.dropped: Counter[str] = Counter()
        self.stall_seconds = 0.0
        self.longest_stall_seconds = 0.0
        self.moved_bytes = 0
        self.staleness = Staleness()
        self._layout = layout
        self._store = store
        self._snapshots = snapshots
        self._clock = clock
        self._resend_seconds = resend_seconds
        self._buffers = frozenset(b.index for b in layout.blocks if layout.segments[b.segment].kind is Kind.BUFFER)
        self._timeline: Timeline | None = None
        self._incarnations: dict[str, int] = {}
        self._loaded = False
        self._reset()

    def _reset(self) -> None:
        self._held: list[tuple[str, Header, Payload]] = []
        self._migration = Migration(self.name, self._resend_seconds)
        self._marks: dict[int, dict[int, Mark]] = defaultdict(dict)
        self._merged_samples: Counter[int] = Counter()
        self._waiting: dict[int, dict[str, tuple[Update | Fetch, torch.Tensor | None, float]]] = defaultdict(dict)
        self._checkpointed = 0

    # ---- views

    def begins_generation(self, view: View) -> bool:
        """Whether this view starts a generation, whose blocks are to be loaded from its checkpoint first."""
        return view.generation > self.generation

    def start(self, view: View) -> tuple[int, ...]:
        """Begin a generation; everything of the one before is forgotten. Returns the blocks to load."""
        for block in tuple(self._store.owned):
            self._store.release(block)
        held = [entry for entry in self._held if entry[1].generation >= view.generation]
        self.generation = view.generation
        self._loaded = False
        self._reset()
        self._held = held
        self._snapshots.start()
        return view.start_plan.blocks_of(self.name)

    def loaded(self, view: View) -> list[Outgoing]:
        """The store holds the generation's blocks now."""
        self._loaded = True
        return self.learn(view)

    def learn(self, view: View) -> list[Outgoing]:
        """Act on a newer view of the same generation."""
        if view.generation != self.generation or not self._loaded:
            return []
        self._timeline = timeline = Timeline(view)
        self._incarnations = {member.task: member.incarnation for member in view.members}
        for block in self._migration.release(view.committed):
            self._store.release(block)
        self._migration.learn(timeline, view.changes)
        for change in view.changes:
            if change.checkpoint and change.number > self._checkpointed:
                self._checkpointed = change.number
                blocks = timeline.at(change.clock).blocks_of(self.name)
                self._snapshots.request(change.clock, {block: self._store.version(block) for block in blocks})
        out = self._depart()
        held, self._held = self._held, []
        for peer, header, payload in held:
            out += self.handle(peer, header, payload)
        return out

    @property
    def layout(self) -> Layout:
        """The model's."""
        return self._layout

    @property
    def lowest_version(self) -> int:
        """Updates applied to all the parameters held here; 0 without any."""
        return min((self._store.version(b) for b in self._store.owned if b not in self._buffers), default=0)

    @property
    def arrived(self) -> int:
        """Everything that comes here with changes up to this number is here."""
        return self._migration.complete_up_to() if self._loaded else 0

    # ---- messages

    def handle(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        """Act on a message.

        Raises:
            ProtocolError: it breaks the protocol; nothing was changed.
        """
        if header.generation < self.generation:
            self.dropped["old generation"] += 1
            return []
        timeline = self._timeline
        if header.generation > self.generation or not self._loaded or timeline is None:
            return self._hold(peer, header, payload)
        match header:
            case Update() | Fetch():
                if header.after > timeline.newest:
                    return self._hold(peer, header, payload)
                return self._asked(peer, header, payload, timeline)
            case Handover():
                return self._handover(peer, header, payload)
            case Adopted():
                for block in self._run(header.first, header.count):
                    self._migration.adopted(block.index, peer)
                return self._depart()
            case _:
                raise ProtocolError(f"{peer} sent a {type(header).__name__} message, which no server gets here")

    def tick(self) -> list[Outgoing]:
        """What is to be done when nothing comes: send again, copy for a checkpoint."""
        if not self._loaded:
            return []
        out = self._send(sorted(self._migration.to_send_again(self._clock())))
        self._snapshots.idle(self._store)
        return out + self._depart()

    def parts(self, header: Header) -> list[tuple[str, int, int, int]]:
        """The memory that goes with a message: (tensor, segment, first element, last element + 1), in its order."""
        if not isinstance(header, Current | Handover):
            return []
        blocks = self._run(header.first, header.count)
        state = self._store.state_names(header.first) if isinstance(header, Handover) else ()
        return [(name, blocks[0].segment, blocks[0].start, blocks[-1].stop) for name in ("parameters", *state)]

    # ---- updates

    def _asked(self, peer: str, header: Update | Fetch, payload: Payload, timeline: Timeline) -> list[Outgoing]:
        blocks = self._run(header.first, header.count)
        numbers: torch.Tensor | None = None
        if isinstance(header, Update):
            if self._incarnations.get(peer) != header.incarnation:
                self.dropped["not a member"] += 1
                return []
            numbers = flat_view(payload, 0, self._layout.segments[blocks[0].segment], blocks)
        here: list[tuple[int, torch.Tensor | None]] = []
        left: dict[int, list[int]] = defaultdict(list)
        for block in blocks:
            own = None
            if numbers is not None:
                own = numbers[block.start - blocks[0].start : block.stop - blocks[0].start]
            departure = self._migration.departure(block.index)
            if self._migration.arrival(block.index) is not None:
                self._let_wait(block.index, peer, header, own)
            elif departure is not None and departure.sent_seconds is not None:
                left[departure.change].append(block.index)
            elif block.index in self._store.owned:
                here.append((block.index, own))
            else:
                left[timeline.newest].append(block.index)
        out = self._answer(peer, header, here)
        for change, gone in left.items():
            for first, count in self._adjacent(gone):
                out.append((peer, Moved(self.generation, change, header.sequence, first, count)))
        return out

    def _let_wait(self, block: int, peer: str, header: Update | Fetch, numbers: torch.Tensor | None) -> None:
        known = self._waiting[block].get(peer)
        since = known[2] if known is not None else self._clock()
        self._waiting[block][peer] = (header, numbers, since)

    def _answer(
        self, peer: str, header: Update | Fetch, blocks: Sequence[tuple[int, torch.Tensor | None]]
    ) -> list[Outgoing]:
        """Apply what is new of an update; the blocks as they are then."""
        known: list[int] = []
        fresh: dict[int, list[tuple[int, torch.Tensor]]] = defaultdict(list)
        for block, numbers in blocks:
            if isinstance(header, Fetch) or numbers is None:
                known.append(block)
                continue
            mark = self._marks[block].get(header.incarnation)
            if mark is None or header.sequence > mark.sequence:
                fresh[self._store.version(block)].append((block, numbers))
                known.append(block)
            elif header.sequence == mark.sequence:
                known.append(block)
            else:
                self.dropped["old update"] += 1
        if isinstance(header, Update):
            for version, members in fresh.items():
                self._apply(header, version, members)
        return [
            (peer, Current(self.generation, header.sequence, self._store.version(first), first, count))
            for first, count in self._alike(known)
        ]

    def _apply(self, header: Update, version: int, members: Sequence[tuple[int, torch.Tensor]]) -> None:
        blocks = [block for block, _ in members]
        self._snapshots.before_apply(self._store, blocks)
        if blocks[0] in self._buffers:
            for block, numbers in members:
                self._merge(header, block, numbers)
            return
        self._store.apply(blocks, [[numbers] for _, numbers in members], version)
        for block in blocks:
            self._marks[block][header.incarnation] = Mark(header.incarnation, header.sequence)
        self.staleness.add(version - header.version)

    def _merge(self, header: Update, block: int, numbers: torch.Tensor) -> None:
        """A worker's statistics count by its share in the samples that were merged since it merged last.

        One worker alone replaces them; of k equal ones each counts for 1/k. Whole numbers: the largest.
        """
        mark = self._marks[block].get(header.incarnation)
        before = self._merged_samples[block]
        since = before - (mark.samples if mark is not None else 0) + header.samples
        share = header.samples / since if since else 1.0
        held = self._store.view(block).parameters
        if held.is_floating_point():
            self._store.apply([block], [[held * (1.0 - share), numbers * share]], self._store.version(block))
        else:
            self._store.apply([block], [[held.clone(), numbers]], self._store.version(block))
        self._merged_samples[block] = before + header.samples
        self._marks[block][header.incarnation] = Mark(header.incarnation, header.sequence, before + header.samples)

    # ---- migration

    def _depart(self) -> list[Outgoing]:
        """Freeze and send the next blocks that are to leave, as many as may be on their way at once."""
        waiting = self._migration.to_send()
        if not waiting:
            return []
        room_bytes = _WINDOW_BYTES - sum(self._layout.blocks[b].size_bytes for b in self._migration.on_the_way())
        chosen: list[int] = []
        for block in waiting:
            room_bytes -= self._layout.blocks[block].size_bytes
            if room_bytes < 0 and (chosen or self._migration.on_the_way()):
                break
            chosen.append(block)
        return self._send(chosen)

    def _send(self, blocks: Sequence[int]) -> list[Outgoing]:
        out: list[Outgoing] = []
        now = self._clock()
        for first, count in self._alike(blocks, moving=True):
            departure = self._migration.leaving(first)
            known = self._known_members(first)
            samples = self._merged_samples[first]
            header = Handover(self.generation, self._store.version(first), samples, first, count, known)
            out.append((departure.target, header))
            for block in range(first, first + count):
                self._migration.leaving(block).sent_seconds = now
        return out

    def _known_members(self, block: int) -> tuple[Mark, ...]:
        """The marks of a block, but those of processes that are no more: their updates are not taken anyway."""
        live = set(self._incarnations.values())
        marks = sorted(self._marks[block].values(), key=lambda mark: mark.incarnation)
        return tuple(mark for mark in marks if mark.incarnation in live)

    def _handover(self, peer: str, header: Handover, payload: Payload) -> list[Outgoing]:
        blocks = self._run(header.first, header.count)
        coming = [block for block in blocks if self._migration.arrival(block.index) is not None]
        if not coming:
            # A copy that is kept of a block that left is not it: its way back is in a view that has not come yet.
            if all(b.index in self._store.owned and self._migration.departure(b.index) is None for b in blocks):
                return [(peer, Adopted(self.generation, header.first, header.count))]
            return self._hold(peer, header, payload)
        names = self._store.state_names(header.first)
        if len(payload) != 1 + len(names):
            raise ProtocolError(f"{peer} sent blocks in {len(payload)} parts; this optimizer has {1 + len(names)}")
        segment = self._layout.segments[blocks[0].segment]
        tensors = [flat_view(payload, part, segment, blocks) for part in range(len(payload))]
        for block in coming:
            arrival = self._migration.arrival(block.index)
            if arrival is not None and arrival.source != peer:
                raise ProtocolError(f"{peer} sent block {block.index}, which {arrival.source} is to send")
        out: list[Outgoing] = [(peer, Adopted(self.generation, header.first, header.count))]
        waiting = [since for block in coming for _, _, since in self._waiting.get(block.index, {}).values()]
        waited = self._clock() - min(waiting) if waiting else 0.0  # the longest: they wait at the same time
        self.stall_seconds += waited
        self.longest_stall_seconds = max(self.longest_stall_seconds, waited)
        for block in coming:
            start, stop = block.start - blocks[0].start, block.stop - blocks[0].start
            state = {name: tensor[start:stop] for name, tensor in zip(names, tensors[1:], strict=True)}
            self._store.adopt(block.index, tensors[0][start:stop], state, header.version)
            self.moved_bytes += block.size_bytes
            self._marks[block.index] = {mark.incarnation: mark for mark in header.marks}
            self._merged_samples[block.index] = header.samples
            self._migration.arrived(block.index)
            out += self._waited(block.index)
        return out

    def _waited(self, block: int) -> list[Outgoing]:
        out: list[Outgoing] = []
        for peer, (header, numbers, _) in self._waiting.pop(block, {}).items():
            if isinstance(header, Fetch) or self._incarnations.get(peer) == header.incarnation:
                out += self._answer(peer, header, [(block, numbers)])
        return out

    # ---- runs

    def _run(self, first: int, count: int) -> Sequence[Block]:
        return run_of(self._layout.blocks, first, count)

    def _alike(self, blocks: Sequence[int], *, moving: bool = False) -> list[tuple[int, int]]:
        """Runs of blocks that one message can tell of: of one segment and version; to move: also of one past."""

        def key(index: int) -> tuple[object, ...]:
            place = (self._layout.blocks[index].segment, self._store.version(index))
            if not moving:
                return place
            target = self._migration.leaving(index).target
            return (*place, target, self._known_members(index), self._merged_samples[index])

        return self._grouped(blocks, key)

    def _adjacent(self, blocks: Sequence[int]) -> list[tuple[int, int]]:
        return self._grouped(blocks, lambda index: (self._layout.blocks[index].segment,))

    def _grouped(self, blocks: Iterable[int], key: Callable[[int], tuple[object, ...]]) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        last: tuple[object, ...] = ()
        run_bytes = 0
        for index in blocks:
            size_bytes = self._layout.blocks[index].size_bytes
            now = key(index)
            run_bytes += size_bytes
            if found and now == last and index == sum(found[-1]) and run_bytes <= RUN_BYTES:
                found[-1] = (found[-1][0], found[-1][1] + 1)
            else:
                found.append((index, 1))
                run_bytes = size_bytes
            last = now
        return found

    def _hold(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        if len(self._held) >= _MOST_HELD:
            self.dropped["held too many"] += 1
        else:
            self._held.append((peer, header, payload))
        return []
