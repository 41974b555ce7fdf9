"""Asynchronous workers and their servers in one process, whose messages come late, twice, in any order, or never.

The memory that goes with a message is the sender's own, read when the message is delivered, as in shared memory: a
worker has one bank of gradients, and what a server gave back is poison. Update u is a gradient of 2ᵘ, and the optimizer
subtracts it: the bits of a block's numbers say which updates were applied to it, and twice would not look like once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.data_shards import SampleOrder
from elastic_runtime.model.layout import TensorKind, TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD
from elastic_runtime.model.sample_leases import SampleLease, SampleLeaseTable
from elastic_runtime.protocol.messages import Header, Update, pack, unpack
from elastic_runtime.protocol.plan import Change, ChangeStage, JobPhase, Member, Plan, TaskRole, Timeline, View
from elastic_runtime.server.protocol.asynchronous import AsynchronousPart
from elastic_runtime.server.protocol.snapshots import Snapshots
from elastic_runtime.server.store import BlockStore
from elastic_runtime.worker.protocol.updates import LAST, Updates

LAYOUT = build_layout(
    [TensorSpec("a", (70, 9), "float64"), TensorSpec("b", (33,), "float64")],
    [TensorSpec("mean", (17,), "float64"), TensorSpec("count", (), "int64")],
    block_bytes=512,
)
BLOCKS = len(LAYOUT.blocks)
PARAMETERS = [b.index for b in LAYOUT.blocks if LAYOUT.segments[b.segment].kind is TensorKind.PARAMETER]
MOST_UPDATES = 52
"""As many bits as a float64 has for whole numbers."""
BATCHES, EPOCHS = 8, 3


class Banks:
    """A worker's flat memory."""

    def __init__(self) -> None:
        sizes = [(segment.elements, getattr(torch, segment.dtype)) for segment in LAYOUT.segments]
        self.next = [torch.zeros(elements, dtype=dtype) for elements, dtype in sizes]
        self.sent = [torch.zeros(elements, dtype=dtype) for elements, dtype in sizes]

    def staging(self, segment: int) -> torch.Tensor:
        return self.next[segment]

    def buffers(self, segment: int) -> torch.Tensor:
        return self.next[segment]


@dataclass
class Worker:
    """One worker of the world."""

    name: str
    incarnation: int
    banks: Banks
    updates: Updates
    state: str = "waiting"  # waiting, entering, ready, pushed, left, dead
    view: View | None = None
    lease: SampleLease | None = None
    number: int = -1
    redirected: int = 0


@dataclass
class Server:
    """One parameter server of the world."""

    name: str
    server_part: AsynchronousPart
    store: BlockStore
    view: View | None = None


class Copies:
    """What one server copied for a checkpoint."""

    def __init__(self) -> None:
        self.blocks: dict[int, BlockState] = {}
        self.closed = False

    def add(self, state: BlockState) -> None:
        assert state.block not in self.blocks
        self.blocks[state.block] = state

    def close(self) -> None:
        self.closed = True


