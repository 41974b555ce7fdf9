"""Blocks that change their owner, on both sides: sent behind the training, adopted as they come.

Source: DL2 §5. Deviation: see `migration`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from elastic_runtime.errors import ProtocolError
from elastic_runtime.message_memory import Payload, flat_view, run_of
from elastic_runtime.messages import Adopted, State
from elastic_runtime.server.book import BlockBook, Outgoing


class Handover:
    """What one server gives away and takes over.

    Args:
        book: what holds.
        clock: seconds, monotonic.
    """

    def __init__(self, book: BlockBook, clock: Callable[[], float]) -> None:
        self.moved_bytes = 0
        self.stall_seconds = 0.0
        self._book = book
        self._clock = clock
        self._waits: dict[int, float] = {}

    def forget_waits(self) -> None:
        """A generation begins, or all blocks are here: the next migration's waits are counted anew."""
        self._waits.clear()

    def depart(self, blocks: Iterable[int]) -> list[Outgoing]:
        """Send away those of these blocks that have seen the last step before their flip."""
        book = self._book
        return self.send(
            block
            for block in blocks
            if (departure := book.migration.departure(block)) is not None
            and departure.sent_seconds is None
            and block in book.store.owned
            and book.store.version(block) >= book.due(block, departure.at)
        )

    def send_again(self) -> list[Outgoing]:
        """Blocks whose arrival nobody confirmed."""
        return self.send(sorted(self._book.migration.to_send_again(self._clock())))

    def send(self, blocks: Iterable[int]) -> list[Outgoing]:
        """Messages with the state of departing blocks."""
        book, now = self._book, self._clock()
        out: list[Outgoing] = []
        for first, count in book.runs(blocks, by_target=True):
            target = book.migration.leaving(first).target
            out.append((target, State(book.generation, book.store.version(first), first, count)))
            for block in range(first, first + count):
                book.migration.leaving(block).sent_seconds = now
        return out

    def came(
        self, peer: str, header: State, payload: Payload, complete_seconds: Callable[[int], float | None]
    ) -> tuple[list[Outgoing], dict[int, list[int]]] | None:
        """Blocks have come.

        Args:
            peer: who sent them.
            header: which.
            payload: parameters, then the optimizer's tensors.
            complete_seconds: since when all pushes of a block are there; None: they are not.

        Returns:
            The answers, and step → blocks that can be applied now; None if nobody has said yet that they come here.

        Raises:
            ProtocolError: they are not due, or not what this optimizer has; nothing was changed.
        """
        book = self._book
        blocks = run_of(book.layout.blocks, header.first, header.count)
        coming = [(b, arrival) for b in blocks if (arrival := book.migration.arrival(b.index)) is not None]
        adopted = (peer, Adopted(book.generation, header.first, header.count))
        if not coming:
            return ([adopted], {}) if all(book.here(block.index) for block in blocks) else None
        names = book.store.state_names(header.first)
        if len(payload) != 1 + len(names):
            raise ProtocolError(f"{peer} sent blocks in {len(payload)} parts; this optimizer has {1 + len(names)}")
        segment = book.layout.segments[blocks[0].segment]
        parameters, *state = (flat_view(payload, part, segment, blocks) for part in range(len(payload)))
        for block, arrival in coming:
            if arrival.source != peer or header.version < book.due(block.index, arrival.at):
                raise ProtocolError(f"{peer} sent block {block.index} at version {header.version}, which is not due")
        ready: dict[int, list[int]] = defaultdict(list)
        now = self._clock()
        for block, arrival in coming:
            place = slice(block.start - blocks[0].start, block.stop - blocks[0].start)
            own_state = {name: tensor[place] for name, tensor in zip(names, state, strict=True)}
            book.store.adopt(block.index, parameters[place], own_state, header.version)
            book.migration.arrived(block.index)
            self.moved_bytes += block.size_bytes
            since = complete_seconds(block.index)
            if since is not None:
                self._waited(arrival.at, now - since)
                ready[arrival.at].append(block.index)
        wanted = [
            message
            for block, _ in coming
            for reader in book.take_wanting(block.index)
            for message in book.values(reader, [block.index])
        ]
        return [adopted, *wanted], ready

    def _waited(self, step: int, seconds: float) -> None:
        """A block's pushes were complete so long before it came; in a step its workers wait for the slowest only."""
        longest = self._waits.get(step, 0.0)
        if seconds > longest:
            self._waits[step] = seconds
            self.stall_seconds += seconds - longest
