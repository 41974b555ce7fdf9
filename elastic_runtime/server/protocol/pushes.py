"""Gradients on their way into the blocks: gathered slice by slice, summed in their order, clipped, applied once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from elastic_runtime.errors import ProtocolError
from elastic_runtime.protocol.block_runs import Payload, flat_view, run_of
from elastic_runtime.protocol.messages import Norms, Outgoing, Push, Values
from elastic_runtime.server.protocol.block_table import BlockBook
from elastic_runtime.server.protocol.clipping import NormExchange
from elastic_runtime.server.protocol.handover import Handover
from elastic_runtime.server.protocol.merges import Merges
from elastic_runtime.server.protocol.snapshots import Snapshots


@dataclass(frozen=True, slots=True)
class Lacking:
    """Whose slices of a step are not here, and who else works, though some slice is here."""

    step: int
    workers: tuple[str, ...]
    others: tuple[str, ...]


class Pushes:
    """The steps in hand, block by block, in one generation.

    Args:
        book: what holds.
        handover: is told of blocks that have seen a step.
        snapshots: takes copies before blocks change.
        clock: seconds, monotonic.
    """

    def __init__(self, book: BlockBook, handover: Handover, snapshots: Snapshots, clock: Callable[[], float]) -> None:
        self._book = book
        self._handover = handover
        self._merges = Merges(book)
        self._snapshots = snapshots
        self._clock = clock
        self._slices: dict[int, dict[int, torch.Tensor]] = defaultdict(dict)
        self._steps: dict[int, int] = {}
        self._complete_seconds: dict[int, float] = {}
        self._norms: NormExchange | None = None
        self._reduced: dict[int, set[int]] = defaultdict(set)
        self._own_norms: dict[int, tuple[tuple[int, float], ...]] = {}
        self._answered_seconds: dict[tuple[str, int], float] = {}
        if book.rules.clip_norm is not None:
            every = frozenset(range(len(book.layout.blocks))) - book.buffers
            self._norms = NormExchange(every, book.rules.clip_norm)

    def complete_seconds(self, block: int) -> float | None:
        """Since when all slices of the block's next step are here; None if they are not."""
        return self._complete_seconds.get(block)

    def has(self, block: int, slice_index: int) -> bool:
        """Whether a slice of the block's next step is here."""
        return slice_index in self._slices.get(block, {})

    def lacking(self) -> Lacking | None:
        """What the first block that somebody pushed waits for; None if none waits."""
        book = self._book
        for block, slices in self._slices.items():
            if slices and block not in book.buffers and block not in self._complete_seconds and book.here(block):
                step = book.store.version(block)
                workers = book.plans.at(step).workers
                missing = {workers[k] for k in book.slices(step) if k not in slices}
                return Lacking(step, tuple(sorted(missing)), tuple(sorted(set(workers) - missing)))
        return None

    def came(self, peer: str, header: Push, payload: Payload) -> list[Outgoing]:
        """A worker's gradient of a run of blocks.

        Raises:
            ProtocolError: no such slice, blocks that are not held here then, or of a step that cannot be.
        """
        book, step = self._book, header.step
        blocks = run_of(book.layout.blocks, header.first, header.count)
        if header.slice not in book.slices(step):
            raise ProtocolError(f"{peer} pushed slice {header.slice} of step {step}, which has no such slice")
        plan = book.plans.at(step)
        if any(book.name not in plan.holders(block.index) for block in blocks):
            raise ProtocolError(f"{peer} pushed blocks of step {step} that {book.name} does not have then")
        gradients = flat_view(payload, 0, book.layout.segments[blocks[0].segment], blocks)
        ready, old, merges = [], [], []
        for block in blocks:
            if book.here(block.index):
                version, due = book.store.version(block.index), book.due(block.index, step)
                if version > due:
                    old.append(block.index)
                    continue
                if version < due and book.plans.replicated:
                    continue  # from one that has just joined, with values of the other holder, who is a step ahead
                if version < due:
                    raise ProtocolError(f"{peer} pushed step {step} of block {block.index}, at {version} here")
            elif book.migration.arrival(block.index) is None:
                continue  # late: the block has left since
            slices = self._slices[block.index]
            self._steps[block.index] = step
            slices.setdefault(header.slice, gradients[block.start - blocks[0].start : block.stop - blocks[0].start])
            if len(slices) == len(book.slices(step)):
                self._complete_seconds[block.index] = self._clock()
                if self._ready(block.index):
                    ready.append(block.index)
                elif block.index in book.buffers:
                    merges.append(block.index)
        return [*book.told(peer, old, plan), *self._apply(ready, step), *self._ask(merges)]

    def merged(self, peer: str, header: Values, payload: Payload) -> list[Outgoing]:
        """Buffers as their owner merged them.

        Raises:
            ProtocolError: it is a message for workers.
        """
        step = header.version - 1
        came = self._merges.read(peer, header, payload)
        taken = [block for block in came if self._steps.get(block) == step and self._could_apply(block)]
        self._snapshots.before_apply(self._book.store, taken)
        for block in taken:
            self._book.store.replace(block, came[block])
        return self._applied(taken, step)

    def ask_for_merges(self) -> list[Outgoing]:
        """Ask again for what owners merge: messages may have been lost."""
        return self._ask(self._complete_seconds)

    def _ask(self, blocks: Iterable[int]) -> list[Outgoing]:
        waiting = [block for block in blocks if self._could_apply(block)]
        steps = ((block, self._steps[block]) for block in waiting)
        return self._merges.ask((block, step) for block, step in steps if self._merges.left_to_owner(block, step))

    def arrived(self, blocks: Mapping[int, int]) -> list[Outgoing]:
        """Blocks have come, each of which is here from a step on: answer who asked, apply what waited."""
        book = self._book
        out: list[Outgoing] = []
        for block, at in blocks.items():
            plan = book.plans.at(at)
            for reader in book.take_wanting(block):
                out += book.told(reader, [block], plan)
            step = self._steps.get(block)
            if step is not None and book.store.version(block) > book.due(block, step):
                self._forget(block)  # another holder had applied the step already
        return out + self.go_on(blocks)

    def go_on(self, blocks: Iterable[int]) -> list[Outgoing]:
        """Whatever held these blocks back may be over: apply what is complete."""
        ready: dict[int, list[int]] = defaultdict(list)
        for block in blocks:
            if self._ready(block):
                ready[self._steps[block]].append(block)
        out = [message for step, some in sorted(ready.items()) for message in self._apply(some, step)]
        return out + [message for step in sorted(self._reduced) for message in self._clip(step)]

    def _ready(self, block: int) -> bool:
        """Whether the block's next step is to be applied now."""
        return self._could_apply(block) and not self._merges.left_to_owner(block, self._steps[block])

    def _could_apply(self, block: int) -> bool:
        """Whether the block's next step can be applied: all slices and the block are here, and nobody reads it."""
        return (
            block in self._complete_seconds
            and self._book.here(block)
            and block not in self._reduced.get(self._steps[block], ())
            and not self._book.kept_back(block)
        )

    def _apply(self, blocks: Sequence[int], step: int) -> list[Outgoing]:
        """All slices of these blocks are here, and so are the blocks: apply them, or wait for the global norm."""
        if not blocks:
            return []
        book, store = self._book, self._book.store
        gradients = {block: [part for _, part in sorted(self._slices[block].items())] for block in blocks}
        self._snapshots.before_apply(store, blocks)
        at_once = [block for block in blocks if self._norms is None or block in book.buffers]
        if at_once:
            store.apply(at_once, [gradients[block] for block in at_once], step, tuple(book.slices(step).values()))
        out = self._applied(at_once, step)
        clipped = [block for block in blocks if self._norms is not None and block not in book.buffers]
        if self._norms is None or not clipped:
            return out
        store.reduce(clipped, [gradients[block] for block in clipped])
        self._reduced[step].update(clipped)
        if self._reduced[step] == set(book.plans.at(step).held_by(book.name)) - book.buffers:
            norms = tuple(sorted(store.squared_norms().items()))
            self._own_norms = {known: n for known, n in self._own_norms.items() if known >= step - 1} | {step: norms}
            self._norms.add(step, dict(norms))
            out += self._tell_norms(step)
        return out + self._clip(step)

    def norms_came(self, peer: str, header: Norms) -> list[Outgoing]:
        """Another server's part of the global norm.

        Raises:
            ProtocolError: this job clips nothing.
        """
        if self._norms is None:
            raise ProtocolError(f"{peer} sent norms, but this job clips no gradients")
        if header.step in self._own_norms and not self._reduced.get(header.step):
            return self._answer(peer, header.step)
        self._norms.add(header.step, dict(header.norms))
        return self._clip(header.step)

    def _answer(self, peer: str, step: int) -> list[Outgoing]:
        """Applied here: the sender still waits, so may lack ours; or it answers us, which is not to go on for ever."""
        now = self._clock()
        if now - self._answered_seconds.get((peer, step), float("-inf")) < self._book.rules.resend_seconds:
            return []
        kept = {key: seconds for key, seconds in self._answered_seconds.items() if key[1] in self._own_norms}
        self._answered_seconds = kept | {(peer, step): now}
        return [(peer, Norms(self._book.generation, step, self._own_norms[step]))]

    def tell_norms_again(self) -> list[Outgoing]:
        """Steps that still wait: somebody's norms are missing here, or ours are missing there."""
        return [message for step in self._own_norms if self._reduced.get(step) for message in self._tell_norms(step)]

    def _tell_norms(self, step: int) -> list[Outgoing]:
        book = self._book
        plan = book.plans.at(step)
        trained = (block for block in range(len(plan.owners)) if block not in book.buffers)
        others = dict.fromkeys(server for block in trained for server in plan.holders(block))
        header = Norms(book.generation, step, self._own_norms[step])
        return [(server, header) for server in others if server != book.name]

    def _clip(self, step: int) -> list[Outgoing]:
        waiting = sorted(self._reduced.get(step, ()))
        if self._norms is None or not waiting or step not in self._own_norms:
            return []
        if any(self._book.kept_back(block) for block in waiting):
            return []
        scale = self._norms.scale(step)
        if scale is None:
            return []
        self._book.store.apply_reduced(waiting, scale, step)
        del self._reduced[step]
        self._norms.applied(step)
        return self._applied(waiting, step)

    def _applied(self, blocks: Sequence[int], step: int) -> list[Outgoing]:
        """These blocks have seen the step: whoever needs them gets them."""
        if not blocks:
            return []
        book = self._book
        now, next_plan = book.plans.at(step), book.plans.at(step + 1)
        # Also to those who leave now: they end when they know that their last step was applied.
        workers = dict.fromkeys((*now.workers, *next_plan.workers))
        askers: dict[str, list[int]] = defaultdict(list)
        for block in blocks:
            self._forget(block)
            while book.store.version(block) <= step:  # buffers: the steps since the last merge
                book.store.pass_over([block])
            owned_later = now.owners[block] != book.name and next_plan.owners[block] == book.name
            for peer in book.take_wanting(block):
                if peer not in workers or owned_later:
                    askers[peer].append(block)
        out = [message for peer in workers for message in book.told(peer, blocks, now)]
        out += [message for peer, owed in askers.items() for message in book.told(peer, owed, now, next_plan)]
        # Blocks that leave go first: the values wake workers, which may keep this process from a core for some time.
        return self._handover.depart(blocks) + out

    def _forget(self, block: int) -> None:
        """The slices of a step that is applied."""
        for kept in (self._slices, self._steps, self._complete_seconds):
            kept.pop(block, None)
