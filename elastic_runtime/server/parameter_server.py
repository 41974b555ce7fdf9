"""A parameter server: its memory, what it does with views and messages, its reports, and the loop of its process.

Source: DL2 §5, §6.1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import closing

import structlog

from elastic_runtime.checkpoint.catalog import folder_of
from elastic_runtime.checkpoint.manifest import read_manifest
from elastic_runtime.checkpoint.object_store import Place
from elastic_runtime.checkpoint.reader import read_blocks, require_same_model
from elastic_runtime.checkpoint.writer import ShardWriter
from elastic_runtime.control.member_link import MemberLink, member_clock
from elastic_runtime.control.messages import Shard, TaskRegistration
from elastic_runtime.errors import CheckpointDamaged, CheckpointError, ElasticError, ProtocolError
from elastic_runtime.member.environment import MemberEnvironment
from elastic_runtime.member.outbox import Outbox, traffic_bytes
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.layout import Layout, TensorKind
from elastic_runtime.model.optimizers import Optimizer
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.messages import Header, unpack
from elastic_runtime.protocol.plan import OVER, JobPhase, TaskRole, View
from elastic_runtime.server.protocol.asynchronous import AsynchronousPart
from elastic_runtime.server.protocol.block_table import Rules
from elastic_runtime.server.protocol.part import ServerPart
from elastic_runtime.server.protocol.snapshots import Snapshots
from elastic_runtime.server.protocol.synchronous import SynchronousPart
from elastic_runtime.server.store import BlockStore
from elastic_runtime.transport import Endpoint, Message, Region, RegionPart
from foundation.signal_event import SignalEvent
from foundation.text import plain_line

_REPORT_SECONDS = 0.5
_TICK_SECONDS = 0.05
"""When nothing comes, blocks are copied for a checkpoint and lost messages made up for so often."""
_RETRY_SECONDS = 0.001
"""Until what found no room is tried again."""
_LEAVE_SECONDS = 5.0
"""For the coordinator to take the last report."""
_KEPT = 4
"""Reported shards of this many newest checkpoints; the coordinator has long taken the older ones."""

_log = structlog.get_logger()


class ShardInWork:
    """One checkpoint's shard; one that fails loses its writer, and the coordinator gives up the checkpoint."""

    def __init__(self, writer: ShardWriter | None, change: int, step: int) -> None:
        self.writer = writer
        self.change = change
        self.step = step

    def add(self, state: BlockState) -> None:
        """Hand a block over; a disk that is too slow is waited for."""
        if self.writer is None:
            return
        try:
            self.writer.add(state)
        except CheckpointError as error:
            self._give_up(error)

    def close(self) -> None:
        """All blocks were handed over."""
        if self.writer is not None:
            self.writer.close()

    def result(self) -> Shard | None:
        """The shard once it is on the disk; None before, and if it never will be."""
        if self.writer is None or not self.writer.ended:
            return None
        try:
            record = self.writer.finish()
        except CheckpointError as error:
            self._give_up(error)
            return None
        return Shard(record.name, self.step, record.size_bytes, record.sha256, self.change)

    def abort(self) -> None:
        """Give it up, and remove what is unfinished."""
        if self.writer is not None:
            self.writer.abort()

    def _give_up(self, error: CheckpointError) -> None:
        _log.error("checkpoint-shard-failed", step=self.step, error=str(error))
        self.writer = None


