"""A parameter server's part in the protocol, however its job trains: no sockets, no threads, no clock of its own.

A generation begins with blocks that are loaded from a checkpoint. Messages of one to come wait for it, those of one
that is over are dropped. Messages that came before the view that says what to do with them wait for that view.

Source: DL2 §5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from elastic_runtime.model.layout import Layout
from elastic_runtime.protocol.block_runs import Payload, run_of
from elastic_runtime.protocol.messages import Current, Handover, Header, Outgoing, State, Values
from elastic_runtime.protocol.plan import View
from elastic_runtime.server.protocol.handover import MovingBlocks
from elastic_runtime.server.protocol.snapshots import Snapshots
from elastic_runtime.server.store import BlockStore

_MOST_KEPT = 65536


class ServerPart(ABC):
    """One PS's part in the protocol."""

    _handover: MovingBlocks

    def __init__(
        self, name: str, layout: Layout, store: BlockStore, snapshots: Snapshots, clock: Callable[[], float]
    ) -> None:
        self.name = name
        self.layout = layout
        self.generation = 0
        self._store = store
        self._snapshots = snapshots
        self._clock = clock
        self._buffers = layout.buffer_blocks
        self._loaded = False
        self._early: list[tuple[str, Header, Payload]] = []

    # ---- views

    def begins_generation(self, view: View) -> bool:
        """Whether this view starts a generation, whose blocks are to be loaded from its checkpoint first."""
        return view.generation > self.generation

    def start(self, view: View) -> tuple[int, ...]:
        """Begin a generation; everything of the one before is forgotten. Returns the blocks to load."""
        for block in tuple(self._store.owned):
            self._store.release(block)
        self.generation = view.generation
        self._loaded = False
        self._early = [entry for entry in self._early if entry[1].generation >= view.generation]
        self._snapshots.start()
        return self._begin(view)

    def on_loaded(self, view: View) -> list[Outgoing]:
        """The store holds the generation's blocks now."""
        self._loaded = True
        return self.on_view(view)

    def on_view(self, view: View) -> list[Outgoing]:
        """Act on a newer view of the same generation."""
        if view.generation != self.generation or not self._loaded:
            return []
        out = self._on_view(view)
        early, self._early = self._early, []
        for peer, header, payload in early:
            out += self.handle(peer, header, payload)
        return out

    # ---- messages

    def handle(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        """Act on a message.

        Raises:
            ProtocolError: it breaks the protocol; nothing was changed.
        """
        self._on_sender(peer)
        if header.generation < self.generation:
            return []
        if header.generation > self.generation or not self._loaded:
            return self._keep(peer, header, payload)
        return self._act(peer, header, payload)

    def tick(self) -> list[Outgoing]:
        """Do what is due without a message: send again, copy for a checkpoint."""
        if not self._loaded:
            return []
        self._snapshots.idle(self._store)
        return self._remind()

    def parts(self, header: Header) -> list[tuple[str, int, int, int]]:
        """The memory that goes with a message: (tensor, segment, first element, last element + 1), in its order."""
        if not isinstance(header, Values | Current | State | Handover):
            return []
        blocks = run_of(self.layout.blocks, header.first, header.count)
        state = self._store.state_names(header.first) if isinstance(header, State | Handover) else ()
        return [(name, blocks[0].segment, blocks[0].start, blocks[-1].stop) for name in ("parameters", *state)]

    # ---- what is told of it

    @property
    def lowest_version(self) -> int:
        """Steps, or updates, applied to all the parameters held here; 0 without any."""
        return min((self._store.version(b) for b in self._store.owned if b not in self._buffers), default=0)

    @property
    def arrived_change(self) -> int:
        """Everything that comes here with changes up to this number is here."""
        return self._handover.migration.complete_up_to() if self._loaded else 0

    @property
    def moved_bytes(self) -> int:
        """Parameters of blocks that came from other servers."""
        return self._handover.moved_bytes

    @property
    def stall_seconds(self) -> float:
        """How long workers waited for blocks that had not arrived; of those that waited at once the longest wait."""
        return self._handover.stall_seconds

    @property
    def staleness_versions(self) -> int:
        """Median of the newest updates; 0 where all workers compute with the same values."""
        return 0

    @property
    def suspects(self) -> tuple[str, ...]:
        """Workers that keep others waiting for long."""
        return ()

    # ---- how the job trains

    @abstractmethod
    def _begin(self, view: View) -> tuple[int, ...]:
        """A generation begins; returns the blocks to load."""

    @abstractmethod
    def _on_view(self, view: View) -> list[Outgoing]:
        """Act on a newer view of the generation in hand."""

    @abstractmethod
    def _act(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        """Act on a message of the generation in hand."""

    @abstractmethod
    def _remind(self) -> list[Outgoing]:
        """Send again what nobody confirmed."""

    @abstractmethod
    def _on_sender(self, peer: str) -> None:
        """A member lives: it has sent a message, of whatever generation."""

    def _keep(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        """Keep a message until a view says what to do with it; the sender of a dropped one asks again."""
        if len(self._early) < _MOST_KEPT:
            self._early.append((peer, header, payload))
        return []
