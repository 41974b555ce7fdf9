import json

import pytest

from benchmarks.dataplane.__main__ import main
from benchmarks.dataplane.rounds import Measured, cpu_over, measure, rows, speed_over


class _Fake:
    """Counts what it is asked for; its processor time is a millisecond for each push and pull."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def push(self, size_bytes: int) -> None:
        self.sizes.append(size_bytes)

    def pull(self, size_bytes: int) -> None:
        self.sizes.append(-size_bytes)

    def cpu_seconds(self) -> float:
        return len(self.sizes) / 1000.0

    def close(self) -> None:
        pass


def test_every_round_pushes_and_pulls_the_same_bytes_whatever_the_size() -> None:
    pairs = {"ours": _Fake(), "theirs": _Fake()}
    measured = measure(pairs, [25, 100], rounds=2)
    for pair in pairs.values():
        assert pair.sizes.count(25_000_000) == pair.sizes.count(-25_000_000) == 4 * 3  # a round is not counted
        assert pair.sizes.count(100_000_000) == pair.sizes.count(-100_000_000) == 3
    assert {key: len(results) for key, results in measured.items()} == dict.fromkeys(
        [("ours", 25), ("theirs", 25), ("ours", 100), ("theirs", 100)], 2
    )
    assert measured["ours", 25][0].cpu_seconds_per_gb == pytest.approx(0.001 / 0.025)
    assert cpu_over(measured, "ours", "theirs") == {"25": 1.0, "100": 1.0}


def test_ratios_compare_within_a_round() -> None:
    # Between the rounds the machine became ten times slower; ours took twice the time in both.
    measured = {
        ("ours", 1): [Measured(0.2, 0.2, 0.3), Measured(2.0, 2.0, 0.3), Measured(2.0, 2.0, 0.3)],
        ("theirs", 1): [Measured(0.1, 0.1, 0.2), Measured(1.0, 1.0, 0.2), Measured(1.0, 1.0, 0.2)],
    }
    assert speed_over(measured, "ours", "theirs") == {"1": 0.5}
    assert cpu_over(measured, "ours", "theirs") == {"1": 1.5}
    assert rows(measured)[0] == {
        "way": "ours",
        "size_mb": 1,
        "gb_per_second": 0.5,
        "push_gb_per_second": 0.5,
        "pull_gb_per_second": 0.5,
        "best_gb_per_second": 5.0,
        "cpu_seconds_per_gb": 0.3,
    }


@pytest.mark.heavy
def test_all_ways_carry_bytes_and_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-o", "json", "--size-mb", "1", "--rounds", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [row["way"] for row in result["rows"]] == [
        "raw-socket",
        "tcp",
        "tcp-curve",
        "ipc-frames",
        "two-copies",
        "shared-memory",
    ]
    for ratio in ("tcp_over_raw_socket", "tcp_cpu_over_raw_socket", "shm_over_two_copy_bound"):
        assert result[ratio]["1"] > 0.0
