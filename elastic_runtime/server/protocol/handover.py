"""Blocks that get other holders, on both sides: sent behind the training, adopted as they come.

Source: DL2 §5. Deviation: see `migration`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from elastic_runtime.errors import ProtocolError
from elastic_runtime.protocol.block_runs import Payload, flat_view, run_of
from elastic_runtime.protocol.messages import Adopted, Outgoing, State
from elastic_runtime.protocol.plan import View
from elastic_runtime.server.protocol.block_table import BlockTable
from elastic_runtime.server.protocol.migration import Departure


class Handover:
    """What one server gives away and takes over.

    Args:
        table: what holds.
        clock: seconds, monotonic.
    """

    def __init__(self, table: BlockTable, clock: Callable[[], float]) -> None:
        self.moved_bytes = 0
        self.stall_seconds = 0.0
        self._table = table
        self._clock = clock
        self._waits: dict[int, float] = {}

    def forget_waits(self) -> None:
        """A generation begins, or all blocks are here: the next migration's waits are counted anew."""
        self._waits.clear()

    def on_view(self, view: View) -> list[Outgoing]:
        """Take up the changes of a newer view: forget what is committed, send what is due. The table has its plans."""
        table = self._table
        for block in table.migration.release(view.committed):
            table.store.release(block)
        if not table.migration.arriving:
            self.forget_waits()
        return self.depart(table.migration.on_changes(table.plans, view.changes))

    def depart(self, blocks: Iterable[int]) -> list[Outgoing]:
        """Send away those of these blocks that have seen the last step before their flip."""
        table = self._table
        due = {}
        for block in blocks:
            new = [departure for departure in table.migration.departures(block) if departure.sent_seconds is None]
            if new and block in table.store.owned and table.store.version(block) >= table.due(block, new[0].at):
                due[block] = new
        return self._send(due)

    def send_again(self) -> list[Outgoing]:
        """Blocks whose arrival nobody confirmed."""
        migration = self._table.migration
        return self._send(
            {
                block: [departure for departure in migration.departures(block) if not departure.adopted]
                for block in sorted(migration.to_send_again(self._clock()))
            }
        )

    def _send(self, due: Mapping[int, Sequence[Departure]]) -> list[Outgoing]:
        """Messages with the state of blocks, for each of those that get it."""
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
            peer: who sent them.
            header: which.
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
        coming = [(b, arrival) for b in blocks if (arrival := table.migration.arrival(b.index)) is not None]
        adopted = (peer, Adopted(table.generation, header.first, header.count))
        if not coming:
            return ([adopted], {}) if all(table.is_here(block.index) for block in blocks) else None
        names = table.store.state_names(header.first)
        if len(payload) != 1 + len(names):
            raise ProtocolError(f"{peer} sent blocks in {len(payload)} parts; this optimizer has {1 + len(names)}")
        segment = table.layout.segments[blocks[0].segment]
        parameters, *state = (flat_view(payload, part, segment, blocks) for part in range(len(payload)))
        for block, arrival in coming:
            if peer not in arrival.sources or header.version < table.due(block.index, arrival.at):
                raise ProtocolError(f"{peer} sent block {block.index} at version {header.version}, which is not due")
        now = self._clock()
        for block, arrival in coming:
            place = slice(block.start - blocks[0].start, block.stop - blocks[0].start)
            own_state = {name: tensor[place] for name, tensor in zip(names, state, strict=True)}
            table.store.adopt(block.index, parameters[place], own_state, header.version)
            table.migration.on_arrived(block.index)
            self.moved_bytes += block.size_bytes
            since = complete_seconds(block.index)
            if since is not None:
                self._waited(arrival.at, now - since)
        return [adopted], {block.index: arrival.at for block, arrival in coming}

    def on_adopted(self, peer: str, header: Adopted) -> list[int]:
        """Another server has got blocks; returns them: nobody reads them from here any more."""
        blocks = [block.index for block in run_of(self._table.layout.blocks, header.first, header.count)]
        for block in blocks:
            self._table.migration.on_adopted(block, peer)
        return blocks

    def _waited(self, step: int, seconds: float) -> None:
        """A block's pushes were complete so long before it came; in a step its workers wait for the slowest only."""
        longest = self._waits.get(step, 0.0)
        if seconds > longest:
            self._waits[step] = seconds
            self.stall_seconds += seconds - longest
