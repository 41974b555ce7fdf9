"""Models and data of a stated size, for measurements where only bytes count."""

from __future__ import annotations

import math

import torch
from torch import nn


def synthetic_model(size_mb: float, layers: int = 8, seed: int = 0) -> nn.Module:
    """Equal square layers, of float32, that together have so many megabytes (10⁶ bytes), within a percent.

    The input's width is that of the first layer's `in_features`; the output is one number a sample. A step computes as
    little as a model of this size can, so that what it costs to move the parameters shows.

    Args:
        size_mb: of all parameters.
        layers: square ones, without a bias; 8 of 102 MB are 1,785 wide.
        seed: of the values.
    """
    width = round(math.sqrt(size_mb * 1e6 / 4 / layers))
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)), nn.Linear(width, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / math.sqrt(width))
    return model


def synthetic_data(model: nn.Module, samples: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs [samples, width] for `synthetic_model`, and targets [samples, 1]; random, as nothing is to be learned."""
    width = next(model.parameters()).shape[1]
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, width, generator=generator), torch.randn(samples, 1, generator=generator)
