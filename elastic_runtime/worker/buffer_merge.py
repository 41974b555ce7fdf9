"""Merges the buffers that a model is saved with over processes: running statistics by samples, counts by their maximum.

The sums are taken in float64 and divided at last, so that a buffer that is equal everywhere, such as a table of
positions, comes out as it went in, bit by bit (float64 buffers: up to rounding).
"""

from __future__ import annotations

import torch
from torch import nn

from elastic_runtime.model.model_layout import persistent_buffers
from elastic_runtime.worker.process_group import ProcessGroup


def merge_buffers(model: nn.Module, group: ProcessGroup, samples: int, all_samples: int) -> None:
    """Replace the buffers of every process by the merged ones.

    Args:
        model: whose buffers.
        group: the processes; all call this at the same step.
        samples: that this process computed in this step; 0 if none.
        all_samples: of the whole step.
    """
    means: list[torch.Tensor] = []
    maxima: list[torch.Tensor] = []
    for buffer in persistent_buffers(model).values():
        (means if buffer.is_floating_point() else maxima).append(buffer)
    if means:
        # A process without samples adds zeros: zero times an infinite value would be no number.
        weighted = [
            samples * buffer.double().flatten() if samples else buffer.new_zeros(buffer.numel()).double()
            for buffer in means
        ]
        flat = torch.cat(weighted)
        group.sum(flat)
        _put(means, flat / all_samples)
    if maxima:
        flat = torch.cat([buffer.long().flatten() for buffer in maxima])
        group.maximum(flat)
        _put(maxima, flat)


def _put(buffers: list[torch.Tensor], flat: torch.Tensor) -> None:
    with torch.no_grad():
        for buffer, merged in zip(buffers, torch.split(flat, [buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(merged.view(buffer.shape))
