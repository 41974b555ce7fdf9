from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from policy_net.errors import BadInput
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.speeds.speed import (
    TableSpeedModel,
    default_speeds,
    read_speed_table,
    write_speed_table,
)

HEADER = "model,num_ps,num_workers,samples_per_s"


@pytest.fixture
def table_file(tmp_path: Path) -> Callable[..., Path]:
    def write(change: Callable[[list[str]], object] = lambda lines: None, header: str = HEADER) -> Path:
        lines = [f"wlm,{p},{w},{100 * p + w}" for p in range(1, 17) for w in range(1, 17)]
        change(lines)
        path = tmp_path / "speeds.csv"
        path.write_text("\n".join([header, *lines]) + "\n")
        return path

    return write


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_fitted_speeds_are_positive_exactly_where_a_job_can_train(model: str) -> None:
    grid = default_speeds().grid(model)
    assert grid.shape == (17, 17)
    assert np.isfinite(grid).all()
    assert (grid[1:, 1:] > 0).all()
    assert not grid[0].any()
    assert not grid[:, 0].any()


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_fitted_speeds_of_neighbours_are_of_one_order(model: str) -> None:
    log_speed = np.log(default_speeds().grid(model)[1:, 1:])
    assert np.abs(np.diff(log_speed, axis=0)).max() < np.log(2.5)
    assert np.abs(np.diff(log_speed, axis=1)).max() < np.log(2.5)


def test_more_workers_can_hurt_and_more_servers_help_a_large_model() -> None:
    vgg = default_speeds().grid("vgg-16")
    assert vgg[1, 8] < vgg[1, 1]
    assert vgg[14, 1] > 2 * vgg[1, 1]


def test_one_number_and_the_grid_agree() -> None:
    speeds = default_speeds()
    assert speeds.samples_per_second("dssm", 7, 5) == speeds.grid("dssm")[7, 5]
    assert speeds.samples_per_second("dssm", 0, 5) == 0
    assert speeds.samples_per_second("dssm", 7, 0) == 0


@pytest.mark.parametrize(("ps", "workers"), [(17, 1), (1, 17), (0, 65), (-1, 1), (1, -1)])
def test_counts_that_no_job_may_have_are_refused(ps: int, workers: int) -> None:
    with pytest.raises(ValueError, match="0…16"):
        default_speeds().samples_per_second("wlm", ps, workers)


def test_an_unknown_model_is_named_with_those_there_are() -> None:
    with pytest.raises(BadInput, match=r"'llama'.*resnet-50"):
        default_speeds().grid("llama")


def test_a_grid_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        default_speeds().grid("wlm")[1, 1] = 0


def test_a_grid_with_speed_but_no_worker_is_refused() -> None:
    grid = np.ones((17, 17))
    with pytest.raises(ValueError, match="without a worker"):
        TableSpeedModel({"x": grid}, "test")


def test_a_table_is_read_by_server_then_worker(table_file) -> None:
    speeds = read_speed_table(table_file())
    assert speeds.samples_per_second("wlm", 3, 5) == 305
    assert speeds.model_names == ("wlm",)


def test_a_model_that_trains_by_all_reduce_has_speeds_without_servers(table_file) -> None:
    speeds = read_speed_table(table_file(lambda lines: lines.extend(f"ring,0,{w},{50 * w}" for w in range(1, 17))))
    assert speeds.grid("ring").tolist() == [[50.0 * w if w <= 16 else 0.0 for w in range(65)]]
    assert speeds.samples_per_second("wlm", 3, 5) == 305


def test_more_than_16_workers_without_servers_count_as_far_as_they_have_no_gap(table_file, tmp_path: Path) -> None:
    counts = [*range(1, 21), 22, 64, 65]
    speeds = read_speed_table(table_file(lambda lines: lines.extend(f"ring,0,{w},{50 * w}" for w in counts)))
    assert speeds.grid("ring").tolist() == [[50.0 * w if w <= 20 else 0.0 for w in range(65)]]
    assert speeds.samples_per_second("ring", 0, 64) == 0
    write_speed_table(speeds, tmp_path / "again.csv")
    assert read_speed_table(tmp_path / "again.csv").grid("ring").tolist() == speeds.grid("ring").tolist()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda lines: lines.append("wlm,0,1,5"), "line 258: num_ps is 0, but 'wlm' has speeds with parameter servers"),
        (
            lambda lines: lines.append("ring,0,1,5"),
            "'ring' has no speed for 0 PSs and 2 workers; it needs 0 PSs and 1–16",
        ),
    ],
)
def test_an_all_reduce_model_that_is_mixed_up_or_incomplete_is_named(table_file, change, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        read_speed_table(table_file(change))


def test_a_written_table_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    write_speed_table(default_speeds(), path)
    back = read_speed_table(path)
    assert back.model_names == default_speeds().model_names
    for model in back.model_names:
        assert back.grid(model) == pytest.approx(default_speeds().grid(model), rel=1e-5)


def test_a_speed_of_zero_is_kept_and_counts_beyond_16_are_left_out(table_file) -> None:
    def change(lines: list[str]) -> None:
        lines[0] = "wlm,1,1,0"
        lines.append("wlm,17,1,9")

    speeds = read_speed_table(table_file(change))
    assert speeds.samples_per_second("wlm", 1, 1) == 0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("wlm,1,1,-3", r"line 2: samples_per_s is '-3'"),
        ("wlm,1,1,nan", r"line 2: samples_per_s is 'nan'"),
        ("wlm,1,1,fast", r"line 2: samples_per_s is 'fast'"),
        ("wlm,1.5,1,3", r"line 2: num_ps is '1.5'"),
        ("wlm,-1,1,3", r"line 2: num_ps is '-1'"),
        ("wlm,0,1,3", r"line 3: num_ps is 1, but 'wlm' has speeds without parameter servers above"),
        ("wlm,1,,3", r"line 2: num_workers is empty"),
        (",1,1,3", r"line 2: model is empty"),
        ("wlm,1,2,3", r"line 3: model 'wlm' with 1 PSs and 2 workers is given twice"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_with_its_value(table_file, line: str, expected: str) -> None:
    path = table_file(lambda lines: lines.__setitem__(0, line))
    with pytest.raises(BadInput, match=expected) as error:
        read_speed_table(path)
    assert str(path) in str(error.value)


def test_a_table_that_is_cut_within_its_last_number_is_refused(table_file) -> None:
    path = table_file()
    path.write_text(path.read_text()[:-2])
    with pytest.raises(BadInput, match="line 257: the file ends in the middle of a line and may be cut short"):
        read_speed_table(path)


def test_a_table_with_a_hole_names_it(table_file) -> None:
    with pytest.raises(BadInput, match="'wlm' has no speed for 1 PSs and 3 workers"):
        read_speed_table(table_file(lambda lines: lines.pop(2)))


def test_a_table_without_a_column_or_rows_or_at_all_is_refused(table_file, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'samples_per_s' is missing"):
        read_speed_table(table_file(header="model,num_ps,num_workers,speed"))
    with pytest.raises(BadInput, match="no rows"):
        read_speed_table(table_file(lambda lines: lines.clear()))
    with pytest.raises(BadInput, match=r"none\.csv: cannot read"):
        read_speed_table(tmp_path / "none.csv")
