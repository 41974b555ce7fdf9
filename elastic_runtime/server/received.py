"""Numbers that came in a message or lie in shared memory, as a tensor, without a copy.

PyTorch has no read-only tensors and warns where it is shown read-only memory. What is made here is never written to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


class _Numbers:
    """Memory said to be writable; `owner` keeps it alive."""

    def __init__(self, owner: object, address: int, size_bytes: int) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def as_tensor(numbers: Any, dtype: torch.dtype, elements: int) -> Tensor:
    """A 1-D tensor over this memory.

    Args:
        numbers: a 1-D tensor, a 1-D array, or any buffer of contiguous bytes; read-only or not. An array or buffer is
            taken for the bytes that it holds, as NumPy has no bfloat16.
        dtype: what the bytes are.
        elements: how many there have to be.

    Raises:
        ValueError: another dtype, shape or number of bytes, or memory that is not contiguous.
    """
    if isinstance(numbers, Tensor):
        if numbers.dtype != dtype or numbers.shape != (elements,) or not numbers.is_contiguous():
            raise ValueError(f"{list(numbers.shape)} of {numbers.dtype}, where [{elements}] of {dtype} is due")
        return numbers.detach()
    try:
        array = np.frombuffer(numbers, dtype=np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise ValueError(f"{type(numbers).__name__} is no contiguous memory: {error}") from error
    if array.nbytes != elements * dtype.itemsize:
        raise ValueError(f"{array.nbytes} bytes, where {elements} elements of {dtype} are due")
    address = array.__array_interface__["data"][0]
    if address % dtype.itemsize:
        array = array.copy()  # a message's odd start; the kernels want whole elements
    if not array.flags.writeable:
        array = np.asarray(_Numbers(array, address, array.nbytes))
    return torch.from_numpy(array).view(dtype)
