"""A model cut into blocks: what parameter servers own, what moves between them, and what a checkpoint is made of.

A tensor is described to others by its name, shape and dtype, without its values. The trainable tensors of a model, and
its buffers, become flat *segments*, one for each kind and dtype; in a segment the tensors lie one after the other in
the model's order. A *block* is a range of one segment. Blocks are fixed for a job's life and the same in every process,
so that who owns a block can change without any number changing.

Source: DL2 §5, where a PS holds parameters and best-fit moves them. Deviation: there a whole tensor is moved; here
large tensors are split and small ones share a block, as one layer may be most of a model (VGG's first dense layer).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from elastic_runtime.errors import BadInput
from elastic_runtime.model.plain_fields import count_of
from foundation.python310 import StrEnum

_MOST_ELEMENTS = 2**48
"""Far beyond all memories, and far below where products of sizes stop being exact in JSON."""
SMALLEST_BLOCK_BYTES = 4096
"""Below this a block's own bookkeeping (a message's header, a version, an entry in a map) would count."""
LARGEST_BLOCK_BYTES = 1024 * 1024
"""A block is what a resize moves at once: about half a millisecond over a socket of 2 GB/s."""
_DESIRED_BLOCKS = 64
"""Four for each of 16 PSs, the most that DL2 gives a job: loads then differ by a quarter at worst."""
_ALIGNMENT_BYTES = 128
"""16 elements of the widest dtype: full blocks of all dtypes have one size, and none begins inside a cache line."""
_MOST_BLOCKS = 2**20
"""A tebibyte in blocks of a mebibyte; more is a mistake, or an attack by way of a small message."""
_FORMAT = 1


class TensorKind(StrEnum):
    """What a tensor is to the training."""

    PARAMETER = "parameter"
    """Trained: it has a gradient, and an optimiser's state."""
    BUFFER = "buffer"
    """Computed on the way, such as the running statistics of a batch-norm layer; merged, never trained."""


