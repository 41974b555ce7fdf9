"""`policyctl key` and `policyctl version verify` as an operator types them, against a real learner."""

import json
import sqlite3
from pathlib import Path

import pytest
from learner_makers import update
from learner_process import LearnerProcess

from foundation.command_line import run
from global_learner.policyctl import cli as policyctl
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.signed_documents import SignedDocument, follow_roots, timestamp, version_statement
from policy_net.exchange.wire import push_request


@pytest.mark.heavy
def test_an_operator_verifies_versions_rotates_keys_and_keeps_the_root_key_elsewhere(  # noqa: PLR0915  (one story)
    tmp_path: Path, capsys, monkeypatch
) -> None:
    learner = LearnerProcess(tmp_path, publish={"every_steps": 1})
    learner.start()
    monkeypatch.setenv("FEDL2_LEARNER", learner.operator_address)
    state = tmp_path / "state"
    offline, next_offline = tmp_path / "offline.key", tmp_path / "next.key"

    def typed(*words: str) -> tuple[int, str, str]:
        code = run(policyctl.app, "policyctl", list(words))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    def asked(*words: str):
        code, out, err = typed(*words, "-o", "json")
        assert (code, err) == (0, ""), words
        return json.loads(out)

    def all_sound() -> None:
        assert [(facts["name"], facts["ok"]) for facts in asked("version", "verify")] == [("v1", True), ("v2", True)]
        shown = asked("version", "show", "v2")["signed_by"]
        keys = asked("key", "show")
        assert (shown["fleet"], shown["key"]) == (keys["fleet"], keys["keys"]["version"][0])

    try:
        with learner.channel() as channel:
            fleet = rpc.FleetStub(channel)
            fleet.Register(pb.RegisterRequest(cluster="north"), timeout=60)
            fleet.Push(push_request(update(1, base_step=0), want_weights=False), timeout=60)
            while len(asked("version", "list")) < 2:
                pass
            first = asked("key", "show")
            all_sound()
            for role in ("version", "timestamp", "root"):
                done = asked("key", "rotate", role)
                assert done["from_key"] != done["to_key"]
                all_sound()
            code, _, error = typed("key", "rotate", "version", "--from", "3")  # whoever saw that has missed one
            assert (code, "root 4 is the newest by now, not 3 as when you looked" in error) == (2, True)
            (state / "signing" / "root.key").rename(offline)
            for words in (("version",), ("root",)):
                code, _, error = typed("key", "rotate", *words)
                assert (code, len(error.splitlines())) == (2, 1)
                assert "--root-key FILE" in error
            code, _, error = typed("key", "rotate", "version", "--root-key", str(offline), "--from", "3")
            assert (code, "root 4 is the newest by now, not 3" in error) == (2, True)
            asked("key", "rotate", "version", "--root-key", str(offline), "--from", "4")
            all_sound()
            asked("key", "rotate", "root", "--root-key", str(offline), "--new-root-key", str(next_offline))
            code, _, error = typed("key", "rotate", "timestamp", "--root-key", str(offline))
            assert (code, len(error.splitlines())) == (2, 1)
            assert "is not the root key" in error
            asked("key", "rotate", "timestamp", "--root-key", str(next_offline))
            all_sound()

            # What agents get bears the newest keys, and the chain leads there from the first.
            fetched = fleet.FetchPolicy(pb.FetchPolicyRequest(cluster="north", version=2), timeout=60)
            roots = tuple(map(SignedDocument.of, fetched.roots))
            root = follow_roots(roots, roots[0])
            assert (root.number, len(roots)) == (7, 7)
            assert version_statement(SignedDocument.of(fetched.signed), root).digest == fetched.digest
            beat = fleet.Heartbeat(pb.HeartbeatRequest(cluster="north", incarnation=1), timeout=60)
            assert timestamp(SignedDocument.of(beat.timestamp), root).assigned_version == 1
        rotations = [entry for entry in asked("audit") if entry["action"] == "key-rotated"]
        assert [entry["subject"] for entry in rotations] == [
            "version", "timestamp", "root", "version", "root", "timestamp"
        ]  # fmt: skip
        asked("version", "verify", "--root-key-id", first["keys"]["root"][0])
        code, _, error = typed("version", "verify", "--root-key-id", "00" * 32)
        assert (code, len(error.splitlines())) == (2, 1)

        learner.kill()
        learner.start()
        monkeypatch.setenv("FEDL2_LEARNER", learner.operator_address)
        all_sound()
        (card,) = [card for card in asked("version", "list") if card["version"] == 2]
        file = state / "policies" / f"{card['digest']}.safetensors"
        asked("version", "verify", "v2", "--file", str(file))
        copy = tmp_path / "copy"
        copy.write_bytes(file.read_bytes()[:-1] + b"\x01")
        code, out, error = typed("version", "verify", "v2", "--file", str(copy))
        assert (code, len(error.splitlines())) == (2, 1)
        assert "is not v2" in error
        sound = file.read_bytes()
        file.write_bytes(copy.read_bytes())
        code, _, error = typed("version", "verify")
        assert (code, "v2" in error, "v1" in error) == (1, True, False)
        file.write_bytes(sound)
        with sqlite3.connect(state / "registry.sqlite") as database:
            database.execute("UPDATE versions SET head_step = 17 WHERE version = 2")
        code, out, _ = typed("version", "verify", "latest", "-o", "json")
        assert code == 1
        assert json.loads(out)[0]["problem"] == "its card says another head_step than what was signed"
    finally:
        learner.end()
