"""The state of a parameter server in one generation: its plans, the version each block is due at, who waits for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from elastic_runtime.model.buffer_merge import MergeRule
from elastic_runtime.model.data_shards import slice_bounds
from elastic_runtime.model.layout import Layout
from elastic_runtime.protocol.block_runs import block_runs
from elastic_runtime.protocol.messages import Confirmed, Outgoing, Values, runs_of
from elastic_runtime.protocol.plan import Plan, Timeline, View
from elastic_runtime.server.store import BlockStore


@dataclass(frozen=True, slots=True)
class Rules:
    """What does not change in a job's life.

    Attributes:
        minimum: the fewest samples that a worker computes at once.
    """

    batch_size: Callable[[int], int]
    minimum: int
    merge_steps: int
    total_steps: int
    clip_norm: float | None = None
    resend_seconds: float = 2.0


class BlockTable:
    """Everything that the answers to messages depend on, beside the numbers themselves."""

    def __init__(self, name: str, layout: Layout, store: BlockStore, rules: Rules) -> None:
        self.name = name
        self.layout = layout
        self.store = store
        self.rules = rules
        self.buffers = layout.buffer_blocks
        self.generation = 0
        self._merge = MergeRule(rules.merge_steps, rules.total_steps)
        self._timeline: Timeline | None = None
        self._samples: dict[int, dict[int, int]] = {}
        self._waiting: dict[int, dict[str, int]] = defaultdict(dict)

    def start(self, view: View) -> None:
        """A generation begins."""
        self.generation = view.generation
        self._merge = MergeRule(self.rules.merge_steps, self.rules.total_steps, view.start_step)
        self._waiting.clear()
        self.follow(view)

    def follow(self, view: View) -> None:
        """Use the plans of a view of this generation."""
        self._timeline = Timeline(view)
        self._samples.clear()

    @property
    def plans(self) -> Timeline:
        """The plans, step by step.

        Raises:
            RuntimeError: no view has come.
        """
        if self._timeline is None:
            raise RuntimeError("no view has come yet")
        return self._timeline

    def due(self, block: int, step: int) -> int:
        """The version that a block has once all steps before `step` are applied."""
        return self._merge.due(step, buffer=block in self.buffers)

    def holds(self, block: int, step: int) -> bool:
        """Whether this server applies a step to a block: as its owner or as its replica."""
        return self.name in self.plans.at(step).holders(block)

    def slices(self, step: int) -> Mapping[int, int]:
        """The slices of a step that have samples, in their order, and how many each has."""
        known = self._samples.get(step)
        if known is None:
            workers = len(self.plans.at(step).workers)
            bounds = slice_bounds(self.rules.batch_size(step), workers, self.rules.minimum)
            known = {index: stop - start for index, (start, stop) in enumerate(bounds) if stop > start}
            if len(self._samples) > 8:
                self._samples.clear()
            self._samples[step] = known
        return known

    def runs(self, blocks: Iterable[int]) -> list[tuple[int, int]]:
        """Blocks as (first, count) of one segment and version, none larger than a message should be."""
        version = self.store.version
        return block_runs(self.layout.blocks, blocks, lambda block: (block.segment, version(block.index)))

    def values(self, peer: str, blocks: Iterable[int]) -> list[Outgoing]:
        """Messages with blocks as they are."""
        return [
            (peer, Values(self.generation, self.store.version(first), first, count))
            for first, count in self.runs(blocks)
        ]

    def messages_about(self, peer: str, blocks: Iterable[int], *plans: Plan) -> list[Outgoing]:
        """Messages about blocks: their values if this server owns them in any of these plans, else their version."""
        owned: list[int] = []
        seconds: dict[int, list[int]] = defaultdict(list)
        for block in blocks:
            if any(plan.owners[block] == self.name for plan in plans):
                owned.append(block)
            else:
                seconds[self.store.version(block)].append(block)
        confirmed = [
            (peer, Confirmed(self.generation, version, runs_of(sorted(some)))) for version, some in seconds.items()
        ]
        return [*self.values(peer, owned), *confirmed]

    def add_waiting(self, peer: str, block: int, version: int) -> None:
        """Somebody waits for a block at this version."""
        self._waiting[block][peer] = version

    def take_waiting(self, block: int) -> list[str]:
        """Who waited for the block as it is now; they are taken off the list."""
        waiting = self._waiting.get(block)
        if not waiting:
            return []
        served = [peer for peer, version in waiting.items() if version <= self.store.version(block)]
        for peer in served:
            del waiting[peer]
        return served
