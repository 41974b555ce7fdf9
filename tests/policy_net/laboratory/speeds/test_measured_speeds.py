from collections.abc import Callable
from pathlib import Path

import pytest

from policy_net.errors import BadInput
from policy_net.laboratory.speeds.measured_speeds import read_measured_points

HEADER = "model,num_ps,num_workers,samples_per_s"
MEASURED = [(1, 1), (4, 1), (1, 4), (4, 4), (16, 2), (8, 12)]


def speed(ps: int, workers: int) -> float:
    """Exactly of the form: 10 ms × (0.5/w + 0.2 + 0.25 w/p + 0.05 w)."""
    return 100 / (0.5 / workers + 0.2 + 0.25 * workers / ps + 0.05 * workers)


@pytest.fixture
def points_file(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: str, header: str = HEADER) -> Path:
        path = tmp_path / "points.csv"
        path.write_text("\n".join([header, *(f"a,{p},{w},{speed(p, w)}" for p, w in MEASURED), *lines]) + "\n")
        return path

    return write


def test_a_model_of_the_form_is_recovered_everywhere(points_file) -> None:
    fit = read_measured_points(points_file())
    for ps in range(1, 17):
        for workers in range(1, 17):
            assert fit.samples_per_second("a", ps, workers) == pytest.approx(speed(ps, workers), rel=1e-6)
    assert not fit.grid("a")[0].any()


def test_a_model_without_servers_is_fitted_as_allreduce(points_file) -> None:
    fit = read_measured_points(points_file(*(f"ring,0,{w},{100 / (0.8 / w + 0.2)}" for w in (1, 2, 4, 16))))
    assert fit.samples_per_second("ring", 0, 8) == pytest.approx(100 / 0.3, rel=1e-6)
    assert not fit.grid("ring")[1:].any()


def test_zero_speeds_and_counts_beyond_sixteen_are_left_out(points_file) -> None:
    plain = read_measured_points(points_file()).grid("a").copy()
    assert (read_measured_points(points_file("a,3,3,0", "a,17,1,1", "a,1,20,1")).grid("a") == plain).all()


def test_repeated_measurements_all_count(points_file) -> None:
    slower = read_measured_points(points_file(f"a,4,4,{speed(4, 4) / 2}"))
    assert slower.samples_per_second("a", 4, 4) < speed(4, 4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a,1,1,fast", r"points\.csv, line 8: samples_per_s is 'fast'"),
        ("a,1,1,-3", r"line 8: samples_per_s is '-3'"),
        ("a,1,1,inf", r"line 8: samples_per_s is 'inf'"),
        ("a,1,0,3", r"line 8: num_workers is '0'"),
        ("a,-1,1,3", r"line 8: num_ps is '-1'"),
        ("a,1.5,1,3", r"line 8: num_ps is '1\.5'"),
        (",1,1,3", r"line 8: model is empty"),
        ("a,0,4,3", r"line 8: num_ps is 0, but 'a' has speeds with parameter servers above"),
        ("b,1,1,3", r"model 'b' has 1 points with a speed above 0; the fit needs 5"),
    ],
)
def test_a_point_that_cannot_be_used_is_named(points_file, line: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_measured_points(points_file(line))


def test_a_file_without_the_columns_is_refused(points_file) -> None:
    with pytest.raises(BadInput, match="'samples_per_s' is missing"):
        read_measured_points(points_file(header="model,num_ps,num_workers,speed"))


def test_a_model_without_points_is_named_with_those_there_are(points_file) -> None:
    fit = read_measured_points(points_file())
    fit.require(["a"])
    with pytest.raises(BadInput, match=r"no points for model 'bert' in .*points\.csv: it has a"):
        fit.require(["a", "bert"])
