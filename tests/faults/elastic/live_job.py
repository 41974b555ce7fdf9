"""An elastic job of real processes that trains as far as a test lets it, and whose numbers are looked at in the end."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from came_out import Note, assert_samples_once, notes_of, workers_of_steps
from forks import Forks
from launched_job import COORDINATOR, OVER, LaunchedJob
from tiny_job import NAME, NEVER_SECONDS
from tiny_training import assert_same, undisturbed, written

from elastic_runtime.control.messages import RequestOutcome, ResizeMode, Size
from elastic_runtime.protocol.plan import JobPhase, Timeline

__all__ = ["COORDINATOR", "NAME", "NEVER_SECONDS", "LiveJob"]


class LiveJob(LaunchedJob):
    """One job of `train_tiny.py`; see `LaunchedJob`.

    Args:
        steps: of the whole training.
        limit: how many of them may be computed before the test allows more.

    Attributes:
        checkpoints_until: no checkpoint is begun once there is one of a later step: each takes some of the job's steps.
    """

    def __init__(
        self,
        forks: Forks,
        folder: Path,
        servers: int = 1,
        workers: int = 2,
        steps: int = 48,
        limit: int = 3,
        environment: Mapping[str, str] | None = None,
        held: Collection[str] = (),
        wired: str = "",
        apart: str = "",
        **settings: float,
    ) -> None:
        self.folder, self.steps = folder, steps
        self.checkpoints_until = steps // 4
        self._allowed_generation = 1
        self.allow(limit)
        everybodys = {"STEPS": str(steps), "ELASTIC_GRACE_SECONDS": str(NEVER_SECONDS), **(environment or {})}
        super().__init__(forks, folder, servers, workers, everybodys, held, wired, apart, settings)

    # ---- how far it trains

    def allow(self, steps: int) -> None:
        """Let so many steps be computed."""
        self.limit = steps
        aside = self.folder / "limit.new"
        aside.write_text(str(steps))
        aside.replace(self.folder / "limit")

    def train_until_durable(self) -> None:
        """Until a checkpoint of steps is complete and the workers stand after it."""
        self.until(lambda: self.allow_changes() or self.status().durable_step > 0, "a durable step")
        self.stand()

    def stand(self) -> None:
        """Until all workers have come as far as they are let, and nothing is on its way."""
        self.until(lambda: self.status().step >= self.limit, "the steps that are allowed")

    def allow_changes(self, moves: bool = False) -> None:
        """Let the steps be computed that checkpoints wait for, and (`moves`) all other changes."""
        if self.view.generation != self._allowed_generation:
            # Whoever stands in a batch of the generation before has to come out of it.
            self._allowed_generation = self.view.generation
            self.allow(self.limit + 1)
        changes = [change for change in self.view.changes if moves or change.checkpoint]
        if any(change.checkpoint and change.clock > self.checkpoints_until for change in changes):
            self.no_more_checkpoints()
        last = max((change.clock + len(change.stages) for change in changes), default=0)
        if last + 1 > self.limit:
            self.allow(last + 1)

    def begun(self, step: int) -> bool:
        """Whether all workers of a step have begun it."""
        workers = Timeline(self.view).at(step).workers
        return all(any(noted == step for noted, _ in self.notes(worker)) for worker in workers)

    def no_more_checkpoints(self) -> None:
        """None is decided from now on."""
        if self._adjusted.get("checkpoint_seconds") != NEVER_SECONDS:
            self.adjust(checkpoint_seconds=NEVER_SECONDS)

    def more_checkpoints(self) -> None:
        """They are decided, one after the other, until the job's end."""
        self.checkpoints_until = self.steps
        self.adjust(checkpoint_seconds=0.2)

    def rest(self) -> None:
        """Until no change is under way, nor will be before something happens: no checkpoint is decided from now on."""
        self.no_more_checkpoints()
        self.status()  # what was decided before that was heard of is published now

        def nothing_is_under_way() -> bool:
            self.allow_changes(moves=True)
            self.catch_up()
            view = self.view
            return view.proposal is None and all(change.number <= view.committed for change in view.changes)

        self.until(nothing_is_under_way, "the end of all changes")
        self.stand()  # the next change waits for all to have come past the one before

    # ---- what is asked of it

    def resize(
        self,
        servers: int,
        workers: int,
        request_id: str = "resize",
        mode: ResizeMode = ResizeMode.ROLLING,
        victims: Sequence[str] = (),
    ) -> None:
        """Ask for a size."""
        self.asked(lambda: self.client.resize(request_id, Size(servers, workers), victims, mode))

    def suspend(self, request_id: str = "suspend") -> None:
        """Ask for a checkpoint and the end of all tasks."""
        self.asked(lambda: self.client.suspend(request_id))

    def resume(self, servers: int, workers: int, request_id: str = "resume") -> None:
        """Ask for tasks again."""
        self.asked(lambda: self.client.resume(request_id, Size(servers, workers)))

    def outcome(self, request_id: str = "resize") -> RequestOutcome | None:
        """What became of a request."""
        return next((row.state for row in self.status().requests if row.request_id == request_id), None)

    def settle(self, request_id: str = "resize") -> RequestOutcome | None:
        """Train just as far as the job's changes need it, until a request has ended; how."""
        ended = {RequestOutcome.DONE, RequestOutcome.ABORTED}
        self.until(lambda: self.allow_changes(moves=True) or self.outcome(request_id) in ended, "a request's end")
        return self.outcome(request_id)

    # ---- what came out

    def notes(self, worker: str) -> list[Note]:
        """Each step that a worker computed, and the samples."""
        return notes_of(self.folder, worker)

    def finish(self) -> None:
        """Let it train to its end: the numbers are those of an undisturbed run, and nobody is left."""
        self.allow(self.steps)
        self.until(lambda: self.view.phase in OVER, "the end")
        assert self.view.phase is JobPhase.FINISHED, self.story()
        # The coordinator stays for a moment, for whoever asks last.
        self.until(lambda: set(self.pids) <= {COORDINATOR}, "the end of all processes")
        assert_same(written(self.checkpoints), undisturbed(workers_of_steps(self.views, self.steps)))
        assert_samples_once(self.folder, self.views, self.steps)
