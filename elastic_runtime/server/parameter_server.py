"""One parameter server of a job whose model is known: its blocks, and what it does with views and messages.

Source: DL2 §5, §6.1.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from elastic_runtime.checkpoint import read_blocks, read_manifest, require_same_model
from elastic_runtime.control.client import MemberLink
from elastic_runtime.control.messages import Registration
from elastic_runtime.errors import CheckpointDamaged, ElasticError, ProtocolError
from elastic_runtime.member.environment import MemberEnvironment
from elastic_runtime.member.outbox import Outbox
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.training import Training
from elastic_runtime.plain_line import plain_line
from elastic_runtime.protocol.messages import Header, unpack
from elastic_runtime.protocol.plan import Phase, View
from elastic_runtime.server.protocol.asynchronous import Applying
from elastic_runtime.server.protocol.part import ServerPart
from elastic_runtime.server.protocol.snapshots import Snapshots
from elastic_runtime.server.protocol.synchronous import Rules, Serving
from elastic_runtime.server.regions import ServerRegions
from elastic_runtime.server.reports import ServerReports
from elastic_runtime.server.shards import Shards
from elastic_runtime.server.store import BlockStore
from elastic_runtime.transport import Endpoint, Message, Part

_log = structlog.get_logger()
_ENDED = {Phase.FINISHED, Phase.SUSPENDED, Phase.FAILED}


class ParameterServer:
    """What a server does, one view or message at a time.

    Args:
        environment: where the job is.
        endpoint: the data plane.
        link: to the coordinator.
        registration: the job's model, and how it is trained.
        clock: seconds, monotonic.

    Attributes:
        outbox: everything that it sends.
    """

    def __init__(
        self,
        environment: MemberEnvironment,
        endpoint: Endpoint,
        link: MemberLink,
        registration: Registration,
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
        self._reports = ServerReports(link, endpoint, self._part, self._store, self._shards, clock)
        self.outbox = Outbox(endpoint, self._parts)

    def act(self, view: View) -> bool:
        """Act on a view; whether to go on.

        Raises:
            ElasticError: the job failed, or its checkpoint cannot be read.
        """
        if view.phase is Phase.FAILED:
            raise ElasticError(f"the job failed: {view.failure}")
        if view.phase in _ENDED or self._environment.task in view.leaving:
            return False
        self.outbox.connect(view.members, self._environment.task)
        if view.generation < 1:
            return True
        if self._part.begins_generation(view):
            self._begin(view)
        else:
            self.outbox.send(self._part.learn(view))
        return True

    def handle(self, message: Message) -> None:
        """Act on a message; one that breaks the protocol is logged and passed over."""
        try:
            self.outbox.send(self._part.handle(message.peer, unpack(message.header), message.payload))
        except ProtocolError as error:
            self._part.dropped["protocol"] += 1
            _log.warning("message_refused", peer=message.peer, error=str(error))

    def tick(self) -> None:
        """What is to be done now and then: send again, copy for a checkpoint."""
        self.outbox.send(self._part.tick())

    def report(self) -> None:
        """Tell the coordinator what is new, if it is time for it."""
        self._reports.tell()

    def leave(self) -> None:
        """End: a shard that is not finished never will be."""
        self._shards.abort()

    def _begin(self, view: View) -> None:
        """Begin a generation from its checkpoint."""
        self.outbox.forget()
        self._shards.start()
        blocks = self._part.start(view)
        try:
            self._load(view, blocks)
        except CheckpointDamaged as error:
            # The coordinator decides from which other one all begin: in another generation.
            _log.warning("checkpoint_damaged", generation=view.generation, reason=str(error))
            self._link.report(generation=view.generation, ready=False, damage=plain_line(str(error)), shards=())
            return
        self.outbox.send(self._part.loaded(view))
        self._link.report(generation=view.generation, ready=True, damage="", arrived=self._part.arrived, shards=())
        _log.info("generation_loaded", generation=view.generation, step=view.start_step, blocks=len(blocks))

    def _load(self, view: View, blocks: tuple[int, ...]) -> None:
        if not blocks:
            return
        manifest = read_manifest(self._environment.checkpoints / view.start_checkpoint)
        require_same_model(manifest, self._layout, self._training.optimizer)
        for state in read_blocks(manifest, blocks):
            version = view.start_step if self._training.synchronous else state.version
            self._store.adopt(state.block, state.parameters, state.state, version)

    def _parts(self, header: Header) -> list[Part]:
        return [self._regions.part(*place) for place in self._part.parts(header)]


def _part(
    task: str,
    layout: Layout,
    training: Training,
    store: BlockStore,
    snapshots: Snapshots,
    clock: Callable[[], float],
) -> ServerPart:
    """What the job's way to train asks of a server."""
    if not training.synchronous:
        return Applying(task, layout, store, snapshots, clock)
    order = training.order()
    rules = Rules(
        order.batch_size,
        training.min_worker_batch,
        training.buffer_merge_steps,
        order.total_steps,
        training.optimizer.clip_norm,
    )
    return Serving(task, layout, store, rules, snapshots, clock)
