"""A worker's messages in asynchronous training, sent and expected: no sockets, no threads, no clock.

One update at a time: the gradients go to the blocks' owners, and each block comes back as it is once the update is
applied to it. The values are put into the staging bank; the model computes with the old ones until all are there.

While blocks change owners the worker goes on asking the old owner of each until that says that the block has left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from elastic_runtime.errors import ProtocolError
from elastic_runtime.model.layout import Layout
from elastic_runtime.protocol.block_runs import Payload, block_runs, run_of
from elastic_runtime.protocol.messages import Current, Fetch, Header, Moved, Outgoing, Update
from elastic_runtime.protocol.plan import Timeline
from elastic_runtime.worker.protocol.part import Banks, WorkerPart

LAST = 2**62
"""A step that no change lies behind: in asynchronous training what was decided last holds at once."""


class Updates(WorkerPart):
    """One worker's part in asynchronous training.

    Attributes:
        redirected: something of the update in hand was for another server than it was sent to first.
    """

    def __init__(self, incarnation: int, layout: Layout, banks: Banks) -> None:
        super().__init__(layout, banks)
        self.sequence = 0
        self.redirected = False
        self._incarnation = incarnation
        self._parameters = tuple(b.index for b in layout.blocks if b.index not in self._buffers)
        self._versions = [0] * len(layout.blocks)
        self._routes: list[str] = []
        self._left: dict[int, int] = {}
        self._fetching = True
        self._samples = 0

    def start(self, timeline: Timeline) -> list[Outgoing]:
        """Ask for every block: a generation begins, or this worker joins it."""
        self._timeline = timeline
        self.generation = timeline.generation
        self._routes = list(timeline.at(LAST).owners)
        self._left.clear()
        return self.fetch()

    def fetch(self) -> list[Outgoing]:
        """Ask for every block as it is now."""
        self.sequence += 1
        self._fetching = True
        self.redirected = False
        self._outstanding = set(range(len(self._layout.blocks)))
        return self.ask()

    def push(self, buffer_samples: int) -> list[Outgoing]:
        """The gradients lie in their bank: send them.

        Args:
            buffer_samples: statistics go along, of so many samples; 0: none do.
        """
        self.sequence += 1
        self._fetching = self.redirected = False
        self._samples = buffer_samples
        self._outstanding = {*self._parameters, *(self._buffers if buffer_samples else ())}
        return self.ask()

    @property
    def version(self) -> int:
        """Updates applied to all parameters, as far as is known here."""
        return min((self._versions[block] for block in self._parameters), default=0)

    @property
    def routed_change(self) -> int:
        """Number of the newest change after which nothing is asked of a former owner."""
        timeline = self._plans
        owners = timeline.at(LAST).owners
        stale = any(route != owner for route, owner in zip(self._routes, owners, strict=True))
        return timeline.newest if not stale else timeline.changes[-2].number if len(timeline.changes) > 1 else 0

    def follow(self, timeline: Timeline) -> list[Outgoing]:
        """Use a newer timeline of the same generation."""
        if timeline is self._timeline:
            return []
        self._timeline = timeline
        owners = timeline.at(LAST).owners
        # Statistics are sent rarely: they would keep a resize waiting for its end.
        moved = [block for block in self._buffers if self._routes[block] != owners[block]]
        moved += [block for block, change in self._left.items() if change <= timeline.newest]
        return self._turn(moved)

    def reroute(self) -> list[Outgoing]:
        """Ask nothing of former owners any more: for a worker that has nothing to push."""
        owners = self._plans.at(LAST).owners
        return self._turn([block for block, route in enumerate(self._routes) if route != owners[block]])

    def _act(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        match header:
            case Current():
                self._take_values(peer, header, payload)
                return []
            case Moved():
                return self._moved(peer, header)
            case _:
                raise ProtocolError(f"{peer} sent a {type(header).__name__} message, which no worker gets here")

    def ask(self) -> list[Outgoing]:
        """Send everything that is outstanding, or send it again."""
        return self._sent(self._outstanding)

    def owners_waited_for(self) -> frozenset[str]:
        """The parameter servers from which blocks are outstanding."""
        return frozenset(self._routes[block] for block in self._outstanding)

    def _sent(self, blocks: Iterable[int]) -> list[Outgoing]:
        alike: dict[tuple[str, int], list[int]] = defaultdict(list)
        for block in sorted(blocks):
            version = 0 if self._fetching else self._versions[block]
            alike[self._routes[block], version].append(block)
        generation, after, sequence = self.generation, self._plans.newest, self.sequence
        out: list[Outgoing] = []
        for (owner, version), members in alike.items():
            for first, count in block_runs(self._layout.blocks, members):
                header: Header = Fetch(generation, after, sequence, first, count)
                if not self._fetching:
                    samples = self._samples if first in self._buffers else 0
                    header = Update(generation, after, self._incarnation, sequence, version, samples, first, count)
                out.append((owner, header))
        return out

    def _turn(self, blocks: Iterable[int]) -> list[Outgoing]:
        """Ask the newest owners for these blocks from now on, and for what is outstanding of them."""
        owners = self._plans.at(LAST).owners
        turned = []
        for block in blocks:
            self._left.pop(block, None)
            if self._routes[block] != owners[block]:
                self._routes[block] = owners[block]
                turned.append(block)
        return self._sent(block for block in turned if block in self._outstanding)

    def _moved(self, peer: str, header: Moved) -> list[Outgoing]:
        blocks = run_of(self._layout.blocks, header.first, header.count)
        self.redirected = self.redirected or header.sequence == self.sequence
        here = [block.index for block in blocks if self._routes[block.index] == peer]
        if header.change > self._plans.newest:
            self._left.update(dict.fromkeys(here, header.change))
            return []
        return self._turn(here)

    def _take_values(self, peer: str, header: Current, payload: Payload) -> None:
        segment, blocks, values = self._read(header, payload)
        # Of an owner that was left nothing is taken: it may have given the block's memory back since.
        fresh = [b for b in blocks if b.index in self._outstanding and self._routes[b.index] == peer]
        if header.sequence != self.sequence or not fresh:
            return
        self._put(segment, blocks, fresh, values)
        for block in fresh:
            self._versions[block.index] = header.version
