"""A rollout's gate, with a learner, scores of its own making, and versions that are better and worse in truth."""

import asyncio
import json
import math
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import learner_in_process
import numpy as np
import pytest
from learner_in_process import CALL_SECONDS, Caller, serving

from global_learner.policyctl.rollout_views import rollout_facts, rollout_table
from global_learner.rollout_gate import Policies
from global_learner.scores.replay_process import NoAnswer
from global_learner.scores.scorer import JctSeconds, Scorer, SketchReplayer
from global_learner.section_settings import ScoreSettings
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.policy_file import PolicyFile
from policy_net.set_policy.policy import DEFAULT_SET_FILE, default_set_file, set_spec_of

pytestmark = pytest.mark.heavy

PLANNER, NEGATED, SHIPPED = 1, 2, 3
PLAN = json.dumps({"stages": [{"kind": "gate"}, {"kind": "shadow", "hours": 24}, {"kind": "fleet"}]})


def versions() -> tuple[PolicyFile, PolicyFile, PolicyFile]:
    """The planner alone; the shipped residual with its sign turned, which is worse on all replays; and as shipped."""
    shipped = default_set_file()
    last = sum(math.prod(shape) for _, shape in set_spec_of(shipped, "shipped").layout()[-2:])
    turned = np.concatenate([shipped.weights[:-last], -shipped.weights[-last:]])
    return replace(shipped, weights=np.zeros_like(shipped.weights)), replace(shipped, weights=turned), shipped


def sketch(nodes: int, run_seconds: float) -> pb.WorkloadSketch:
    lengths = [run_seconds * 2**step for step in range(5)]
    kind = pb.KindSketch(kind="ps", share=1.0, run_seconds=lengths, workers=[1, 1, 2, 2, 4], ps=[1] * 5)
    return pb.WorkloadSketch(nodes=nodes, gpus_per_node=2, cpus_per_node=8, jobs_a_day=60.0, kinds=[kind])


async def replays_in_time(sketch: Mapping[str, Any], seed: int, policies: Policies) -> JctSeconds | NoAnswer:
    """As `serve` replays; of the cluster with three nodes the deadline is over before its process has begun."""
    seconds = 0.01 if sketch["nodes"] == 3 else CALL_SECONDS
    return await SketchReplayer(ScoreSettings(nice=0, sketch_deadline_seconds=seconds))(sketch, seed, policies)


@asynccontextmanager
async def scoring_learner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Caller]:
    """A learner with all three versions, which scores them as `serve` does; one cluster."""
    shutil.copy(DEFAULT_SET_FILE, folder / "v1.safetensors")
    first, *others = versions()
    monkeypatch.setattr(learner_in_process, "policy", lambda _spec: first)
    quick = {"period_seconds": 0.1}
    async with serving(folder, first.spec, publish={"auto_assign": False}, rollouts=quick) as caller:
        thread = caller.learner.registry
        for number, file in enumerate(others):
            await thread.call(thread.registry.publish, file, 1000 + number, 0.0, {}, 0.0, False)
        settings = ScoreSettings(nice=0)
        scorer = Scorer(settings, folder / "state", thread, caller.learner.telemetry, time.time)
        caller.learner.rollouts.gate.score = scorer.add
        caller.learner.rollouts.gate.replay = replays_in_time
        scorer.start()
        await caller.register("north")
        try:
            yield caller
        finally:
            await scorer.close()


async def after_gate(caller: Caller, version: int) -> pb.Rollout:
    """A rollout of a version, once its gate has said something."""
    await caller.call("StartRollout", pb.StartRolloutRequest(version=version, plan_json=PLAN))
    async with asyncio.timeout(CALL_SECONDS):
        while True:
            rollout = (await caller.call("GetRollout", pb.GetRolloutRequest())).rollout
            if rollout.stage or rollout.phase != "running":
                return rollout
            await asyncio.sleep(0.1)


async def test_a_worse_version_is_refused_at_the_gate_and_a_good_one_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scoring_learner(tmp_path, monkeypatch) as caller:
        refused = await after_gate(caller, NEGATED)
        assert refused.phase in ("rolling-back", "rolled-back")
        verdict = refused.verdicts[-1]
        assert (verdict.outcome, verdict.stage) == ("fail", 0)
        assert 0.0 < verdict.loss_lower <= verdict.loss < 0.05
        assert "longer" in verdict.reasons[0]
        passed = await after_gate(caller, SHIPPED)
        assert (passed.phase, passed.stages[passed.stage]) == ("running", "shadow")
        assert [entry.outcome for entry in passed.verdicts if entry.stage == 0] == ["pass"]
        assert passed.verdicts[-1].loss < 0.03
        assert {member.acting_version for member in passed.members} <= {0, PLANNER}


async def test_clusters_own_work_is_replayed_at_the_gate_and_one_that_takes_too_long_is_left_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scoring_learner(tmp_path, monkeypatch) as caller:
        sizes = {"east": (6, 900.0), "north": (4, 600.0), "south": (3, 60.0), "west": (12, 3600.0)}
        reported = {cluster: sketch(*size) for cluster, size in sizes.items()}
        for cluster, own in reported.items():
            registered = await caller.register(cluster)
            request = pb.ShareSketchRequest(cluster=cluster, incarnation=registered.incarnation, sketch=own)
            assert (await caller.call("ShareSketch", request)).taken
            assert not (await caller.call("ShareSketch", request)).taken
            request.sketch.nodes = 0
            assert await caller.refused("ShareSketch", request) is grpc.StatusCode.INVALID_ARGUMENT
        rollout = await after_gate(caller, SHIPPED)
        assert rollout.phase in ("running", "asking")
        found = {entry.cluster: entry for entry in rollout.sketches}
        assert {cluster: entry.state for cluster, entry in found.items()} == {
            "east": "replayed",
            "north": "replayed",
            "south": "dropped",
            "west": "replayed",
        }
        assert found["south"].reason.startswith("it took longer than ")
        assert all(
            min(entry.candidate_jct_seconds, entry.incumbent_jct_seconds, entry.heuristic_jct_seconds) > 60.0
            for cluster, entry in found.items()
            if cluster != "south"
        )
        reasons = rollout.verdicts[-1].reasons
        assert any(reason.startswith("south's own work is left out") for reason in reasons)
        assert any(reason.startswith("the own work of 3 clusters") for reason in reasons)
        shown = rollout_facts(rollout)
        assert [entry["state"] for entry in shown["sketches"]] == ["replayed", "replayed", "dropped", "replayed"]
        assert "1 dropped, 3 replayed" in "\n".join(rollout_table(shown).below)
