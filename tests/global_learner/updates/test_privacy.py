"""Noise on updates in the learner: drawn once, in the log, counted for each cluster, and refused where it is spent."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import yaml
from learner_in_process import serving
from learner_makers import SPEC, policy, settings, update, vector
from pydantic import ValidationError

from global_learner.errors import BadLearnerConfig
from global_learner.policyctl.version_views import version_facts
from global_learner.policyctl.views import fleet_facts
from global_learner.recovery import recover
from global_learner.registry.registry import Registry
from global_learner.service.config_check import read_named_files
from global_learner.settings import read_settings
from global_learner.storage.state_dir import StateDir
from global_learner.storage.update_log import read_log
from global_learner.storage.update_records import AppliedUpdate
from global_learner.updates.ledger import Ledger
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.policy_file import parse_policy_file
from policy_net.exchange.shipped import SHIPPED_FILES
from policy_net.privacy.settings import NoiseSettings, declaration, epsilon

CENTRAL = {"clip_norm": 0.5, "noise_multiplier": 4.0, "target_epsilon": 2.0}
"""Four updates cost a little less than 2.0 at noise multiplier 4: so many are allowed."""
MOST = 4


def logged(folder: Path) -> list[AppliedUpdate]:
    return list(read_log(folder / "state" / "log", SPEC.digest))


async def test_raw_gradients_reach_neither_the_log_nor_the_head(tmp_path) -> None:
    big = vector(7) * np.float32(1e6)  # without privacy it would be refused for its length
    async with serving(tmp_path, privacy=CENTRAL) as caller:
        await caller.register()
        reply = await caller.push(1, gradient=big)
        assert reply.outcome == pb.PushReply.APPLIED, reply
        (record,) = logged(tmp_path)
    assert record.noise_multiplier == 4.0
    assert (record.update.samples, record.update.effective_samples) == (1, 1.0)
    # Of 43 parameters with a deviation of 2: a norm of about 13, and five deviations of it.
    assert 7.0 < np.linalg.norm(record.update.gradient) < 20.0


async def test_a_kill_and_a_replay_give_the_same_bits_and_the_same_budget(tmp_path) -> None:
    async with serving(tmp_path, privacy={"clip_norm": 1.0, "noise_multiplier": 2.0}) as caller:
        await caller.register()
        await caller.register("south")
        for number in (1, 2, 3):
            await caller.push(number, base_step=number - 1)
        await caller.push(1, cluster="south")
        before = caller.learner.head.weights.tobytes()
        spent = caller.learner.head.ledger.noise_spent
        again = await caller.push(3)
        assert again.outcome == pb.PushReply.DUPLICATE
        lost = {path: path.read_bytes() for path in (tmp_path / "state" / "log").iterdir()}
        assert spent.updates == 3
        assert spent.spent == 0.75
        for path, data in lost.items():
            (tmp_path / path.name).write_bytes(data)
        copied = [each.update.gradient.tobytes() for each in logged(tmp_path)]
    # As a kill leaves it: the log, and no snapshot of the end.
    for path in (tmp_path / "state" / "snapshots").iterdir():
        path.unlink()
    for path in (tmp_path / "state" / "log").iterdir():
        path.unlink()
    for path, data in lost.items():
        path.write_bytes(data)
    config = settings(tmp_path)  # and privacy switched off meanwhile: what is in the log is as it was
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path, state.commits)
        try:
            found = recover(state, registry, config, policy(), 0.0)
        finally:
            registry.close()
    assert found.replayed == 4
    assert found.head.weights.tobytes() == before
    assert found.head.ledger.noise_spent == spent
    assert len(set(copied)) == 4


@pytest.mark.heavy
async def test_the_budget_is_refused_beyond_its_limit_in_one_line_and_survives_a_restart(tmp_path, capsys) -> None:
    async with serving(tmp_path, privacy=CENTRAL) as caller:
        await caller.register()
        for number in range(1, MOST + 1):
            assert (await caller.push(number)).outcome == pb.PushReply.APPLIED
        refused = await caller.push(MOST + 1)
        assert refused.outcome == pb.PushReply.REJECTED
        assert refused.reason == "privacy-spent"
        lines = [line for line in capsys.readouterr().out.splitlines() if "privacy-spent" in line and "warning" in line]
        assert len(lines) == 1
        assert "cluster north has spent its privacy: epsilon 1.9" in lines[0]
        # Others have budgets of their own; the one at its end still hears of heads and versions.
        await caller.register("south")
        assert (await caller.push(1, cluster="south")).outcome == pb.PushReply.APPLIED
        head = await caller.call("PullHead", pb.PullHeadRequest(cluster="north", incarnation=1))
        assert head.step == MOST + 1
        assert caller.learner.quarantine.count == 0
        shown = fleet_facts(await caller.fleet())["privacy"]
    assert shown["updates_of_one_cluster"] == MOST
    assert shown["epsilon"] == pytest.approx(epsilon(MOST / 16, 1e-5), abs=1e-6)
    assert shown["epsilon"] <= shown["target_epsilon"] == 2.0
    async with serving(tmp_path, privacy=CENTRAL) as caller:
        registered = await caller.register()
        refused = await caller.push(1, incarnation=registered.incarnation)
        assert refused.reason == "privacy-spent"
    looser = {**CENTRAL, "target_epsilon": 3.0}
    async with serving(tmp_path, privacy=looser) as caller:
        registered = await caller.register()
        assert (await caller.push(1, incarnation=registered.incarnation)).outcome == pb.PushReply.APPLIED


async def test_the_card_says_what_was_spent_and_what_came_without_noise(tmp_path) -> None:
    plain = {"publish": {"every_steps": 2}, "scores": {"enabled": False}}
    async with serving(tmp_path, **plain) as caller:
        await caller.register()
        await caller.push(1)
    async with serving(tmp_path, privacy={**CENTRAL, "target_epsilon": None}, **plain) as caller:
        registered = await caller.register()
        for number in (1, 2, 3):
            await caller.push(number, incarnation=registered.incarnation)
        async with asyncio.timeout(60):
            while caller.learner.maintenance.newest_version < 3:
                await asyncio.sleep(0.01)
        reply = await caller.call("ShowVersion", pb.ShowVersionRequest(version=3))
        _, data = await caller.learner.registry.call(caller.learner.registry.registry.policy_bytes, 3)
        sample = caller.learner.telemetry.registry.get_sample_value("fedl2_learner_privacy_epsilon")
    stated = version_facts(reply.card)["privacy"]
    assert stated["mode"] == "central"
    assert stated["updates_of_one_cluster"] == 3
    assert stated["unprotected_updates"] == 1
    assert stated["sampling"] == "none"
    assert stated["epsilon"] == pytest.approx(epsilon(3 / 16, 1e-5), abs=1e-6) == sample
    assert parse_policy_file(data, "v3").card["privacy"]["epsilon"] == stated["epsilon"]


@pytest.mark.parametrize("mode", ["async", "buffered", "robust"])
async def test_every_mode_takes_noised_updates_alike_whatever_a_cluster_claims_of_samples(tmp_path, mode) -> None:
    noised = {"clip_norm": 1.0, "noise_multiplier": 0.1}
    async with serving(tmp_path, privacy=noised, aggregation={"mode": mode, "min_clusters": 1}) as caller:
        await caller.register()
        few, many = await caller.push(1, samples=1), await caller.push(2, samples=10**6, base_step=1)
        assert (few.outcome, many.outcome) == (pb.PushReply.APPLIED,) * 2
        first, second = logged(tmp_path)
        assert first.learning_rate == second.learning_rate
        assert caller.learner.head.ledger.noise_spent.updates == 2


async def test_with_local_noise_an_update_must_say_of_it(tmp_path) -> None:
    wanted = NoiseSettings(clip_norm=0.5, noise_multiplier=4.0)
    async with serving(tmp_path, privacy={**CENTRAL, "mode": "local"}) as caller:
        await caller.register()
        silent = await caller.push(1)
        weaker = wanted.model_copy(update={"noise_multiplier": 3.9})
        less = await caller.push(2, statistics=declaration(weaker))
        wider = await caller.push(3, statistics=declaration(wanted.model_copy(update={"clip_norm": 0.6})))
        assert {answer.reason for answer in (silent, less, wider)} == {"not-noised"}
        gradient = vector(3)
        assert (await caller.push(4, gradient=gradient, statistics=declaration(wanted))).outcome == (
            pb.PushReply.APPLIED
        )
        (record,) = logged(tmp_path)
        assert caller.learner.quarantine.count == 0
    assert record.update.gradient.tobytes() == gradient.tobytes()
    assert record.noise_multiplier == 4.0


def test_privacy_and_rounds_contradict_each_other(tmp_path) -> None:
    with pytest.raises(ValidationError, match=r"privacy does not cover aggregation\.mode rounds"):
        settings(tmp_path, privacy=CENTRAL, aggregation={"mode": "rounds"})


def test_a_budget_for_no_update_is_one_line_of_the_configuration(tmp_path) -> None:
    path = tmp_path / "learner.yaml"
    content = {
        "state_dir": "state",
        "initial_policy": "set",
        "privacy": {"clip_norm": 1, "noise_multiplier": 1, "target_epsilon": 1},
    }
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(BadLearnerConfig, match="target_epsilon = 1 allows no update") as caught:
        read_settings(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("limit", [None, 8.0])
def test_noise_that_hides_all_that_a_network_is_told_is_one_line(tmp_path, limit: float | None) -> None:
    config = settings(tmp_path, initial_policy="dl2", privacy={**CENTRAL, "target_epsilon": limit})
    config = config.model_copy(update={"initial_policy": SHIPPED_FILES["dl2"]})
    if limit is None:  # nothing says when it is to end, and an experiment may go on until it is heard
        read_named_files(config)
        return
    with pytest.raises(BadLearnerConfig, match=r"target_epsilon = 8: noise in 168765 parameters hides all") as caught:
        read_named_files(config)
    assert "fewer than 6.1e+04 clusters" in str(caught.value)
    assert "\n" not in str(caught.value)
    read_named_files(settings(tmp_path, privacy=CENTRAL))  # of 43 parameters it can be told


def test_lost_updates_count_as_spent() -> None:
    ledger = Ledger(10)
    for step in (1, 2):
        ledger.record(AppliedUpdate(step, 0.1, 1, 0.0, update(step), noise_multiplier=2.0))
    ledger.spend_lost(5)
    assert ledger.noise_spent.spent == pytest.approx(7 / 4)
    assert Ledger.from_json(ledger.to_json(), 10).noise_spent == ledger.noise_spent