class Shards:
    """All shards that this server writes."""

    def __init__(self, folder: Place, server: str, layout: Layout, optimizer: Optimizer) -> None:
        self._folder, self._server, self._layout, self._optimizer = folder, server, layout, optimizer
        self._working: list[ShardInWork] = []
        self._done: list[Shard] = []

    def open(self, change: int, step: int, blocks: Iterable[int]) -> ShardInWork:
        """Begin the shard of a change's checkpoint, at a step."""
        try:
            folder = folder_of(self._folder, step)
            writer = ShardWriter(folder, self._server, self._layout, self._optimizer, blocks)
        except CheckpointError as error:
            _log.error("checkpoint-shard-failed", step=step, error=str(error))
            return ShardInWork(None, change, step)
        shard = ShardInWork(writer, change, step)
        self._working.append(shard)
        return shard

    def take_finished(self) -> tuple[Shard, ...] | None:
        """The newest shards, if there is a new one since the last call."""
        new = [shard for work in self._working if (shard := work.result()) is not None]
        ended = {shard.change for shard in new}
        self._working = [work for work in self._working if work.writer is not None and work.change not in ended]
        self._done = [*self._done, *new][-_KEPT:]
        return tuple(self._done) if new else None

    def start(self) -> None:
        """Begin a generation: shards of the one before are of other steps, even with the same numbers."""
        self.abort()
        self._done.clear()

    def abort(self) -> None:
        """Give up whatever is not finished."""
        for work in self._working:
            work.abort()
        self._working.clear()


class ParameterServer:
    """What a server does, one view or message at a time."""

    def __init__(
        self,
        environment: MemberEnvironment,
        endpoint: Endpoint,
        link: MemberLink,
        registration: TaskRegistration,
        clock: Callable[[], float],
    ) -> None:
        self._environment = environment
        self._link = link
        self._layout = layout = Layout.from_json(registration.layout_json)
        self._training = training = Training.from_json(registration.training_json)
        self._regions = ServerRegions(environment.task, endpoint, layout, training.optimizer)
        self._store = BlockStore(layout, training.optimizer, self._regions.memory, self._regions.reserve)
        self._shards = Shards(environment.checkpoints, environment.task, layout, training.optimizer)
        self._part = _part(environment.task, layout, training, self._store, Snapshots(self._shards.open), clock)
        self._endpoint, self._clock = endpoint, clock
        self._reported_seconds = 0.0
        self._reported_arrived = 0
        self._reported_suspects: tuple[str, ...] = ()
        self.outbox = Outbox(endpoint, self._parts)

    def act(self, view: View) -> bool:
        """Act on a view; whether to go on.

        Raises:
            ElasticError: the job failed, or its checkpoint cannot be read.
        """
        if view.phase is JobPhase.FAILED:
            raise ElasticError(f"the job failed: {view.failure}")
        if view.phase in OVER or self._environment.task in view.leaving:
            return False
        self.outbox.connect(view.members, self._environment.task)
        if view.generation < 1:
            return True
        if self._part.begins_generation(view):
            self._begin(view)
        else:
            self.outbox.send(self._part.on_view(view))
        return True

    def handle(self, message: Message) -> None:
        """Act on a message; one that breaks the protocol is logged and passed over."""
        try:
            self.outbox.send(self._part.handle(message.peer, unpack(message.header), message.payload))
        except ProtocolError as error:
            _log.warning("message-refused", peer=message.peer, error=str(error))

    def tick(self) -> None:
        """Do what is due from time to time: send again, copy for a checkpoint."""
        self.outbox.send(self._part.tick())

    def report(self) -> None:
        """Report news to the coordinator, if it is time for it."""
        part, now = self._part, self._clock()
        finished = self._shards.take_finished()
        if finished is not None:
            self._link.report(shards=finished)
        if part.arrived_change != self._reported_arrived:
            self._reported_arrived = part.arrived_change
            self._link.report(
                arrived=part.arrived_change, moved_bytes=part.moved_bytes, stall_seconds=part.stall_seconds
            )
        if part.suspects != self._reported_suspects:
            self._reported_suspects = part.suspects
            self._link.report(suspects=part.suspects)
        # What moved is told with the arrival of all of it: a report for each block would take time from the steps.
        if now - self._reported_seconds >= _REPORT_SECONDS:
            self._report_progress(now)

    def _report_progress(self, now: float) -> None:
        part = self._part
        self._reported_seconds = now
        sent, received = traffic_bytes(self._endpoint)
        self._link.report(
            step=part.lowest_version,
            owned_bytes=sum(part.layout.blocks[block].size_bytes for block in self._store.owned),
            moved_bytes=part.moved_bytes,
            stall_seconds=part.stall_seconds,
            bytes_sent=sent,
            bytes_received=received,
            staleness=part.staleness_versions,
        )

    def leave(self) -> None:
        """End: a shard that is not finished never will be."""
        self._shards.abort()

    def _begin(self, view: View) -> None:
        self.outbox.forget()
        self._shards.start()
        blocks = self._part.start(view)
        try:
            self._load(view, blocks)
        except CheckpointDamaged as error:
            # The coordinator decides from which other one all begin: in another generation.
            _log.warning("checkpoint-damaged", generation=view.generation, reason=str(error))
            self._link.report(generation=view.generation, ready=False, damage=plain_line(str(error)), shards=())
            return
        self.outbox.send(self._part.on_loaded(view))
        self._link.report(
            generation=view.generation, ready=True, damage="", arrived=self._part.arrived_change, shards=()
        )
        _log.info("generation-loaded", generation=view.generation, step=view.start_step, blocks=len(blocks))

    def _load(self, view: View, blocks: tuple[int, ...]) -> None:
        if not blocks:
            return
        manifest = read_manifest(self._environment.checkpoints / view.start_checkpoint)
        require_same_model(manifest, self._layout, self._training.optimizer)
        for state in read_blocks(manifest, blocks):
            version = view.start_step if self._training.synchronous else state.version
            self._store.adopt(state.block, state.parameters, state.state, version)

    def _parts(self, header: Header) -> list[RegionPart]:
        return [self._regions.part(*place) for place in self._part.parts(header)]


