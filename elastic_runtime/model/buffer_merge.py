"""Merging of a model's buffers (the running statistics of batch norm) over its workers: when, and by which numbers.

Parameters are at version t when t steps are applied. Buffers are merged after every `merge_steps`-th step only; in
between, each worker has its own. Their version is that of the last merge, so that the rule "a block is due at this
version" serves both. Real numbers are merged by the mean over the samples, whole ones by their maximum. Sums are taken
in float64 and divided at last: a buffer that is equal everywhere, such as a table of positions, comes out as it went
in, bit by bit (float64: up to rounding). Parameter servers merge what came; processes without servers merge
with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class MergeRule:
    """Buffers are merged by step t if t + 1 is a multiple of `merge_steps`, and by the last step.

    Attributes:
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


def mean_(target: torch.Tensor, parts: Sequence[torch.Tensor], samples: Sequence[int]) -> None:
    """Write the mean of real numbers over `target`, each part counted so often; the parts are only read.

    Args:
        target: 1-D; unchanged if no part counts.
        samples: for each part, 0 or more.
    """
    counted = [(part, count) for part, count in zip(parts, samples, strict=True) if count]
    if len(counted) == 1:
        target.copy_(counted[0][0])
    elif counted:
        total = torch.zeros_like(target, dtype=torch.float64)
        for part, count in counted:
            total.add_(part.double(), alpha=count)
        target.copy_(total / sum(count for _, count in counted))


def maximum_(target: torch.Tensor, slices: Sequence[torch.Tensor]) -> None:
    """Write the largest, element by element, over `target`; the slices are only read."""
    target.copy_(slices[0])
    for part in slices[1:]:
        torch.maximum(target, part, out=target)