ELEMENT_BYTES: Mapping[TensorKind, Mapping[str, int]] = MappingProxyType(
    {
        TensorKind.PARAMETER: MappingProxyType({"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}),
        TensorKind.BUFFER: MappingProxyType(
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


def check_tensors(kind: TensorKind, tensors: Sequence[TensorSpec]) -> None:
    """Refuse tensors that cannot be trained here.

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


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """Where a tensor lies in its segment: `size` elements from element `start`."""

    tensor: TensorSpec
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Segment:
    """All tensors of one kind and dtype, one after the other: one flat array of `elements` elements."""

    index: int
    kind: TensorKind
    dtype: str
    element_bytes: int
    slots: tuple[TensorSlot, ...]
    elements: int


@dataclass(frozen=True, slots=True)
class Block:
    """Elements `start` to `stop` (exclusive) of segment `segment`; `index` is its place in the layout's blocks."""

    index: int
    segment: int
    start: int
    stop: int
    size_bytes: int


@dataclass(frozen=True)
class Layout:
    """How a model is cut; made by `build_layout` or `from_json` only.

    Attributes:
        segments: parameters first, then buffers; within a kind by the first tensor of each dtype.
        blocks: in the order of segments and elements; a segment without elements has none.
        block_bytes: the size of every block but the last of each segment.
    """

    segments: tuple[Segment, ...]
    blocks: tuple[Block, ...]
    block_bytes: int

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of names, shapes, dtypes, kinds and the blocks' bounds; equal in every process."""
        return hashlib.sha256(json.dumps(self._content(), separators=(",", ":")).encode()).hexdigest()

    @cached_property
    def total_bytes(self) -> int:
        """Bytes of all tensors; an optimiser's state comes on top."""
        return sum(block.size_bytes for block in self.blocks)

    @cached_property
    def buffer_blocks(self) -> frozenset[int]:
        """The blocks of buffers, by their indices; all others are trained."""
        return frozenset(b.index for b in self.blocks if self.segments[b.segment].kind is TensorKind.BUFFER)

    def tensors(self, kind: TensorKind) -> list[TensorSpec]:
        """All tensors of a kind, segment by segment."""
        return [slot.tensor for segment in self.segments if segment.kind == kind for slot in segment.slots]

    def to_json(self) -> bytes:
        """What `from_json` reads: JSON in UTF-8, for control messages, the journal and checkpoints."""
        return json.dumps({**self._content(), "digest": self.digest}, separators=(",", ":")).encode()

    @staticmethod
    def from_json(data: bytes) -> Layout:
        """The layout that `to_json` wrote, built anew and compared.

        Raises:
            BadInput: it is none, was changed, or was cut by rules that this version does not know.
        """
        try:
            content = json.loads(data)
            if content["format"] != _FORMAT:
                raise BadInput(f"a layout of format {content['format']!r}, and this version reads {_FORMAT}; update it")
            parameters, buffers = ([_read_tensor(row) for row in content[f"{kind}s"]] for kind in TensorKind)
            digest, block_bytes = content["digest"], count_of(content["block_bytes"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadInput(
                f"not a layout of a model: {error or type(error).__name__}; it was cut or changed"
            ) from error
        layout = build_layout(parameters, buffers, block_bytes)
        if layout.digest != digest or layout.block_bytes != block_bytes:
            raise BadInput("a layout that does not have its own digest: it was changed, or cut by another version")
        return layout

    def _content(self) -> dict[str, object]:
        """All that the cut depends on; the bounds of blocks follow from it by the rules of this format."""
        return {
            "format": _FORMAT,
            **{f"{k}s": [[t.name, list(t.shape), t.dtype] for t in self.tensors(k)] for k in TensorKind},
            "block_bytes": self.block_bytes,
        }


def build_layout(
    parameters: Sequence[TensorSpec], buffers: Sequence[TensorSpec], block_bytes: int | None = None
) -> Layout:
    """Cut a model into blocks.

    Args:
        parameters: the trainable tensors in the model's order, a shared one once.
        block_bytes: size of a block, made a multiple of 128. None: a 64th of the model, between 4 KiB and 1 MiB, so
            that also a small model can be shared evenly by many PSs.

    Raises:
        BadInput: tensors or a block size that cannot be.
    """
    for kind, tensors in ((TensorKind.PARAMETER, parameters), (TensorKind.BUFFER, buffers)):
        check_tensors(kind, tensors)
    both = {tensor.name for tensor in parameters} & {tensor.name for tensor in buffers}
    if both:
        raise BadInput(f"{min(both)!r} is both a parameter and a buffer of the model; names have to differ")
    segments: list[Segment] = []
    for kind, tensors in ((TensorKind.PARAMETER, parameters), (TensorKind.BUFFER, buffers)):
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            segments.append(_segment(len(segments), kind, dtype, tensors))
    total_bytes = sum(segment.elements * segment.element_bytes for segment in segments)
    size = _block_bytes(total_bytes, block_bytes)
    if total_bytes // size + len(segments) > _MOST_BLOCKS:
        raise BadInput(f"a model of {total_bytes} bytes in blocks of {size} has too many; choose larger blocks")
    return Layout(tuple(segments), tuple(_blocks(segments, size)), size)


def difference(mine: Layout, theirs: Layout) -> str:
    """One line on how two models differ, by the first tensor that does; empty if they do not."""
    if mine.digest == theirs.digest:
        return ""
    here, there = _kinds(mine), _kinds(theirs)
    for name, (kind, tensor) in here.items():
        if name not in there:
            return f"{kind} {tensor} is in this model and not in the other one"
        if there[name] != (kind, tensor):
            other_kind, other = there[name]
            return f"{kind} {tensor} in this model is {other_kind} {other} in the other one"
    for name, (kind, tensor) in there.items():
        if name not in here:
            return f"{kind} {tensor} is in the other model and not in this one"
    for (name, (kind, _)), other_name in zip(here.items(), there, strict=True):
        if name != other_name:
            return f"the same tensors in another order: {kind} {name!r} in this model, {other_name!r} in the other one"
    return f"the same tensors, cut into blocks of {mine.block_bytes} bytes here and of {theirs.block_bytes} there"


def _kinds(layout: Layout) -> dict[str, tuple[TensorKind, TensorSpec]]:
    return {tensor.name: (kind, tensor) for kind in TensorKind for tensor in layout.tensors(kind)}


def _segment(index: int, kind: TensorKind, dtype: str, tensors: Sequence[TensorSpec]) -> Segment:
    slots, start = [], 0
    for tensor in tensors:
        if tensor.dtype == dtype:
            slots.append(TensorSlot(tensor, start, tensor.elements))
            start += tensor.elements
    return Segment(index, kind, dtype, ELEMENT_BYTES[kind][dtype], tuple(slots), start)


def _block_bytes(total_bytes: int, desired: int | None) -> int:
    if desired is not None and desired < 1:
        raise BadInput(f"block_bytes is {desired}; a block has at least a byte")
    if desired is None:
        desired = min(max(-(-total_bytes // _DESIRED_BLOCKS), SMALLEST_BLOCK_BYTES), LARGEST_BLOCK_BYTES)
    return max(desired // _ALIGNMENT_BYTES, 1) * _ALIGNMENT_BYTES


def _blocks(segments: Sequence[Segment], block_bytes: int) -> Iterator[Block]:
    index = 0
    for segment in segments:
        step = block_bytes // segment.element_bytes
        for start in range(0, segment.elements, step):
            stop = min(start + step, segment.elements)
            yield Block(index, segment.index, start, stop, (stop - start) * segment.element_bytes)
            index += 1


def _read_tensor(row: object) -> TensorSpec:
    match row:
        case [str(name), [*shape], str(dtype)]:
            return TensorSpec(name, tuple(count_of(dimension) for dimension in shape), dtype)
    raise ValueError(f"no tensor: {str(row)[:80]}")
