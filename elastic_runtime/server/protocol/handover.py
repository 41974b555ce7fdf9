"""Moves of parameter blocks between servers, in synchronous training: which to give or to get, sending, adoption.

A block leaves when the last step before its flip is applied; its old owner keeps the copy until the whole change is
committed, and sends it again until the new owner has said that it arrived. Where a block only gets another holder, the
one that has it goes on with it, but applies nothing to it from the flip on until the copy has arrived.

Source: DL2 §5. Deviation: blocks leave one by one behind the training, not all while it stands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from elastic_runtime.errors import ProtocolError
from elastic_runtime.model.layout import Block, Segment
from elastic_runtime.protocol.block_runs import Payload, flat_view, part_of, run_of
from elastic_runtime.protocol.messages import Adopted, Outgoing, State
from elastic_runtime.protocol.plan import Change, Timeline, Transfer, View, transfers
from elastic_runtime.server.protocol.block_table import BlockTable


@dataclass(slots=True)
class Departure:
    """A block on its way to one that gets it; `target` is empty if it leaves and goes to nobody.

    `stays`: the block is not given away, but copied.
    """

    target: str
    at: int
    change: int
    stays: bool = False
    sent_seconds: float | None = None
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A block to come, from any of `sources`, of which the first is to send it if it can."""

    sources: tuple[str, ...]
    at: int
    change: int

    @property
    def source(self) -> str:
        """Who is to send it."""
        return self.sources[0]


class Migration:
    """Departures and arrivals of one PS in one generation."""

    def __init__(self, name: str, resend_seconds: float) -> None:
        self._name = name
        self._resend_seconds = resend_seconds
        self.start()

    def start(self) -> None:
        """A generation begins: nothing is on its way."""
        self._departures: dict[int, list[Departure]] = {}
        self._arrivals: dict[int, Arrival] = {}
        self._known = 0
        self._lost: frozenset[str] = frozenset()
        self._open: dict[int, list[Transfer]] = {}

    def on_changes(self, timeline: Timeline, changes: Iterable[Change]) -> list[int]:
        """Take up changes, and losses of servers, not known yet; returns the blocks that are to be sent."""
        leaving = []
        if timeline.lost != self._lost:
            self._lost = timeline.lost
            for number, found in self._open.items():
                leaving += self._depart(number, found)
        for change in changes:
            if change.number <= self._known:
                continue
            self._known = change.number
            found = transfers(change, timeline.before(change))
            if found:
                self._open[change.number] = found
            leaving += self._depart(change.number, found)
            for transfer in found:
                if self._name in transfer.coming:
                    first = transfer.source(self._name)
                    others = (name for name in (*transfer.leaving, *transfer.staying) if name != first)
                    self._arrivals[transfer.block] = Arrival((first, *others), transfer.at, change.number)
        return leaving

    def _depart(self, number: int, found: Iterable[Transfer]) -> list[int]:
        """Have this PS send the blocks that it is the source of, given the lost servers."""
        leaving = []
        for transfer in found:
            stays = self._name in transfer.staying
            if not stays and self._name not in transfer.leaving:
                continue
            targets = [
                name
                for name in transfer.coming
                if name not in self._lost and transfer.source(name, self._lost) == self._name
            ]
            before = {departure.target: departure for departure in self._departures.get(transfer.block, ())}
            now = [before.get(name) or Departure(name, transfer.at, number, stays) for name in targets]
            if not now and not stays:
                now = [Departure("", transfer.at, number, sent_seconds=0.0, adopted=True)]
            if now:
                self._departures[transfer.block] = now
                leaving.append(transfer.block)
            else:
                self._departures.pop(transfer.block, None)
        return leaving

    def departure(self, block: int) -> Departure | None:
        """Where a block goes, if it leaves, or is copied."""
        departures = self._departures.get(block)
        return departures[0] if departures else None

    def departures(self, block: int) -> list[Departure]:
        """Everywhere that a block goes."""
        return self._departures.get(block, [])

    def arrival(self, block: int) -> Arrival | None:
        """Where a block comes from, if it is still to come."""
        return self._arrivals.get(block)

    @property
    def arriving(self) -> bool:
        """Whether blocks are still to come."""
        return bool(self._arrivals)

    def on_arrived(self, block: int) -> None:
        """The block is here."""
        self._arrivals.pop(block, None)

    def on_adopted(self, block: int, by: str) -> None:
        """Its new owner has the block."""
        for departure in self._departures.get(block, ()):
            if departure.target == by:
                departure.adopted = True

    def complete_up_to(self) -> int:
        """Number of the newest change of which, and of all before, everything that comes here has come."""
        if not self._arrivals:
            return self._known
        return min(arrival.change for arrival in self._arrivals.values()) - 1

    def release(self, committed: int) -> list[int]:
        """Forget what left with changes up to `committed`; returns the blocks whose copies may go."""
        gone = [block for block, (departure, *_) in self._departures.items() if departure.change <= committed]
        copies = [block for block in gone if not self._departures.pop(block)[0].stays]
        for number in [number for number in self._open if number <= committed]:
            del self._open[number]
        return copies

    def to_send(self) -> list[int]:
        """Blocks that leave and were not sent yet, in order."""
        return sorted(block for block, departure in self._all() if departure.sent_seconds is None)

    def on_the_way(self) -> list[int]:
        """Blocks that were sent, and whose arrival nobody confirmed."""
        return [b for b, departure in self._all() if departure.sent_seconds is not None and not departure.adopted]

    def to_send_again(self, now_seconds: float) -> Iterator[int]:
        """Blocks sent long ago whose arrival nobody confirmed."""
        for block, departure in self._all():
            sent = departure.sent_seconds
            if sent is not None and not departure.adopted and now_seconds - sent >= self._resend_seconds:
                yield block

    def _all(self) -> Iterator[tuple[int, Departure]]:
        return ((block, departure) for block, several in self._departures.items() for departure in several)


