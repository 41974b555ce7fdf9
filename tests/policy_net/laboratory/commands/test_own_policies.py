"""`policy-net replay --policy module:function`: a scheduler of one's own, without touching the installed package."""

import json
from pathlib import Path

import pytest

from foundation import command_line
from policy_net import policy
from policy_net.cli import app

SMALL = "dl2:jobs=3,sizes=fixed,seed=5,mix=wlm"
OWN = """
from policy_net.baselines.drf import DrfPolicy


class Mine(DrfPolicy):
    name = "mine"


def build(context):
    return Mine()


def nothing(context):
    return 3


number = 4
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module; what is registered from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(policy, "_factories", dict(policy._factories))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def run(*words: str) -> int:
    return command_line.run(app, "policy-net", ("replay", "--workload", SMALL, *words))


def test_a_scheduler_of_ones_own_is_replayed_beside_the_others(folder: Path, capsys) -> None:
    (folder / "own_scheduler_one.py").write_text(OWN)
    assert run("--policy", "drf", "--policy", "own_scheduler_one:build", "-o", "json") == 0
    first, second = json.loads(capsys.readouterr().out)
    assert second["policy"] == "mine"
    assert second["avg_jct_seconds"] == first["avg_jct_seconds"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_scheduler_two:missing", "has no function missing"),
        ("own_scheduler_two:number", "has no function number"),
        ("own_scheduler_two:nothing", "returns a int, which is no scheduler"),
        ("no_such_module_at_all:build", "cannot be imported (ModuleNotFoundError"),
        ("own_scheduler_broken:build", "cannot be imported (SyntaxError"),
    ],
)
def test_what_is_none_is_refused_in_a_line(folder: Path, capsys, name: str, said: str) -> None:
    (folder / "own_scheduler_two.py").write_text(OWN)
    (folder / "own_scheduler_broken.py").write_text("def build(:")
    assert run("--policy", name) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
