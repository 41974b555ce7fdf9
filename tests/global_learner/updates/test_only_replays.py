"""Updates by where they come from: live ones are refused unless the learner is told to take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learner_in_process import serving
from learner_makers import SPEC, vector

from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.spec import PolicySpec, SetSpec
from policy_net.set_policy.spreads import spreads_of

SET = SetSpec(prices=1, sessions=1)
LIVE = {"spec_digest": SET.digest, "gradient": vector(3, SET), "replayed": False}
REPLAYED = {**LIVE, "replayed": True}


async def test_a_live_gradient_is_refused_and_no_fault_and_one_from_replays_moves_the_head(tmp_path: Path) -> None:
    async with serving(tmp_path, SET) as caller:  # type: ignore[arg-type]
        await caller.register()
        first = caller.learner.head.weights.copy()
        for number in range(1, 30):
            answer = await caller.push(number, want_weights=True, **LIVE)
            assert (answer.outcome, answer.reason) == (pb.PushReply.REJECTED, "live-gradient")
            assert answer.weights, "its cluster goes on with the head all the same"
        assert caller.learner.head.step == 0
        assert caller.learner.quarantine.count == 0
        taken = await caller.push(30, **REPLAYED)
        assert taken.outcome == pb.PushReply.APPLIED
        moved = (caller.learner.head.weights - first) / spreads_of(SET)
        assert np.abs(moved) == pytest.approx(0.1, rel=0.05), "the first step of Adam is its rate, in spreads"
        # An agent of the version before says nothing of where its gradient comes from, but how long the window was.
        older = await caller.push(31, base_step=1, statistics={"window_jobs": 500.0}, **LIVE)
        assert older.outcome == pb.PushReply.APPLIED
        rejected = (await caller.fleet()).updates_rejected
    assert rejected == 29


@pytest.mark.parametrize("replayed", [True, False])
async def test_where_steps_are_counted_in_weights_all_are_taken(tmp_path: Path, replayed: bool) -> None:
    async with serving(tmp_path, SET, optimizer={"units": "weights"}) as caller:  # type: ignore[arg-type]
        await caller.register()
        first = caller.learner.head.weights.copy()
        answer = await caller.push(1, **{**LIVE, "replayed": replayed})
        assert answer.outcome == pb.PushReply.APPLIED
        assert np.abs(caller.learner.head.weights - first).max() < 1.1e-4


ALONE = SPEC.model_copy(update={"critic": False})


@pytest.mark.parametrize(
    ("spec", "optimizer", "takes_live"),
    [
        (SPEC, {}, False),
        (SPEC, {"learning_rate": 1e-3}, False),
        (SPEC, {"units": "weights"}, True),
        (ALONE, {}, False),
        (ALONE, {"units": "weights"}, False),
    ],
)
async def test_a_network_learns_from_replays_and_from_both_kinds_where_it_can_and_the_learner_is_told_so(
    tmp_path: Path, spec: PolicySpec, optimizer: dict[str, Any], takes_live: bool
) -> None:
    async with serving(tmp_path, spec, optimizer=optimizer) as caller:
        await caller.register()
        pushed = {"spec_digest": spec.digest, "gradient": vector(3, spec)}
        assert (await caller.push(1, replayed=True, **pushed)).outcome == pb.PushReply.APPLIED
        live = await caller.push(2, replayed=False, **pushed)
        assert (live.reason == "live-gradient") is not takes_live
        assert (live.outcome == pb.PushReply.APPLIED) is takes_live


async def test_a_region_of_such_a_learner_gathers_nothing_else(tmp_path: Path) -> None:
    upstream = {"address": "127.0.0.1:7", "name": "east"}
    async with serving(tmp_path, SET, upstream=upstream) as caller:  # type: ignore[arg-type]
        learner = caller.learner
        assert learner.region is not None
        learner.region._bases = [(0, 0)]  # as if the learner above had been heard
        await caller.register()
        assert (await caller.push(1, **LIVE)).reason == "live-gradient"
        assert (await caller.push(2, **REPLAYED)).outcome == pb.PushReply.APPLIED
        assert learner.region.gathered == 1
