import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation import command_line
from policy_net.cli import app
from policy_net.laboratory.speeds.fitted_speeds import FITTED_RINGS, RingConstants, allreduce_speeds
from policy_net.laboratory.speeds.measured_speeds import refit, relative_errors
from policy_net.laboratory.speeds.speed import default_speeds, read_speed_table
from policy_net.throughput.parametric import SpeedPoint

HEADER = "model,num_ps,num_workers,samples_per_s"


def _policy_net(*words: str) -> int:
    return command_line.run(app, "policy-net", words)


@pytest.fixture
def measured(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: str, header: str = HEADER) -> Path:
        path = tmp_path / "measured.csv"
        path.write_text("\n".join([header, *lines]) + "\n")
        return path

    return write


def ring_lines(model: str, constants: RingConstants, counts: list[int], batch: int = 256) -> list[str]:
    speeds = allreduce_speeds(constants, batch)
    return [f"{model},0,{count},{float(speeds[count])!r}" for count in counts]


constants = st.builds(
    RingConstants,
    st.floats(0, 0.1),
    st.floats(1e-4, 1e-2),
    st.floats(0, 0.1),
    st.floats(0, 0.01),
)


@settings(deadline=None)
@given(constants, st.sampled_from([32, 128, 512]))
def test_an_all_reduce_job_is_found_again_from_five_points(truth: RingConstants, batch: int) -> None:
    speeds = allreduce_speeds(truth, batch)
    points = [SpeedPoint(0, count, float(speeds[count])) for count in (1, 2, 4, 8, 16)]
    fitted, (quality,) = refit({"mine": points}, "test")
    # With one batch, a ring's step is a/n + b + d·n, and the fit is exact where all three are positive, as in reality.
    if truth.per_sample * batch >= truth.ring and truth.fixed + truth.ring >= truth.per_peer:
        assert fitted.grid("mine")[0, :17] == pytest.approx(speeds[:17], rel=1e-3)
    assert not fitted.grid("mine")[0, 17:].any(), "nobody has measured there"
    assert quality.points == 5
    assert not fitted.grid("mine")[1:].any()


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0.01, 2), min_size=5, max_size=5), st.integers(0, 2**31))
def test_a_ps_job_is_found_again_from_twelve_points(terms: list[float], seed: int) -> None:
    draw = np.random.default_rng(seed)
    cells = draw.permutation([(p, w) for p in (1, 2, 4, 8, 16) for w in (1, 2, 4, 8, 16)])[:12]

    def speed(ps: int, workers: int) -> float:
        a, b, c, d, e = terms
        return float(1 / (a / workers + b + c * workers / ps + d * workers / 10 + e * ps / 10))

    points = [SpeedPoint(int(p), int(w), speed(int(p), int(w))) for p, w in cells]
    fitted, (quality,) = refit({"mine": points}, "test")
    everything = [SpeedPoint(p, w, speed(p, w)) for p in range(1, 17) for w in range(1, 17)]
    assert quality.form == "steps"
    assert quality.max_error < 1e-3
    assert np.median(relative_errors(fitted.grid("mine"), everything)) < 0.02


def test_many_measurements_are_fitted_as_a_surface() -> None:
    truth = default_speeds().grid("inception-bn")
    points = [SpeedPoint(p, w, float(truth[p, w])) for p in range(1, 17) for w in range(1, 17)]
    points[17] = SpeedPoint(points[17].ps, points[17].workers, 0.0)
    fitted, (quality,) = refit({"inception-bn": points}, "test")
    assert (quality.form, quality.points, quality.left_out) == ("surface", 255, 1)
    assert quality.held_out_median_error is not None
    assert quality.held_out_median_error < 0.01
    assert fitted.grid("inception-bn") == pytest.approx(truth, rel=0.02)


