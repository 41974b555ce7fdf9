"""A worker's model in memory that parameter servers read: a region for each segment's gradients and buffers."""

from __future__ import annotations

import torch
from torch import nn

from elastic_runtime.model.layout import Layout, TensorKind
from elastic_runtime.transport import Endpoint, Region, RegionPart
from elastic_runtime.worker.flat_model import FlatModel

_SENT = ("gradients", "sent-buffers")
"""Regions whose names begin so are sent; the others stay private."""


class SharedModel:
    """A flat model, and what is sent of it.

    A bank is what the gradients of one slice of a step lie in: while servers read bank 0, a worker that computes
    another slice of the same step needs bank 1.

    Args:
        endpoint: the data plane.
        layout: how the model is cut.
        model: what is trained.

    Attributes:
        flat: the model; what servers answer is put there.

    Raises:
        ElasticError: see `FlatModel`.
    """

    def __init__(self, endpoint: Endpoint, layout: Layout, model: nn.Module) -> None:
        self._endpoint = endpoint
        self._layout = layout
        self._regions: dict[str, Region] = {}
        self.flat = FlatModel(model, layout, self._allocate)

    def take_buffers(self, bank: int = 0) -> None:
        """Copy the model's buffers to where they are sent from; servers know how much they count."""
        self.flat.collect_buffers()
        for segment in self._layout.segments:
            if segment.kind is TensorKind.BUFFER and segment.elements:
                name = _region_name(segment.index, segment.kind, bank)
                if name not in self._regions:
                    self._allocate(name, segment.elements * segment.element_bytes)
                buffers = self.flat.buffers(segment.index)
                torch.frombuffer(self._regions[name].memory, dtype=buffers.dtype).copy_(buffers)

    def part(self, segment: int, start: int, stop: int, bank: int = 0) -> RegionPart:
        """Elements `start` to `stop` (exclusive) of a segment, as they are sent: gradients, or buffers."""
        place = self._layout.segments[segment]
        region = self._regions[_region_name(segment, place.kind, bank)]
        return region.part(start * place.element_bytes, stop * place.element_bytes)

    def _allocate(self, name: str, size_bytes: int) -> memoryview:
        if not size_bytes:
            return memoryview(bytearray())
        self._regions[name] = self._endpoint.region(name, size_bytes, shared=name.startswith(_SENT))
        return self._regions[name].memory


def _region_name(segment: int, kind: TensorKind, bank: int) -> str:
    """Gradients lie where the flat model asked for memory; see `FlatModel`."""
    if kind is TensorKind.BUFFER:
        return f"sent-buffers-{bank}-{segment}"
    return f"gradients{bank or ''}-{segment}"
