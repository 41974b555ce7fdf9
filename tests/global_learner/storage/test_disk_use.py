"""What a learner takes on disk stays under its limits, however long it runs."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from learner_in_process import CALL_SECONDS, serving
from learner_makers import policy, update, vector

from foundation.command_line import run
from global_learner.cli import app
from global_learner.policyctl.views import fleet_facts, fleet_table
from global_learner.storage.disk import OTHER, PARTS, disk_use
from global_learner.storage.receipts import audit, read_receipts, read_removed
from global_learner.storage.update_records import RECORD_BYTES
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.policy_file import write_policy_file
from policy_net.exchange.spec import PolicySpec
from policy_net.exchange.wire import push_request

SPEC = PolicySpec(jobs_per_batch=8, type_columns=4, hidden=(24,))
UPDATES = 1500
BLOCK_BYTES = 4096


@pytest.mark.heavy
async def test_the_disk_holds_no_more_after_hundreds_of_snapshots_than_the_limits_say(tmp_path: Path) -> None:
    record = 4 * SPEC.parameter_count + RECORD_BYTES
    durability = {
        "snapshot_every_steps": 1_000_000,  # the log's limit alone makes snapshots due
        "max_log_bytes": max(65_536, 40 * record),
        "max_receipts_bytes": 65_536,
    }
    publish = {"every_steps": 50, "keep_versions": 3}
    most = dict.fromkeys((*PARTS, OTHER), 0)
    async with serving(tmp_path, SPEC, durability=durability, publish=publish) as caller:
        await caller.register()
        for number in range(1, UPDATES + 1):
            made = update(number, spec_digest=SPEC.digest, base_step=number - 1, gradient=vector(number, SPEC))
            reply = await caller.call("Push", push_request(made, want_weights=False))
            assert reply.outcome == pb.PushReply.APPLIED
            if number % 10 == 0:
                used = await caller.learner.disk_use()
                most = {part: max(most[part], used[part]) for part in most}
        async with asyncio.timeout(CALL_SECONDS):
            while (fleet := await caller.fleet()).latest_version < 1 + UPDATES // 50:
                await asyncio.sleep(0)
        samples = caller.learner.telemetry.registry.get_sample_value
        assert samples("fedl2_learner_snapshot_seconds_count") > 200
        assert samples("fedl2_learner_log_limit_bytes") == fleet.log_limit_bytes == durability["max_log_bytes"]
        assert samples("fedl2_learner_disk_bytes", {"part": "log"}) > 0
        assert samples("fedl2_learner_disk_full_flag") == 0
    files = 12  # each takes whole blocks
    assert 0 < most["log"] <= durability["max_log_bytes"] + record + files * BLOCK_BYTES
    assert 0 < most["snapshots"] <= 2 * (4 * record + 4 * BLOCK_BYTES)
    assert 0 < most["receipts"] <= 65_536 * 17 / 16 + 20 * BLOCK_BYTES
    assert 0 < most["policies"] <= (3 + 2) * (record + 2 * BLOCK_BYTES)
    removed = read_removed(tmp_path / "state" / "receipts")
    assert removed.through_step > 0
    assert audit(read_receipts(tmp_path / "state", SPEC.digest), removed) == {("north", 1): UPDATES}

    facts = fleet_facts(fleet)
    assert set(facts["disk_bytes"]) == {*PARTS, OTHER}
    assert facts["disk_full"] is None
    json.dumps(facts)
    assert "the learner's state takes" in fleet_table(facts).below[0]
    full = fleet_table({**facts, "disk_full": "no room"})
    assert full.below == ("DISK FULL: no room",)


def test_use_is_told_by_part_and_what_vanishes_does_not_count(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "strange" / "deep").mkdir(parents=True)
    (tmp_path / "log" / "a").write_bytes(b"x" * 10_000)
    (tmp_path / "strange" / "deep" / "b").write_bytes(b"x" * 5000)
    (tmp_path / "registry.sqlite").write_bytes(b"x")
    used = disk_use(tmp_path)
    assert used["log"] >= 10_000
    assert used[OTHER] >= 5001
    assert used["receipts"] == 0
    real = Path.stat

    def gone(path: Path, **options):
        if path.name == "a":
            raise FileNotFoundError
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", gone)
    assert disk_use(tmp_path)["log"] == 0


def test_a_log_limit_under_sixteen_updates_is_refused_at_the_start(tmp_path: Path, capsys) -> None:
    big = PolicySpec()
    write_policy_file(tmp_path / "v1.safetensors", policy(big))
    content = {
        "state_dir": "state",
        "initial_policy": "v1.safetensors",
        "listen": "127.0.0.1:0",
        "port_file": "ports.json",
        "telemetry": {"http_listen": None},
        "durability": {"max_log_bytes": 1_000_000},
    }
    (tmp_path / "learner.yaml").write_text(yaml.safe_dump(content))
    arguments = ["serve", "--config", str(tmp_path / "learner.yaml")]
    assert run(app, "global-learner", arguments) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "max_log_bytes" in line]
    assert "16 of them must fit" in line
    assert not (tmp_path / "state").exists()
