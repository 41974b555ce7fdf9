"""`policyctl cluster enroll` as an admin types it, against a real learner with certificates."""

import json
import stat
from pathlib import Path

import pytest
from learner_process import LearnerProcess

from foundation.command_line import run
from global_learner.policyctl import cli as policyctl

pytestmark = pytest.mark.heavy


def test_an_invitation_says_what_it_voids_and_is_not_made_where_it_cannot_be_written(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    learner = LearnerProcess(tmp_path, identity={"names": ["127.0.0.1"], "enroll_port": 0})
    learner.start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDL2_LEARNER", learner.address)
    monkeypatch.setenv("FEDL2_CERT", str(learner.state_dir / "identity" / "admin.pem"))

    def typed(*words: str) -> tuple[int, str, str]:
        code = run(policyctl.app, "policyctl", list(words))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    try:
        code, out, _ = typed("cluster", "enroll", "north", "-o", "json")
        assert (code, json.loads(out)["voided_tokens"]) == (0, 0)
        first = Path("north.enrollment").read_text()
        assert stat.S_IMODE(Path("north.enrollment").stat().st_mode) == 0o600

        Path("taken").mkdir()
        for place in ("nowhere/north.enrollment", "taken", "/dev/null", "north.enrollment/x"):
            code, out, err = typed("cluster", "enroll", "north", "--out", place)
            assert (code, out, len(err.splitlines())) == (2, "", 1), place
            assert "name another file with --out. Nothing was issued" in err
        code, out, _ = typed("audit", "-o", "json")
        assert [line["action"] for line in json.loads(out)].count("invited") == 1, "the first token is good still"

        code, out, _ = typed("cluster", "enroll", "north", "--out", "second.enrollment")
        assert code == 0
        assert "an earlier token that nobody had used: its file counts no longer, delete it" in out
        assert Path("north.enrollment").read_text() == first
        code, out, _ = typed("cluster", "enroll", "north", "--out", "second.enrollment")
        assert "a copy of its file counts no longer" in out
        assert "the file that was there before" in out
        assert typed("cluster", "enroll", "south")[1].count("earlier token") == 0
        code, out, _ = typed("audit", "-o", "json")
        details = [line["detail"] for line in json.loads(out) if line["action"] == "invited"]
        assert [", in place of 1 that nobody had used" in detail for detail in details] == [False, True, True, False]

        code, out, err = typed("cluster", "revoke", "north")
        assert (code, out) == (2, "")
        assert "to turn cluster north out, until it is enrolled again, add --yes" in err
        code, out, _ = typed("cluster", "revoke", "north", "--dry-run", "-o", "json")
        assert (code, json.loads(out)) == (0, {"cluster": "north", "certificates": 0, "tokens": 1, "dry_run": True})
        states = {entry["cluster"]: entry["state"] for entry in json.loads(typed("cluster", "list", "-o", "json")[1])}
        assert states["north"] == "invited"
        assert typed("cluster", "revoke", "north", "--yes", "--reason", "sold")[0] == 0
        assert "revoked north: no certificate, 1 token: sold" in " ".join(typed("audit")[1].split())
    finally:
        learner.close()
