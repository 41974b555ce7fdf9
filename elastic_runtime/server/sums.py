"""Sums of the slices of many blocks, a cacheful at a time: the optimizer reads a sum while it is still in the cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from elastic_runtime.server.kernels import sum_

_T = TypeVar("_T")

_SCRATCH_BYTES = 1024 * 1024
"""A second-level cache of today's servers; what fits it is not written to memory and read again."""


class Sums:
    """A small scratch memory and what passes through it."""

    def __init__(self) -> None:
        self._scratch = torch.empty(0, dtype=torch.uint8)

    def of(self, members: Iterable[tuple[_T, Sequence[Tensor]]]) -> Iterator[tuple[list[_T], list[Tensor]]]:
        """Members and the sums of their slices, some at a time; a sum stands until the next are asked for.

        The sum of a single slice is that slice itself, without a copy.
        """
        some: list[_T] = []
        sums: list[Tensor] = []
        used = 0
        for member, slices in members:
            size_bytes = slices[0].nbytes if len(slices) > 1 else 0
            if size_bytes and used + size_bytes > len(self._scratch):
                if some:
                    yield some, sums
                some, sums, used = [], [], 0
                if size_bytes > len(self._scratch):
                    self._scratch = torch.empty(max(size_bytes, _SCRATCH_BYTES), dtype=torch.uint8)
            some.append(member)
            if size_bytes:
                target = self._scratch[used : used + size_bytes].view(slices[0].dtype)
                sum_(target, slices)
                sums.append(target)
                used += -(-size_bytes // 64) * 64
            else:
                sums.append(slices[0])
        if some:
            yield some, sums
