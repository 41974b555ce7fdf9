"""When a model's buffers (the running statistics of batch norm) are merged over the workers.

Parameters are at version t when t steps are applied. Buffers are merged after every `merge_steps`-th step only; in
between, each worker has its own. Their version is that of the last merge, so that the rule "a block is due at this
version" serves both.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MergeRule:
    """Buffers are merged by step t if t + 1 is a multiple of `merge_steps`, and by the last step.

    Attributes:
        merge_steps: 1 or more.
        total_steps: of the job.
        start_step: where the generation began: at its checkpoint all blocks are at this version.
    """

    merge_steps: int
    total_steps: int
    start_step: int = 0

    def merges(self, step: int) -> bool:
        """Whether workers send their buffers with step `step`."""
        return (step + 1) % self.merge_steps == 0 or step + 1 == self.total_steps

    def due(self, step: int, *, buffer: bool) -> int:
        """The version that a block has once all steps before `step` are applied."""
        if not buffer or step >= self.total_steps:
            return step
        return max(step // self.merge_steps * self.merge_steps, self.start_step)
