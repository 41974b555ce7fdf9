"""The values of a block at one version: what moves between servers, and what a checkpoint holds; read without a copy.

Values come in a message or lie in shared memory, which may be read-only. PyTorch has no read-only tensors, and says so
once where it is shown read-only memory. What is made here is never written to, so it is let say so at the import,
unheard; any other way costs some microseconds for every block.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class BlockState:
    """One block's numbers.

    Attributes:
        parameters: shape (elements,), dtype of its segment; for a block of buffers, the buffers.
        state: the optimizer's tensors by torch's name, each as `parameters`; empty for buffers.
    """

    block: int
    version: int
    parameters: Tensor
    state: Mapping[str, Tensor]

    @property
    def size_bytes(self) -> int:
        """Bytes of all its tensors."""
        return self.parameters.nbytes + sum(tensor.nbytes for tensor in self.state.values())


def as_tensor(numbers: Any, dtype: torch.dtype, elements: int) -> Tensor:
    """A 1-D tensor over this memory; not to be written to.

    Args:
        numbers: a 1-D tensor, a 1-D array, or any buffer of contiguous bytes; read-only or not. An array or buffer is
            taken for the bytes that it holds, as NumPy has no bfloat16.
        elements: how many there have to be.

    Raises:
        ValueError: another dtype, shape or number of bytes, or memory that is not contiguous.
    """
    if isinstance(numbers, Tensor):
        fits = numbers.numel() == elements and numbers.dim() == 1 and numbers.is_contiguous()
        if not fits or numbers.dtype is not dtype:
            raise ValueError(f"{list(numbers.shape)} of {numbers.dtype}, where [{elements}] of {dtype} is due")
        return numbers.detach() if numbers.requires_grad else numbers
    try:
        tensor = torch.from_numpy(np.frombuffer(numbers, dtype=np.uint8))
    except (TypeError, ValueError, BufferError) as error:
        raise ValueError(f"{type(numbers).__name__} is no contiguous memory: {error}") from error
    if tensor.numel() != elements * dtype.itemsize:
        raise ValueError(f"{tensor.numel()} bytes, where {elements} elements of {dtype} are due")
    if tensor.data_ptr() % dtype.itemsize:
        tensor = tensor.clone()  # a message's odd start; the kernels want whole elements
    return tensor.view(dtype)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.from_numpy(np.frombuffer(b"0", dtype=np.uint8))
