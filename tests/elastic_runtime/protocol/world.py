"""Workers and parameter servers in one process, whose messages come late, twice, in any order, or never.

The memory that goes with a message is the sender's own, read when the message is delivered: as in shared memory.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch

from elastic_runtime.model.data_shards import slice_bounds
from elastic_runtime.model.layout import Layout, Segment, TensorKind
from elastic_runtime.model.optimizers import Optimizer
from elastic_runtime.protocol.messages import Header, Push, State, Values, pack, unpack
from elastic_runtime.protocol.plan import Change, ChangeStage, JobPhase, Plan, Timeline, View
from elastic_runtime.server.protocol.block_table import Rules
from elastic_runtime.server.protocol.snapshots import Snapshots
from elastic_runtime.server.protocol.synchronous import SynchronousPart
from elastic_runtime.server.store import BlockStore
from elastic_runtime.worker.membership import StepBarrier
from elastic_runtime.worker.protocol.exchange import WorkerExchange
from elastic_runtime.worker.protocol.step_turns import WorkerTurn

BATCH = 12


def first_values(layout: Layout) -> list[torch.Tensor]:
    """What a job begins with, segment by segment."""
    generator = torch.Generator().manual_seed(5)
    return [
        torch.randn(segment.elements, generator=generator).to(getattr(torch, segment.dtype))
        for segment in layout.segments
    ]


def gradient(segment: int, values: torch.Tensor, step: int, start: int, stop: int) -> torch.Tensor:
    """What samples start…stop of a step's batch contribute: any function of them and of the parameters."""
    total = torch.zeros_like(values)
    for sample in range(start, stop):
        total += torch.sin(values * (sample + 1) + step + segment)
    return total / BATCH


def statistics(segment: Segment, step: int, index: int) -> torch.Tensor:
    """A worker's buffers after its part of a step."""
    return torch.full((segment.elements,), step * 10 + index, dtype=getattr(torch, segment.dtype))


