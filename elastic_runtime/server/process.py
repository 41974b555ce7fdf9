"""A parameter server's process: the loop that takes views and messages, one at a time, and reports.

Source: DL2 §5, §6.1.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from elastic_runtime.checkpoint import read_blocks, read_manifest, require_same_model
from elastic_runtime.control.client import MemberLink
from elastic_runtime.control.messages import Registration
from elastic_runtime.errors import ElasticError, ProtocolError
from elastic_runtime.layout import Layout
from elastic_runtime.member_environment import MemberEnvironment
from elastic_runtime.messages import Header, unpack
from elastic_runtime.outbox import Outbox, traffic_bytes
from elastic_runtime.plan import Phase, Role, View
from elastic_runtime.server.applying import Applying
from elastic_runtime.server.part import ServerPart
from elastic_runtime.server.serving import Rules, Serving
from elastic_runtime.server.shards import Shards
from elastic_runtime.server.snapshots import Snapshots
from elastic_runtime.server.store import BlockStore
from elastic_runtime.training import Training
from elastic_runtime.transport import Endpoint, Message, Part, Region

_log = structlog.get_logger()
_TICK_SECONDS = 0.05
"""When nothing comes, blocks are copied for a checkpoint and lost messages made up for so often."""
_REPORT_SECONDS = 0.5
_ENDED = {Phase.FINISHED, Phase.SUSPENDED, Phase.FAILED}


@dataclass(slots=True)
class _Reported:
    """What the coordinator was told last."""

    seconds: float = 0.0
    arrived: int = 0
    moved_bytes: int = 0
    suspects: tuple[str, ...] = ()


class ServerProcess:
    """One parameter server, from its registration to its end.

    Args:
        environment: where the job is.
        clock: seconds, monotonic.
        register_seconds: how long to wait for the coordinator and for the first worker's model.
        patience_seconds: how long to go on without a coordinator when there is nothing to do.
    """

    def __init__(
        self,
        environment: MemberEnvironment,
        clock: Callable[[], float] = time.monotonic,
        register_seconds: float = 300.0,
        patience_seconds: float = 300.0,
    ) -> None:
        self._environment = environment
        self._clock = clock
        self._register_seconds = register_seconds
        self._patience_seconds = patience_seconds
        self._stopped = threading.Event()
        self._mailbox: View | None = None
        self._lock = threading.Lock()
        self._reported = _Reported()
        self._regions: dict[tuple[int, str], Region] = {}
        self._endpoint: Endpoint | None = None
        self._serving = self._asked = False
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
        endpoint = self._endpoint = environment.open_endpoint()
        link = environment.open_link(Role.SERVER)
        try:
            registration = link.register(endpoint.address, deadline_seconds=self._register_seconds)
            self._serve(endpoint, link, registration)
        finally:
            link.close()
            endpoint.close()

    def _serve(self, endpoint: Endpoint, link: MemberLink, registration: Registration) -> None:
        name = self._environment.task
        layout = Layout.from_json(registration.layout_json)
        training = Training.from_json(registration.training_json)
        memory = self._memory(endpoint, layout, training)
        store = BlockStore(layout, training.optimizer, memory, lambda block: self._reserve(layout, block))
        shards = Shards(self._environment.checkpoints, name, layout, training.optimizer)
        snapshots = Snapshots(shards.open)
        if training.synchronous:
            serving: ServerPart = Serving(name, layout, store, _rules(training), snapshots, self._clock)
        else:
            serving = Applying(name, layout, store, snapshots, self._clock)
        outbox = Outbox(endpoint, lambda header: self._parts(serving, layout, header))
        link.follow(self._receive)
        self._serving = True
        tick_seconds = self._clock() + _TICK_SECONDS
        while not self._stopped.is_set():
            kept = outbox.flush()
            event = endpoint.receive(0.001 if kept else max(tick_seconds - self._clock(), 0.0))
            view = self._next_view()
            if view is not None and not self._act(view, serving, store, outbox, link, layout, training, shards):
                break
            if isinstance(event, Message):
                self._handle(event, serving, outbox)
            if self._clock() >= tick_seconds:
                outbox.send(serving.tick())
                tick_seconds = self._clock() + _TICK_SECONDS
                self._watch(link)
            self._report(link, serving, store, shards, endpoint)
        shards.abort()
        link.report(left=True)
        link.flush(5.0)

    # ---- views

    def _receive(self, view: View) -> None:
        with self._lock:
            self._mailbox = view
        if self._endpoint is not None:
            self._endpoint.wake()

    def _next_view(self) -> View | None:
        with self._lock:
            view, self._mailbox = self._mailbox, None
            return view

    def _act(
        self,
        view: View,
        serving: ServerPart,
        store: BlockStore,
        outbox: Outbox,
        link: MemberLink,
        layout: Layout,
        training: Training,
        shards: Shards,
    ) -> bool:
        """Act on a view; whether to go on."""
        if view.phase is Phase.FAILED:
            raise ElasticError(f"the job failed: {view.failure}")
        if view.phase in _ENDED or self._environment.task in view.leaving:
            return False
        outbox.connect(view.members, self._environment.task)
        if view.generation < 1:
            return True
        if serving.begins_generation(view):
            outbox.forget()
            shards.start()
            blocks = serving.start(view)
            if blocks:
                manifest = read_manifest(self._environment.checkpoints / view.start_checkpoint)
                require_same_model(manifest, layout, training.optimizer)
                for state in read_blocks(manifest, blocks):
                    version = view.start_step if training.synchronous else state.version
                    store.adopt(state.block, state.parameters, state.state, version)
            outbox.send(serving.loaded(view))
            link.report(generation=view.generation, ready=True, arrived=serving.arrived, shards=())
            _log.info("generation_loaded", generation=view.generation, step=view.start_step, blocks=len(blocks))
        else:
            outbox.send(serving.learn(view))
        return True

    def _watch(self, link: MemberLink) -> None:
        if self._drain_seconds is not None:
            self._follow_up(link, self._clock() - self._drain_seconds)
        if link.failure is not None:
            raise link.failure
        if link.expelled.is_set():
            raise ElasticError(f"the coordinator took {self._environment.task} for dead; a new one is started instead")
        if link.coordinator_silent_seconds > self._patience_seconds:
            raise self._environment.unreachable(link.coordinator_silent_seconds)

    def _follow_up(self, link: MemberLink, drained_seconds: float) -> None:
        if not self._asked:
            self._asked = True
            _log.info("told_to_go", grace_seconds=self._environment.grace_seconds)
            link.report(draining=True)
        elif drained_seconds >= self._environment.grace_seconds:
            _log.warning("not_let_go", waited_seconds=round(drained_seconds, 1))
            self._stopped.set()

    # ---- messages

    def _handle(self, message: Message, serving: ServerPart, outbox: Outbox) -> None:
        try:
            outbox.send(serving.handle(message.peer, unpack(message.header), message.payload))
        except ProtocolError as error:
            serving.dropped["protocol"] += 1
            _log.warning("message_refused", peer=message.peer, error=str(error))

    def _memory(self, endpoint: Endpoint, layout: Layout, training: Training) -> dict[tuple[int, str], memoryview]:
        """Flat memory that messages are sent from.

        All of it is where peers on this host read it in place: a block that moves is as fast as the pushes for it.
        """
        memory: dict[tuple[int, str], memoryview] = {}
        for segment in layout.segments:
            size_bytes = segment.elements * segment.element_bytes
            if not size_bytes:
                continue
            names = ["parameters", *(training.optimizer.state_names if segment.kind == "parameter" else ())]
            for name in names:
                region = endpoint.region(f"{name}-{segment.index}", size_bytes, on_demand=True)
                self._regions[segment.index, name] = region
                memory[segment.index, name] = region.memory
        return memory

    def _reserve(self, layout: Layout, block: int) -> None:
        """A server has the addresses of the whole model, and memory for the blocks that it ever owned."""
        place = layout.blocks[block]
        element_bytes = layout.segments[place.segment].element_bytes
        regions = [region for (segment, _), region in self._regions.items() if segment == place.segment]
        try:
            for region in regions:
                region.reserve(place.start * element_bytes, place.stop * element_bytes)
        except OSError as error:
            raise ElasticError(f"{self._environment.task}: no memory for block {block}: {error.strerror}") from error

    def _parts(self, serving: ServerPart, layout: Layout, header: Header) -> list[Part]:
        return [
            self._regions[segment, name].part(
                start * layout.segments[segment].element_bytes, stop * layout.segments[segment].element_bytes
            )
            for name, segment, start, stop in serving.parts(header)
        ]

    # ---- reports

    def _report(
        self, link: MemberLink, serving: ServerPart, store: BlockStore, shards: Shards, endpoint: Endpoint
    ) -> None:
        now = self._clock()
        finished = shards.finished() if shards.busy else None
        if finished is not None:
            link.report(shards=finished)
        if serving.arrived != self._reported.arrived:
            self._reported.arrived = serving.arrived
            link.report(arrived=serving.arrived, moved_bytes=serving.moved_bytes)
        if serving.suspects != self._reported.suspects:
            self._reported.suspects = serving.suspects
            link.report(suspects=serving.suspects)
        moved = serving.moved_bytes != self._reported.moved_bytes
        if not moved and now - self._reported.seconds < _REPORT_SECONDS:
            return
        self._reported.seconds, self._reported.moved_bytes = now, serving.moved_bytes
        sent, received = traffic_bytes(endpoint)
        link.report(
            step=serving.lowest_version,
            owned_bytes=sum(serving.layout.blocks[block].size_bytes for block in store.owned),
            moved_bytes=serving.moved_bytes,
            stall_seconds=serving.stall_seconds,
            bytes_sent=sent,
            bytes_received=received,
            staleness=serving.staleness_versions,
        )


def _rules(training: Training) -> Rules:
    """What a synchronous job's servers go by."""
    order = training.order()
    return Rules(
        order.batch_size,
        training.min_worker_batch,
        training.buffer_merge_steps,
        order.total_steps,
        training.optimizer.clip_norm,
    )
