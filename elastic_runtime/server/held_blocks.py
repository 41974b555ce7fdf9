"""The blocks that a parameter server holds: parameters, the optimizer's state and versions, each block in its place.

Source: DL2 §5 (version counters). Deviation: a version for each block in place of one for each server, so that blocks
can change owners one by one.
"""

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.layout import Kind, Layout
from elastic_runtime.model.optimizers import Optimizer
from elastic_runtime.server.memory import FlatMemory
from elastic_runtime.server.received import as_tensor

_PARAMETERS = "parameters"


@dataclass(slots=True, eq=False)
class OwnedBlock:
    """One block of this server: views of the flat memory, made once."""

    segment: int
    elements: int
    parameters: Tensor
    state: dict[str, Tensor]
    version: int
    sum: Tensor | None = None


class HeldBlocks:
    """The blocks that a server owns, and their memory. One thread uses it; copies that it hands out are anybody's."""

    def __init__(
        self,
        layout: Layout,
        optimizer: Optimizer,
        memory: Mapping[tuple[int, str], Any] | None = None,
        reserve: Callable[[int], None] | None = None,
    ) -> None:
        """Own nothing yet.

        Args:
            layout: of the job's model.
            optimizer: of the job.
            memory: writable buffers, each of a whole segment, by the segment's index and "parameters" or the name of a
                tensor of the optimizer: memory that others read, or that messages are sent from. The rest is private.
            reserve: called with a block before it is adopted, to make sure that memory handed in has pages for it.

        Raises:
            ValueError: a buffer that does not fit its segment.
        """
        self.layout = layout
        self.optimizer = optimizer
        self._outside = dict(memory or {})
        self._dtypes = [getattr(torch, segment.dtype) for segment in layout.segments]
        self._memory: dict[tuple[int, str], FlatMemory] = {}
        self._owned: dict[int, OwnedBlock] = {}
        self._reserve = reserve
        for segment, name in self._outside:
            self._flat(segment, name)

    @property
    def owned(self) -> KeysView[int]:
        """The blocks that are held, those included that wait to be released; as of now, not as of the call."""
        return self._owned.keys()

    def version(self, block: int) -> int:
        """How many steps were applied to this block.

        Raises:
            ValueError: it is not held here.
        """
        return self._get(block).version

    def state_names(self, block: int) -> tuple[str, ...]:
        """The optimizer's tensors that belong to this block, held or not; none for buffers."""
        return self.optimizer.state_names if self._trained(self.layout.blocks[block].segment) else ()

    def adopt(self, block: int, parameters: Any, state: Mapping[str, Any] | None = None, version: int = 0) -> None:
        """Take a block over; its numbers are copied.

        Args:
            block: its index, not held yet.
            parameters: its numbers, as a tensor, an array or raw bytes.
            state: the optimizer's tensors by name, all of them; may be left out at version 0.
            version: how many steps were applied to it.

        Raises:
            ValueError: held already, sizes that are not the block's, or other state than the optimizer has.
        """
        names, given = set(self.state_names(block)), dict(state or {})
        if block in self._owned:
            raise ValueError(f"block {block} is held already, at version {self.version(block)}")
        if given.keys() != names and (given or version):
            raise ValueError(f"block {block} comes with state {sorted(given)}, where {sorted(names)} is due")
        place = self.layout.blocks[block]
        dtype, elements = self._dtypes[place.segment], place.stop - place.start
        arrived = as_tensor(parameters, dtype, elements)
        arrived_state = {name: as_tensor(numbers, dtype, elements) for name, numbers in given.items()}
        if self._reserve is not None:
            self._reserve(block)
        owned = OwnedBlock(
            place.segment,
            elements,
            self._flat(place.segment, _PARAMETERS).tensor[place.start : place.stop],
            {name: self._flat(place.segment, name).tensor[place.start : place.stop] for name in sorted(names)},
            version,
        )
        owned.parameters.copy_(arrived)
        for name, tensor in owned.state.items():
            if name in arrived_state:
                tensor.copy_(arrived_state[name])
            else:
                tensor.zero_()
        self._owned[block] = owned

    def view(self, block: int) -> BlockState:
        """The block as it is, without a copy: it changes with the next step; not to be written.

        Raises:
            ValueError: it is not held here.
        """
        owned = self._get(block)
        return BlockState(block, owned.version, owned.parameters, MappingProxyType(owned.state))

    def snapshot(self, block: int) -> BlockState:
        """A copy of the block at its present version.

        Raises:
            ValueError: it is not held here.
        """
        owned = self._get(block)
        state = {name: tensor.clone() for name, tensor in owned.state.items()}
        return BlockState(block, owned.version, owned.parameters.clone(), state)

    def release(self, block: int) -> None:
        """Forget a block; its memory goes back to the system.

        Raises:
            ValueError: it is not held here.
        """
        self._get(block)
        del self._owned[block]
        place = self.layout.blocks[block]
        for (segment, _), memory in self._memory.items():
            if segment == place.segment:
                memory.give_back(place.start, place.stop)

    def flat(self, segment: int, name: str) -> Tensor:
        """The whole flat memory of a segment (elements,), of which only the held blocks mean anything.

        Args:
            segment: its index.
            name: "parameters", or the name of one of the optimizer's tensors.
        """
        return self._flat(segment, name).tensor

    def _flat(self, segment: int, name: str) -> FlatMemory:
        key = (segment, name)
        if key not in self._memory:
            outside = self._outside.get(key)
            self._memory[key] = FlatMemory(self.layout.segments[segment].elements, self._dtypes[segment], outside)
        return self._memory[key]

    def _get(self, block: int) -> OwnedBlock:
        if block not in self._owned:
            raise ValueError(f"block {block} is not held here")
        return self._owned[block]

    def _trained(self, segment: int) -> bool:
        return self.layout.segments[segment].kind == Kind.PARAMETER
