"""A fault at every kind of write, wherever a rollout stands: it comes to the same end, by the same audit log.

Writes are events with what came of them, verdicts, and evidence. Processes are killed in the tests beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from one_process import Fault, Met, World
from places import ASKED, BACK_AT_ONCE, KINDS, NOWHERE, STAGES, all_places

from global_learner.rollout.state import RolloutPhase

MOST_ROUNDS = 60
ENDS = ("fleet", "failed", "aborted in wave", "aborted in fleet")
ACTIONS = ("pause", "resume", "promote", "abort")


async def _until(world: World, action: str, *phases: RolloutPhase) -> None:
    """An operator who asks again if need be."""
    for _ in range(3):
        if world.place()[0] not in phases:
            await world.act(action)
    assert world.place()[0] in phases


async def _live(world: World, end: str) -> None:
    """Pauses in every stage, promotes where it is asked, and aborts where the end says so."""
    await world.start()
    # What fails there goes back also while it is paused, sooner or later.
    paused = {"canary"} if end == "failed" else set()
    for _ in range(MOST_ROUNDS):
        phase, kind = world.place()
        if RolloutPhase(phase).over:
            await world.round()
            await world.round()
            return
        if kind not in paused and phase == ("asking" if kind == "gate" else "running"):
            paused.add(kind)
            await _until(world, "pause", RolloutPhase.PAUSED)
            await world.round()
            await world.round()
            if end == f"aborted in {kind}":
                await _until(world, "abort", RolloutPhase.ROLLING_BACK, RolloutPhase.ROLLED_BACK)
            else:
                await _until(world, "resume", RolloutPhase.RUNNING)
        elif phase == "asking" and kind in paused:
            await _until(world, "promote", RolloutPhase.RUNNING)
        await world.round()
    raise AssertionError(f"never over: {world.place()}")


async def _lived(folder: Path, fault: Fault | None, met: set[Met], end: str) -> World:
    world = World(folder, fault, met, loss=1.0 if end == "failed" else 0.0)
    try:
        await _live(world, end)
        world.check()
    finally:
        world.close()
    return world


def test_every_stage_has_a_row() -> None:
    assert set(STAGES) == set(KINDS) >= {*ASKED, *BACK_AT_ONCE}


@pytest.mark.heavy
@pytest.mark.parametrize("fault", Fault)
async def test_a_fault_at_any_write_changes_no_end(
    tmp_path: Path, fault: Fault, without_fault: Callable[[str], Coroutine[Any, Any, World]]
) -> None:
    met: set[Met] = set()
    for end in ENDS:
        whole = await without_fault(end)
        faulty = await _lived(tmp_path / end, fault, met, end)
        assert faulty.audited == whole.audited
        assert [cluster.reported() for cluster in faulty.clusters] == [cluster.reported() for cluster in whole.clusters]
        assert faulty.last == whole.last
        assert faulty.last[0] == ("done" if end == "fleet" else "rolled-back")
    assert {where for _, where in met} >= {NOWHERE, *all_places()}
    assert {what for what, _ in met} >= {"start", "add", "keep", "seen", "verdict", *ACTIONS}


_WHOLE: dict[str, World] = {}


@pytest.fixture
def without_fault(tmp_path: Path) -> Callable[[str], Coroutine[Any, Any, World]]:
    """A life without any fault, once for all tests of this process."""

    async def lived(end: str) -> World:
        if end not in _WHOLE:
            _WHOLE[end] = await _lived(tmp_path / f"{end} without", None, set(), end)
        return _WHOLE[end]

    return lived
