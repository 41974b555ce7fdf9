"""Order of a training, checked: what `policy-net train` was asked for, and where the course of it is kept.

Both kinds of policy are trained by such an order; what each does with it is in `train_dl2` and `train_set`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from policy_net.domain import PlacementEffect, SpeedModel
    from policy_net.exchange.policy_file import PolicyFile
    from policy_net.laboratory.training.offline import Episode
    from policy_net.laboratory.training.settings import TrainingSettings
    from policy_net.laboratory.training.teacher import Teacher
    from policy_net.laboratory.training_checkpoint import InterruptedTraining, TrainingCheckpoint
    from policy_net.laboratory.training_runs import RunRecorder


@dataclass(frozen=True)
class TrainingOrder:
    """What the command was asked for.

    Attributes:
        load: makes an episode of a source and a round number.
        steps: updates of actor-critic; of a `set` policy generations of evolution, or updates by replays in a twin.
        start: a file to go on from.
        teacher: the name of a scheduler to watch, or somebody's log; None for no warm start.
        jobs_per_batch: what was asked for by itself, which a file to start from must have been made for.
        recorder, checkpoint: of the run's folder, if there is one.
        kept: of a training that was interrupted, and goes on.
    """

    settings: TrainingSettings
    sources: list[str]
    load: Callable[[str, int], Episode]
    seed: int
    speeds: SpeedModel
    placement_effect: PlacementEffect | None
    steps: int = 0
    max_seconds: float | None = None
    start: Path | None = None
    teacher: str | Teacher | None = None
    jobs_per_batch: int | None = None
    recorder: RunRecorder | None = None
    checkpoint: TrainingCheckpoint | None = None
    kept: InterruptedTraining | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether no training follows from it; a `set` policy is given its priors in any case."""
        return self.settings.policy == "dl2" and not self.steps and self.teacher is None

    def keep_start(self, start: PolicyFile) -> None:
        """Keep what the steps begin with, unless they go on from what is kept."""
        if self.checkpoint is not None and self.kept is None:
            if self.recorder is not None:
                self.recorder.begin()
            self.checkpoint.begin(start)

    def offer(self, done: int, reached: Callable[[], PolicyFile]) -> None:
        """Keep the policy as it stands after so many steps, if it is time."""
        if self.checkpoint is not None:
            self.checkpoint.offer(done, reached)

    def point(self, figure: str, step: int, value: float, steps: int | None = None) -> None:
        """A step's figure for the run's curves; of the order's own steps unless others are given."""
        if self.recorder is not None:
            self.recorder.point(figure, step, self.steps if steps is None else steps, value)
