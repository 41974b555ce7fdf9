"""What a parameter server does with every message: no sockets, no threads, no clock of its own.

One block goes through a step like this: pushes of all slices come, in any order and maybe twice; they are summed in
slice order and applied, once; the new values go to every worker of the next step. A push for a block that has not
arrived yet waits for it. Whoever hears nothing asks again (`Pull`); whatever comes twice is recognised.

Source: DL2 §5. Deviation: a push is identified by its slice, not by its worker, so that a dead worker's slice can be
computed by another one without any of it being applied twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from elastic_runtime.errors import ProtocolError
from elastic_runtime.layout import Layout
from elastic_runtime.message_memory import Payload, run_of
from elastic_runtime.messages import Adopted, Header, Missing, Norms, Pull, Push, State, Values, runs_of
from elastic_runtime.plan import View
from elastic_runtime.server.book import BlockBook, Outgoing, Rules
from elastic_runtime.server.handover import Handover
from elastic_runtime.server.overdue import Overdue
from elastic_runtime.server.pushes import Pushes
from elastic_runtime.server.snapshots import Snapshots
from elastic_runtime.server.store import BlockStore

__all__ = ["Outgoing", "Rules", "Serving"]

_MOST_HELD = 65536


class Serving:
    """One PS's part in the protocol.

    Args:
        name: the task's.
        layout: the model's.
        store: holds the blocks.
        rules: the job's.
        snapshots: takes copies of blocks for checkpoints.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        name: str,
        layout: Layout,
        store: BlockStore,
        rules: Rules,
        snapshots: Snapshots,
        clock: Callable[[], float],
    ) -> None:
        self.layout = layout
        self.dropped: Counter[str] = Counter()
        self._store = store
        self._snapshots = snapshots
        self._clock = clock
        self._loaded = False
        self._suspects: tuple[str, ...] = ()
        self._overdue = Overdue()
        self._held: list[tuple[str, Header, Payload]] = []
        self._book = BlockBook(name, layout, store, rules)
        self._handover = Handover(self._book, clock)
        self._pushes = Pushes(self._book, self._handover, snapshots, clock)

    # ---- views

    def begins_generation(self, view: View) -> bool:
        """Whether this view starts a generation, whose blocks are to be loaded from its checkpoint first."""
        return view.generation > self._book.generation

    def start(self, view: View) -> tuple[int, ...]:
        """Begin a generation; everything of the one before is forgotten. Returns the blocks to load."""
        for block in tuple(self._store.owned):
            self._store.release(block)
        self._loaded = False
        self._held = [entry for entry in self._held if entry[1].generation >= view.generation]
        self._book.start(view)
        self._handover.forget_waits()
        self._pushes = Pushes(self._book, self._handover, self._snapshots, self._clock)
        self._snapshots.start()
        return view.start_plan.blocks_of(self._book.name)

    def loaded(self, view: View) -> list[Outgoing]:
        """The store holds the generation's blocks now."""
        self._loaded = True
        return self.learn(view)

    def learn(self, view: View) -> list[Outgoing]:
        """Act on a newer view of the same generation."""
        book = self._book
        if view.generation != book.generation or not self._loaded:
            return []
        book.follow(view)
        for block in book.migration.release(view.committed):
            self._store.release(block)
        if not book.migration.arriving:
            self._handover.forget_waits()
        leaving = book.migration.learn(book.plans, view.changes)
        for change in view.changes:
            if change.checkpoint:
                blocks = book.plans.at(change.clock).blocks_of(book.name)
                self._snapshots.request(change.clock, {block: book.due(block, change.clock) for block in blocks})
        out = self._handover.depart(leaving)
        held, self._held = self._held, []
        for peer, header, payload in held:
            out += self.handle(peer, header, payload)
        return out

    # ---- what is told of it

    @property
    def generation(self) -> int:
        """The newest that was begun."""
        return self._book.generation

    @property
    def lowest_version(self) -> int:
        """Steps applied to all the parameters held here; 0 without any."""
        return min((self._store.version(b) for b in self._store.owned if b not in self._book.buffers), default=0)

    @property
    def arrived(self) -> int:
        """Everything that comes here with changes up to this number is here."""
        return self._book.migration.complete_up_to() if self._loaded else 0

    @property
    def moved_bytes(self) -> int:
        """Parameters of blocks that came from other servers."""
        return self._handover.moved_bytes

    @property
    def stall_seconds(self) -> float:
        """How long workers waited for blocks that had not arrived; of each step the longest wait."""
        return self._handover.stall_seconds

    @property
    def suspects(self) -> tuple[str, ...]:
        """Workers whose part of a step has not come for long, as of the last tick."""
        return self._suspects

    # ---- messages

    def handle(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        """Act on a message.

        Raises:
            ProtocolError: it breaks the protocol; nothing was changed.
        """
        self._overdue.heard(peer, self._clock())
        if header.generation < self._book.generation:
            self.dropped["old generation"] += 1
            return []
        if header.generation > self._book.generation or not self._loaded:
            return self._hold(peer, header, payload)
        if isinstance(header, Push) and header.after > self._book.plans.newest:
            return self._hold(peer, header, payload)
        return self._act(peer, header, payload)

    def tick(self) -> list[Outgoing]:
        """What is to be done when nothing comes: send again, copy for a checkpoint."""
        if not self._loaded:
            return []
        self._snapshots.idle(self._store)
        self._suspects = self._overdue.look(self._pushes.lacking(), self._clock())
        return [*self._handover.send_again(), *self._pushes.tell_norms_again()]

    def parts(self, header: Header) -> list[tuple[str, int, int, int]]:
        """The memory that goes with a message: (tensor, segment, first element, last element + 1), in its order."""
        if not isinstance(header, Values | State):
            return []
        blocks = run_of(self.layout.blocks, header.first, header.count)
        state = self._store.state_names(header.first) if isinstance(header, State) else ()
        return [(name, blocks[0].segment, blocks[0].start, blocks[-1].stop) for name in ("parameters", *state)]

    def _act(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        out: list[Outgoing] = []
        match header:
            case Push():
                out = self._pushes.came(peer, header, payload)
            case Pull():
                out = self._pull(peer, header)
            case State():
                out = self._state(peer, header, payload)
            case Norms():
                out = self._pushes.norms_came(peer, header)
            case Adopted():
                for block in run_of(self.layout.blocks, header.first, header.count):
                    self._book.migration.adopted(block.index, peer)
            case _:
                raise ProtocolError(f"{peer} sent a {type(header).__name__} message, which only workers get")
        return out

    def _state(self, peer: str, header: State, payload: Payload) -> list[Outgoing]:
        came = self._handover.came(peer, header, payload, self._pushes.complete_seconds)
        if came is None:
            return self._hold(peer, header, payload)
        out, ready = came
        for step, blocks in ready.items():
            out += self._pushes.apply(blocks, step)
        return out

    def _pull(self, peer: str, header: Pull) -> list[Outgoing]:
        book, step = self._book, header.version - 1
        have: list[int] = []
        missing: dict[int, list[int]] = defaultdict(list)
        for first, count in header.runs:
            if first + count > len(self.layout.blocks):
                raise ProtocolError(f"{peer} asked for block {first + count - 1}, which this model does not have")
            for block in range(first, first + count):
                if block in self._store.owned and self._store.version(block) >= book.due(block, header.version):
                    have.append(block)
                    continue
                book.want(peer, block, header.version)
                if step < book.plans.start_step or book.plans.at(step).owners[block] != book.name:
                    continue
                for k in book.plans.at(step).slices_of(peer):
                    if k in book.slices(step) and not self._pushes.has(block, k):
                        missing[k].append(block)
        lacking = [(peer, Missing(book.generation, step, k, runs_of(blocks))) for k, blocks in missing.items()]
        return [*book.values(peer, have), *lacking]

    def _hold(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        """Keep a message until a view tells what to do with it."""
        if len(self._held) >= _MOST_HELD:
            self.dropped["held too many"] += 1
        else:
            self._held.append((peer, header, payload))
        return []
