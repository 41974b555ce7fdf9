"""A whole job in one process: the coordinator's real state machine decides, real workers and servers exchange blocks.

Whatever may die dies at any moment: workers, servers, the coordinator (which begins again with what it had recorded).
Views and reports come late. Checkpoints are kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from world import BATCH, Server, Worker, World, first_values

from elastic_runtime.control.messages import MemberReport, RequestState, Shard, Size
from elastic_runtime.coordinator.journal import encode, restore
from elastic_runtime.coordinator.rules.checkpointing import ManifestOrder
from elastic_runtime.coordinator.rules.machine import CoordinatorMachine, EventOutcome, begin
from elastic_runtime.coordinator.rules.registering import Newcomer
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.plan import JobPhase, TaskRole, Timeline, View
from elastic_runtime.server.protocol.block_table import Rules
from elastic_runtime.server.protocol.snapshots import Snapshots
from elastic_runtime.server.protocol.synchronous import SynchronousPart
from elastic_runtime.server.store import BlockStore
from elastic_runtime.worker.protocol.step_turns import WorkerTurn

NEVER = 1e9
ENDED = {JobPhase.FINISHED, JobPhase.SUSPENDED, JobPhase.FAILED}
Outcomes = list[tuple[int, torch.Tensor, dict[str, torch.Tensor]]]


@dataclass
class Part:
    """What one server wrote of one checkpoint."""

    digest: str
    generation: int
    step: int
    blocks: dict[int, BlockState] = field(default_factory=dict)
    closed: bool = False

    def add(self, state: BlockState) -> None:
        self.blocks[state.block] = state

    def close(self) -> None:
        self.closed = True


@dataclass
class WholeJob(World):
    """A job with a launcher that starts what is wanted, and somebody who kills."""

    servers_wanted: int = 1
    workers_wanted: int = 2
    replicas_wanted: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settings = CoordinatorSettings(
            job="whole",
            servers=self.servers_wanted,
            workers=self.workers_wanted,
            replicas=self.replicas_wanted,
            checkpoint_seconds=4.0,
            restarts=1000,
            losses=100_000,
            stage_fraction=0.1,
            stage_bytes=1,
            **dict.fromkeys(
                ("lost_seconds", "silent_seconds", "start_seconds", "new_task_seconds", "replacement_seconds"), NEVER
            ),
            **dict.fromkeys(
                ("ready_seconds", "vote_seconds", "arrival_seconds", "leave_seconds", "checkpoint_write_seconds"), NEVER
            ),
        )
        samples = BATCH * self.last_step
        training = Training(optimizer=self.optimizer, samples=samples, global_batch=BATCH, epochs=1)
        self._model = (self.layout.to_json().decode(), training.to_json().decode())
        self.reports: dict[str, MemberReport] = {}
        self.parts: dict[str, dict[int, Part]] = {}
        self.checkpoints: dict[str, dict[int, BlockState]] = {}
        self.orders: list[ManifestOrder] = []
        self.reported: list[str] = []
        self.records: list[bytes] = []
        self.deaths = self.written = self.survived = 0
        self.machine = CoordinatorMachine(self.settings, self.now, begin(self.settings), lambda: 0.0)
        self.take(self.machine.on_tick(self.now))

    # ---- the coordinator and its files

    def take(self, outcome: EventOutcome) -> None:
        """Record and publish."""
        if outcome.record:
            self.records.append(encode(outcome.record))
        if outcome.view is not None:
            assert not self.views or outcome.view.number > self.views[-1].number
            self.views.append(outcome.view)
        self.orders += [order for order in outcome.orders if isinstance(order, ManifestOrder)]

    def kill_coordinator(self) -> None:
        """What it had recorded is all that is left of it."""
        self.orders.clear()
        self.machine = CoordinatorMachine(
            self.settings, self.now, restore(self.records) or begin(self.settings), lambda: 0.0
        )
        self.take(self.machine.on_tick(self.now))

    def complete(self, order: ManifestOrder) -> None:
        """Write a manifest: every block is there once, as it was at that step; unless a shard was written anew."""
        found: dict[int, BlockState] = {}
        for shard in order.shards:
            part = self.parts[shard.name][shard.change]
            if part.digest != shard.sha256:
                self.take(self.machine.on_checkpoint_completed(order, "another digest", self.now))
                return
            for block, state in part.blocks.items():
                assert block not in found
                assert state.version == order.step
                found[block] = state
        assert found.keys() == set(range(len(self.layout.blocks)))
        self.checkpoints[order.name] = found
        self.take(self.machine.on_checkpoint_completed(order, "", self.now))

    def resize(self, request_id: str, servers: int, workers: int) -> None:
        request = RequestState(request_id, "resize", target=Size(servers, workers))
        _, outcome = self.machine.on_request(request, self.now)
        self.take(outcome)

    # ---- the launcher

    def launch(self) -> None:
        """Start what is wanted, tell what has ended."""
        while self.reported:
            self.tell(self.reported.pop())
        for name in self.views[-1].wanted:
            if name not in self.reports:
                self.add(name)

    def tell(self, name: str) -> None:
        """A process has ended; a server all of whose blocks somebody else has is lost without a step back."""
        generation = self.machine.state.generation
        status = self.machine.status(self.now)
        safe = (
            status.blocks > 0
            and status.blocks_with_replica == status.blocks
            and name in Timeline(self.views[-1]).at(10**9).servers
        )
        self.take(self.machine.on_task_ended(name, -9, "", self.now))
        if safe:
            self.survived += 1
            assert self.machine.state.generation.number == generation.number
            assert self.machine.status(self.now).phase is status.phase
            assert name in self.views[-1].lost_servers

    def add(self, name: str) -> None:
        worker = name.startswith("worker")
        self.reports[name] = MemberReport(name, len(self.reports) + 1)
        newcomer = Newcomer(
            name,
            TaskRole.WORKER if worker else TaskRole.SERVER,
            self.reports[name].incarnation,
            "{}",
            *(self._model if worker else ("", "")),
        )
        refusal, outcome = self.machine.on_register(newcomer, self.now)
        assert not refusal
        self.take(outcome)
        if worker:
            self.add_worker(name)
        else:
            self.add_server(name)

    def add_server(self, name: str) -> None:
        parts = self.parts.setdefault(name, {})

        def open_sink(change: int, step: int, blocks: Iterable[int]) -> Part:
            self.written += 1
            parts[change] = Part(f"{self.written:064x}", server_part.generation, step)
            return parts[change]

        store = BlockStore(self.layout, self.optimizer)
        rules = Rules(lambda step: BATCH, 1, self.merge_steps, self.last_step, self.clip_norm, resend_seconds=3.0)
        server_part = SynchronousPart(name, self.layout, store, rules, Snapshots(open_sink), lambda: self.now)
        self.servers[name] = Server(name, server_part, store)

    def kill(self, name: str) -> None:
        """A process dies; the launcher tells it later."""
        self.deaths += 1
        self.end(name)
        self.reported.append(name)

    def end(self, name: str) -> None:
        node = self.workers.pop(name, None) or self.servers.pop(name, None)
        if node is not None:
            node.alive = False
        self.queue = [message for message in self.queue if message[0] != name or self.random.random() < 0.5]

    def alive(self) -> list[str]:
        return [*self.workers, *self.servers]

    # ---- members

    def send_report(self, name: str) -> None:
        """A member's report comes in."""
        if name in self.workers:
            worker = self.workers[name]
            if self.reports[name].generation == worker.exchange.generation:
                self.update(name, step=worker.step)
        else:
            self.report_of_server(self.servers[name])
        report = self.reports[name]
        known, outcome = self.machine.on_report(report, self.now)
        self.take(outcome)
        if report.left or not known:
            self.end(name)
            self.reported.append(name)

    def report_of_server(self, server: Server) -> None:
        if server.server_part.generation and self.reports[server.name].generation == server.server_part.generation:
            shards = tuple(
                Shard(server.name, part.step, 1, part.digest, change)
                for change, part in sorted(self.parts[server.name].items())
                if part.closed and part.generation == server.server_part.generation
            )
            self.update(server.name, arrived=server.server_part.arrived_change, shards=shards[-4:])

    def update(self, name: str, **changes: object) -> None:
        self.reports[name] = replace(self.reports[name], **changes)  # type: ignore[arg-type]

    def let_go(self, name: str, view: View) -> bool:
        return view.phase in ENDED or name in view.leaving

    def see(self, node: Worker | Server) -> None:
        view = self.views[-1]
        if node.view is not None and node.view.number >= view.number:
            return
        node.view = view
        if isinstance(node, Worker):
            vote = node.barrier.on_view(view)
            changes = {"accepted": vote.accepted} if vote.accepted else {"refused": vote.refused}
            if vote.accepted or vote.refused:
                entered = node.exchange.generation == view.generation
                step = node.step if entered else view.start_step
                finished = entered and step >= self.last_step
                self.update(node.name, step=step, generation=view.generation, finished=finished, **changes)
        elif self.let_go(node.name, view):
            self.update(node.name, left=True)
        elif view.generation and node.server_part.begins_generation(view):
            for block in node.server_part.start(view):
                state = self.checkpoints[view.start_checkpoint][block]
                node.store.adopt(block, state.parameters, state.state, view.start_step)
            self.send(node.name, node.server_part.on_loaded(view))
            self.update(
                node.name, generation=view.generation, ready=True, arrived=node.server_part.arrived_change, shards=()
            )
        elif view.generation:
            self.send(node.name, node.server_part.on_view(view))

    def work(self, worker: Worker) -> None:
        view = worker.barrier.view
        if view is None or self.reports[worker.name].left:
            return
        if self.let_go(worker.name, view):
            self.update(worker.name, left=True)
        elif view.generation == 0:
            if view.initialiser == worker.name:
                self.initialise(view)
                self.update(worker.name, initialised=True)
        elif view.generation != worker.exchange.generation:
            self.enter(worker, view)
        elif worker.state == "entering":
            worker.exchange.follow(worker.barrier.timeline)
            if worker.exchange.is_complete:
                worker.banks.swap()
                worker.state = "ready"
                self.update(worker.name, generation=view.generation, step=worker.step, ready=True, finished=False)
        elif worker.state == "ready":
            self.begin_step(worker)
        else:
            worker.exchange.follow(worker.barrier.timeline)
            self._compute(worker, worker.barrier.timeline)
            if worker.exchange.is_complete:
                worker.banks.swap()
                worker.step += 1
                worker.state = "ready"

    def initialise(self, view: View) -> None:
        values = first_values(self.layout)
        self.checkpoints[view.start_checkpoint] = {
            block.index: BlockState(block.index, 0, values[block.segment][block.start : block.stop].clone(), {})
            for block in self.layout.blocks
        }

    def enter(self, worker: Worker, view: View) -> None:
        timeline = worker.barrier.timeline
        joins_at = timeline.first_step_of(worker.name)
        if joins_at is None:
            self.update(worker.name, ready=True, generation=view.generation)
            return
        worker.step, worker.state = joins_at, "entering"
        self.send(worker.name, worker.exchange.start(timeline, joins_at))

    def begin_step(self, worker: Worker) -> None:
        if worker.step >= self.last_step:
            self.update(worker.name, generation=worker.exchange.generation, step=worker.step, finished=True)
        elif worker.barrier.begin(worker.step, worker.exchange.generation) is WorkerTurn.GO:
            worker.exchange.follow(worker.barrier.timeline)
            worker.exchange.begin(worker.step)
            worker.state = "computing"

    # ---- driving

    def turn(self) -> None:
        choice = self.random.random()
        if choice < 0.1:
            self.launch()
        elif choice < 0.2 and self.alive():
            self.send_report(self.random.choice(self.alive()))
        elif choice < 0.23:
            self.take(self.machine.on_tick(self.now))
        elif choice < 0.26 and self.orders:
            self.complete(self.orders.pop(0))
        elif self.workers:
            super().turn()
        else:
            self.now += 0.1
            for server in tuple(self.servers.values()):
                self.see(server)
                self.send(server.name, server.server_part.tick())

    @property
    def done(self) -> bool:
        assert self.views[-1].phase is not JobPhase.FAILED, self.views[-1].failure
        return self.views[-1].phase is JobPhase.FINISHED

    # ---- what came out

    def workers_of_steps(self) -> list[int]:
        """How many workers shared each step that counted."""
        counts = [0] * self.last_step
        for view in {view.generation: view for view in self.views if view.generation}.values():
            timeline = Timeline(view)
            for step in range(view.start_step, self.last_step):
                counts[step] = len(timeline.at(step).workers)
        return counts

    def outcome(self) -> Outcomes:
        """Version, parameters and optimizer state of every block, in the last checkpoint."""
        last = self.checkpoints[max(self.checkpoints)]
        states = [last[block.index] for block in self.layout.blocks]
        return [(state.version, state.parameters, dict(state.state)) for state in states]
