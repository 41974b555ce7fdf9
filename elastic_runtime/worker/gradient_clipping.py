"""Clipping by the global norm where the whole gradient is here, as in asynchronous training."""

from __future__ import annotations

import torch

from elastic_runtime.model.layout import Kind, Layout
from elastic_runtime.worker.flat_model import FlatModel

_EPSILON = 1e-6
"""As in torch.nn.utils.clip_grad_norm_."""


def clip_gradients(model: FlatModel, layout: Layout, clip_norm: float) -> None:
    """Scale the gradients down to a global norm of `clip_norm`, if theirs is larger."""
    segments = [segment.index for segment in layout.segments if segment.kind is Kind.PARAMETER]
    gradients = [model.gradients(segment) for segment in segments]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g.float()) for g in gradients]))
    scale = float(clip_norm / (norm + _EPSILON))
    if scale < 1.0:
        torch._foreach_mul_(gradients, scale)
