"""What a parameter server does with every message: no sockets, no threads, no clock of its own.

One block goes through a step like this: pushes of all slices come, in any order and maybe twice; they are summed in
slice order and applied, once; the new values go to every worker of the next step. A push for a block that has not
arrived yet waits for it. Whoever hears nothing asks again (`Pull`); whatever comes twice is recognised.

Source: DL2 §5. Deviation: a push is identified by its slice, not by its worker, so that a dead worker's slice can be
computed by another one without any of it being applied twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from elastic_runtime.data_shards import slice_bounds
from elastic_runtime.errors import ProtocolError
from elastic_runtime.layout import Block, Kind, Layout
from elastic_runtime.merging import MergeRule
from elastic_runtime.message_memory import Payload, flat_view, run_of
from elastic_runtime.messages import RUN_BYTES, Adopted, Header, Missing, Norms, Pull, Push, State, Values, runs_of
from elastic_runtime.plan import Timeline, View
from elastic_runtime.server.clipping import NormExchange
from elastic_runtime.server.migration import Migration
from elastic_runtime.server.snapshots import Snapshots
from elastic_runtime.server.store import BlockStore

Outgoing = tuple[str, Header]
"""To whom, and what; the blocks that go with it are the store's, see `Serving.parts`."""

_MOST_HELD = 65536