def _part(
    task: str,
    layout: Layout,
    training: Training,
    store: BlockStore,
    snapshots: Snapshots,
    clock: Callable[[], float],
) -> ServerPart:
    if not training.synchronous:
        return AsynchronousPart(task, layout, store, snapshots, clock)
    order = training.order()
    rules = Rules(
        order.batch_size,
        training.min_worker_batch,
        training.buffer_merge_steps,
        order.total_steps,
        training.optimizer.clip_norm,
    )
    return SynchronousPart(task, layout, store, rules, snapshots, clock)


class ServerRegions:
    """Addresses for the whole model, and memory for the blocks that the server ever owned."""

    def __init__(self, task: str, endpoint: Endpoint, layout: Layout, optimizer: Optimizer) -> None:
        self._task = task
        self._layout = layout
        self._regions: dict[tuple[int, str], Region] = {}
        for segment in layout.segments:
            size_bytes = segment.elements * segment.element_bytes
            if not size_bytes:
                continue
            for name in ("parameters", *(optimizer.state_names if segment.kind is TensorKind.PARAMETER else ())):
                region = endpoint.region(f"{name}-{segment.index}", size_bytes, on_demand=True)
                self._regions[segment.index, name] = region

    @property
    def memory(self) -> dict[tuple[int, str], memoryview]:
        """All of it, by segment and tensor. Peers on this host read it in place: a block moves as fast as a push."""
        return {place: region.memory for place, region in self._regions.items()}

    def reserve(self, block: int) -> None:
        """Make sure that a block has memory.

        Raises:
            ElasticError: the machine has none left.
        """
        place = self._layout.blocks[block]
        element_bytes = self._layout.segments[place.segment].element_bytes
        regions = [region for (segment, _), region in self._regions.items() if segment == place.segment]
        try:
            for region in regions:
                region.reserve(place.start * element_bytes, place.stop * element_bytes)
        except OSError as error:
            raise ElasticError(f"{self._task}: no memory for block {block}: {error.strerror}") from error

    def part(self, name: str, segment: int, start: int, stop: int) -> RegionPart:
        """Elements `start` to `stop` (exclusive) of a tensor of a segment, as they are sent."""
        element_bytes = self._layout.segments[segment].element_bytes
        return self._regions[segment, name].part(start * element_bytes, stop * element_bytes)