class Banks:
    """A worker's flat memory; a bank of gradients for each slice of a step."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.values = [torch.zeros_like(one) for one in first_values(layout)]
        self.next = [torch.zeros_like(one) for one in first_values(layout)]
        self.sent: dict[tuple[int, int], list[torch.Tensor]] = {}

    def staging(self, segment: int) -> torch.Tensor:
        return self.next[segment]

    def buffers(self, segment: int) -> torch.Tensor:
        return self.next[segment]

    def swap(self) -> None:
        self.values, self.next = self.next, self.values
        for segment in self._layout.segments:
            if segment.kind is TensorKind.BUFFER:
                self.next[segment.index].copy_(self.values[segment.index])


@dataclass
class Worker:
    """One worker of the world."""

    name: str
    banks: Banks
    exchange: WorkerExchange
    barrier: StepBarrier
    step: int = -1
    state: str = "waiting"  # waiting, entering, ready, computing, left
    alive: bool = True
    view: View | None = None


@dataclass
class Server:
    """One parameter server of the world."""

    name: str
    server_part: SynchronousPart
    store: BlockStore
    alive: bool = True
    view: View | None = None


class _Shard:
    def __init__(self) -> None:
        self.blocks: dict[int, tuple[int, torch.Tensor]] = {}
        self.closed = False

    def add(self, state) -> None:  # type: ignore[no-untyped-def]
        self.blocks[state.block] = (state.version, state.parameters.clone())

    def close(self) -> None:
        self.closed = True


@dataclass
class World:
    """Everything, driven by one source of chance."""

    layout: Layout
    optimizer: Optimizer
    seed: int
    loss: float = 0.0
    twice: float = 0.0
    merge_steps: int = 1
    clip_norm: float | None = None
    last_step: int = 10
    own_statistics: bool = False
    """Buffers are each worker's own, and not the same whoever computes a slice."""
    now: float = 0.0
    workers: dict[str, Worker] = field(default_factory=dict)
    servers: dict[str, Server] = field(default_factory=dict)
    shards: dict[tuple[str, int], _Shard] = field(default_factory=dict)
    views: list[View] = field(default_factory=list)
    begun: dict[int, set[str]] = field(default_factory=dict)
    votes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.queue: list[tuple[str, str, bytes, list[torch.Tensor]]] = []
        self.versions_told: dict[tuple[int, str, int], int] = {}
        """By generation, server and block: the newest version that it told anybody."""

    # ---- who is there

    def add_worker(self, name: str) -> None:
        banks = Banks(self.layout)
        self.workers[name] = Worker(
            name,
            banks,
            WorkerExchange(self.layout, banks, self.merge_steps, self.last_step),
            StepBarrier(name, lambda: self.now, 0.0),
        )

    def add_server(self, name: str) -> None:
        store = BlockStore(self.layout, self.optimizer)
        rules = Rules(lambda step: BATCH, 1, self.merge_steps, self.last_step, self.clip_norm, resend_seconds=3.0)

        def open_sink(_change: int, step: int, blocks: Iterable[int]) -> _Shard:
            return self.shards.setdefault((name, step), _Shard())

        server_part = SynchronousPart(name, self.layout, store, rules, Snapshots(open_sink), lambda: self.now)
        self.servers[name] = Server(name, server_part, store)

    # ---- the coordinator's part

    def publish(self, **changes: object) -> None:
        self.views.append(replace(self.views[-1], number=self.views[-1].number + 1, **changes))  # type: ignore[arg-type]

    def start(self, workers: Sequence[str], owners: Sequence[str], replicas: Sequence[str] = ()) -> None:
        for name in workers:
            self.add_worker(name)
        plan = Plan(tuple(workers), tuple(owners), replicas=tuple(replicas))
        for name in plan.servers:
            self.add_server(name)
        self.views.append(View(1, 1, JobPhase.RUNNING, 0, "step-0", plan))

    def decide(self, stages: Sequence[ChangeStage], margin: int, **kinds: bool) -> None:
        """Propose until all workers accept, then confirm: what the coordinator does."""
        number = max([0, *(change.number for change in self.views[-1].changes)]) + 1
        while True:
            newest = max(worker.step for worker in self.workers.values() if worker.alive)
            timeline = Timeline(self.views[-1])
            voters = set(timeline.at(max(newest, 0)).workers)
            past = max((c.clock + max(len(c.stages), 1) - 1 for c in self.views[-1].changes), default=0)
            proposal = Change(number, max(newest + margin, past, 0), tuple(stages), **kinds)
            self.votes = {}
            self.publish(proposal=proposal)
            self.run_until(lambda voters=voters: voters <= self.votes.keys() or self.over)
            if all(self.votes.get(name) == "accepted" for name in voters):
                self.publish(proposal=None, changes=(*self.views[-1].changes, replace(proposal)))
                return
            self.publish(proposal=None)
            number += 1
            margin += 1
            if self.over:
                return

    @property
    def over(self) -> bool:
        return all(w.state == "left" or not w.alive or w.step >= self.last_step for w in self.workers.values())

    def committed(self, number: int) -> bool:
        """Whether old copies may go: all blocks have arrived, and nobody reads the old owners' memory any more."""
        change = next(change for change in self.views[-1].changes if change.number == number)
        last_flip = change.clock + max(len(change.stages), 1) - 1
        arrived = all(
            s.server_part.arrived_change >= number and s.view is self.views[-1]
            for s in self.servers.values()
            if s.alive
        )
        return arrived and all(w.step >= last_flip for w in self.workers.values() if w.alive and w.state != "left")

    # ---- driving

    def run_until(self, ready, most: int = 200_000) -> None:  # type: ignore[no-untyped-def]
        for _ in range(most):
            if ready():
                return
            self.turn()
        raise AssertionError(f"nothing more happens: {[(w.name, w.state, w.step) for w in self.workers.values()]}")

    def turn(self) -> None:
        """One thing happens."""
        self.now += 0.001
        choice = self.random.random()
        if self.queue and choice < 0.6:
            self.deliver()
        elif choice < 0.8:
            self.see(self.random.choice([*self.workers.values(), *self.servers.values()]))
        elif choice < 0.99:
            self.work(self.random.choice(list(self.workers.values())))
        else:
            self.now += 2.0
            for server in self.servers.values():
                if server.alive:
                    self.send(server.name, server.server_part.tick())
            for worker in self.workers.values():
                if worker.alive and worker.state in ("entering", "computing") and not worker.exchange.is_complete:
                    self.send(worker.name, worker.exchange.ask())

    def deliver(self) -> None:
        index = self.random.randrange(len(self.queue))
        source, target, data, tensors = self.queue[index]
        if self.random.random() >= self.twice:
            self.queue.pop(index)
        if self.random.random() < self.loss:
            return
        payload = [memoryview(tensor.contiguous().numpy()).cast("B").toreadonly() for tensor in tensors]
        header = unpack(data)
        worker, server = self.workers.get(target), self.servers.get(target)
        if worker is not None and worker.alive:
            self.send(target, worker.exchange.handle(source, header, payload))
        if server is not None and server.alive:
            self.send(target, server.server_part.handle(source, header, payload))

    def send(self, source: str, messages: Sequence[tuple[str, Header]]) -> None:
        for target, header in messages:
            self._check_version(source, header)
            tensors: list[torch.Tensor] = []
            if source in self.servers:
                for name, segment, start, stop in self.servers[source].server_part.parts(header):
                    tensors.append(self.servers[source].store.flat(segment, name)[start:stop])
            elif isinstance(header, Push):
                worker = self.workers[source]
                segment, start, stop = worker.exchange.part(header)
                tensors.append(worker.banks.sent[header.step, header.slice][segment][start:stop])
            self.queue.append((source, target, pack(header), tensors))

    def _check_version(self, source: str, header: Header) -> None:
        """In a generation no server ever tells an older version of a block than it told before."""
        if not isinstance(header, Values | State):
            return
        for block in range(header.first, header.first + header.count):
            known = (header.generation, source, block)
            assert header.version >= self.versions_told.get(known, 0), f"{source} went back with block {block}"
            self.versions_told[known] = header.version

    def see(self, node: Worker | Server) -> None:
        """The newest view reaches a member."""
        view = self.views[-1]
        if not node.alive or (node.view is not None and node.view.number >= view.number):
            return
        node.view = view
        if isinstance(node, Server):
            if node.server_part.begins_generation(view):
                for block in node.server_part.start(view):
                    place = self.layout.blocks[block]
                    node.store.adopt(block, first_values(self.layout)[place.segment][place.start : place.stop])
                self.send(node.name, node.server_part.on_loaded(view))
            else:
                self.send(node.name, node.server_part.on_view(view))
            return
        vote = node.barrier.on_view(view)
        if vote.accepted or vote.refused:
            self.votes[node.name] = "accepted" if vote.accepted else "refused"

    def work(self, worker: Worker) -> None:
        """A worker's training loop goes on by one thing."""
        if not worker.alive or worker.view is None or worker.state == "left":
            return
        timeline = worker.barrier.timeline
        exchange = worker.exchange
        exchange.follow(timeline)
        if worker.state == "waiting":
            steps = [s for s in range(self.last_step) if timeline.at(s).slices_of(worker.name)]
            newest = max(w.step for w in self.workers.values())
            joins = next((s for s in steps if s >= newest or worker.name in timeline.at(0).workers), None)
            if joins is not None:
                worker.state, worker.step = "entering", joins
                self.send(worker.name, exchange.start(timeline, joins))
        elif worker.state == "entering" and exchange.is_complete:
            worker.banks.swap()
            worker.state = "ready"
        elif worker.state == "ready" and worker.step < self.last_step:
            turn = worker.barrier.begin(worker.step, exchange.generation)
            if turn is WorkerTurn.LEAVE:
                worker.state = "left"
            elif turn is WorkerTurn.GO:
                exchange.begin(worker.step)
                self.begun.setdefault(worker.step, set()).add(worker.name)
                worker.state = "computing"
        elif worker.state == "computing":
            if exchange.is_complete:
                worker.banks.swap()
                worker.step += 1
                worker.state = "ready"
                return
            self._compute(worker, timeline)

    def _compute(self, worker: Worker, timeline: Timeline) -> None:
        plan = timeline.at(worker.step)
        bounds = slice_bounds(BATCH, len(plan.workers), 1)
        for index in plan.slices_of(worker.name):
            start, stop = bounds[index]
            if index in worker.exchange.pushed or stop == start:
                continue
            worker.banks.sent[worker.step, index] = [
                statistics(segment, worker.step, index + 100 * self.own_statistics * int(worker.name.split("-")[1]))
                if segment.kind is TensorKind.BUFFER
                else gradient(segment.index, worker.banks.values[segment.index], worker.step, start, stop)
                for segment in self.layout.segments
            ]
            self.send(worker.name, worker.exchange.push(index))
            return

    # ---- what came out

    def owner_of(self, block: int) -> Server:
        owner = Timeline(self.views[-1]).at(self.last_step).owners[block]
        return self.servers[owner]

    def replica_outcome(self) -> list[tuple[int, torch.Tensor, dict[str, torch.Tensor]]]:
        """The same of every block's second holder; of its owner where there is none."""
        plan = Timeline(self.views[-1]).at(self.last_step)
        states = [
            self.servers[plan.replica(block.index) or plan.owners[block.index]].store.snapshot(block.index)
            for block in self.layout.blocks
        ]
        return [(state.version, state.parameters, dict(state.state)) for state in states]

    def outcome(self) -> list[tuple[int, torch.Tensor, dict[str, torch.Tensor]]]:
        """Version, parameters and optimizer state of every block."""
        states = [self.owner_of(block.index).store.snapshot(block.index) for block in self.layout.blocks]
        return [(state.version, state.parameters, dict(state.state)) for state in states]
