"""A tensor of a model as it is described to others: its name, shape and dtype, without its values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from elastic_runtime.errors import BadInput


class Kind(StrEnum):
    """What a tensor is to the training."""

    PARAMETER = "parameter"
    """Trained: it has a gradient, and an optimiser's state."""
    BUFFER = "buffer"
    """Computed on the way, such as the running statistics of a batch-norm layer; merged, never trained."""


ELEMENT_BYTES: Mapping[Kind, Mapping[str, int]] = MappingProxyType(
    {
        Kind.PARAMETER: MappingProxyType({"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}),
        Kind.BUFFER: MappingProxyType(
            {
                "float64": 8,
                "float32": 4,
                "float16": 2,
                "bfloat16": 2,
                "int64": 8,
                "int32": 4,
                "int16": 2,
                "int8": 1,
                "uint8": 1,
                "bool": 1,
            }
        ),
    }
)
"""Bytes of one element, of every dtype that a tensor of each kind may have."""

_MOST_ELEMENTS = 2**48
"""Far beyond all memories, and far below where products of sizes stop being exact in JSON."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a model.

    Attributes:
        name: its full name in the model, such as `layer1.0.weight`.
        shape: its dimensions; `()` is a scalar, and a dimension may be zero.
        dtype: torch's name without `torch.`, such as `float32`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """How many numbers it holds; a scalar holds one."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.name!r} {self.dtype} {list(self.shape)}"


def check_tensors(kind: Kind, tensors: Sequence[TensorSpec]) -> None:
    """Refuse what is no tensor of a model, or none that can be trained here.

    Raises:
        BadInput: a name that is empty or used twice, a dimension below zero, or a dtype that this kind cannot have.
    """
    known = ELEMENT_BYTES[kind]
    names = set()
    for tensor in tensors:
        if not tensor.name:
            raise BadInput(f"a {kind} of the model has no name; every tensor needs one")
        if tensor.name in names:
            raise BadInput(f"the model has two tensors named {tensor.name!r}; names have to differ")
        names.add(tensor.name)
        if any(dimension < 0 for dimension in tensor.shape) or tensor.elements > _MOST_ELEMENTS:
            raise BadInput(f"{kind} {tensor}: no tensor has this shape")
        if tensor.dtype not in known:
            raise BadInput(f"{kind} {tensor}: a {kind} has to be of {', '.join(known)}; convert it")
