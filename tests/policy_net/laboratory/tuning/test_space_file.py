"""A space file narrows what is declared, and everything else in it is refused in one line."""

from pathlib import Path

import pytest
import yaml

from policy_net.errors import BadInput
from policy_net.laboratory.tuning.space import Space, read_space_file, space_of, write_space_file

SPACES = {"dl2": space_of("dl2"), "set": space_of("set")}
SET = SPACES["set"]


def read(folder: Path, text: str, space: Space = SET) -> Space:
    path = folder / "space.yaml"
    path.write_text(text)
    return read_space_file(path, space)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_what_a_study_writes_is_its_whole_space(space: Space, tmp_path: Path) -> None:
    assert read_space_file(write_space_file(tmp_path, space), space) == space


def test_what_is_named_varies_within_its_bounds_and_the_rest_does_not(tmp_path: Path) -> None:
    text = (
        "policy: set\nparameters:\n  neurons: [8, 0]\n  pairs: {low: 2, high: 8}\n  trust_radius: {low: 1, high: 9}\n"
    )
    found = read(tmp_path, text)
    assert list(found.defaults) == ["neurons", "pairs", "trust_radius"]
    neurons, pairs, radius = found.parameters
    assert neurons.choices == (0, 8)
    assert (pairs.low, pairs.high, pairs.log, pairs.whole) == (2, 8, True, True)
    assert (radius.low, radius.high, radius.whole) == (1.0, 9.0, False)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ("{}", "setting parameters"),
        ("{pears: {low: 1, high: 2}}", "parameters.pears: there is no such parameter; did you mean pairs?"),
        ("{layers: {low: 1, high: 2}}", "there is no such parameter; use start, neurons"),
        ("{pairs: 4}", "parameters.pairs: is a number; say {low: 1, high: 32}"),
        ("{pairs: {low: 1}}", "is a number; say"),
        ("{pairs: {low: 1, high: 8, step: 2}}", "is a number; say"),
        ("{pairs: {low: 1.5, high: 8}}", "parameters.pairs.low: use a whole number from 1 to 32"),
        ("{pairs: {low: true, high: 8}}", "parameters.pairs.low: use a whole number"),
        ("{pairs: {low: two, high: 8}}", "parameters.pairs.low: use a whole number"),
        ("{pairs: {low: 1, high: 64}}", "parameters.pairs.high: 64 is not from 1 to 32"),
        ("{pairs: {low: 8, high: 2}}", "low 8 is not below high 2"),
        ("{pairs: {low: 4, high: 4}}", "leave it out"),
        ("{pairs: {low: 8, high: 16}}", "is without its default 4"),
        ("{pairs: {low: 1, high: 8, log: maybe}}", "parameters.pairs.log: say true or false"),
        ("{trust_radius: {low: .nan, high: 6}}", "use a number from 0.5 to 20"),
        ("{start: set}", "parameters.start: say a list of two or more of set, planner"),
        ("{start: [set]}", "say a list of two or more"),
        ("{start: [set, nothing]}", "use some of set, planner"),
        ("{start: [set, set]}", "says a value twice"),
        ("{neurons: [false, 8]}", "use some of 0, 8, 16"),
        ("{neurons: [8, 16]}", "is without its default 0"),
        ("{neurons: [[0], {}]}", "use some of 0, 8, 16"),
    ],
)
def test_a_bad_parameter_is_one_line(tmp_path: Path, parameters: str, says: str) -> None:
    with pytest.raises(BadInput) as refusal:
        read(tmp_path, f"policy: set\nparameters: {parameters}\n")
    line = str(refusal.value)
    assert says in line
    assert line.startswith(str(tmp_path / "space.yaml"))
    assert "\n" not in line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no settings"),
        ("parameters: {pairs: {low: 1, high: 8}}\n", "setting policy is missing"),
        ("policy: set\n", "setting parameters is missing"),
        ("policy: set\nparameter: {}\n", "unknown setting parameter; did you mean parameters?"),
        ("policy: set\nmethod: guessing\nparameters: {a: 1}\n", "setting method = 'guessing'"),
        (
            "policy: dl2\nparameters: {layers: {low: 1, high: 2}}\n",
            "is a space of dl2, and this study is of set",
        ),
        ("policy: set\nmethod: evolution\nparameters: {pairs: {low: 4, high: 32}}\n", "setting method = 'evolution'"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadInput) as refusal:
        read(tmp_path, text)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_values_of_a_file_are_plain(tmp_path: Path) -> None:
    content = yaml.safe_load(write_space_file(tmp_path, SPACES["dl2"]).read_text())
    assert content["policy"] == "dl2"
    assert content["parameters"]["reward"] == ["slot-utility", "paper", "own-job"]
    assert content["parameters"]["layers"] == {"low": 1, "high": 3, "log": False}