def arrived_tensors(
    peer: str, payload: Payload, names: Sequence[str], segment: Segment, blocks: Sequence[Block]
) -> dict[int, tuple[Tensor, dict[str, Tensor]]]:
    """The parameters of blocks that have come, and the optimizer's tensors by these names.

    Raises:
        ProtocolError: they are not what this optimizer has.
    """
    if len(payload) != 1 + len(names):
        raise ProtocolError(f"{peer} sent blocks in {len(payload)} parts; this optimizer has {1 + len(names)}")
    parameters, *state = (flat_view(payload, part, segment, blocks) for part in range(len(payload)))
    return {
        block.index: (
            part_of(parameters, blocks, block),
            {name: part_of(tensor, blocks, block) for name, tensor in zip(names, state, strict=True)},
        )
        for block in blocks
    }


class MovingBlocks:
    """What one server gives away and takes over.

    Args:
        resend_seconds: after how long an unconfirmed block is sent again.

    Attributes:
        migration: which blocks go where, in the generation in hand.
        moved_bytes: parameters of blocks that came from other servers.
        stall_seconds: how long workers waited for blocks that had not arrived; of those at once the longest wait.
    """

    def __init__(self, name: str, clock: Callable[[], float], resend_seconds: float) -> None:
        self.moved_bytes = 0
        self.stall_seconds = 0.0
        self.migration = Migration(name, resend_seconds)
        self._clock = clock