class ServerProcess:
    """One parameter server, from its registration to its end.

    Args:
        clock: seconds in which this process ran; None: `member_clock`.
        register_seconds: how long to wait for the coordinator and for the first worker's model.
        patience_seconds: how long to go on without a coordinator when there is nothing to do.
    """

    def __init__(
        self,
        environment: MemberEnvironment,
        clock: Callable[[], float] | None = None,
        register_seconds: float = 300.0,
        patience_seconds: float = 300.0,
    ) -> None:
        self._environment = environment
        self._clock = clock or member_clock()
        self._register_seconds = register_seconds
        self._patience_seconds = patience_seconds
        self._stopped = SignalEvent()
        self._mailbox: View | None = None
        self._lock = threading.Lock()
        self._endpoint: Endpoint | None = None
        self._serving = self._leave_requested = False
        self._drain_seconds: float | None = None

    def drain(self) -> None:
        """Ask to be let go, and serve until others have the blocks; the second time, or after the grace, end at once.

        For a signal's handler: takes no lock.

        Raises:
            SystemExit: it serves nobody yet.
        """
        if not self._serving:
            raise SystemExit(0)
        if self._drain_seconds is not None:
            self.stop()
        else:
            self._drain_seconds = self._clock()

    def stop(self) -> None:
        """End soon; from any thread or a signal's handler."""
        self._stopped.set()
        if self._endpoint is not None:
            self._endpoint.wake()

    def run(self) -> None:
        """Serve until the job needs this server no more.

        Raises:
            ElasticError: the job failed, this server was taken for dead, or its checkpoint cannot be read.
        """
        environment = self._environment
        with (
            environment.open_endpoint() as endpoint,
            closing(environment.open_link(TaskRole.SERVER, self._clock)) as link,
        ):
            self._endpoint = endpoint
            registration = link.register(endpoint.address, deadline_seconds=self._register_seconds)
            link.follow(self._receive)  # before its memory is made, which may take long: it is alive
            server = ParameterServer(environment, endpoint, link, registration, self._clock)
            self._serving = True
            self._serve(endpoint, link, server)

    def _serve(self, endpoint: Endpoint, link: MemberLink, server: ParameterServer) -> None:
        tick_seconds = self._clock() + _TICK_SECONDS
        while not self._stopped.is_set():
            kept = server.outbox.flush()
            event = endpoint.receive(_RETRY_SECONDS if kept else max(tick_seconds - self._clock(), 0.0))
            view = self._next_view()
            if view is not None and not server.act(view):
                break
            if isinstance(event, Message):
                server.handle(event)
            if self._clock() >= tick_seconds:
                server.tick()
                tick_seconds = self._clock() + _TICK_SECONDS
                self._watch(link)
            server.report()
        server.leave()
        link.report(left=True)
        link.flush(_LEAVE_SECONDS)

    def _receive(self, view: View) -> None:
        with self._lock:
            self._mailbox = view
        if self._endpoint is not None:
            self._endpoint.wake()

    def _next_view(self) -> View | None:
        with self._lock:
            view, self._mailbox = self._mailbox, None
            return view

    def _watch(self, link: MemberLink) -> None:
        if self._drain_seconds is not None:
            self._ask_to_leave(link, self._clock() - self._drain_seconds)
        if link.failure is not None:
            raise link.failure
        if link.expelled.is_set():
            raise ElasticError(f"the coordinator took {self._environment.task} for dead; a new one is started instead")
        if link.coordinator_silent_seconds > self._patience_seconds:
            raise self._environment.unreachable(link.coordinator_silent_seconds)

    def _ask_to_leave(self, link: MemberLink, drained_seconds: float) -> None:
        if not self._leave_requested:
            self._leave_requested = True
            _log.info("drain-requested", grace_seconds=self._environment.grace_seconds)
            link.report(draining=True)
        elif drained_seconds >= self._environment.grace_seconds:
            _log.warning("drain-expired", waited_seconds=round(drained_seconds, 1))
            self._stopped.set()
