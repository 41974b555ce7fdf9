"""Versions are scored on fixed replays by processes of their own; whatever happens to one, the learner goes on."""

import asyncio
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learner_in_process import serving
from learner_makers import policy, update
from learner_process import LearnerProcess

from global_learner.registry.registry import Registry
from global_learner.registry.registry_thread import RegistryThread
from global_learner.scores.replay_set import BASELINES, NAME, REPLAYS, set_digest
from global_learner.scores.scorer import Scorer
from global_learner.scores.scoring import baseline_jcts, score
from global_learner.section_settings import ScoreSettings
from global_learner.telemetry import LearnerTelemetry
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.policy_file import read_policy_file
from policy_net.exchange.wire import push_request
from policy_net.set_policy.policy import DEFAULT_SET_FILE

GOOD = {"replay_set": NAME, "replay_set_digest": set_digest(), "over": {"drf": 0.9}, "replays": [], "decisions": [7]}
ANSWERS = f"import json; print(json.dumps({GOOD!r}))"


async def scored(folder: Path, code: str, versions: int = 1, **settings: Any) -> tuple[list, LearnerTelemetry]:
    """The cards' scores once a process that runs `code` was asked for each version."""
    registry, telemetry = Registry(folder), LearnerTelemetry()
    for number in range(len(registry.versions()), versions):
        registry.publish(policy(seed=number), 10 * number, 0.0, {}, 0.0, assign_all=False)
    thread = RegistryThread(registry)
    command = (sys.executable, "-c", code)
    scorer = Scorer(ScoreSettings.model_validate(settings), folder, thread, telemetry, lambda: 7.0, command)
    scorer.start()
    if settings.get("enabled", True):
        while not scorer.idle:
            await _breathe()
    await scorer.close()
    found = [card.score for card in registry.versions()]
    thread.close()
    return found, telemetry


async def _breathe() -> None:
    await asyncio.sleep(0.005)


def outcomes(telemetry: LearnerTelemetry) -> dict[str, float]:
    counted = {
        outcome: telemetry.registry.get_sample_value("fedl2_learner_scores_total", {"outcome": outcome})
        for outcome in ("scored", "failed")
    }
    return {outcome: count for outcome, count in counted.items() if count}


async def test_every_version_is_scored_and_only_once(tmp_path: Path) -> None:
    found, telemetry = await scored(tmp_path, ANSWERS, versions=3)
    assert [(entry["state"], entry["over"], entry["scored_unix_seconds"]) for entry in found] == [
        ("scored", {"drf": 0.9}, 7.0)
    ] * 3
    assert outcomes(telemetry) == {"scored": 3}
    again, telemetry = await scored(tmp_path, "raise SystemExit('nobody asked')", versions=4)
    assert [entry["state"] for entry in again] == ["scored"] * 3 + ["failed"]
    assert outcomes(telemetry) == {"failed": 1}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os.kill(os.getpid(), 9)", "its process was ended by SIGKILL"),
        ("import sys; print('v1: the weights are odd', file=sys.stderr); sys.exit(1)", "v1: the weights are odd"),
        ("import sys; sys.exit(3)", "its process ended with exit code 3"),
        ("raise MemoryError('no more')", "MemoryError: no more"),
        ("print('hello')", "its process printed no score"),
        ("while True: pass", "it took longer than 0.5 s"),
    ],
)
async def test_a_process_that_gives_no_score_says_why_on_the_card(tmp_path: Path, code: str, reason: str) -> None:
    (found,), telemetry = await scored(tmp_path, code, deadline_seconds=0.5 if "while" in code else 60.0)
    assert (found["state"], found["reason"], found["attempts"]) == ("failed", reason, 1)
    assert outcomes(telemetry) == {"failed": 1}


