"""Clipping by the global norm when nobody holds all gradients: parameter servers tell each other their blocks' norms.

A block's gradients are summed and kept until the norms of all blocks are here; then the sums are scaled and applied.
The norm is taken over the blocks in their order, whoever owns them, so that it does not depend on the number of PSs.

Source: `torch.nn.utils.clip_grad_norm_`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import torch

from elastic_runtime.protocol.messages import Norms, Outgoing
from elastic_runtime.server.protocol.block_table import BlockTable
from elastic_runtime.server.protocol.handover import SynchronousHandover

_EPSILON = 1e-6
"""As in torch.nn.utils.clip_grad_norm_."""


def clip_scale(squared_norms: Mapping[int, float], clip_norm: float) -> float:
    """What gradients are multiplied by to bring their global norm down to `clip_norm`; 1 if it is not above.

    Args:
        squared_norms: of all trained blocks of the model, by block, from however many servers.
        clip_norm: the largest norm allowed. A norm that is not finite scales nothing: such gradients spoil the step.
    """
    norm = math.sqrt(sum(squared_norms[block] for block in sorted(squared_norms)))
    return min(1.0, clip_norm / (norm + _EPSILON)) if math.isfinite(norm) else 1.0


class NormExchange:
    """Squared norms of the summed gradients of every block, step by step."""

    def __init__(self, blocks: frozenset[int], clip_norm: float) -> None:
        self._blocks = blocks
        self._clip_norm = clip_norm
        self._norms: dict[int, dict[int, float]] = {}
        self._applied = -1

    def add(self, step: int, norms: Mapping[int, float]) -> None:
        """Add norms of some blocks, from this PS or another one; the same ones may come twice."""
        if step > self._applied:
            known = self._norms.setdefault(step, {})
            known.update((block, norm) for block, norm in norms.items() if block in self._blocks)

    def scale(self, step: int) -> float | None:
        """What to multiply the gradients of this step by; None while norms are missing."""
        norms = self._norms.get(step, {})
        return clip_scale(norms, self._clip_norm) if len(norms) >= len(self._blocks) else None

    def on_applied(self, step: int) -> None:
        """This PS has applied the step; its norms are kept no longer."""
        self._applied = max(self._applied, step)
        for old in [known for known in self._norms if known <= step]:
            del self._norms[old]


class Clipping:
    """The steps of one generation whose gradients are summed here, and wait for the norms of others."""

    def __init__(
        self, table: BlockTable, handover: SynchronousHandover, clip_norm: float, clock: Callable[[], float]
    ) -> None:
        self._table = table
        self._handover = handover
        self._clock = clock
        self._exchange = NormExchange(frozenset(range(len(table.layout.blocks))) - table.buffers, clip_norm)
        self._reduced: dict[int, set[int]] = defaultdict(set)
        self._own_norms: dict[int, tuple[tuple[int, float], ...]] = {}
        self._answered_seconds: dict[tuple[str, int], float] = {}

    @property
    def steps(self) -> list[int]:
        """The steps that wait for norms, in order."""
        return sorted(self._reduced)

    def holds(self, block: int, step: int) -> bool:
        """Whether the block's gradients of this step are summed here already."""
        return block in self._reduced.get(step, ())

    def reduce(self, blocks: Sequence[int], gradients: Sequence[Sequence[torch.Tensor]], step: int) -> list[Outgoing]:
        """Sum the gradients of some blocks and keep the sums; norms for the others, once all blocks here are summed."""
        table = self._table
        table.store.reduce(blocks, gradients)
        self._reduced[step].update(blocks)
        if self._reduced[step] != set(table.plans.at(step).all_blocks_of(table.name)) - table.buffers:
            return []
        norms = tuple(sorted(table.store.squared_norms().items()))
        self._own_norms = {known: n for known, n in self._own_norms.items() if known >= step - 1} | {step: norms}
        self._exchange.add(step, dict(norms))
        return self._norm_messages(step)

    def on_norms(self, peer: str, header: Norms) -> list[Outgoing]:
        """Another server's part of the global norm; the answer, if it still waits for a step that is applied here."""
        if header.step in self._own_norms and not self._reduced.get(header.step):
            return self._answer(peer, header.step)
        self._exchange.add(header.step, dict(header.norms))
        return []

    def report_again(self) -> list[Outgoing]:
        """Steps that still wait: somebody's norms are missing here, or ours are missing there."""
        return [message for step in self._own_norms if self._reduced.get(step) for message in self._norm_messages(step)]

    def apply(self, step: int) -> list[int]:
        """Scale and apply what waits, if all norms are here and nobody reads a block; the blocks that have seen it."""
        waiting = sorted(self._reduced.get(step, ()))
        if not waiting or step not in self._own_norms:
            return []
        if any(self._handover.is_kept_back(block) for block in waiting):
            return []
        scale = self._exchange.scale(step)
        if scale is None:
            return []
        self._table.store.apply_reduced(waiting, scale, step)
        del self._reduced[step]
        self._exchange.on_applied(step)
        return waiting

    def _answer(self, peer: str, step: int) -> list[Outgoing]:
        """Applied here: the sender still waits, so may lack ours; or it answers us, which is not to go on for ever."""
        now = self._clock()
        if now - self._answered_seconds.get((peer, step), float("-inf")) < self._table.rules.resend_seconds:
            return []
        kept = {key: seconds for key, seconds in self._answered_seconds.items() if key[1] in self._own_norms}
        self._answered_seconds = kept | {(peer, step): now}
        return [(peer, Norms(self._table.generation, step, self._own_norms[step]))]

    def _norm_messages(self, step: int) -> list[Outgoing]:
        table = self._table
        plan = table.plans.at(step)
        trained = (block for block in range(len(plan.owners)) if block not in table.buffers)
        others = dict.fromkeys(server for block in trained for server in plan.holders(block))
        header = Norms(table.generation, step, self._own_norms[step])
        return [(server, header) for server in others if server != table.name]
