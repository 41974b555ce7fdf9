"""`policyctl operator` as an admin types it, against a real learner with certificates; and what others may then."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from learner_process import LearnerProcess

from foundation.command_line import run
from global_learner.identity import PEOPLE
from global_learner.policyctl import cli as policyctl
from global_learner.policyctl.cluster_commands import GivenRole

pytestmark = pytest.mark.heavy


def test_the_roles_that_can_be_typed_are_those_that_there_are() -> None:
    assert [role.value for role in GivenRole] == [role.value for role in PEOPLE]


def test_an_admin_gives_roles_and_takes_them_back(tmp_path: Path, capsys, monkeypatch) -> None:
    learner = LearnerProcess(tmp_path, identity={"names": ["127.0.0.1"], "enroll_port": 0})
    learner.start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDL2_LEARNER", learner.address)

    def typed(who: str, *words: str) -> tuple[int, str, str]:
        code = run(policyctl.app, "policyctl", [*words, "--cert", who, "-o", "json"])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    def asked(who: str, *words: str):
        code, out, err = typed(who, *words)
        assert (code, err) == (0, "")
        return json.loads(out)

    def refused(who: str, *words: str) -> str:
        code, out, err = typed(who, *words)
        assert (code, out, len(err.splitlines())) == (1, "", 1)
        return err

    admin = str(learner.state_dir / "identity" / "admin.pem")
    try:
        for name, role in (("vera", "viewer"), ("olga", "operator"), ("anna", "admin")):
            made = asked(admin, "operator", "enroll", name, "--role", role)
            assert (made["file"], made["role"], made["replaced"]) == (f"{name}.pem", role, 0)
            assert stat.S_IMODE(Path(f"{name}.pem").stat().st_mode) == 0o600
        people = {entry["name"]: (entry["role"], entry["state"]) for entry in asked("vera.pem", "operator", "list")}
        assert people == {
            "policyctl": ("admin", "enrolled"),
            "vera": ("viewer", "enrolled"),
            "olga": ("operator", "enrolled"),
            "anna": ("admin", "enrolled"),
        }
        for who in ("vera.pem", "olga.pem", "anna.pem"):
            assert [card["version"] for card in asked(who, "version", "list")] == [1]
            assert asked(who, "audit", "verify")["sound"] is True
            assert asked(who, "version", "verify", "v1")
        assert "vera is a viewer, and it takes an operator" in refused("vera.pem", "version", "pin", "v1")
        assert asked("olga.pem", "version", "pin", "v1")["changed"] is True
        for words in (("operator", "enroll", "eve", "--role", "admin"), ("cluster", "enroll", "north")):
            assert "olga is an operator, and it takes an admin" in refused("olga.pem", *words)
        assert not Path("eve.pem").exists()
        asked("anna.pem", "cluster", "enroll", "north")

        assert (
            asked("anna.pem", "operator", "enroll", "vera", "--role", "operator", "--out", "new.pem")["replaced"] == 1
        )
        assert "was revoked" in refused("vera.pem", "version", "list")
        assert asked("new.pem", "version", "unpin", "v1")["changed"] is True
        assert asked("anna.pem", "operator", "revoke", "vera", "--yes", "--reason", "left")["certificates"] == 1
        assert "was revoked" in refused("new.pem", "version", "list")
        lines = [(line["actor"], line["action"], line["subject"]) for line in asked(admin, "audit")]
        assert lines == [
            ("global-learner", "administrator", "policyctl"),
            ("policyctl", "operator-enrolled", "vera"),
            ("policyctl", "operator-enrolled", "olga"),
            ("policyctl", "operator-enrolled", "anna"),
            ("olga", "pinned", "v1"),
            ("anna", "invited", "north"),
            ("anna", "operator-enrolled", "vera"),
            ("vera", "unpinned", "v1"),
            ("anna", "operator-revoked", "vera"),
        ]
        for words in (
            ("operator", "enroll", "eve", "--role", "root"),
            ("operator", "enroll", "eve"),
            ("operator", "enroll", "north", "--role", "viewer"),
            ("operator", "enroll", "eve", "--role", "viewer", "--out", "nowhere/eve.pem"),
            ("operator", "enroll", "eve", "--role", "viewer", "--out", "."),
            ("operator", "revoke", "eve", "--yes"),
            ("operator", "revoke", "policyctl", "--yes"),
        ):
            code, out, err = typed(admin, *words)
            assert (code, out, len(err.splitlines())) == (2, "", 1), words
        assert "eve" not in [entry["name"] for entry in asked(admin, "operator", "list")]
        for words in (
            ("operator", "list"),
            ("operator", "enroll", "eve", "--role", "viewer"),
            ("operator", "revoke", "eve", "--yes"),
        ):
            assert run(policyctl.app, "policyctl", [*words, "--cert", admin]) == 0
        capsys.readouterr()
        learner.kill()
        learner.start()
        monkeypatch.setenv("FEDL2_LEARNER", learner.address)
        assert asked("olga.pem", "version", "pin", "v1")["changed"] is True
        assert learner.end() == 0
    finally:
        learner.close()


def test_turning_a_person_out_is_asked_first_and_says_why(as_admin: Callable[..., tuple[int, str, str]]) -> None:
    assert as_admin("operator", "enroll", "vera", "--role", "viewer")[0] == 0
    code, out, err = as_admin("operator", "revoke", "vera")
    assert (code, out) == (2, "")
    assert "to turn vera out, until they are enrolled again, add --yes" in err
    code, out, _ = as_admin("operator", "revoke", "vera", "--dry-run", "-o", "json")
    assert (code, json.loads(out)) == (0, {"name": "vera", "certificates": 1, "dry_run": True})
    assert "nothing was changed: --dry-run" in as_admin("operator", "revoke", "vera", "--dry-run")[1]
    assert [entry["state"] for entry in json.loads(as_admin("operator", "list", "-o", "json")[1])] == ["enrolled"] * 2
    code, _, err = as_admin("operator", "revoke", "vera", "--yes", "--reason", "a\nb")
    assert (code, len(err.splitlines())) == (2, 1)
    assert as_admin("operator", "revoke", "vera", "--yes", "--reason", "left")[0] == 0
    assert json.loads(as_admin("audit", "-o", "json")[1])[-1]["detail"] == "1 certificate: left"
