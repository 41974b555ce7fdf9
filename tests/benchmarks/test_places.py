"""Ratios of the benchmark of places, and the worlds that it compares in."""

import pytest

from benchmarks.places import Measured, main, ratios


def measured(cluster: str, policy: str, jct: float) -> Measured:
    return Measured("locality", cluster, 1, policy, jct, 0)


def test_ratios_are_geometric_means_over_clusters() -> None:
    found = [
        *(measured("a", "unplaced", 100.0), measured("a", "set", 50.0)),
        *(measured("b", "unplaced", 10.0), measured("b", "set", 20.0)),
        measured("c", "set", 1.0),
    ]
    assert ratios(found, "unplaced") == {"locality": {"unplaced": pytest.approx(1.0), "set": pytest.approx(1.0)}}


@pytest.mark.parametrize("options", [["--worlds", "moon"], ["--types", "v100"], ["--jobs", "0"]])
def test_options_that_cannot_be_used_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--data", "nowhere", *options])
    assert options[0] in capsys.readouterr().err
