"""The benchmark of DL2's network in one place: a file is judged without a training, and fleets that never get there."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import dl2_learning
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.workloads.sources import load_workload


@pytest.mark.heavy
def test_the_shipped_file_is_judged_and_nothing_trained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = [(load_workload("dl2:jobs=8,arrivals=google,sizes=varied,seed=1"), Environment(nodes=4, seed=1))]
    monkeypatch.setattr(dl2_learning, "judged", lambda: few)
    monkeypatch.setattr(sys, "argv", ["dl2_learning", "--file", "dl2", "-o", "json"])
    assert dl2_learning.main() == 0
    result = json.loads(capsys.readouterr().out)
    assert result["over_drf"] == pytest.approx(result["judged_slots"] / result["drf_slots"] - 1.0, abs=1e-3)
    assert all(0.0 < row["dl2"] <= 1.0 for row in result["utility_by_jobs"])


@pytest.mark.parametrize(("last", "over"), [(30.0, 0.5), (41.0, None)])
def test_a_fleet_that_never_gets_there_has_no_ratio(
    last: float, over: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    curves = {1: [(5, 60.0), (10, 40.0)], dl2_learning.CLUSTERS: [(5, last)]}
    monkeypatch.setattr(dl2_learning, "LAST_VALIDATIONS", 1)
    monkeypatch.setattr(dl2_learning, "fleet_curve", lambda clusters, *others: curves[clusters])
    assert dl2_learning.windows_of_each(0, 10)["over"] == over