class World:
    """Everything, driven by one source of chance."""

    def __init__(self, seed: int, loss: float = 0.0, twice: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.loss, self.twice = loss, twice
        self.now = 0.0
        self.workers: dict[str, Worker] = {}
        self.servers: dict[str, Server] = {}
        self.copies: dict[tuple[str, int], Copies] = {}
        self.queue: list[tuple[str, str, bytes, list[torch.Tensor]]] = []
        self.leases = SampleLeaseTable(SampleOrder(4 * BATCHES, 4, seed=1, epochs=EPOCHS), 4)
        self.pushed: dict[int, tuple[str, SampleLease]] = {}
        self.done: set[int] = set()
        self.views = [View(1, 1, JobPhase.RUNNING, 0, "step-0", Plan((), ()))]

    # ---- who is there, and what is decided

    def start(self, workers: int, servers: int) -> None:
        names = [self.add_worker() for _ in range(workers)]
        plan = Plan(tuple(names), tuple(self.spread(servers)))
        self.views = [replace(self.views[0], start_plan=plan, members=self.members())]

    def spread(self, servers: int) -> list[str]:
        for number in range(servers):
            if f"ps-{number}" not in self.servers:
                self.add_server(f"ps-{number}")
        return [f"ps-{block % servers}" for block in range(BLOCKS)]

    def add_worker(self) -> str:
        number = len(self.workers)
        banks = Banks()
        self.workers[f"worker-{number}"] = Worker(
            f"worker-{number}", 1000 + number, banks, Updates(1000 + number, LAYOUT, banks)
        )
        return f"worker-{number}"

    def add_server(self, name: str) -> None:
        store = BlockStore(LAYOUT, SGD(1.0))

        def open_sink(_change: int, step: int, _: Iterable[int]) -> Copies:
            return self.copies.setdefault((name, step), Copies())

        server_part = AsynchronousPart(name, LAYOUT, store, Snapshots(open_sink), lambda: self.now, resend_seconds=3.0)
        self.servers[name] = Server(name, server_part, store)

    def members(self) -> tuple[Member, ...]:
        live = [w for w in self.workers.values() if w.state not in ("left", "dead")]
        workers = [Member(w.name, TaskRole.WORKER, w.incarnation, "") for w in live]
        return (*workers, *(Member(name, TaskRole.SERVER, 1, "") for name in self.servers))

    def publish(self, **changes: object) -> None:
        newer = replace(self.views[-1], number=self.views[-1].number + 1, members=self.members())
        self.views.append(replace(newer, **changes))  # type: ignore[arg-type]

    def decide(self, stage: ChangeStage, **kinds: bool) -> Change:
        """Nobody is asked."""
        changes = self.views[-1].changes
        number = len(changes) + 1
        change = Change(number, 10 * number, (stage,), **kinds)
        self.publish(changes=(*changes, change))
        return change

    def resize(self, servers: int, workers: Sequence[str]) -> Change:
        owners, wanted = self.plan.owners, self.spread(servers)
        moves = {block: wanted[block] for block in range(BLOCKS) if owners[block] != wanted[block]}
        return self.decide(ChangeStage(moves, tuple(workers)))

    @property
    def plan(self) -> Plan:
        return Timeline(self.views[-1]).at(LAST)

    def settled(self, number: int) -> bool:
        """Whether old copies may go: all blocks have arrived, and nobody reads the old owners' memory any more."""
        arrived = all(
            s.server_part.arrived_change >= number and s.view is self.views[-1] for s in self.servers.values()
        )
        working = [w for w in self.workers.values() if w.state in ("entering", "ready", "pushed")]
        return arrived and all(w.view is self.views[-1] and w.updates.routed_change >= number for w in working)

    def kill(self, name: str) -> None:
        worker = self.workers[name]
        worker.state = "dead"
        self.leases.lost(name)
        self.decide(ChangeStage(workers=tuple(other for other in self.plan.workers if other != name)))

    # ---- driving

    def run_until(self, ready, most: int = 100_000) -> None:  # type: ignore[no-untyped-def]
        for _ in range(most):
            if ready():
                return
            self.turn()
        raise AssertionError(f"nothing more happens: {[(w.name, w.state) for w in self.workers.values()]}")

    def turn(self) -> None:
        """One thing happens."""
        self.now += 0.001
        choice = self.random.random()
        if self.queue and choice < 0.6:
            self.deliver()
        elif choice < 0.8:
            self.see(self.random.choice([*self.workers.values(), *self.servers.values()]))
        elif choice < 0.98:
            self.work(self.random.choice(list(self.workers.values())))
        else:
            self.now += 2.0
            for server in self.servers.values():
                self.send(server.name, server.server_part.tick())
            for worker in self.workers.values():
                if worker.state in ("entering", "pushed"):
                    self.send(worker.name, worker.updates.ask())

    def deliver(self) -> None:
        index = self.random.randrange(len(self.queue))
        source, target, data, tensors = self.queue[index]
        if self.random.random() >= self.twice:
            self.queue.pop(index)
        if self.random.random() < self.loss:
            return
        payload = [memoryview(tensor.numpy()).cast("B").toreadonly() for tensor in tensors]
        if target in self.servers:
            self.send(target, self.servers[target].server_part.handle(source, unpack(data), payload))
        elif self.workers[target].state not in ("left", "dead"):
            self.send(target, self.workers[target].updates.handle(source, unpack(data), payload))

    def send(self, source: str, messages: Sequence[tuple[str, Header]]) -> None:
        for target, header in messages:
            tensors: list[torch.Tensor] = []
            if source in self.servers:
                for name, segment, start, stop in self.servers[source].server_part.parts(header):
                    tensors.append(self.servers[source].store.flat(segment, name)[start:stop])
            elif isinstance(header, Update):
                segment, start, stop = self.workers[source].updates.part(header)
                tensors.append(self.workers[source].banks.sent[segment][start:stop])
            self.queue.append((source, target, pack(header), tensors))

    def see(self, node: Worker | Server) -> None:
        """The newest view reaches a member."""
        view = self.views[-1]
        if node.view is view:
            return
        node.view = view
        if isinstance(node, Worker):
            if node.state in ("entering", "ready", "pushed"):
                self.send(node.name, node.updates.follow(Timeline(view)))
            return
        if node.server_part.begins_generation(view):
            for block in node.server_part.start(view):
                place = LAYOUT.blocks[block]
                dtype = getattr(torch, LAYOUT.segments[place.segment].dtype)
                node.store.adopt(block, torch.zeros(place.stop - place.start, dtype=dtype))
            self.send(node.name, node.server_part.on_loaded(view))
        else:
            self.send(node.name, node.server_part.on_view(view))
        for block in LAYOUT.blocks:  # what was given back may hold anything
            if block.index not in node.store.owned:
                node.store.flat(block.segment, "parameters")[block.start : block.stop] = -12345

    def work(self, worker: Worker) -> None:
        """A worker's training loop goes on by one thing."""
        if worker.view is None or worker.state in ("left", "dead"):
            return
        timeline = Timeline(worker.view)
        named = worker.name in timeline.at(LAST).workers
        if worker.state == "waiting":
            if named:
                worker.state = "entering"
                self.send(worker.name, worker.updates.start(timeline))
        elif not worker.updates.is_complete:
            return
        elif worker.state == "entering":
            worker.state = "ready"
        elif worker.state == "pushed":
            worker.state = "ready"
            self.done.add(worker.number)
            worker.redirected += worker.updates.redirected
            assert worker.lease is not None
            assert self.leases.done(worker.lease.id, worker.lease.stop) == 4
            worker.lease = None
        elif not named:
            worker.state = "left"
            self.leases.lost(worker.name)
            self.publish()
        else:
            self._push(worker)

    def _push(self, worker: Worker) -> None:
        worker.lease = self.leases.lease(worker.name, 1)
        if worker.lease is None:
            self.send(worker.name, worker.updates.reroute())
            return
        worker.number = len(self.pushed)
        assert worker.number < MOST_UPDATES
        self.pushed[worker.number] = (worker.name, worker.lease)
        for segment in LAYOUT.segments:
            worker.banks.sent[segment.index].fill_(
                2**worker.number if segment.kind is TensorKind.PARAMETER else worker.number
            )
        merged = 4 if worker.number % 2 == 0 else 0
        self.send(worker.name, worker.updates.push(merged))
        worker.state = "pushed"

    # ---- what came out

    def applied(self, block: int) -> set[int]:
        """The updates that a block's numbers hold."""
        return applied(self.servers[self.plan.owners[block]].store.snapshot(block))


def applied(state: BlockState) -> set[int]:
    """The updates in a block's numbers, each once; all elements say the same."""
    numbers = state.parameters
    assert bool((numbers == numbers[0]).all()), f"a block of several updates' elements: {numbers}"
    bits = int(-numbers[0].item())
    found = {number for number in range(MOST_UPDATES) if bits >> number & 1}
    assert sum(2**number for number in found) == bits
    assert state.version == len(found)
    return found
