"""Gradients on their way into the blocks: gathered slice by slice, summed in their order, clipped, applied once.

Buffers with two holders are merged by their owner from what workers sent, and the other holder takes what came out. A
slice's gradient is the same whoever computes it, so both holders sum what comes to each. Running statistics are each
worker's own: if a worker dies when it has sent them to one holder, its substitute sends others to the other one; both
holders would be right, and different until the next merge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from elastic_runtime.errors import ProtocolError
from elastic_runtime.protocol.block_runs import Payload, flat_view, part_of, run_of
from elastic_runtime.protocol.messages import Norms, Outgoing, Pull, Push, Values, runs_of
from elastic_runtime.server.protocol.block_table import BlockTable
from elastic_runtime.server.protocol.clipping import Clipping
from elastic_runtime.server.protocol.handover import SynchronousHandover
from elastic_runtime.server.protocol.snapshots import Snapshots


@dataclass(frozen=True, slots=True)
class Lacking:
    """Whose slices of a step are not here, and who else works, though some slice is here."""

    step: int
    workers: tuple[str, ...]
    others: tuple[str, ...]


class StepPushes:
    """The steps in hand, block by block, in one generation."""

    def __init__(
        self, table: BlockTable, handover: SynchronousHandover, snapshots: Snapshots, clock: Callable[[], float]
    ) -> None:
        self._table = table
        self._handover = handover
        self._snapshots = snapshots
        self._clock = clock
        self._slices: dict[int, dict[int, torch.Tensor]] = defaultdict(dict)
        self._steps: dict[int, int] = {}
        self._complete_seconds: dict[int, float] = {}
        self._clipping: Clipping | None = None
        if table.rules.clip_norm is not None:
            self._clipping = Clipping(table, handover, table.rules.clip_norm, clock)

    def complete_seconds(self, block: int) -> float | None:
        """Since when all slices of the block's next step are here; None if they are not."""
        return self._complete_seconds.get(block)

    def has_slice(self, block: int, slice_index: int) -> bool:
        """Whether a slice of the block's next step is here."""
        return slice_index in self._slices.get(block, {})

    def lacking(self) -> Lacking | None:
        """What the first block that somebody pushed waits for; None if none waits."""
        table = self._table
        for block, slices in self._slices.items():
            if (
                slices
                and block not in table.buffers
                and block not in self._complete_seconds
                and self._handover.is_here(block)
            ):
                step = table.store.version(block)
                workers = table.plans.at(step).workers
                missing = {workers[k] for k in table.slices(step) if k not in slices}
                return Lacking(step, tuple(sorted(missing)), tuple(sorted(set(workers) - missing)))
        return None

    def on_push(self, peer: str, header: Push, payload: Payload) -> list[Outgoing]:
        """A worker's gradient of a run of blocks.

        Raises:
            ProtocolError: no such slice, blocks that are not held here then, or of a step that cannot be.
        """
        table, step = self._table, header.step
        blocks = run_of(table.layout.blocks, header.first, header.count)
        if header.slice not in table.slices(step):
            raise ProtocolError(f"{peer} pushed slice {header.slice} of step {step}, which has no such slice")
        plan = table.plans.at(step)
        if any(table.name not in plan.holders(block.index) for block in blocks):
            raise ProtocolError(f"{peer} pushed blocks of step {step} that {table.name} does not have then")
        gradients = flat_view(payload, 0, table.layout.segments[blocks[0].segment], blocks)
        ready, old, merges = [], [], []
        for block in blocks:
            if self._handover.is_here(block.index):
                version, due = table.store.version(block.index), table.due(block.index, step)
                if version > due:
                    old.append(block.index)
                    continue
                if version < due and table.plans.replicated:
                    continue  # from one that has just joined, with values of the other holder, who is a step ahead
                if version < due:
                    raise ProtocolError(f"{peer} pushed step {step} of block {block.index}, at {version} here")
            elif self._handover.migration.arrival(block.index) is None:
                continue  # late: the block has left since
            slices = self._slices[block.index]
            self._steps[block.index] = step
            slices.setdefault(header.slice, part_of(gradients, blocks, block))
            if len(slices) == len(table.slices(step)):
                self._complete_seconds[block.index] = self._clock()
                if self._ready(block.index):
                    ready.append(block.index)
                elif block.index in table.buffers:
                    merges.append(block.index)
        return [*table.messages_about(peer, old, plan), *self._apply(ready, step), *self._ask(merges)]

    def on_merged(self, peer: str, header: Values, payload: Payload) -> list[Outgoing]:
        """Buffers as their owner merged them.

        Raises:
            ProtocolError: it is a message for workers.
        """
        step = header.version - 1
        came = self._merged(peer, header, payload)
        taken = [block for block in came if self._steps.get(block) == step and self._could_apply(block)]
        self._snapshots.before_apply(self._table.store, taken)
        for block in taken:
            self._table.store.replace(block, came[block])
        return self._applied(taken, step)

    def remind(self) -> list[Outgoing]:
        """Send again the norms of steps that still wait, and ask again for what owners merge; messages may be lost."""
        norms = self._clipping.report_again() if self._clipping is not None else []
        return [*norms, *self._ask(self._complete_seconds)]

    def _merged(self, peer: str, header: Values, payload: Payload) -> dict[int, torch.Tensor]:
        """The blocks in a message of their owner, where this server has left their merge to it."""
        table, step = self._table, header.version - 1
        blocks = run_of(table.layout.blocks, header.first, header.count)
        if any(block.index not in table.buffers for block in blocks) or len(payload) != 1:
            raise ProtocolError(f"{peer} sent values that only workers get")
        if step < table.plans.start_step:
            return {}
        values = flat_view(payload, 0, table.layout.segments[blocks[0].segment], blocks)
        return {
            block.index: part_of(values, blocks, block)
            for block in blocks
            if self._is_left_to_owner(block.index, step) and peer == table.plans.at(step).owners[block.index]
        }

    def _ask(self, blocks: Iterable[int]) -> list[Outgoing]:
        """Ask owners for those of these blocks that they merge; an owner that is not there yet answers then."""
        by_owner: dict[tuple[str, int], list[int]] = defaultdict(list)
        for block in blocks:
            if self._could_apply(block) and self._is_left_to_owner(block, step := self._steps[block]):
                by_owner[self._table.plans.at(step).owners[block], step].append(block)
        return [
            (owner, Pull(self._table.generation, step + 1, runs_of(sorted(some))))
            for (owner, step), some in by_owner.items()
        ]

    def _is_left_to_owner(self, block: int, step: int) -> bool:
        """Whether another server merges the block; once that one is lost, this server is the owner."""
        return block in self._table.buffers and self._table.plans.at(step).replica(block) == self._table.name

    def on_arrived(self, blocks: Mapping[int, int]) -> list[Outgoing]:
        """Blocks have come, each of which is here from a step on: answer who asked, apply what waited."""
        table = self._table
        out: list[Outgoing] = []
        for block, at in blocks.items():
            plan = table.plans.at(at)
            for reader in table.take_waiting(block):
                out += table.messages_about(reader, [block], plan)
            step = self._steps.get(block)
            if step is not None and table.store.version(block) > table.due(block, step):
                self._forget(block)  # another holder had applied the step already
        return out + self.go_on(blocks)

    def go_on(self, blocks: Iterable[int]) -> list[Outgoing]:
        """Apply complete steps of these blocks, which may have been kept back until now."""
        ready: dict[int, list[int]] = defaultdict(list)
        for block in blocks:
            if self._ready(block):
                ready[self._steps[block]].append(block)
        out = [message for step, some in sorted(ready.items()) for message in self._apply(some, step)]
        steps = self._clipping.steps if self._clipping is not None else ()
        return out + [message for step in steps for message in self._clip(step)]

    def _ready(self, block: int) -> bool:
        return self._could_apply(block) and not self._is_left_to_owner(block, self._steps[block])

    def _could_apply(self, block: int) -> bool:
        """Whether the block's next step can be applied: all slices and the block are here, and nobody reads it."""
        return (
            block in self._complete_seconds
            and self._handover.is_here(block)
            and not (self._clipping is not None and self._clipping.holds(block, self._steps[block]))
            and not self._handover.is_kept_back(block)
        )

    def _apply(self, blocks: Sequence[int], step: int) -> list[Outgoing]:
        """All slices of these blocks are here, and so are the blocks: apply them, or wait for the global norm."""
        if not blocks:
            return []
        table, store = self._table, self._table.store
        gradients = {block: [part for _, part in sorted(self._slices[block].items())] for block in blocks}
        self._snapshots.before_apply(store, blocks)
        at_once = [block for block in blocks if self._clipping is None or block in table.buffers]
        if at_once:
            store.apply(at_once, [gradients[block] for block in at_once], step, tuple(table.slices(step).values()))
        out = self._applied(at_once, step)
        clipped = [block for block in blocks if self._clipping is not None and block not in table.buffers]
        if self._clipping is None or not clipped:
            return out
        out += self._clipping.reduce(clipped, [gradients[block] for block in clipped], step)
        return out + self._clip(step)

    def on_norms(self, peer: str, header: Norms) -> list[Outgoing]:
        """Another server's part of the global norm.

        Raises:
            ProtocolError: this job clips nothing.
        """
        if self._clipping is None:
            raise ProtocolError(f"{peer} sent norms, but this job clips no gradients")
        return self._clipping.on_norms(peer, header) or self._clip(header.step)

    def _clip(self, step: int) -> list[Outgoing]:
        return self._applied(self._clipping.apply(step), step) if self._clipping is not None else []

    def _applied(self, blocks: Sequence[int], step: int) -> list[Outgoing]:
        """These blocks have seen the step: send them to those that need them."""
        if not blocks:
            return []
        table = self._table
        now, next_plan = table.plans.at(step), table.plans.at(step + 1)
        # Also to those who leave now: they end when they know that their last step was applied.
        workers = dict.fromkeys((*now.workers, *next_plan.workers))
        askers: dict[str, list[int]] = defaultdict(list)
        for block in blocks:
            self._forget(block)
            while table.store.version(block) <= step:  # buffers: the steps since the last merge
                table.store.pass_over([block])
            owned_later = now.owners[block] != table.name and next_plan.owners[block] == table.name
            for peer in table.take_waiting(block):
                if peer not in workers or owned_later:
                    askers[peer].append(block)
        out = [message for peer in workers for message in table.messages_about(peer, blocks, now)]
        out += [
            message for peer, owed in askers.items() for message in table.messages_about(peer, owed, now, next_plan)
        ]
        # Blocks that leave go first: the values wake workers, which may keep this process from a core for some time.
        return self._handover.depart(blocks) + out

    def _forget(self, block: int) -> None:
        for kept in (self._slices, self._steps, self._complete_seconds):
            kept.pop(block, None)