@dataclass(frozen=True, slots=True)
class Rules:
    """What does not change in a job's life.

    Attributes:
        batch_size: of a step.
        minimum: the fewest samples that a worker computes at once.
        merge_steps: see `MergeRule`.
        total_steps: of the job.
        clip_norm: None: no clipping.
        resend_seconds: after how long an unconfirmed block is sent again.
    """

    batch_size: Callable[[int], int]
    minimum: int
    merge_steps: int
    total_steps: int
    clip_norm: float | None = None
    resend_seconds: float = 2.0


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
        self.name = name
        self.generation = 0
        self.dropped: Counter[str] = Counter()
        self.stall_seconds = 0.0
        self.moved_bytes = 0
        self._layout = layout
        self._store = store
        self._rules = rules
        self._snapshots = snapshots
        self._clock = clock
        self._buffers = frozenset(b.index for b in layout.blocks if layout.segments[b.segment].kind is Kind.BUFFER)
        self._timeline: Timeline | None = None
        self._loaded = False
        self._reset()

    def _reset(self) -> None:
        self._held: list[tuple[str, Header, Payload]] = []
        self._pushes: dict[int, dict[int, torch.Tensor]] = defaultdict(dict)
        self._complete_seconds: dict[int, float] = {}
        self._waits: dict[int, float] = {}
        self._wants: dict[int, dict[str, int]] = defaultdict(dict)
        self._migration = Migration(self.name, self._rules.resend_seconds)
        self._expected: dict[int, tuple[int, ...]] = {}
        self._merge = MergeRule(self._rules.merge_steps, self._rules.total_steps)
        self._norms: NormExchange | None = None
        self._reduced: dict[int, set[int]] = defaultdict(set)
        self._own_norms: dict[int, tuple[tuple[int, float], ...]] = {}
        if self._rules.clip_norm is not None:
            every = frozenset(range(len(self._layout.blocks))) - self._buffers
            self._norms = NormExchange(every, self._rules.clip_norm)

    # ---- views

    def begins_generation(self, view: View) -> bool:
        """Whether this view starts a generation, whose blocks are to be loaded from its checkpoint first."""
        return view.generation > self.generation

    def start(self, view: View) -> tuple[int, ...]:
        """Begin a generation; everything of the one before is forgotten. Returns the blocks to load."""
        for block in tuple(self._store.owned):
            self._store.release(block)
        held = [entry for entry in self._held if entry[1].generation >= view.generation]
        self.generation = view.generation
        self._loaded = False
        self._reset()
        self._held = held
        self._merge = MergeRule(self._rules.merge_steps, self._rules.total_steps, view.start_step)
        self._timeline = Timeline(view)
        self._snapshots.start()
        return view.start_plan.blocks_of(self.name)

    def loaded(self, view: View) -> list[Outgoing]:
        """The store holds the generation's blocks now."""
        self._loaded = True
        return self.learn(view)

    def learn(self, view: View) -> list[Outgoing]:
        """Act on a newer view of the same generation."""
        if view.generation != self.generation or not self._loaded:
            return []
        self._timeline = timeline = Timeline(view)
        self._expected.clear()
        for block in self._migration.release(view.committed):
            self._store.release(block)
        if not self._migration.arriving:
            self._waits.clear()
        out: list[Outgoing] = []
        leaving = self._migration.learn(timeline, view.changes)
        for change in view.changes:
            if change.checkpoint:
                blocks = timeline.at(change.clock).blocks_of(self.name)
                self._snapshots.request(change.clock, {block: self._due(block, change.clock) for block in blocks})
        out += self._depart(leaving)
        held, self._held = self._held, []
        for peer, header, payload in held:
            out += self.handle(peer, header, payload)
        return out

    @property
    def _plans(self) -> Timeline:
        if self._timeline is None:
            raise RuntimeError("no view has come yet")
        return self._timeline

    @property
    def layout(self) -> Layout:
        """The model's."""
        return self._layout

    @property
    def lowest_version(self) -> int:
        """Steps applied to all the parameters held here; 0 without any."""
        return min((self._store.version(b) for b in self._store.owned if b not in self._buffers), default=0)

    @property
    def arrived(self) -> int:
        """Everything that comes here with changes up to this number is here."""
        return self._migration.complete_up_to() if self._loaded else 0

    # ---- messages

    def handle(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        """Act on a message.

        Raises:
            ProtocolError: it breaks the protocol; nothing was changed.
        """
        if header.generation < self.generation:
            self.dropped["old generation"] += 1
            return []
        if header.generation > self.generation or not self._loaded or self._timeline is None:
            return self._hold(peer, header, payload)
        if isinstance(header, Push) and header.after > self._timeline.newest:
            return self._hold(peer, header, payload)
        return self._act(peer, header, payload)

    def _act(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        out: list[Outgoing] = []
        match header:
            case Push():
                out = self._push(peer, header, payload)
            case Pull():
                out = self._pull(peer, header)
            case State():
                out = self._state(peer, header, payload)
            case Norms():
                out = self._norms_came(peer, header)
            case Adopted():
                for block in self._run(header.first, header.count):
                    self._migration.adopted(block.index, peer)
            case _:
                raise ProtocolError(f"{peer} sent a {type(header).__name__} message, which only workers get")
        return out

    def tick(self) -> list[Outgoing]:
        """What is to be done when nothing comes: ask and send again, copy for a checkpoint."""
        if not self._loaded:
            return []
        out: list[Outgoing] = []
        for block in sorted(self._migration.to_send_again(self._clock())):
            out += self._send_state([block])
        for step, norms in self._own_norms.items():
            if self._reduced.get(step):  # not applied yet: somebody's norms are missing, or ours are missing there
                out += self._to_other_servers(Norms(self.generation, step, norms), step)
        self._snapshots.idle(self._store)
        return out

    def parts(self, header: Header) -> list[tuple[str, int, int, int]]:
        """The memory that goes with a message: (tensor, segment, first element, last element + 1), in its order."""
        if not isinstance(header, Values | State):
            return []
        blocks = self._run(header.first, header.count)
        state = self._store.state_names(header.first) if isinstance(header, State) else ()
        names = ("parameters", *state)
        return [(name, blocks[0].segment, blocks[0].start, blocks[-1].stop) for name in names]

    # ---- pushes

    def _push(self, peer: str, header: Push, payload: Payload) -> list[Outgoing]:
        blocks = self._run(header.first, header.count)
        plan = self._plans.at(header.step)
        if header.slice not in self._slices(header.step):
            raise ProtocolError(f"{peer} pushed slice {header.slice} of step {header.step}, which has no such slice")
        if any(plan.owners[block.index] != self.name for block in blocks):
            raise ProtocolError(f"{peer} pushed blocks of step {header.step} that {self.name} does not own then")
        gradients = self._tensor(payload, 0, blocks)
        ready, old = [], []
        for block in blocks:
            if self._here(block.index):
                version, due = self._store.version(block.index), self._due(block.index, header.step)
                if version > due:
                    old.append(block.index)
                    continue
                if version < due:
                    raise ProtocolError(f"{peer} pushed step {header.step} of block {block.index}, at {version} here")
            elif self._migration.arrival(block.index) is None:
                continue  # late: the block has left since
            slices = self._pushes[block.index]
            slices.setdefault(header.slice, gradients[block.start - blocks[0].start : block.stop - blocks[0].start])
            if len(slices) == len(self._slices(header.step)):
                self._complete_seconds[block.index] = self._clock()
                if self._here(block.index) and block.index not in self._reduced[header.step]:
                    ready.append(block.index)
        out = self._values(peer, old) if old else []
        return out + self._ready(ready, header.step)

    def _ready(self, blocks: list[int], step: int) -> list[Outgoing]:
        """All slices of these blocks are here."""
        if not blocks:
            return []
        gradients = [[pushes[k] for k in sorted(pushes)] for pushes in (self._pushes[block] for block in blocks)]
        self._snapshots.before_apply(self._store, blocks)
        if self._norms is None:
            self._store.apply(blocks, gradients, step)
            return self._applied(blocks, step)
        buffers = [block for block in blocks if block in self._buffers]
        if buffers:
            self._store.apply(buffers, [g for b, g in zip(blocks, gradients, strict=True) if b in self._buffers], step)
        clipped = [block for block in blocks if block not in self._buffers]
        if clipped:
            self._store.reduce(clipped, [g for b, g in zip(blocks, gradients, strict=True) if b in clipped])
            self._reduced[step].update(clipped)
        out = self._applied(buffers, step)
        mine = set(self._plans.at(step).blocks_of(self.name)) - self._buffers
        if clipped and self._reduced[step] == mine:
            norms = tuple(sorted(self._store.squared_norms().items()))
            self._own_norms = {known: n for known, n in self._own_norms.items() if known >= step - 1} | {step: norms}
            self._norms.add(step, dict(norms))
            out += self._to_other_servers(Norms(self.generation, step, norms), step)
        return out + self._clip(step)

    def _clip(self, step: int) -> list[Outgoing]:
        waiting = sorted(self._reduced.get(step, ()))
        if self._norms is None or not waiting or step not in self._own_norms:
            return []
        scale = self._norms.scale(step)
        if scale is None:
            return []
        self._store.apply_reduced(waiting, scale, step)
        del self._reduced[step]
        self._norms.applied(step)
        return self._applied(waiting, step)

    def _norms_came(self, peer: str, header: Norms) -> list[Outgoing]:
        if self._norms is None:
            raise ProtocolError(f"{peer} sent norms, but this job clips no gradients")
        done = header.step in self._own_norms and not self._reduced.get(header.step)
        if done:  # the sender still waits: it may lack ours
            return [(peer, Norms(self.generation, header.step, self._own_norms[header.step]))]
        self._norms.add(header.step, dict(header.norms))
        return self._clip(header.step)

    def _applied(self, blocks: Sequence[int], step: int) -> list[Outgoing]:
        if not blocks:
            return []
        # Also to those who leave now: they end when they know that their last step was applied.
        workers = tuple(dict.fromkeys((*self._plans.at(step).workers, *self._plans.at(step + 1).workers)))
        asked: dict[str, list[int]] = {worker: list(blocks) for worker in workers}
        for block in blocks:
            del self._pushes[block]
            del self._complete_seconds[block]
            while self._store.version(block) <= step:  # buffers: the steps since the last merge
                self._store.pass_over([block])
            for peer, version in tuple(self._wants.get(block, {}).items()):
                if version <= step + 1:
                    del self._wants[block][peer]
                    if peer not in workers:
                        asked.setdefault(peer, []).append(block)
        out = [message for peer, owed in asked.items() for message in self._values(peer, owed)]
        return out + self._depart(block for block in blocks if self._migration.departure(block))

    # ---- pulls

    def _pull(self, peer: str, header: Pull) -> list[Outgoing]:
        timeline = self._plans
        have: list[int] = []
        missing: dict[int, list[int]] = defaultdict(list)
        step = header.version - 1
        for first, count in header.runs:
            if first + count > len(self._layout.blocks):
                raise ProtocolError(f"{peer} asked for block {first + count - 1}, which this model does not have")
            for index in range(first, first + count):
                due = self._merge.due(header.version, buffer=index in self._buffers)
                if index in self._store.owned and self._store.version(index) >= due:
                    have.append(index)
                    continue
                self._wants[index][peer] = header.version
                if step < timeline.start_step or timeline.at(step).owners[index] != self.name:
                    continue
                for k in timeline.at(step).slices_of(peer):
                    if k in self._slices(step) and k not in self._pushes.get(index, {}):
                        missing[k].append(index)
        out = self._values(peer, have)
        return out + [(peer, Missing(self.generation, step, k, runs_of(blocks))) for k, blocks in missing.items()]

    def _values(self, peer: str, blocks: Sequence[int]) -> list[Outgoing]:
        """Messages with the blocks as they are, adjacent ones of one version and segment together."""
        out: list[Outgoing] = []
        for first, count in self._alike(blocks):
            out.append((peer, Values(self.generation, self._store.version(first), first, count)))
        return out

    # ---- migration

    def _depart(self, blocks: Iterable[int]) -> list[Outgoing]:
        """Send away those of these blocks that have seen the last step before their flip."""
        return self._send_state(
            [
                block
                for block in blocks
                if (departure := self._migration.departure(block)) is not None
                and departure.sent_seconds is None
                and block in self._store.owned
                and self._store.version(block) >= self._due(block, departure.at)
            ]
        )

    def _send_state(self, blocks: Sequence[int]) -> list[Outgoing]:
        out: list[Outgoing] = []
        now = self._clock()
        for first, count in self._alike(blocks, by_target=True):
            target = self._migration.leaving(first).target
            out.append((target, State(self.generation, self._store.version(first), first, count)))
            for block in range(first, first + count):
                departure = self._migration.leaving(block)
                if departure.sent_seconds is None:
                    self.moved_bytes += self._layout.blocks[block].size_bytes
                departure.sent_seconds = now
        return out

    def _state(self, peer: str, header: State, payload: Payload) -> list[Outgoing]:
        blocks = self._run(header.first, header.count)
        arrivals = {block.index: self._migration.arrival(block.index) for block in blocks}
        coming = [(block, arrival) for block in blocks if (arrival := arrivals[block.index]) is not None]
        if not coming:
            if all(self._here(block.index) for block in blocks):
                return [(peer, Adopted(self.generation, header.first, header.count))]
            return self._hold(peer, State(header.generation, header.version, header.first, header.count), payload)
        names = self._store.state_names(header.first)
        if len(payload) != 1 + len(names):
            raise ProtocolError(f"{peer} sent blocks in {len(payload)} parts; this optimizer has {1 + len(names)}")
        tensors = [self._tensor(payload, part, blocks) for part in range(len(payload))]
        for block, arrival in coming:
            if arrival.source != peer or header.version < self._due(block.index, arrival.at):
                raise ProtocolError(f"{peer} sent block {block.index} at version {header.version}, which is not due")
        ready: dict[int, list[int]] = defaultdict(list)
        now = self._clock()
        for block, arrival in coming:
            start, stop = block.start - blocks[0].start, block.stop - blocks[0].start
            self._store.adopt(
                block.index,
                tensors[0][start:stop],
                {name: tensor[start:stop] for name, tensor in zip(names, tensors[1:], strict=True)},
                header.version,
            )
            self._migration.arrived(block.index)
            if block.index in self._complete_seconds:
                self._waited(arrival.at, now - self._complete_seconds[block.index])
                ready[arrival.at].append(block.index)
        out: list[Outgoing] = [(peer, Adopted(self.generation, header.first, header.count))]
        for block, _ in coming:
            out += self._wanted(block.index)
        for at, indices in ready.items():
            out += self._ready(indices, at)
        return out

    def _waited(self, step: int, seconds: float) -> None:
        """A block's pushes were complete so long before it came; in a step its workers wait for the slowest only."""
        longest = self._waits.get(step, 0.0)
        if seconds > longest:
            self._waits[step] = seconds
            self.stall_seconds += seconds - longest

    def _wanted(self, block: int) -> list[Outgoing]:
        out: list[Outgoing] = []
        for peer, version in tuple(self._wants.get(block, {}).items()):
            if version <= self._store.version(block):
                del self._wants[block][peer]
                out += self._values(peer, [block])
        return out

    # ---- what holds

    def _here(self, block: int) -> bool:
        """Whether this PS has the block and goes on with it."""
        if block not in self._store.owned or self._migration.arrival(block) is not None:
            return False
        departure = self._migration.departure(block)
        return departure is None or self._store.version(block) < self._due(block, departure.at)

    def _due(self, block: int, step: int) -> int:
        return self._merge.due(step, buffer=block in self._buffers)

    def _slices(self, step: int) -> tuple[int, ...]:
        """The slices of a step that have samples."""
        known = self._expected.get(step)
        if known is None:
            workers = len(self._plans.at(step).workers)
            bounds = slice_bounds(self._rules.batch_size(step), workers, self._rules.minimum)
            known = tuple(index for index, (start, stop) in enumerate(bounds) if stop > start)
            if len(self._expected) > 8:
                self._expected.clear()
            self._expected[step] = known
        return known

    def _run(self, first: int, count: int) -> Sequence[Block]:
        return run_of(self._layout.blocks, first, count)

    def _tensor(self, payload: Payload, part: int, blocks: Sequence[Block]) -> torch.Tensor:
        return flat_view(payload, part, self._layout.segments[blocks[0].segment], blocks)

    def _alike(self, blocks: Sequence[int], *, by_target: bool = False) -> list[tuple[int, int]]:
        """Runs of blocks of one segment and version (and new owner), none larger than a message should be."""
        found: list[tuple[int, int]] = []
        last: tuple[object, ...] = ()
        run_bytes = 0
        for index in blocks:
            block = self._layout.blocks[index]
            departure = self._migration.departure(index) if by_target else None
            key = (block.segment, self._store.version(index), departure.target if departure is not None else "")
            run_bytes += block.size_bytes
            if found and key == last and index == found[-1][0] + found[-1][1] and run_bytes <= RUN_BYTES:
                found[-1] = (found[-1][0], found[-1][1] + 1)
            else:
                found.append((index, 1))
                run_bytes = block.size_bytes
            last = key
        return found

    def _to_other_servers(self, header: Norms, step: int) -> list[Outgoing]:
        owners = self._plans.at(step).owners
        others = dict.fromkeys(owners[block] for block in range(len(owners)) if block not in self._buffers)
        return [(server, header) for server in others if server != self.name]

    def _hold(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        if len(self._held) >= _MOST_HELD:
            self.dropped["held too many"] += 1
        else:
            self._held.append((peer, header, payload))
        return []
