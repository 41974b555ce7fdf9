"""Garbage of a server: young objects are looked through as always, and all of them at times of our own.

Python looks through everything whenever enough has outlived its youth. With a thousand connections that takes a tenth
of a second, a quarter once the log has grown, in which nobody is answered: it was the slowest hundredth of all pushes,
and a quarter of the time in which clusters enroll. Such a pass finds next to nothing here: a few hundred objects.
Source: the garbage collector of Python, `gc.set_threshold` (generation 2).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

EVERY_SECONDS = 300.0
"""A pass of a quarter of a second then touches less than a thousandth of all calls."""
_NEVER = 2**31 - 1


@contextmanager
def only_young() -> Iterator[None]:
    """Leave old objects alone meanwhile; afterwards Python does as before."""
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def collect_seldom(
    every_seconds: float = EVERY_SECONDS, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Look through everything now and then, for as long as this runs, and otherwise at young objects alone.

    Args:
        sleep: waits so many seconds.
    """
    with only_young():
        while True:
            await sleep(every_seconds)
            gc.collect()