def test_the_written_table_can_be_replayed_with(measured, tmp_path: Path, capsys) -> None:
    ring = FITTED_RINGS["vgg16"]
    table = measured(*ring_lines("vgg16-256-allreduce", ring, [1, 2, 4, 8]), "wlm,1,1,90", "wlm,2,1,140", "wlm,1,2,100",
                     "wlm,2,2,150", "wlm,4,4,170", "wlm,8,8,120")  # fmt: skip
    out = tmp_path / "speeds.csv"
    assert _policy_net("fit-speed", "--table", str(table), "--out", str(out), "-o", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["model"], row["points"], row["form"]) for row in rows] == [
        ("vgg16-256-allreduce", 4, "steps"),
        ("wlm", 6, "steps"),
    ]
    assert rows[0]["max_error"] < 1e-3
    assert rows[0]["held_out_median_error"] is None
    assert read_speed_table(out).model_names == ("vgg16-256-allreduce", "wlm")
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,submit_time_s,duration_s,num_gpus,model\na,0,600,2,vgg16\n")
    words = [
        "--workload",
        str(trace),
        "--policy",
        "fifo",
        "--job-kind",
        "allreduce",
        "--speeds",
        str(out),
        "-o",
        "json",
    ]
    assert _policy_net("replay", *words) == 0
    assert json.loads(capsys.readouterr().out)[0]["avg_jct_seconds"] == pytest.approx(600)


def test_the_quality_is_shown_as_a_table(measured, capsys) -> None:
    table = measured(*ring_lines("mine", FITTED_RINGS["bert"], list(range(1, 17))), "mine,0,3,0")
    assert _policy_net("fit-speed", "--table", str(table)) == 0
    out = capsys.readouterr().out
    assert "mine" in out
    assert "steps" in out
    assert "workers" in out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("m,0,1,fast", "measured.csv, line 2: samples_per_s is 'fast'"),
        ("m,0,1,-3", "measured.csv, line 2: samples_per_s is '-3'"),
        ("m,0,1,inf", "measured.csv, line 2: samples_per_s is 'inf'"),
        ("m,0,1,1e308", "measured.csv, line 2: samples_per_s is 1e308; use 0, or samples a second from 1e-12 to 1e+12"),
        ("m,0,1,1e-320", "measured.csv, line 2: samples_per_s is 1e-320; use 0, or"),
        ("m,-1,1,3", "measured.csv, line 2: num_ps is '-1'"),
        ("m,1.5,1,3", "measured.csv, line 2: num_ps is '1.5'"),
        ("m,0,0,3", "measured.csv, line 2: num_workers is '0'"),
        ("m,0,,3", "measured.csv, line 2: num_workers is empty"),
        (",0,1,3", "measured.csv, line 2: model is empty"),
        ("m,0,1", "measured.csv, line 2 has 3 of 4 columns"),
        ("m,1,1,3", "measured.csv, line 3: num_ps is 0, but 'm' has speeds with parameter servers above"),
        ("other,0,1,3", "model 'other' has 1 points with a speed above 0; the fit needs 3 or more"),
        ("other,1,1,3", "model 'other' has 1 points with a speed above 0; the fit needs 5 or more"),
    ],
)
def test_a_measurement_that_cannot_be_used_is_named(measured, line: str, said: str, capsys) -> None:
    table = measured(line, *ring_lines("m", FITTED_RINGS["bert"], [1, 2, 4]))
    assert _policy_net("fit-speed", "--table", str(table)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.startswith("policy-net: ")
    assert len(err.splitlines()) == 1


def test_files_that_cannot_be_read_or_written_are_named(measured, tmp_path: Path, capsys) -> None:
    assert _policy_net("fit-speed", "--table", str(tmp_path / "none.csv")) == 2
    assert "none.csv" in capsys.readouterr().err
    assert _policy_net("fit-speed", "--table", str(measured(header="model,speed"))) == 2
    assert "'num_ps' is missing" in capsys.readouterr().err
    table = measured(*ring_lines("m", FITTED_RINGS["bert"], [1, 2, 4]))
    assert _policy_net("fit-speed", "--table", str(table), "--out", str(tmp_path / "no" / "folder.csv")) == 2
    assert "--out" in capsys.readouterr().err


def test_measurements_are_not_overwritten_with_their_fit(measured, capsys) -> None:
    table = measured(*ring_lines("m", FITTED_RINGS["bert"], [1, 2, 4]))
    before = table.read_bytes()
    assert _policy_net("fit-speed", "--table", str(table), "--out", str(table)) == 2
    assert "the table of measurements itself" in capsys.readouterr().err
    assert table.read_bytes() == before
