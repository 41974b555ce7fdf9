import json
import os

import pytest

from benchmarks.processes import cpu_seconds
from benchmarks.push.__main__ import main
from benchmarks.push.measure import HighWaterMark, apply_per_second, folder_bytes
from benchmarks.push.policies import gradient, policy


@pytest.mark.long
def test_every_figure_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--clusters", "1", "3", "--rounds", "2", "--seconds", "0.2", "-o", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [run["clusters"] for run in result["runs"]] == [1, 3]
    for run in result["runs"]:
        assert all(run[name] > 0.0 for name in ("updates_per_second", "p50_ms", "p99_ms", "over_echo", "over_plain"))
        assert all(run[f"over_{echo}{by}"] > 0.0 for echo in ("echo", "message_echo") for by in ("", "_by_cpu"))
        assert run["cpu_ms_per_update"] >= 0.0  # counted in hundredths of a second, of which a short load may use none
        assert run["p50_ms"] <= run["p99_ms"]
    assert result["apply_per_second"] > 0.0
    # The log holds every gradient whole; what stands around one is small.
    assert result["update_bytes"] < result["log_bytes_per_update"] < result["update_bytes"] + 256
    assert result["update_bytes"] < result["disk_high_water_bytes"] < result["log_limit_bytes"]


def test_an_update_has_about_four_tenths_of_a_megabyte() -> None:
    spec = policy().network_spec
    assert 0.39e6 < gradient(spec, 1).nbytes < 0.41e6


def test_application_alone_takes_updates_of_sixteen_clusters() -> None:
    wall, cpu = apply_per_second(policy(), 0.01, 1)
    assert wall > 0.0
    assert cpu > 0.0


def test_the_high_water_mark_outlasts_the_file(tmp_path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 100_000)
    mark = HighWaterMark(tmp_path)
    mark.poll()
    (tmp_path / "log").unlink()
    mark.poll()
    assert mark.bytes >= 100_000
    assert folder_bytes(tmp_path) == 0


def test_processor_time_of_a_process_is_read_from_the_system() -> None:
    before = cpu_seconds(os.getpid())
    while cpu_seconds(os.getpid()) == before:
        pass
    assert cpu_seconds(os.getpid()) > before


@pytest.mark.parametrize("arguments", [["--clusters", "0"], ["--rounds", "0"], ["--seconds", "0"]])
def test_loads_that_are_none_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