class SynchronousHandover(MovingBlocks):
    """What one server gives away and takes over in synchronous training."""

    def __init__(self, table: BlockTable, clock: Callable[[], float]) -> None:
        super().__init__(table.name, clock, table.rules.resend_seconds)
        self._table = table
        self._waits: dict[int, float] = {}

    def start(self) -> None:
        """A generation begins: nothing is on its way."""
        self.migration.start()
        self._waits.clear()

    def is_here(self, block: int) -> bool:
        """Whether this server has the block and goes on with it."""
        table = self._table
        if block not in table.store.owned or self.migration.arrival(block) is not None:
            return False
        departure = self.migration.departure(block)
        return departure is None or departure.stays or table.store.version(block) < table.due(block, departure.at)

    def is_kept_back(self, block: int) -> bool:
        """Whether a block stays as it is for now, as another server is reading it from here."""
        table = self._table
        return any(
            departure.stays and not departure.adopted and table.store.version(block) >= table.due(block, departure.at)
            for departure in self.migration.departures(block)
        )

    def on_view(self, view: View) -> list[Outgoing]:
        """Take up the changes of a newer view: forget committed moves, send due blocks. The table has its plans."""
        table = self._table
        for block in self.migration.release(view.committed):
            table.store.release(block)
        if not self.migration.arriving:  # the next migration's waits are counted anew
            self._waits.clear()
        return self.depart(self.migration.on_changes(table.plans, view.changes))

    def depart(self, blocks: Iterable[int]) -> list[Outgoing]:
        """Send away those of these blocks that have seen the last step before their flip."""
        table = self._table
        due = {}
        for block in blocks:
            new = [departure for departure in self.migration.departures(block) if departure.sent_seconds is None]
            if new and block in table.store.owned and table.store.version(block) >= table.due(block, new[0].at):
                due[block] = new
        return self._send(due)

    def send_again(self) -> list[Outgoing]:
        """Blocks whose arrival nobody confirmed."""
        migration = self.migration
        return self._send(
            {
                block: [departure for departure in migration.departures(block) if not departure.adopted]
                for block in sorted(migration.to_send_again(self._clock()))
            }
        )

    def _send(self, due: Mapping[int, Sequence[Departure]]) -> list[Outgoing]:
        table, now = self._table, self._clock()
        by_target: dict[str, list[int]] = defaultdict(list)
        for block, departures in due.items():
            for departure in departures:
                by_target[departure.target].append(block)
                departure.sent_seconds = now
        return [
            (target, State(table.generation, table.store.version(first), first, count))
            for target, blocks in by_target.items()
            for first, count in table.runs(blocks)
        ]

    def on_state(
        self, peer: str, header: State, payload: Payload, complete_seconds: Callable[[int], float | None]
    ) -> tuple[list[Outgoing], dict[int, int]] | None:
        """Blocks have come.

        Args:
            payload: parameters, then the optimizer's tensors.
            complete_seconds: since when all pushes of a block are there; None: they are not.

        Returns:
            The answers, and block → first step here of the blocks that were not here before; None if nobody has said
            yet that they come here.

        Raises:
            ProtocolError: they are not due, or not what this optimizer has; nothing was changed.
        """
        table = self._table
        blocks = run_of(table.layout.blocks, header.first, header.count)
        coming = [(b, arrival) for b in blocks if (arrival := self.migration.arrival(b.index)) is not None]
        adopted = (peer, Adopted(table.generation, header.first, header.count))
        if not coming:
            return ([adopted], {}) if all(self.is_here(block.index) for block in blocks) else None
        segment = table.layout.segments[blocks[0].segment]
        tensors = arrived_tensors(peer, payload, table.store.state_names(header.first), segment, blocks)
        for block, arrival in coming:
            if peer not in arrival.sources or header.version < table.due(block.index, arrival.at):
                raise ProtocolError(f"{peer} sent block {block.index} at version {header.version}, which is not due")
        now = self._clock()
        for block, arrival in coming:
            table.store.adopt(block.index, *tensors[block.index], header.version)
            self.migration.on_arrived(block.index)
            self.moved_bytes += block.size_bytes
            since = complete_seconds(block.index)
            if since is not None:
                self._waited(arrival.at, now - since)
        return [adopted], {block.index: arrival.at for block, arrival in coming}

    def on_adopted(self, peer: str, header: Adopted) -> list[int]:
        """Another server has got blocks; returns them: nobody reads them from here any more."""
        blocks = [block.index for block in run_of(self._table.layout.blocks, header.first, header.count)]
        for block in blocks:
            self.migration.on_adopted(block, peer)
        return blocks

    def _waited(self, step: int, seconds: float) -> None:
        """Add the wait of a block's complete pushes; in a step its workers wait for the slowest only."""
        longest = self._waits.get(step, 0.0)
        if seconds > longest:
            self._waits[step] = seconds
            self.stall_seconds += seconds - longest
