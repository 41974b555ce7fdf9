"""policy-net extend: a file with further numbers to learn, which acts as it did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from states import make_job, make_state

from foundation import command_line
from policy_net.cli import app
from policy_net.dl2.network import initial_weights
from policy_net.domain import Trigger
from policy_net.exchange.policy_file import PolicyFile, read_policy_file, write_policy_file
from policy_net.exchange.spec import PolicySpec, SetSpec, split_weights
from policy_net.set_policy.policy import default_set_file, set_policy_of


def extend(*words: str) -> int:
    return command_line.run(app, "policy-net", ["extend", *words])


@pytest.mark.parametrize("groups", [["prices"], ["sessions"], ["prices", "sessions"], ["sessions", "prices"]])
def test_what_ships_gets_groups_and_keeps_what_it_had(
    tmp_path: Path, groups: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "wide.safetensors"
    words = ["set", *(word for group in groups for word in ("--with", group)), "--out", str(out)]
    assert extend(*words) == 0
    assert str(out) in capsys.readouterr().out
    assert extend(*words, "-o", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["file"], facts["with"]) == (str(out), sorted(groups))
    made, shipped = read_policy_file(out), default_set_file()
    assert isinstance(made.spec, SetSpec)
    assert (bool(made.spec.prices), bool(made.spec.sessions)) == ("prices" in groups, "sessions" in groups)
    assert made.priors == shipped.priors
    of_shipped = split_weights(shipped.weights, shipped.spec)
    for name, values in split_weights(made.weights, made.spec).items():
        assert np.array_equal(values, of_shipped.get(name, np.zeros_like(values)))
    state = make_state([make_job(number) for number in range(6)])
    decisions = [set_policy_of(each, "x").decide(state, Trigger.SLOT) for each in (made, shipped)]
    assert decisions[0] == decisions[1]


def test_a_file_that_has_prices_gets_sessions_and_its_prices_stay(tmp_path: Path) -> None:
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    shipped = default_set_file()
    spec = SetSpec.model_validate({**shipped.spec.model_dump(), "prices": 1})
    weights = np.append(shipped.weights, np.arange(6)).astype(np.float32)
    write_policy_file(first, PolicyFile(spec, weights, {}, shipped.priors))
    assert extend(str(first), "--with", "sessions", "--out", str(second)) == 0
    made = read_policy_file(second)
    assert split_weights(made.weights, made.spec)["prices"].tolist() == [0, 1, 2, 3, 4, 5]
    assert extend(str(second), "--with", "prices", "--out", str(tmp_path / "third.safetensors")) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.safetensors", "--with", "prices"], "none.safetensors"),
        (["DL2", "--with", "prices"], "not a set policy"),
        (["set", "--with", "price"], "prices"),
        (["set"], "--with"),
        (["set-taught", "--with", "sessions"], "set-taught: has sessions already"),
    ],
)
def test_what_cannot_be_extended_is_one_line_and_nothing_is_written(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dl2 = tmp_path / "dl2.safetensors"
    spec = PolicySpec(jobs_per_batch=3, type_columns=2, hidden=(8,))
    write_policy_file(dl2, PolicyFile(spec, initial_weights(spec, 1), {}))
    out = tmp_path / "out.safetensors"
    assert extend(*(str(dl2) if word == "DL2" else word for word in words), "--out", str(out)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not out.exists()
