"""Help and refusals of a learner's programs wait for no server, no numbers and no pages."""

import json
import subprocess
import sys

import pytest

HEAVY = ("numpy", "scipy", "sqlalchemy", "pydantic", "grpc", "structlog", "asyncio", "prometheus_client")
AFTER = """
import contextlib, io, json, sys
from foundation.command_line import run
from {module} import app

with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    code = run(app, "program", sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]))
"""


@pytest.mark.parametrize(
    ("module", "words", "code"),
    [
        ("global_learner.cli", ["--help"], 0),
        ("global_learner.cli", ["serve", "--help"], 0),
        ("global_learner.cli", ["serve", "--confg", "x"], 2),
        ("global_learner.policyctl.cli", ["--help"], 0),
        ("global_learner.policyctl.cli", ["--version"], 0),
        ("global_learner.policyctl.cli", ["rollout", "start", "--help"], 0),
        ("global_learner.policyctl.cli", ["version", "diff", "v1"], 2),
    ],
)
def test_help_and_refusals_load_nothing_that_takes_time(module: str, words: list[str], code: int) -> None:
    program = [sys.executable, "-c", AFTER.format(module=module), *words]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=True)
    ended, loaded = json.loads(done.stdout)
    assert ended == code
    assert [name for name in loaded if name.startswith(HEAVY)] == []
