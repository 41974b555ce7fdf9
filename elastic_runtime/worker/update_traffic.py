"""The messages of a worker of asynchronous training: sent to the blocks' owners, wherever these move, and waited for.

Source: DL2 §5 (asynchronous training).
"""

from __future__ import annotations

from elastic_runtime.member.outbox import Outbox
from elastic_runtime.protocol.asynchronous_messages import Update
from elastic_runtime.protocol.block_runs import Payload
from elastic_runtime.protocol.messages import Header, Outgoing
from elastic_runtime.protocol.plan import Phase, View
from elastic_runtime.transport import Part
from elastic_runtime.worker.membership import Membership
from elastic_runtime.worker.protocol.updates import Updates
from elastic_runtime.worker.shared_model import SharedModel
from elastic_runtime.worker.waiting import Waiting


class UpdateTraffic:
    """One worker's updates on their way.

    Args:
        member: this worker.
        model: what is sent, and where answers go.

    Attributes:
        entered: this worker has part in the generation; it ends the update in hand even where it is to leave.
        stall_seconds: waited after a server had said that a block had left for another one.
    """

    def __init__(self, member: Membership, model: SharedModel) -> None:
        self.entered = False
        self.stall_seconds = 0.0
        self._member, self._gate = member, member.gate
        self._model = model
        self._settled = 0
        self._redirected_seconds: float | None = None
        self._updates = Updates(member.environment.incarnation, member.layout, model.flat)
        self._outbox = Outbox(member.endpoint, self._parts)
        self._waiting = Waiting(member, self._outbox, self._updates, self._handle)

    @property
    def generation(self) -> int:
        """The one that was begun last."""
        return self._updates.generation

    @property
    def version(self) -> int:
        """Updates applied to all parameters, as far as is known here."""
        return self._updates.version

    def start(self, view: View) -> None:
        """Begin a generation: ask for every block."""
        self.entered = False
        self._outbox.forget()
        self._outbox.connect(view.members, self._member.task)
        self._outbox.send(self._updates.start(self._gate.timeline))

    def push(self, buffer_samples: int) -> None:
        """Send the gradients that lie in their bank; see `Updates.push`."""
        self._outbox.send(self._updates.push(buffer_samples))

    def fetch(self) -> None:
        """Ask for every block as it is now."""
        self._outbox.send(self._updates.fetch())

    def wait(self) -> bool:
        """Wait for what is outstanding; whether all of it came.

        Raises:
            ElasticError: see `Membership.check`.
        """
        self._redirected_seconds = None
        if not self._waiting.until_complete(self._goes_on):
            return False
        if self._redirected_seconds is not None:
            self.stall_seconds += self._member.clock() - self._redirected_seconds
        return True

    def follow(self, *, idle: bool, stopped: bool = False) -> None:
        """Take up the newest view; tell the coordinator once nothing is asked of former owners any more.

        Args:
            idle: nothing is to be pushed soon.
            stopped: nothing will be pushed before the job goes on: this worker stands where the job halts.
        """
        view, timeline = self._member.view(), self._gate.timeline
        if view.generation != self._updates.generation:
            return
        self._outbox.connect(view.members, self._member.task)
        self._outbox.send(self._updates.follow(timeline))
        if idle and self._updates.complete:
            self._outbox.send(self._updates.settle())
        settled = self._updates.settled
        halt = next((change.number for change in timeline.changes if change.halt), None)
        if halt is not None and not stopped:
            settled = min(settled, halt - 1)
        if settled != self._settled:
            self._settled = settled
            self._member.link.report(arrived=settled, generation=view.generation)

    def _goes_on(self, view: View) -> bool:
        """While values are waited for: act on the newest view; False if there is something else to do than to wait."""
        if view.generation != self._updates.generation or view.phase is Phase.FAILED or self._member.ended(view):
            return False
        if self._member.task in view.leaving and not self.entered:
            return False
        self.follow(idle=False)
        return True

    def _handle(self, peer: str, header: Header, payload: Payload) -> list[Outgoing]:
        out = self._updates.handle(peer, header, payload)
        if self._updates.redirected and self._redirected_seconds is None:
            self._redirected_seconds = self._member.clock()
        return out

    def _parts(self, header: Header) -> list[Part]:
        return [self._model.part(*self._updates.part(header))] if isinstance(header, Update) else []
