"""Agreement of the workers on what each of them did by itself: counts and states that have to be the same in all.

A script's own counters and schedulers run in every worker. Where they go apart the model would be wrong without any
error; so each sum of gradients carries digests, and what differs is refused by its name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import torch

from elastic_runtime.errors import ModelMismatch
from elastic_runtime.worker.ranks.process_group import ProcessGroup

_FEW_ELEMENTS = 4096
"""Of a tensor that is digested whole; of a larger one its sum is."""
_DIGEST_BYTES = 7
"""A digest and its negative are whole numbers of 64 bits."""


def digest(value: object) -> int:
    """Digest of what a value of plain parts says, from 0."""
    text = repr(plain(value)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest(), "big")


def plain(value: object) -> object:
    """The numbers, words and flags of a value; functions and other objects are left out, tensors are numbers."""
    if isinstance(value, torch.Tensor):
        few = value.numel() <= _FEW_ELEMENTS
        return [list(value.shape), value.tolist() if few else float(value.detach().double().sum())]
    if isinstance(value, Mapping):
        return [(str(name), plain(part)) for name, part in value.items()]
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value if isinstance(value, bool | int | float | str | None) else type(value).__name__


class Agreement:
    """What all workers say with each sum.

    Args:
        named: facts that have to be the same in all, as they are now.
        followed: facts of which the first worker's hold; the others take them where they differ.
        wish: what this worker wants all to do after this step: see `RankKeeper.wish`.

    Attributes:
        wish: the largest of all, as of the last agreement.
        differs: whether a followed fact differed in it.
    """

    def __init__(
        self,
        group: ProcessGroup,
        named: Callable[[], Mapping[str, int]],
        followed: Callable[[], int],
        wish: Callable[[], int],
    ) -> None:
        self._group, self._named, self._followed, self._mine = group, named, followed, wish
        self.wish, self.differs = 0, False

    def begin(self, got_gradient: Sequence[bool]) -> Callable[[], list[bool]]:
        """Begin to agree; what is returned waits, and says which parameters got a gradient in any worker.

        Raises:
            ModelMismatch: in the wait: a named fact differs.
        """
        named = self._named()
        facts = [*named.values(), self._followed()]
        words = [self._mine(), *facts, *(-fact for fact in facts), *map(int, got_gradient)]
        vector = torch.tensor(words, dtype=torch.int64, device=self._group.device)
        wait = self._group.begin_maximum(vector)

        def agreed() -> list[bool]:
            wait()
            largest = vector.tolist()
            count = len(facts)
            high, low = largest[1 : 1 + count], [-fact for fact in largest[1 + count : 1 + 2 * count]]
            for name, mine, most, least in zip(named, facts, high, low, strict=False):
                if most != least:
                    raise ModelMismatch(_difference(name, mine, most, least, self._group.rank))
            self.wish, self.differs = int(largest[0]), high[-1] != low[-1]
            return [bool(flag) for flag in largest[1 + 2 * count :]]

        return agreed

    def of_first(self, content: bytes) -> bytes:
        """What the first worker has given here; all have to ask."""
        return self._group.bytes_of_first(content)


def _difference(name: str, mine: int, most: int, least: int, rank: int) -> str:
    counted = f": {mine} in worker {rank}, from {least} to {most} in all" if most < 2**40 else ""
    return (
        f"{name} are not the same in all workers{counted}; each worker has to call backward(), optimizer.step() and "
        "scheduler.step() as often as the others: count by loader.step, or keep what decides in elastic.state()"
    )
