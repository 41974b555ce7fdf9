import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.speed_fit import fit_model, judge, main
from policy_net.simulation.catalogue import MODEL_NAMES
from policy_net.simulation.fitted_speeds import FITTED_SPEEDS
from policy_net.simulation.speed import FittedSpeedModel, fitted_grid


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_shipped_constants_meet_the_measurements(model: str, data_folder: Path, capsys) -> None:
    assert main(["--grid", str(data_folder / "reference" / "speed_grid.csv"), "-o", "json"]) == 0
    rows = {row["model"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[model]["median_error"] <= 0.10
    assert rows[model]["best_point_ratio"] >= 0.95


def test_a_fit_to_a_table_of_the_form_finds_it_again() -> None:
    truth = FittedSpeedModel().grid("vgg-16")
    quality = judge("vgg-16", fitted_grid(fit_model("vgg-16", truth)), truth)
    assert quality.median_error < 1e-3
    assert quality.best_point_ratio == 1.0


def test_a_fit_is_not_bent_by_dead_cells() -> None:
    truth = FittedSpeedModel().grid("vgg-16")
    holed = truth.copy()
    holed[[4, 5, 6, 9], [8, 6, 10, 11]] = 0
    assert judge("vgg-16", fitted_grid(fit_model("vgg-16", holed)), truth).median_error < 1e-3


def test_judge_measures_errors_and_the_best_point_by_hand() -> None:
    table, fit = np.zeros((17, 17)), np.zeros((17, 17))
    table[1:, 1:], fit[1:, 1:] = 10.0, 11.0
    table[3, 4], fit[3, 4] = 20.0, 20.0
    table[5, 5], fit[5, 5] = 15.0, 30.0
    table[6, 6] = 0.0  # dead: no error there
    quality = judge("any", fit, table)
    assert quality.median_error == pytest.approx(0.1)
    assert quality.mean_error == pytest.approx((253 * 0.1 + 0 + 1.0) / 255)
    assert (quality.best_ps, quality.best_workers) == (5, 5)
    assert quality.best_point_ratio == pytest.approx(0.75)


def test_refit_writes_a_module_with_the_constants_it_judged(tmp_path: Path, capsys) -> None:
    table = tmp_path / "grid.csv"
    grid = FittedSpeedModel().grid("wlm")
    lines = [f"wlm,{p},{w},{float(grid[p, w])!r}" for p in range(1, 17) for w in range(1, 17)]
    table.write_text("model,num_ps,num_workers,samples_per_s\n" + "\n".join(lines))
    out = tmp_path / "constants.py"
    assert main(["--grid", str(table), "--refit", str(out), "-o", "json"]) == 0
    names: dict[str, object] = {"__name__": "policy_net.simulation.fitted_speeds"}
    exec(out.read_text(), names)  # noqa: S102 - our own output
    written = names["FITTED_SPEEDS"]["wlm"]
    assert written.servers == pytest.approx(FITTED_SPEEDS["wlm"].servers, abs=1e-3)


def test_a_table_that_cannot_be_read_ends_with_exit_code_2(tmp_path: Path, capsys) -> None:
    assert main(["--grid", str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err
