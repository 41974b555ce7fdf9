"""All that there is to know of one block at one version: what moves between servers, and what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class BlockState:
    """One block's numbers.

    Attributes:
        block: its index in the layout.
        version: how many steps were applied to it.
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
