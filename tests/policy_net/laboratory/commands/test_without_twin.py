"""`policy-net replay` where the twin was not built: the same figures, and one line that says so."""

import json

import pytest
from typer.testing import CliRunner

from policy_net.cli import app
from policy_net.laboratory.commands import replay as command
from policy_net.laboratory.simulation import compiled

ARGUMENTS = ["replay", "--workload", "dl2:jobs=5,seed=3", "--nodes", "4", "--policy", "set", "-o", "json"]


def test_the_reference_gives_the_same_and_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = CliRunner().invoke(app, ARGUMENTS)
    for module in (command, compiled):
        monkeypatch.setattr(module, "notice", lambda: "the compiled twin was not built")
    after = CliRunner().invoke(app, ARGUMENTS)
    assert (before.exit_code, after.exit_code) == (0, 0)
    assert after.stderr.splitlines().count("the compiled twin was not built") == 1
    one, other = json.loads(before.stdout)[0], json.loads(after.stdout)[0]
    for name in ("avg_jct_seconds", "makespan_seconds", "gpu_utilization", "gpu_training_share", "starved_jobs"):
        assert one[name] == pytest.approx(other[name], rel=1e-9)
