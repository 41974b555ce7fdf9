import json

import pytest

from benchmarks.first_trace.__main__ import main
from benchmarks.first_trace.worlds import FLEETS, UNSEEN_TYPES, fleet_reports
from policy_net.throughput.fleet_priors import merge_fleet

SMALL = ["--clusters", "3", "--fleet-traces", "1", "--traces", "1", "--seeds", "2", "--jobs", "20", "--nodes", "24"]


def test_a_cluster_that_joins_does_better_with_what_the_fleet_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-o", "json", *SMALL, "--fleet", "same jobs"]) == 0
    result = json.loads(capsys.readouterr().out)
    mean = {run["priors"]: run["mean_pct"] for run in result["runs"]}
    assert mean["same jobs"] < mean["without"]
    assert result["fleets"]["same jobs"]["clusters"] == 3
    assert result["fleets"]["same jobs"]["observations"] > 100


def test_the_same_call_gives_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for _ in range(2):
        main(["-o", "json", *SMALL, "--seeds", "1", "--fleet", "same jobs"])
        outputs.append(json.loads(capsys.readouterr().out)["runs"])
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("name", FLEETS)
def test_every_fleet_is_what_it_is_called(name: str) -> None:
    reports = fleet_reports(name, clusters=4, traces=1, jobs=20)
    types = {entry.job_type for statistics in reports.values() for entry in statistics}
    assert types.isdisjoint(UNSEEN_TYPES) == (name == "other mixes")
    merged = merge_fleet(reports)
    assert ("liar" in {cluster for cluster, _ in merged.left_out}) == (name == "one liar")
    assert merged.clusters == 4


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--seeds", "0"])
