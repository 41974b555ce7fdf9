"""Snapshots beside the updates: whoever was held up amid one, and finds its folder gone, says why it ends."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from learner_in_process import CALL_SECONDS, serving

from global_learner import maintenance
from global_learner.errors import LearnerError, LeaseLost, StateUnusable
from global_learner.postgres.lease import Lease
from global_learner.storage.receipts import cut_log


async def failure_amid_a_cut(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None, *, held_up: bool
) -> BaseException:
    """Why a learner ends whose log's folder gets another name while it is cut."""
    lease = Lease(2, 5.0, 0.0, lambda: 0.0)

    def renamed(log: Path, *args: Any, **kwargs: Any) -> int:
        cut = cut_log(log, *args, **kwargs)
        log.rename(log.with_name("elsewhere"))
        lease.lose(LeaseLost("another learner took the lease"))
        if error is not None:
            raise error
        return cut + 1

    monkeypatch.setattr(maintenance, "cut_log", renamed)
    async with serving(folder, durability={"snapshot_every_steps": 2}) as caller:
        if held_up:
            caller.learner.maintenance.lease = lease
        await caller.register()
        for number in (1, 2):
            await caller.push(number)
        return await asyncio.wait_for(asyncio.shield(caller.learner.failed), CALL_SECONDS)


@pytest.mark.parametrize("error", [None, StateUnusable("updates-1.log: cannot be read"), FileNotFoundError("gone")])
async def test_a_learner_whose_lease_was_lost_amid_a_snapshot_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    found = await failure_amid_a_cut(tmp_path, monkeypatch, error, held_up=True)
    assert isinstance(found, LeaseLost)
    assert "another learner took the lease" in str(found)


async def test_a_log_that_has_gone_from_under_a_learner_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await failure_amid_a_cut(tmp_path, monkeypatch, None, held_up=False)
    assert isinstance(found, LearnerError)
    assert "a snapshot cannot be written (the log's segments have gone)" in str(found)