async def test_a_failed_score_is_tried_again_at_the_next_starts_but_not_for_ever(tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        (found,), telemetry = await scored(tmp_path, "raise SystemExit(1)")
        assert (found["attempts"], outcomes(telemetry)) == (attempt, {"failed": 1})
    (found,), telemetry = await scored(tmp_path, ANSWERS)
    assert (found["state"], outcomes(telemetry)) == ("failed", {})


async def test_a_score_on_other_replays_is_made_again(tmp_path: Path) -> None:
    await scored(tmp_path, ANSWERS.replace(set_digest(), "0" * 64))
    (found,), _ = await scored(tmp_path, ANSWERS)
    assert found["replay_set_digest"] == set_digest()


async def test_versions_that_are_gone_and_scores_that_are_off_start_no_process(tmp_path: Path) -> None:
    found, telemetry = await scored(tmp_path, "raise SystemExit(1)", versions=5, enabled=False)
    assert (found, outcomes(telemetry)) == ([None] * 5, {})
    registry = Registry(tmp_path)
    assert registry.prune(1) == 2
    registry.close()
    found, telemetry = await scored(tmp_path, ANSWERS)
    assert [entry is not None for entry in found] == [True, False, False, True, True]


async def test_a_learner_that_ends_takes_its_process_along(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.publish(policy(), 0, 0.0, {}, 0.0, assign_all=False)
    thread = RegistryThread(registry)
    marker = tmp_path / "started"
    code = f"import pathlib, signal; pathlib.Path({str(marker)!r}).touch(); signal.pause()"
    scorer = Scorer(ScoreSettings(), tmp_path, thread, LearnerTelemetry(), lambda: 0.0, (sys.executable, "-c", code))
    scorer.start()
    while not marker.exists():
        await _breathe()
    await scorer.close()
    assert registry.versions()[0].score is None, "taken up at the next start"
    thread.close()


def test_the_shipped_policy_beats_drf_on_the_fixed_replays_and_scores_are_repeatable(tmp_path: Path) -> None:
    first = score(DEFAULT_SET_FILE, tmp_path)
    assert set(first["over"]) == set(BASELINES)
    assert [row["replay"] for row in first["replays"]] == [entry.name for entry in REPLAYS]
    assert first["over"]["drf"] < 0.9
    assert 0.9 < first["over"]["oracle"] < 1.1
    assert len(first["decisions"]) > 40
    assert score(DEFAULT_SET_FILE, tmp_path) == first, "the second time with the baselines from the cache"
    (cache,) = tmp_path.iterdir()
    cache.write_text("{")
    assert baseline_jcts(tmp_path) == {row["replay"]: row["baseline_jct_seconds"] for row in first["replays"]}


@pytest.mark.parametrize(("enabled", "state"), [(True, "waiting"), (False, "off")])
async def test_a_version_without_a_score_says_whether_one_is_to_come(tmp_path: Path, enabled: bool, state: str) -> None:
    async with serving(tmp_path, scores={"enabled": enabled}) as caller:
        shown = await caller.call("ShowVersion", pb.ShowVersionRequest(version=1))
        (listed,) = (await caller.call("ListVersions", pb.ListVersionsRequest())).versions
        reported = (await caller.call("GetReport", pb.GetReportRequest())).versions[0]
    assert [card.score.state for card in (shown.card, listed, reported)] == [state] * 3


@pytest.mark.heavy
def test_a_real_learner_scores_what_it_publishes_in_a_process_of_its_own(tmp_path: Path) -> None:
    spec = read_policy_file(DEFAULT_SET_FILE).spec  # an untrained policy's replays are three times as long
    learner = LearnerProcess(
        tmp_path, spec, publish={"every_steps": 1}, scores={"enabled": True, "nice": 0}, optimizer={"units": "weights"}
    )
    shutil.copy(DEFAULT_SET_FILE, tmp_path / "v1.safetensors")
    learner.start()
    try:
        with learner.channel() as channel, learner.operators() as own:
            fleet, admin = rpc.FleetStub(channel), rpc.AdminStub(own)
            fleet.Register(pb.RegisterRequest(cluster="north"), timeout=60)
            gradient = np.ones(spec.parameter_count, np.float32)
            request = push_request(update(1, spec_digest=spec.digest, gradient=gradient), want_weights=False)
            assert fleet.Push(request, timeout=60).outcome == pb.PushReply.APPLIED
            states: list[str] = []
            while len(states) < 2 or "waiting" in states:
                cards = admin.ListVersions(pb.ListVersionsRequest(), timeout=60).versions
                states = [card.score.state for card in cards]
                assert fleet.Heartbeat(pb.HeartbeatRequest(cluster="north", incarnation=1), timeout=60).head_step == 1
                time.sleep(0.2)  # the processor is the scorer's
        assert states == ["scored", "scored"]
        assert all(set(card.score.over) == set(BASELINES) and len(card.score.replays) == len(REPLAYS) for card in cards)
        assert {card.score.replay_set_digest for card in cards} == {set_digest()}
        assert learner.end() == 0
    finally:
        learner.close()
    assert json.loads(next((tmp_path / "state" / "scores").iterdir()).read_text())
