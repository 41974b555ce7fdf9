"""`policy-net replay --policy module:function`: a scheduler of one's own, without touching the installed package."""

import copy
import json
import re
import sys
from pathlib import Path

import pytest

from foundation import command_line
from policy_net import policy
from policy_net.cli import app
from policy_net.domain import PolicyContext
from policy_net.errors import BadInput
from policy_net.laboratory.commands import own_policies
from policy_net.set_policy.policy import DEFAULT_SET_FILE

SMALL = "dl2:jobs=3,sizes=fixed,seed=5,mix=wlm"
OWN = """
from policy_net.baselines.drf import DrfPolicy
from policy_net.domain import Allocation, Decision


class Mine(DrfPolicy):
    name = "mine"


def build(context):
    return Mine()


def nothing(context):
    return 3


def noargs():
    return Mine()


def one(context):
    return Mine


def divided(context):
    return Mine() if 1 / 0 else None


class Wrong(Mine):
    name = "wrong"

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def decide(self, state, trigger):
        if self.answer == "raise":
            return {}["lost"]
        return self.answer


def dictionary(context):
    return Wrong({})


def numbers(context):
    return Wrong(Decision({"0": 2}))


def halves(context):
    return Wrong(Decision({"0": Allocation(0.5, 1)}))


def elsewhere(context):
    return Wrong(Decision({"0": Allocation(1, 1)}, {"0": 3}))


def locked(context):
    made = Mine()
    made.lock = __import__("threading").Lock()
    return made


def raising(context):
    return Wrong("raise")


number = 4
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module; what is registered from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(policy, "factories", dict(policy.factories))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("own_scheduler_")]:
        monkeypatch.delitem(sys.modules, name)  # that of another test's folder
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
        ("own_scheduler_two:one", "returns the class Mine, and not one of it; write Mine()"),
        (
            "own_scheduler_two:noargs",
            "own_scheduler_two:noargs: noargs raises TypeError: noargs() takes 0 positional arguments but 1 was given"
            " ({file}, line {def noargs}); it must take a PolicyContext and return a scheduler",
        ),
        ("own_scheduler_two:divided", "divided raises ZeroDivisionError: division by zero ({file}, line {1 / 0});"),
        (
            "own_scheduler_two:dictionary",
            "own_scheduler_two:dictionary: decide returns a dict; it must return a Decision of policy_net.domain, with"
            " an Allocation of whole numbers ≥ 0 by job id ({file}, line {def decide})",
        ),
        ("own_scheduler_two:numbers", "the allocation of '0' that decide returns is 2; it must return a Decision"),
        ("own_scheduler_two:halves", "the allocation of '0' that decide returns is Allocation(workers=0.5, ps=1); it"),
        ("own_scheduler_two:elsewhere", "the placement that decide returns is {'0': 3}; it must return a Decision"),
        ("own_scheduler_two:raising", "decide raises KeyError: 'lost' ({file}, line {return {}[}); it must"),
        ("json:build", "Python has a module json already, and does not import json.py from here; rename the file"),
        ("no_such_module_at_all:build", "cannot be imported (ModuleNotFoundError"),
        ("own_scheduler_broken:build", "cannot be imported (SyntaxError"),
    ],
)
def test_what_is_none_is_refused_in_a_line(folder: Path, capsys, name: str, said: str) -> None:
    (folder / "own_scheduler_two.py").write_text(OWN)
    (folder / "own_scheduler_broken.py").write_text("def build(:")
    (folder / "json.py").write_text(OWN)
    assert run("--policy", name) == 2
    err = capsys.readouterr().err
    assert _filled(said, folder / "own_scheduler_two.py") in err
    assert err.splitlines()[-1].startswith("policy-net: --policy ")
    assert "Traceback" not in err


def _filled(said: str, file: Path) -> str:
    """The text with the file's path, and the numbers of lines by what they hold."""
    lines = file.read_text().splitlines()

    def number(match: re.Match[str]) -> str:
        held = match[1]
        if held == "file":
            return str(file)
        # Of several, the last: a subclass stands below what it derives from.
        return str(max(index for index, line in enumerate(lines, start=1) if held in line))

    return re.sub(r"\{(file|def \w+|1 / 0|return \{\}\[)\}", number, said)


def test_debug_shows_where_the_users_code_went_wrong(folder: Path, capsys) -> None:
    (folder / "own_scheduler_three.py").write_text(OWN)
    assert run("--policy", "own_scheduler_three:raising", "--debug") == 2
    err = capsys.readouterr().err
    assert "own_scheduler_three.py" in err
    assert "KeyError: " in err.split("The above exception was the direct cause")[0]
    assert err.splitlines()[-1].startswith("policy-net: --policy own_scheduler_three:raising: decide raises KeyError")


@pytest.mark.parametrize("typed", ["own_scheduler_four", "own_scheduler_four.py", "./own_scheduler_four.py"])
def test_a_python_file_means_its_function_build(folder: Path, capsys, typed: str) -> None:
    (folder / "own_scheduler_four.py").write_text(OWN)
    assert run("--policy", typed, "-o", "json") == 0
    assert [row["policy"] for row in json.loads(capsys.readouterr().out)] == ["mine"]


def test_a_python_file_of_another_folder_is_answered_with_what_to_type(
    folder: Path, capsys, tmp_path_factory: pytest.TempPathFactory
) -> None:
    away = tmp_path_factory.mktemp("away") / "own_scheduler_five.py"
    away.write_text(OWN)
    assert run("--policy", str(away)) == 2
    assert f"go to {away.parent} and write --policy own_scheduler_five:build" in capsys.readouterr().err


def test_a_scheduler_with_a_name_of_its_own_has_a_range_on_recorded_jobs(folder: Path, capsys) -> None:
    (folder / "own_scheduler_six.py").write_text(OWN)
    (folder / "jobs.csv").write_text("job_id,submit_time_s,duration_s,num_gpus\na,0,36000,2\nb,60,36000,1\n")
    words = ["replay", "--workload", "jobs.csv", "--policy", "fifo", "--policy", "own_scheduler_six:build"]
    assert command_line.run(app, "policy-net", [*words, "--range", "2", "-o", "json"]) == 0
    assert [row["range"] and row["range"]["replayed"] for row in json.loads(capsys.readouterr().out)] == [None, 3]


def test_a_policy_file_of_another_folder_has_a_range_on_recorded_jobs(folder: Path, capsys) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "taught.safetensors").write_bytes(DEFAULT_SET_FILE.read_bytes())
    (folder / "jobs.csv").write_text("job_id,submit_time_s,duration_s,num_gpus\na,0,36000,2\nb,60,36000,1\n")
    words = ["replay", "--workload", "jobs.csv", "--policy", "fifo", "--policy", "below/taught.safetensors"]
    assert command_line.run(app, "policy-net", [*words, "--range", "2", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[1]["range"]["replayed"] == 3


def test_one_that_cannot_be_copied_is_refused_in_a_line_where_replays_copy_it(folder: Path) -> None:
    (folder / "own_scheduler_two.py").write_text(OWN)
    own_policies.register_own(["own_scheduler_two:locked"])
    built = policy.build_policy("own_scheduler_two:locked", PolicyContext())
    with pytest.raises(BadInput, match=r"deepcopy raises TypeError: cannot pickle '_thread\.lock' object"):
        copy.deepcopy(built)
    own_policies.register_own(["own_scheduler_two:build"])
    assert copy.deepcopy(policy.build_policy("own_scheduler_two:build", PolicyContext())).name == "mine"
