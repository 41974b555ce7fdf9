"""Order of a training, checked: the options of `policy-net train`, and the run's folder."""

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
    """Order of a training.

    Attributes:
        load: makes an episode of a source and a round number.
        steps: updates of actor-critic; of a `set` policy generations of evolution, or updates by replays in a twin.
        start: a file to go on from.
        teacher: the name of a scheduler to watch, or a log; None for no warm start.
        jobs_per_batch: if it was given, of a file to start from too.
        recorder, checkpoint: of the run's folder, if there is one.
        kept: of an interrupted training that goes on.
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
        """Whether no training follows from it; a `set` policy always gets its priors."""
        return self.settings.policy == "dl2" and not self.steps and self.teacher is None

    def keep_start(self, start: PolicyFile) -> None:
        """Keep the start of the steps, unless they go on from a kept one."""
        if self.checkpoint is not None and self.kept is None:
            if self.recorder is not None:
                self.recorder.begin()
            self.checkpoint.begin(start)

    def offer(self, done: int, reached: Callable[[], PolicyFile]) -> None:
        """Keep the policy after so many steps, if it is time."""
        if self.checkpoint is not None:
            self.checkpoint.offer(done, reached)

    def point(self, figure: str, step: int, value: float, steps: int | None = None) -> None:
        """Record a step's figure for the run's curves; of the order's steps unless others are given."""
        if self.recorder is not None:
            self.recorder.point(figure, step, self.steps if steps is None else steps, value)
