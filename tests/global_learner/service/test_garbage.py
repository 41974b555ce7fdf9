"""Garbage of a server: old objects are looked through at times of its own, and as before once it has ended."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from global_learner.service.server import collect_seldom, only_young


class Circle:
    """Holds itself, so that only a pass of the collector lets go of it."""

    def __init__(self) -> None:
        self.itself = self


def old_circle() -> weakref.ref[Circle]:
    """One that nobody holds any more, and that has outlived its youth."""
    circle = Circle()
    gc.collect(0)
    gc.collect(1)
    return weakref.ref(circle)


def busy() -> None:
    """Far more new objects than bring on a pass through everything by themselves."""
    kept = [[number] for number in range(400_000)]
    assert kept


@pytest.mark.heavy
def test_old_objects_are_left_alone_however_many_new_ones_there_are() -> None:
    gc.collect()
    with only_young():
        circle = old_circle()
        busy()
        assert circle() is not None
    busy()
    gc.collect()
    assert circle() is None


async def test_everything_is_looked_through_now_and_then_and_python_does_as_before_afterwards() -> None:
    before, rests = gc.get_threshold(), list[float]()
    go, passed = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 2:
            passed.set()
        await go.wait()
        go.clear()

    task = asyncio.create_task(collect_seldom(300.0, sleep))
    await asyncio.sleep(0)
    circle = old_circle()
    assert gc.get_threshold()[:2] == before[:2]
    assert gc.get_threshold()[2] > 1_000_000
    assert circle() is not None
    go.set()
    await passed.wait()
    assert circle() is None
    assert rests == [300.0, 300.0]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gc.get_threshold() == before
