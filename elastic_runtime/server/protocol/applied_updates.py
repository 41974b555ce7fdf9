"""The updates applied to each block in asynchronous training: each worker's counts once, and how old its values were.

Source: DL2 §5 (asynchronous training).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from statistics import median

from torch import Tensor

from elastic_runtime.model.layout import Layout
from elastic_runtime.protocol.messages import Handover, Mark, Update
from elastic_runtime.protocol.plan import Member
from elastic_runtime.server.protocol.snapshots import Snapshots
from elastic_runtime.server.store import BlockStore

_KEPT = 1000
"""The newest; some seconds of a busy job."""


class Staleness:
    """The staleness of the newest updates.

    Source: Ho et al. 2013 (stale synchronous parallel); the age is counted in versions of the updated blocks.
    """

    def __init__(self) -> None:
        self._ages: deque[int] = deque(maxlen=_KEPT)

    def add(self, age: int) -> None:
        """An update was applied to blocks that had changed so often since its worker took them."""
        self._ages.append(max(age, 0))

    @property
    def median(self) -> int:
        """Over the newest; 0 without any."""
        return int(median(self._ages)) if self._ages else 0


class AppliedUpdates:
    """The updates of one server's blocks, in one generation after the other.

    A block's marks say up to which of its updates each worker's are applied; they move with the block.

    Args:
        dropped: counts what is not applied, by reason.
    """

    def __init__(self, layout: Layout, store: BlockStore, snapshots: Snapshots, dropped: Counter[str]) -> None:
        self.staleness = Staleness()
        self._dropped = dropped
        self._buffers = layout.buffer_blocks
        self._store = store
        self._snapshots = snapshots
        self._incarnations: dict[str, int] = {}
        self._marks: dict[int, dict[int, Mark]] = defaultdict(dict)
        self._merged_samples: Counter[int] = Counter()

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
        """Apply what is new of an update; returns the blocks that it is applied to, now or before."""
        known: list[int] = []
        fresh: dict[int, list[tuple[int, Tensor]]] = defaultdict(list)
        for block, numbers in blocks:
            mark = self._marks[block].get(header.incarnation)
            if mark is not None and header.sequence < mark.sequence:
                self._dropped["old update"] += 1
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
        self.staleness.add(version - header.version)

    def _merge(self, header: Update, members: Sequence[tuple[int, Tensor]], version: int) -> None:
        """A worker's statistics count by its share in the samples that were merged since it merged last.

        One worker alone replaces them; of k equal ones each counts for 1/k. Whole numbers: the largest.
        """
        for block, numbers in members:
            mark = self._marks[block].get(header.incarnation)
            before = self._merged_samples[block]
            others = before - (mark.samples if mark is not None else 0)
            held = self._store.view(block).parameters.clone()
            self._store.apply([block], [[held, numbers]], version, (others, header.samples))
            self._merged_samples[block] = before + header.samples
            self._marks[block][header.incarnation] = Mark(header.incarnation, header.sequence, before + header.samples)

    # ---- blocks that change their owner

    def marks(self, block: int) -> tuple[Mark, ...]:
        """The marks of a block, but those of processes that are no more: their updates are not taken anyway."""
        live = set(self._incarnations.values())
        marks = sorted(self._marks[block].values(), key=lambda mark: mark.incarnation)
        return tuple(mark for mark in marks if mark.incarnation in live)

    def merged_samples(self, block: int) -> int:
        """How many samples a block's statistics hold."""
        return self._merged_samples[block]

    def take_over(self, block: int, header: Handover) -> None:
        """A block has come, with what was applied to it."""
        self._marks[block] = {mark.incarnation: mark for mark in header.marks}
        self._merged_samples[block] = header.samples
