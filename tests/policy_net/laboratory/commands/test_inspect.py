import hashlib
import json
from pathlib import Path

import pytest

from foundation import command_line
from policy_net.cli import app
from policy_net.dl2.network import initial_weights
from policy_net.exchange.policy_file import PolicyFile, write_policy_file
from policy_net.exchange.spec import PolicySpec, SetSpec
from policy_net.set_policy.policy import DEFAULT_SET_FILE
from policy_net.set_policy.residual import initial_residual


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    spec = PolicySpec(jobs_per_batch=3, type_columns=2, hidden=(8,))
    path = tmp_path / "small.safetensors"
    write_policy_file(path, PolicyFile(spec, initial_weights(spec, 1), {"seed": 1}))
    return path


def _inspect(*words: str) -> int:
    return command_line.run(app, "policy-net", ["inspect", *words])


def test_json_says_what_the_file_is(policy_file: Path, capsys) -> None:
    assert _inspect(str(policy_file), "-o", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["digest"] == hashlib.sha256(policy_file.read_bytes()).hexdigest()
    assert facts["size_bytes"] == policy_file.stat().st_size
    assert facts["actions"] == 3 * 3 + 1
    assert facts["features"] == 3 * (2 + 5)
    assert facts["card"] == {"seed": 1}


def test_the_table_shows_the_whole_digest(policy_file: Path, capsys) -> None:
    assert _inspect(str(policy_file)) == 0
    out = "".join(character for character in capsys.readouterr().out if character in "0123456789abcdef")
    assert hashlib.sha256(policy_file.read_bytes()).hexdigest() in out


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "other"])
def test_what_is_no_policy_file_is_bad_input(damage: str, policy_file: Path, capsys) -> None:
    data = policy_file.read_bytes()
    contents = {"empty": b"", "cut": data[: len(data) // 2], "other": b"job_id,submit\n" * 20}
    if damage == "missing":
        policy_file.unlink()
    else:
        policy_file.write_bytes(contents[damage])
    assert _inspect(str(policy_file)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("policy-net: ")
    assert len(err.splitlines()) == 1
    assert str(policy_file) in err


def test_the_table_shows_brackets_as_they_stand(policy_file: Path, capsys) -> None:
    named = policy_file.rename(policy_file.with_name("[bold].safetensors"))
    assert _inspect(str(named)) == 0
    assert "[bold].safetensors" in capsys.readouterr().out.replace("\n", "").replace(" ", "")


@pytest.mark.heavy
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_shipped_policy_is_told_in_words_at_every_width(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert _inspect(str(DEFAULT_SET_FILE)) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    assert "_" not in out.replace(str(DEFAULT_SET_FILE), "").replace("benchmarks.set_default", "").split("digest")[-1]
    text = " ".join(out.split())
    assert "44 weights, 21 inputs for each job, without prices" in text
    assert "628 speeds that others observed" in text


def test_a_policy_with_prices_and_sessions_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = SetSpec(prices=1, sessions=1)
    path = tmp_path / "more.safetensors"
    write_policy_file(path, PolicyFile(spec, initial_residual(spec, 1), {}))
    assert _inspect(str(path)) == 0
    assert "with prices and with sessions" in " ".join(capsys.readouterr().out.split())


def test_what_ships_is_named_in_place_of_a_file(capsys) -> None:
    assert _inspect("set-taught", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["policy"] == "set"
    assert _inspect("drf") == 2
    assert "drf is a scheduler without a file" in capsys.readouterr().err


def test_the_table_says_which_sign_of_a_validation_is_better(capsys) -> None:
    assert _inspect("set") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "-0.01211; of average JCTs, below 0 is better" in said
