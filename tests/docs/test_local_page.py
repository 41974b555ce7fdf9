"""The page about jobs on this machine: its files are taken as they stand, and the lines it explains are written."""

from __future__ import annotations

import ast
import re

import pytest
import yaml
from docs_pages import ROOT, blocks

from cluster_agent.backends.local.job_file import check_job
from cluster_agent.settings import AgentSettings

PAGE = ROOT / "docs" / "guide" / "local.md"
REFUSALS = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8").partition("## What is refused")[2], re.M)


def test_its_configuration_and_its_job_file_are_taken_as_they_stand() -> None:
    configuration, job, joined = (yaml.safe_load(block) for block in blocks(PAGE, "yaml"))
    assert AgentSettings.model_validate(configuration).backend.kind == "local"
    settings = AgentSettings.model_validate(joined)
    assert settings.backend.kind == "local"
    assert settings.learns
    assert check_job(job, ROOT, "digits.yaml").most.workers == 4


@pytest.mark.parametrize("line", REFUSALS)
def test_a_refusal_that_it_explains_is_one_of_the_programs(line: str) -> None:
    said = " ".join(_texts())
    for part in line.split("…"):
        assert part.strip(" ();:") in said, f"no program says {part!r}"


def test_it_explains_some() -> None:
    assert len(REFUSALS) > 10


def _texts() -> list[str]:
    """Every string of the programs that users of this page meet."""
    rooms = (ROOT / "cluster_agent" / "backends" / "local", ROOT / "cluster_agent" / "jobs")
    files = [path for room in rooms for path in room.glob("*.py")]
    return [
        node.value
        for path in (*files, *(ROOT / "policy_net" / name for name in ("strict_yaml.py", "settings_problems.py")))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
