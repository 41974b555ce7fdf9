import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.speed_fit import allreduce, places, queues
from benchmarks.speed_fit.__main__ import main
from benchmarks.speed_fit.quality import crossed, row
from benchmarks.speed_fit.servers import fit_model, judge
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.speeds.fitted_speeds import FITTED_QUEUES, FITTED_RINGS, FITTED_SPEEDS
from policy_net.laboratory.speeds.placement_effect import FITTED_SPREADS
from policy_net.laboratory.speeds.speed import TableSpeedModel, default_speeds, fitted_grid, write_speed_table


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_shipped_constants_meet_the_measurements(model: str, data_folder: Path, capsys) -> None:
    assert main(["--grid", str(data_folder / "reference" / "speed_grid.csv"), "-o", "json"]) == 0
    rows = {row["model"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[model]["median_error"] <= 0.10
    assert rows[model]["best_point_ratio"] >= 0.95


def test_a_fit_to_a_table_of_the_form_finds_it_again() -> None:
    truth = default_speeds().grid("vgg-16")
    quality = judge("vgg-16", fitted_grid(fit_model(truth)), truth)
    assert quality.median_error < 1e-3
    assert quality.best_point_ratio == 1.0


def test_a_fit_is_not_bent_by_dead_cells() -> None:
    truth = default_speeds().grid("vgg-16")
    holed = truth.copy()
    holed[[4, 5, 6, 9], [8, 6, 10, 11]] = 0
    assert judge("vgg-16", fitted_grid(fit_model(holed)), truth).median_error < 1e-3


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
    grid = default_speeds().grid("wlm")
    lines = [f"wlm,{p},{w},{float(grid[p, w])!r}" for p in range(1, 17) for w in range(1, 17)]
    table.write_text("model,num_ps,num_workers,samples_per_s\n" + "\n".join([*lines, ""]))
    out = tmp_path / "constants.py"
    assert main(["--grid", str(table), "--refit", str(out), "-o", "json"]) == 0
    names: dict[str, object] = {"__name__": "policy_net.laboratory.speeds.fitted_speeds"}
    exec(out.read_text(), names)  # noqa: S102 - our own output
    written = names["FITTED_SPEEDS"]["wlm"]
    assert written.servers == pytest.approx(FITTED_SPEEDS["wlm"].servers, abs=1e-3)


def test_a_table_that_cannot_be_read_ends_with_exit_code_2(tmp_path: Path, capsys) -> None:
    assert main(["--grid", str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_everything_is_judged_where_profiles_and_steps_are_given(data_folder: Path, capsys) -> None:
    words = ["--grid", str(data_folder / "reference" / "speed_grid.csv"), "--profiles", str(data_folder / "profiles")]
    words += ["--steps", str(data_folder / "dl2" / "dl2_ps_worker_speed.csv")]
    assert main([*words, "-o", "json"]) == 0
    parts = json.loads(capsys.readouterr().out)
    assert list(parts) == ["ps", "allreduce", "allreduce_beyond_16", "locality", "gpu_types", "async"]
    assert len(parts["ps"]) == len(MODEL_NAMES)
    assert max(item["median_error"] for item in parts["allreduce"]) < 0.05
    assert max(item["max_error"] for item in parts["allreduce"]) < 0.10
    assert max(item["held_out_median_error"] for item in parts["allreduce"]) < 0.10
    assert max(item["median_error"] for item in parts["allreduce_beyond_16"]) < 0.08
    assert max(item["max_error"] for item in parts["allreduce_beyond_16"]) < 0.12
    pollux = [item for item in parts["locality"] if "Pollux" in item["what"]]
    assert max(item["held_out_median_error"] for item in pollux) < 0.06
    assert max(item["median_error"] for item in parts["async"]) < 0.10
    assert main(words) == 0
    assert "resnet50 (Gavel)" in capsys.readouterr().out


def test_shipped_constants_are_those_of_the_fit(data_folder: Path) -> None:
    scaling = allreduce.read_scaling(data_folder / "profiles")
    for model, ring in FITTED_RINGS.items():
        found = allreduce.fit_ring([point for point in scaling if point.model == model])
        assert _values(found)[:4] == pytest.approx(_values(ring)[:4], rel=1e-3, abs=1e-8)
        # What is left beyond 16 GPUs depends on how the four are rounded.
        assert found.per_doubling == pytest.approx(ring.per_doubling, rel=2e-3, abs=1e-8)
    steps = queues.read_steps(data_folder / "dl2" / "dl2_ps_worker_speed.csv")
    for model, queue in FITTED_QUEUES.items():
        refound = queues.fit_queue([point for point in steps if point.model == model])
        assert _values(refound) == pytest.approx(_values(queue), rel=1e-3, abs=1e-8)
    for read, families in (
        (places.read_pollux, places.POLLUX_FAMILIES),
        (places.read_chronus, places.CHRONUS_FAMILIES),
    ):
        measured = read(data_folder / "profiles")
        for model, family in families.items():
            spread = places.fit_spread([place for place in measured if place.model == model])
            assert _values(spread) == pytest.approx(_values(FITTED_SPREADS[family]), abs=1e-3)


def _values(constants: object) -> list[float]:
    return [getattr(constants, name) for name in constants.__slots__]


def test_held_out_points_are_predicted_from_the_other_folds_alone() -> None:
    def errors(rest: list[float], left: list[float]) -> np.ndarray:
        return np.array([abs(value - sum(rest) / len(rest)) for value in left])

    found = crossed([1.0, 2.0, 6.0], lambda index, _: index % 2, errors)
    assert found.tolist() == [1.0, 4.0, 1.5]
    summed = row("x", found, "halves", found)
    assert (summed.points, summed.median_error, summed.held_out_max_error) == (3, 1.5, 4.0)


def test_a_profile_that_cannot_be_read_ends_with_exit_code_2(tmp_path: Path, capsys) -> None:
    grid = tmp_path / "grid.csv"
    speeds = default_speeds()
    write_speed_table(TableSpeedModel({name: speeds.grid(name) for name in MODEL_NAMES}, "test"), grid)
    assert main(["--grid", str(grid), "--profiles", str(tmp_path)]) == 2
    assert "elasticflow_scaling.csv" in capsys.readouterr().err
