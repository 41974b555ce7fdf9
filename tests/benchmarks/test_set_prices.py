"""The benchmark of prices: which windows it sees, what it sums up, what it writes and what it refuses."""

import json
import math
from pathlib import Path

import pytest

from benchmarks import set_prices
from benchmarks.policy_quality.seeds import SEEDS, Part
from benchmarks.policy_quality.worlds import Cluster
from benchmarks.set_prices import SETTINGS, SHIPPED, main, summarise, validation_cells
from foundation.errors import BAD_INPUT, DONE
from policy_net.exchange.policy_file import read_policy_file
from policy_net.set_policy.policy import DEFAULT_SET_FILE, default_set_file, set_policy_of
from policy_net.set_policy.prices import PriceTerms
from policy_net.set_policy.sessions import SessionTerms


def test_only_windows_and_seeds_to_choose_on_are_seen() -> None:
    clusters = [Cluster("long", "", 5000), Cluster("short", "", 900)]
    cells = list(validation_cells(clusters, "mix, unknown", 1))
    assert [(cell.cluster, cell.window) for cell in cells] == [("long", 2)]
    assert all(cell.part is Part.VALIDATION for cell in cells)
    assert cells[0].model_seed in SEEDS[Part.VALIDATION].models


def test_seeds_of_a_cluster_are_averaged_before_clusters_are() -> None:
    def figures(value: float) -> dict[str, float]:
        return {"avg_jct_seconds": value, "p99_jct_seconds": 2 * value, "max_jct_seconds": 3.0}

    setting = next(iter(SETTINGS))
    runs = [(setting, "one", 0), (setting, "one", 1), (setting, "other", 0)]
    found = {
        SHIPPED: {run: figures(10.0) for run in runs},
        "tried": dict(zip(runs, map(figures, (5.0, 20.0, 20.0)), strict=True)),
    }
    (row,) = summarise(found)
    assert row["clusters"] == 2
    assert row["mean"] == pytest.approx(math.log(2) / 2)
    assert (row["best"], row["worst"]) == (pytest.approx(0.0), pytest.approx(math.log(2)))
    assert row["p99"] == pytest.approx(row["mean"])
    assert row["longest"] == 0.0


def test_a_row_becomes_a_policy_file_that_says_so(tmp_path: Path) -> None:
    out = tmp_path / "mine.safetensors"
    assert main(["--variant", "mine=0.5,0,0,0,-1,0.25", "--write", "mine", "--out", str(out)]) == DONE
    content = read_policy_file(out)
    assert set_policy_of(content, "mine").price_terms == PriceTerms((0.5, 0.0), (0.0, 0.0), (-1.0, 0.25))
    assert set_policy_of(content, "mine").session_terms is None
    assert content.card["prices_set_by"] == set_prices.PROGRAM
    assert content.priors == default_set_file().priors


def test_nine_numbers_are_prices_and_sessions(tmp_path: Path) -> None:
    out = tmp_path / "mine.safetensors"
    assert main(["--variant", "mine=0,0,0,0,0,0,0.5,0,-0.5", "--write", "mine", "--out", str(out)]) == DONE
    policy = set_policy_of(read_policy_file(out), "mine")
    assert policy.price_terms.usual
    assert policy.session_terms == SessionTerms(0.5, 0.0, -0.5)


def test_short_windows_are_measured(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(set_prices, "WINDOW_JOBS", 40)
    options = ["--seeds", "1", "--every", "30", "-o", "json", "--variant", "usual=0,0,0,0,0,0"]
    options += ["--file", f"same={DEFAULT_SET_FILE}"]
    assert main(["--data", str(data_folder), *options]) == DONE
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {(row["setting"], row["variant"]) for row in rows} == {
        (setting, name) for setting in SETTINGS for name in ("usual", "same")
    }
    assert all(row["mean"] == row["worst"] == row["longest"] == 0.0 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--variant", "mine=1,2"], "give 6 finite numbers"),
        (["--variant", "mine=1,2,3,4,5,nan"], "give 6 finite numbers"),
        (["--variant", "mine=a,b"], "no numbers"),
        ([], "give --data FOLDER"),
        (["--data", "nowhere", "--seeds", "0"], "1 or more"),
        (["--write", "never heard of", "--out", "x"], "one of speed exponent"),
        (["--file", "policy.safetensors"], "use NAME=FILE"),
        (["--file", "mine=nowhere.safetensors"], "nowhere.safetensors"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == BAD_INPUT
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_folder_without_long_workloads_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path)]) == BAD_INPUT
    assert "no workloads/*.csv is long enough" in capsys.readouterr().err
