"""A worker's place in its job: its data plane, its line to the coordinator, the newest view, and the way out.

Source: DL2 §5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from elastic_runtime.control.messages import MemberReport
from elastic_runtime.errors import BadInput, CoordinatorUnreachable, ElasticError
from elastic_runtime.member.environment import MemberEnvironment
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.plan import Phase, Role, View
from elastic_runtime.worker.eviction import Eviction
from elastic_runtime.worker.step_barrier import Gate, Vote

_START_SECONDS = 600.0
"""Until the job's tasks are all there, or a new worker is named in a plan."""
PATIENCE_SECONDS = 300.0
"""Without a coordinator: for a proposal to be resolved, for leases, or for values that do not come."""
_FAILURE_SECONDS = 5.0
"""For the coordinator to take the news of a script that raised."""
_ENDED = {Phase.FINISHED, Phase.SUSPENDED}


class Membership:
    """One worker, from its registration until it has left.

    Args:
        environment: of this process; see `MemberEnvironment`.
        layout: the model's.
        training: how it is trained.
        clock: seconds, monotonic.

    Attributes:
        layout, training, clock: as given.
        left: this worker has told the coordinator that it is gone.

    Raises:
        ElasticError: the coordinator refuses this worker, or is not reached.
    """

    def __init__(
        self, environment: Mapping[str, str], layout: Layout, training: Training, clock: Callable[[], float]
    ) -> None:
        self.layout, self.training, self.clock = layout, training, clock
        self.environment = MemberEnvironment.read(environment)
        self.task = self.environment.task
        self.left = self._closed = False
        self._eviction: Eviction | None = None
        self.endpoint = self.environment.open_endpoint()
        try:
            self.link = self.environment.open_link(Role.WORKER)
        except BaseException:
            self.endpoint.close()
            raise
        self.gate = Gate(self.task, clock, PATIENCE_SECONDS, self.link.expelled.is_set)
        try:
            self.link.register(self.endpoint.address, layout.to_json(), training.to_json())
        except BaseException:
            self.close()
            raise

    def follow(
        self,
        vote: Callable[[View, Vote], None] | None = None,
        refresh: Callable[[MemberReport], MemberReport] | None = None,
    ) -> None:
        """Take views from now on, and answer SIGTERM.

        Args:
            vote: called in a control thread where a view asks for this worker's vote.
            refresh: see `MemberLink.follow`.
        """

        def receive(view: View) -> None:
            answer = self.gate.receive(view)
            if vote is not None and (answer.accepted or answer.refused):
                vote(view, answer)
            self.endpoint.wake()

        self.link.follow(receive, refresh)
        self._eviction = Eviction(lambda: self.link.report(draining=True), self.environment.grace_seconds)

    def view(self) -> View:
        """The newest view, waited for if none has come."""
        return self.gate.view or self.wait_for(lambda _: True)

    def newer(self, view: View) -> View:
        """A newer view than this one, waited for."""
        return self.wait_for(lambda newer: newer.number > view.number)

    def wait_for(self, ready: Callable[[View], bool]) -> View:
        """Wait for a view of which `ready` holds.

        Raises:
            ElasticError: none came in time, or this worker is no member any more.
        """
        view = self.gate.wait(ready, _START_SECONDS)
        self.check()
        if view is None:
            seconds = f"{_START_SECONDS:.0f} s"
            raise ElasticError(f"{self.task} was neither needed nor let go within {seconds}; see the job's status")
        return view

    def ended(self, view: View) -> bool:
        """Whether the job is over, or suspended."""
        return view.phase in _ENDED

    def let_go(self, view: View) -> bool:
        """Whether the coordinator needs this worker no more."""
        return self.ended(view) or self.task in view.leaving

    def check(self, waited_seconds: float = 0.0) -> None:
        """Whether this worker is still a member, and not left alone for too long.

        Args:
            waited_seconds: how long it has got nothing of what it needs.

        Raises:
            ElasticError: the line to the coordinator is lost, or this worker was taken for dead.
            CoordinatorUnreachable: it has waited for long, and the coordinator was as long silent.
        """
        silent = self.link.coordinator_silent_seconds
        if waited_seconds >= PATIENCE_SECONDS and silent >= PATIENCE_SECONDS:
            raise self.unreachable()
        if self.link.failure is not None:
            raise self.link.failure
        if self.link.expelled.is_set():
            raise ElasticError(f"the coordinator took {self.task} for dead; another worker computes its part")

    def unreachable(self) -> CoordinatorUnreachable:
        """The error of a worker that has waited long enough."""
        return self.environment.unreachable(self.link.coordinator_silent_seconds)

    def leave(self) -> None:
        """Tell the coordinator that this worker is gone."""
        self.link.report(left=True)
        self.link.flush(PATIENCE_SECONDS)
        self.left = True

    def fail(self, error: BaseException) -> None:
        """Tell the coordinator that the script raised."""
        line = f"{self.task}: {type(error).__name__}: {error}"[:1000]
        self.link.report(failure=line, bad_input=isinstance(error, BadInput))
        self.link.flush(_FAILURE_SECONDS)

    def close(self) -> None:
        """Give back sockets and threads; may be called again."""
        if self._closed:
            return
        self._closed = True
        if self._eviction is not None:
            self._eviction.close()
        self.link.close()
        self.endpoint.close()
