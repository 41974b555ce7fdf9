"""A worker's messages in one step of synchronous training, sent and expected: no sockets, no threads, no clock.

At step t it pushes the gradients of its slices to the blocks' holders, and has finished when every block has come back
from its owner as it is after the step, and the replica, if there is one, has confirmed that it applied the step too:
only then may the gradients' memory be used again, and only then does the loss of either undo nothing.

The values are put into the staging bank, block by block; the model computes with the old ones until all are there, so
that a slice of the same step can still be computed in place of a worker that died.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from elastic_runtime.errors import ProtocolError
from elastic_runtime.model.buffer_merge import MergeRule
from elastic_runtime.model.layout import Layout, TensorKind
from elastic_runtime.protocol.block_runs import Payload, block_runs
from elastic_runtime.protocol.messages import (
    Confirmed,
    Header,
    Missing,
    Outgoing,
    Pull,
    Push,
    Runs,
    Values,
    runs_of,
)
from elastic_runtime.protocol.plan import Timeline
from elastic_runtime.worker.protocol.part import Banks, WorkerPart


class WorkerExchange(WorkerPart):
    """One worker's part in synchronous training.

    Attributes:
        pushed: the slices of the step in hand that were pushed, in order: the gradients of each have a bank of its own.
    """

    def __init__(self, layout: Layout, banks: Banks, merge_steps: int, total_steps: int) -> None:
        super().__init__(layout, banks)
        self.version = 0
        self._merge = MergeRule(merge_steps, total_steps)
        self._unconfirmed: dict[str, set[int]] = {}
        self.pushed: list[int] = []
        self._entering = True

    def follow(self, timeline: Timeline) -> None:
        """Use this timeline from now on; of the same generation, or of the one that `start` is called for next."""
        self._timeline = timeline
        for server in timeline.lost & self._unconfirmed.keys():
            del self._unconfirmed[server]

    def start(self, timeline: Timeline, version: int) -> list[Outgoing]:
        """Ask for every block at `version`: a generation begins, or this worker joins at that step."""
        self._timeline = timeline
        self.generation = timeline.generation
        self.version = version
        self._merge = replace(self._merge, start_step=timeline.start_step)
        self._outstanding = set(range(len(self._layout.blocks)))
        self._unconfirmed.clear()
        self.pushed.clear()
        self._entering = True
        return self.ask()

    def begin(self, step: int) -> None:
        """Begin a step: from now on its values are expected."""
        self.version = step + 1
        self._outstanding = self._expected_blocks()
        self._unconfirmed.clear()
        plan = self._plans.at(step)
        for block in self._outstanding if plan.replicas else ():
            # Values may come from the next step's owner too: of two holders, each has to be heard.
            for server in plan.holders(block) if plan.replica(block) else ():
                self._unconfirmed.setdefault(server, set()).add(block)
        self.pushed.clear()
        self._entering = False

    def push(self, slice_index: int) -> list[Outgoing]:
        """Send the gradients of a slice of the step, which lie in their bank; not for a slice without samples."""
        self.pushed.append(slice_index)
        return self._pushes(slice_index, sorted(self._expected_blocks()))

    @property
    def merges_buffers(self) -> bool:
        """Whether the step in hand merges the buffers."""
        return self._merge.merges(self.version - 1)

    @property
    def is_complete(self) -> bool:
        """All blocks are there, and applied wherever they are held."""
        return not self._outstanding and not self._unconfirmed

    def _act(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        match header:
            case Values():
                self._values(header, payload)
                self._confirm(peer, header.version, ((header.first, header.count),))
                return []
            case Confirmed():
                self._confirm(peer, header.version, header.runs)
                return []
            case Missing(step=step, slice=index):
                if step != self.version - 1 or index not in self.pushed:
                    return []
                blocks = [block for first, count in header.runs for block in range(first, first + count)]
                return self._pushes(index, [block for block in blocks if block < len(self._layout.blocks)], peer)
            case _:
                raise ProtocolError(f"{peer} sent a {type(header).__name__} message, which only parameter servers get")

    def ask(self) -> list[Outgoing]:
        """Ask owners for everything that is outstanding, replicas for their word; they answer also what they lack."""
        by_server: dict[str, set[int]] = defaultdict(set)
        for block in sorted(self._outstanding):
            for owner in self._owners(block):
                by_server[owner].add(block)
        for server, blocks in self._unconfirmed.items():
            by_server[server] |= blocks
        return [(name, Pull(self.generation, self.version, runs_of(sorted(some)))) for name, some in by_server.items()]

    def owners_waited_for(self) -> frozenset[str]:
        """The parameter servers from which blocks, or their word about them, are outstanding."""
        owners = frozenset(owner for block in self._outstanding for owner in self._owners(block))
        return owners | self._unconfirmed.keys()

    def _pushes(self, slice_index: int, blocks: Iterable[int], requester: str = "") -> list[Outgoing]:
        """Messages to all that hold these blocks at the step in hand; to one of them only, if it asked."""
        step = self.version - 1
        plan = self._plans.at(step)
        by_server: dict[str, list[int]] = defaultdict(list)
        for block in blocks:
            holders = plan.holders(block)
            for server in (requester,) if requester in holders else holders:
                by_server[server].append(block)
        return [
            (server, Push(self.generation, step, slice_index, plan.after, first, count))
            for server, numbers in by_server.items()
            for first, count in block_runs(self._layout.blocks, numbers)
        ]

    def _expected_blocks(self) -> set[int]:
        merges = self.merges_buffers
        return {b.index for b in self._layout.blocks if merges or b.index not in self._buffers}

    def _owners(self, block: int) -> set[str]:
        """Who is asked: the owner at the step to come, and the one that applies the step in hand."""
        owners = {self._plans.at(self.version).owners[block]}
        return owners if self._entering else owners | {self._plans.at(self.version - 1).owners[block]}

    def _confirm(self, peer: str, version: int, reported: Runs) -> None:
        waiting = self._unconfirmed.get(peer)
        if waiting is None:
            return
        for first, count in reported:
            for block in range(first, first + min(count, len(self._layout.blocks))):
                if version >= self._merge.due(self.version, buffer=block in self._buffers):
                    waiting.discard(block)
        if not waiting:
            del self._unconfirmed[peer]

    def _values(self, header: Values, payload: Payload) -> None:
        segment, blocks, values = self._read(header, payload)
        due = self._merge.due(self.version, buffer=segment.kind is TensorKind.BUFFER)
        fresh = [block for block in blocks if block.index in self._outstanding]
        # Later than due: the job went on without this worker, which leaves as soon as its last step is applied.
        if header.version >= due and fresh:
            self._put(segment, blocks, fresh, values)
