"""Schedulers against an independent implementation's results: of known traces, where those are at hand, else of made-up
ones (`plain_schedulers`)."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import pytest
from made_up_data import write_data, write_expected

import policy_net.baselines  # noqa: F401  (registers the names)
from policy_net.domain import CapacityMode, PolicyContext
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.measured_speeds import read_measured_points
from policy_net.laboratory.speeds.speed import TableSpeedModel, read_speed_table
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Workload
from policy_net.policy import build_policy, policy_names
from policy_net.throughput.parametric import MeasuredFit

pytestmark = pytest.mark.heavy

SLOT_SECONDS = 1200.0
NODES = (16, 24, 32, 96)
Expected = dict[tuple[str, int, str], dict[str, float]]


@pytest.fixture(scope="module")
def folder(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = data_folder / "reference"
    if (folder / "expected.csv").is_file():
        return folder
    made_up = write_data(tmp_path_factory.mktemp("reference") / "data") / "reference"
    write_expected(made_up)
    return made_up


@pytest.fixture(scope="module")
def expected(folder: Path) -> Expected:
    """By (trace, nodes, policy): the figures in slots."""
    with (folder / "expected.csv").open(newline="") as file:
        return {
            (row["trace"], int(row["nodes"]), row["policy"]): {
                name: float(row[name]) for name in ("avg_jct_slots", "max_jct_slots", "makespan_slots") if row[name]
            }
            for row in csv.DictReader(file)
        }


@cache
def truth(folder: Path) -> TableSpeedModel:
    return read_speed_table(folder / "speed_grid.csv")


@cache
def measured(folder: Path) -> MeasuredFit:
    return read_measured_points(folder.parent / "dl2" / "dl2_ps_worker_speed.csv")


@cache
def workload(folder: Path, trace: str) -> Workload:
    return load_workload(f"reference:{trace}@{folder / 'traces.csv'}")


@cache
def figures(folder: Path, trace: str, nodes: int, policy: str, mode: CapacityMode) -> dict[str, float]:
    """One replay's figures in slots."""
    speeds = truth(folder)
    environment = Environment(nodes=nodes, decide_on=DecideOn.SLOT, capacity_mode=mode)
    built = build_policy(policy, PolicyContext(true_speeds=speeds, measured_speeds=measured(folder)))
    result = replay(workload(folder, trace), environment, built, speeds, clock=lambda: 0.0).to_json()
    assert result["completed"] == result["jobs"]
    return {f"{name}_slots": result[f"{name}_seconds"] / SLOT_SECONDS for name in ("avg_jct", "max_jct", "makespan")}


@pytest.mark.parametrize("mode", CapacityMode)
@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("policy", ["drf", "optimus-true-table", "optimus-fitted", "oracle"])
def test_a_known_scheduler_does_as_it_did_elsewhere(
    folder: Path, expected: Expected, policy: str, nodes: int, mode: CapacityMode
) -> None:
    """Pooled, as the references were; and placed, where `spread` loses nothing with these demands."""
    traces = [trace for trace, size, name in expected if size == nodes and name == policy]
    assert len(traces) in (2, 10), "of those that are made up; of those that were measured"
    for trace in traces:
        ours = figures(folder, trace, nodes, policy, mode)
        for name, reference in expected[trace, nodes, policy].items():
            assert ours[name] == pytest.approx(reference, rel=0.01), f"{trace}: {name}"


@pytest.mark.parametrize("nodes", [16, *(pytest.param(nodes, marks=pytest.mark.long) for nodes in (24, 32)), 96])
@pytest.mark.parametrize("policy", policy_names())
def test_nobody_beats_every_job_alone_at_its_best(folder: Path, expected: Expected, policy: str, nodes: int) -> None:
    for trace, size, name in expected:
        if size == nodes and name == "floor":
            floor = expected[trace, nodes, "floor"]["avg_jct_slots"]
            # The floor is printed with four decimals.
            assert figures(folder, trace, nodes, policy, CapacityMode.POOLED)["avg_jct_slots"] >= floor - 1e-4, trace


@pytest.mark.parametrize("nodes", NODES)
def test_fitting_online_costs_little_against_a_fit_to_all_measurements(
    folder: Path, expected: Expected, nodes: int
) -> None:
    """The reference was given every measured point beforehand; ours starts from the prior in every trace."""
    most = 1.05 if any("60" in trace for trace, _, _ in expected) else 1.10  # of half as many jobs it learns in fewer
    for trace, size, name in expected:
        if size == nodes and name == "optimus-fitted":
            ours = figures(folder, trace, nodes, "optimus", CapacityMode.POOLED)["avg_jct_slots"]
            assert ours <= most * expected[trace, nodes, name]["avg_jct_slots"], trace


def test_a_replay_amid_which_scipys_solver_gives_up_comes_to_its_end(folder: Path) -> None:
    jobs = load_workload("dl2:jobs=60,arrivals=google,sizes=varied,seed=7004")
    speeds = truth(folder)
    environment = Environment(nodes=32, decide_on=DecideOn.SLOT, speed_noise=0.27)
    policy = build_policy("optimus", PolicyContext(true_speeds=speeds))
    result = replay(jobs, environment, policy, speeds, clock=lambda: 0.0).to_json()
    assert result["completed"] == result["jobs"] == 60
