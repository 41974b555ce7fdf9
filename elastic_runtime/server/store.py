"""The blocks that a parameter server holds, each in its place in flat memory, and the steps that change them.

The numbers that come out do not depend on who owns which block: gradients are summed in the order of the slices, each
block is stepped by itself, and its version is all that the step knows of time. So a resize changes no bit.

Source: DL2 §5 (version counters). Deviation: a version for each block in place of one for each server, so that blocks
can change owners one by one.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from elastic_runtime.model.block_state import BlockState, as_tensor
from elastic_runtime.model.buffer_merge import maximum_, mean_
from elastic_runtime.model.layout import Layout, TensorKind
from elastic_runtime.model.optimizers import Optimizer
from elastic_runtime.server import kernels

_PARAMETERS = "parameters"
_SUM = "sum of gradients"
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_LIBC = ctypes.CDLL(None, use_errno=True)


class FlatMemory:
    """One segment's numbers as one 1-D tensor: addresses for all of it, pages only where something was written.

    A server owns some of a segment's blocks, and others tomorrow. With addresses for the whole segment a block lies at
    the same place in every process and never moves; pages that a released block leaves behind go back to the system.
    """

    def __init__(self, elements: int, dtype: torch.dtype, outside: Any = None) -> None:
        """Reserve addresses, or use memory that is there.

        Args:
            outside: a writable buffer of exactly the segment's bytes, such as a `memoryview` of shared memory; it is
                kept alive. None reserves private memory, all zero.

        Raises:
            ValueError: `outside` is of another size, or read-only.
        """
        size_bytes = elements * dtype.itemsize
        self._private: mmap.mmap | None = None
        if outside is not None:
            view = memoryview(outside)
            if view.readonly or view.nbytes != size_bytes:
                kind = "read-only" if view.readonly else "writable"
                raise ValueError(f"a {kind} buffer of {view.nbytes} bytes for a segment of {size_bytes}, to be written")
            outside = view.cast("B") if size_bytes else None
        elif size_bytes:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
            self._private = outside = mmap.mmap(-1, size_bytes, flags=flags)
        self.tensor: Tensor = torch.frombuffer(outside, dtype=dtype) if size_bytes else torch.empty(0, dtype=dtype)

    def give_back(self, start: int, stop: int) -> None:
        """Forget elements `start` to `stop` (exclusive): their whole pages go back to the system and read as zero.

        Memory handed in goes back if it is anonymous or shared memory of Linux; of another kind it stays.
        """
        base, item = self.tensor.data_ptr(), self.tensor.element_size()
        first = -(-(base + start * item) // mmap.PAGESIZE) * mmap.PAGESIZE
        after = (base + stop * item) // mmap.PAGESIZE * mmap.PAGESIZE
        if after <= first:
            return
        if self._private is not None:
            self._private.madvise(mmap.MADV_DONTNEED, first - base, after - first)
            return
        # Shared memory stays while it has a name or a reader, unless it is removed; private memory refuses that.
        place = ctypes.c_void_p(first), ctypes.c_size_t(after - first)
        if _LIBC.madvise(*place, mmap.MADV_REMOVE):
            _LIBC.madvise(*place, mmap.MADV_DONTNEED)


@dataclass(slots=True, eq=False)
class OwnedBlock:
    """One block of this server: views of the flat memory, made once."""

    segment: int
    elements: int
    parameters: Tensor
    state: dict[str, Tensor]
    version: int
    sum: Tensor | None = None


class BlockStore:
    """The blocks that a server owns, to be stepped, and their memory.

    One thread uses it; copies that it hands out are anybody's.

    Raises:
        ValueError: in every method, a block that is not held here.
    """

    def __init__(
        self,
        layout: Layout,
        optimizer: Optimizer,
        memory: Mapping[tuple[int, str], Any] | None = None,
        reserve: Callable[[int], None] | None = None,
    ) -> None:
        """Own nothing yet.

        Args:
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
        self._sums = kernels.Sums()
        for segment, name in self._outside:
            self.flat(segment, name)

    @property
    def owned(self) -> KeysView[int]:
        """The blocks that are held, those included that wait to be released; as of now, not as of the call."""
        return self._owned.keys()

    def version(self, block: int) -> int:
        """How many steps were applied to this block."""
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
            self.flat(place.segment, _PARAMETERS)[place.start : place.stop],
            {name: self.flat(place.segment, name)[place.start : place.stop] for name in sorted(names)},
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
        """The block as it is, without a copy: it changes with the next step; not to be written."""
        owned = self._get(block)
        return BlockState(block, owned.version, owned.parameters, MappingProxyType(owned.state))

    def snapshot(self, block: int) -> BlockState:
        """A copy of the block at its present version."""
        owned = self._get(block)
        state = {name: tensor.clone() for name, tensor in owned.state.items()}
        return BlockState(block, owned.version, owned.parameters.clone(), state)

    def release(self, block: int) -> None:
        """Forget a block; its memory goes back to the system."""
        self._get(block)
        del self._owned[block]
        place = self.layout.blocks[block]
        for (segment, _), memory in self._memory.items():
            if segment == place.segment:
                memory.give_back(place.start, place.stop)

    def flat(self, segment: int, name: str) -> Tensor:
        """The whole flat memory of a segment (elements,), of which only the held blocks mean anything.

        Args:
            name: "parameters", or the name of one of the optimizer's tensors.
        """
        key = (segment, name)
        if key not in self._memory:
            outside = self._outside.get(key)
            self._memory[key] = FlatMemory(self.layout.segments[segment].elements, self._dtypes[segment], outside)
        return self._memory[key].tensor

    def apply(
        self,
        blocks: Sequence[int],
        gradients: Sequence[Sequence[Any]],
        step: int,
        samples: Sequence[int] | None = None,
    ) -> None:
        """Apply one step to some blocks: sum what came, step the optimizer, count the version up.

        Buffers are replaced: by the mean over the samples where they are real numbers, by the largest where they are
        whole.

        Args:
            blocks: different ones, all held.
            gradients: for each block its slices in order, at least one, each 1-D of the block's length and dtype: as a
                tensor, an array or raw bytes. They are only read, and no longer than the call lasts.
            step: the number of the step, which the learning rate goes by; the first is 0.
            samples: of each slice, which buffers count by; None: all slices count the same.

        Raises:
            ValueError: a block that is given twice, or a slice that does not fit. Nothing was changed.
        """
        arrived = self._arrived(blocks, gradients, samples)
        lr = self.optimizer.lr_for(step)
        for (segment, version), members in self._alike(blocks):
            if self._trained(segment):
                for some, sums in self._sums.of((self._owned[block], arrived[block]) for block in members):
                    self._step(lr, version, some, sums)
            else:
                for block in members:
                    counts = samples or [1] * len(arrived[block])
                    self._merge(segment, self._owned[block].parameters, arrived[block], counts)
        self.pass_over(blocks)

    def reduce(self, blocks: Sequence[int], gradients: Sequence[Sequence[Any]]) -> None:
        """Clipping, phase one: keep trained blocks' sums until `apply_reduced`; arguments and errors as `apply`'s."""
        arrived = self._arrived(blocks, gradients)
        if any(not self._trained(self._owned[block].segment) for block in blocks):
            raise ValueError("buffers have no gradient to reduce")
        for block in blocks:
            owned, place = self._owned[block], self.layout.blocks[block]
            target = self.flat(owned.segment, _SUM)[place.start : place.stop]
            kernels.sum_(target, arrived[block])
            owned.sum = target

    def squared_norms(self) -> dict[int, float]:
        """The squared norm, in float64, of each reduced gradient."""
        return {
            block: kernels.squared_norm(owned.sum)
            for block, owned in sorted(self._owned.items())
            if owned.sum is not None
        }

    def apply_reduced(self, blocks: Sequence[int], scale: float, step: int) -> None:
        """Clipping, phase two: scale the kept sums and apply them.

        Raises:
            ValueError: a block that is given twice, or has no sum. Nothing was changed.
        """
        self._check(blocks)
        sums = {block: owned_sum for block in blocks if (owned_sum := self._owned[block].sum) is not None}
        lacking = [block for block in blocks if block not in sums]
        if lacking:
            raise ValueError(f"blocks {lacking[:8]} have no reduced gradient to apply")
        lr = self.optimizer.lr_for(step)
        for (_, version), members in self._alike(blocks):
            gradients = [sums[block] for block in members]
            if scale != 1.0:
                torch._foreach_mul_(gradients, scale)
            self._step(lr, version, [self._owned[block] for block in members], gradients)
        for block in blocks:
            self._owned[block].sum = None
        self.pass_over(blocks)

    def replace(self, block: int, numbers: Any) -> None:
        """Take a block's numbers over from another holder, who has applied the same step; its version stays.

        Raises:
            ValueError: numbers that are not the block's.
        """
        owned = self._get(block)
        owned.parameters.copy_(as_tensor(numbers, self._dtypes[owned.segment], owned.elements))

    def pass_over(self, blocks: Iterable[int]) -> None:
        """Count the version up and change nothing: buffers at a step that does not merge them."""
        for block in blocks:
            self._get(block).version += 1

    def _step(self, lr: float, version: int, owned: list[OwnedBlock], gradients: list[Tensor]) -> None:
        parameters = [one.parameters for one in owned]
        state = {name: [one.state[name] for one in owned] for name in self.optimizer.state_names}
        kernels.step_(self.optimizer, lr, version, parameters, gradients, state)

    def _merge(self, segment: int, target: Tensor, slices: Sequence[Tensor], samples: Sequence[int]) -> None:
        if self._dtypes[segment].is_floating_point:
            mean_(target, slices, samples)
        else:
            maximum_(target, slices)

    def _arrived(
        self, blocks: Sequence[int], gradients: Sequence[Sequence[Any]], samples: Sequence[int] | None = None
    ) -> dict[int, list[Tensor]]:
        """The slices of each block as tensors; whatever is wrong is found before anything is changed."""
        self._check(blocks)
        if samples is not None and any(len(slices) != len(samples) for slices in gradients):
            raise ValueError(f"{len(samples)} counts of samples do not go with the slices of each block")
        if len(gradients) != len(blocks) or not all(gradients):
            raise ValueError(f"{len(gradients)} gradients for {len(blocks)} blocks; each block needs a slice at least")
        arrived = {}
        for block, slices in zip(blocks, gradients, strict=True):
            owned = self._owned[block]
            dtype = self._dtypes[owned.segment]
            arrived[block] = [as_tensor(part, dtype, owned.elements) for part in slices]
        return arrived

    def _check(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._get(block)
        if len(set(blocks)) != len(blocks):
            raise ValueError("a block is given twice in one step")

    def _alike(self, blocks: Sequence[int]) -> Iterator[tuple[tuple[int, int], list[int]]]:
        """Blocks that one call of a kernel can take: of one segment and version."""
        alike: dict[tuple[int, int], list[int]] = {}
        for block in blocks:
            owned = self._owned[block]
            alike.setdefault((owned.segment, owned.version), []).append(block)
        yield from alike.items()

    def _get(self, block: int) -> OwnedBlock:
        if block not in self._owned:
            raise ValueError(f"block {block} is not held here")
        return self._owned[block]

    def _trained(self, segment: int) -> bool:
        return self.layout.segments[segment].kind == TensorKind.PARAMETER
