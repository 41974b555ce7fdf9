"""`policyctl cluster enroll` as an admin types it, against a real learner with certificates."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy


def test_an_invitation_says_what_it_voids_and_is_not_made_where_it_cannot_be_written(
    as_admin: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, _ = as_admin("cluster", "enroll", "north", "-o", "json")
    assert (code, json.loads(out)["voided_tokens"]) == (0, 0)
    first = Path("north.enrollment").read_text()
    assert stat.S_IMODE(Path("north.enrollment").stat().st_mode) == 0o600

    Path("taken").mkdir()
    for place in ("nowhere/north.enrollment", "taken", "/dev/null", "north.enrollment/x"):
        code, out, err = as_admin("cluster", "enroll", "north", "--out", place)
        assert (code, out, len(err.splitlines())) == (2, "", 1), place
        assert "name another file with --out. Nothing was issued" in err
    code, out, _ = as_admin("audit", "-o", "json")
    assert [line["action"] for line in json.loads(out)].count("invited") == 1, "the first token is good still"

    code, out, _ = as_admin("cluster", "enroll", "north", "--out", "second.enrollment")
    assert code == 0
    assert "an earlier token that nobody had used: its file counts no longer, delete it" in out
    assert Path("north.enrollment").read_text() == first
    code, out, _ = as_admin("cluster", "enroll", "north", "--out", "second.enrollment")
    assert "a copy of its file counts no longer" in out
    assert "the file that was there before" in out
    assert as_admin("cluster", "enroll", "south")[1].count("earlier token") == 0
    code, out, _ = as_admin("audit", "-o", "json")
    details = [line["detail"] for line in json.loads(out) if line["action"] == "invited"]
    assert [", in place of 1 that nobody had used" in detail for detail in details] == [False, True, True, False]

    code, out, err = as_admin("cluster", "revoke", "north")
    assert (code, out) == (2, "")
    assert "to turn cluster north out, until it is enrolled again, add --yes" in err
    code, out, _ = as_admin("cluster", "revoke", "north", "--dry-run", "-o", "json")
    assert (code, json.loads(out)) == (0, {"cluster": "north", "certificates": 0, "tokens": 1, "dry_run": True})
    states = {entry["cluster"]: entry["state"] for entry in json.loads(as_admin("cluster", "list", "-o", "json")[1])}
    assert states["north"] == "invited"
    assert as_admin("cluster", "revoke", "north", "--yes", "--reason", "sold")[0] == 0
    assert "revoked north: no certificate, 1 token: sold" in " ".join(as_admin("audit")[1].split())
