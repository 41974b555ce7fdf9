"""The benchmark of what limits the taught policy: bounds that hold, what is known, what it sums up and refuses."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.policy_quality.policies import HEURISTICS
from benchmarks.policy_quality.seeds import Part
from benchmarks.policy_quality.worlds import World, build_world, clusters_in
from benchmarks.twin_learning.__main__ import cell
from benchmarks.twin_learning.bounds import bound_seconds, mean_on_one_machine
from benchmarks.twin_learning.command_line import SETTINGS
from benchmarks.twin_learning.limits import BOUND, knowing_speeds, main, quiet, summary
from foundation.errors import BAD_INPUT, DONE
from policy_net.domain import PolicyContext
from policy_net.exchange.spec import SET_TAUGHT
from policy_net.laboratory.simulation.replay import replay
from policy_net.policy_kinds import load_policy

JOBS = 1600


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up recording with windows to choose on and to judge on, and one with a window to judge on alone."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "workloads").mkdir()
    for number, (name, jobs) in enumerate((("east", 2 * JOBS), ("brief", 60))):
        generator = random.Random(number)
        rows, at = ["job_id,submit_time_s,duration_s,num_gpus"], 0.0
        for job in range(jobs):
            at += generator.expovariate(1.0 / 300.0)
            rows.append(f"{job},{at:.1f},{generator.lognormvariate(6.5, 1.0):.1f},{generator.choice((1, 1, 2, 4))}")
        (folder / "workloads" / f"{name}.csv").write_text("\n".join(rows) + "\n")
    return folder


def _world(data: Path, setting: str) -> World:
    brief = next(cluster for cluster in clusters_in(data) if cluster.name == "brief")
    return build_world(cell(brief, Part.TEST, setting, 0), data)


def test_one_machine_takes_the_job_with_the_least_left() -> None:
    # The second comes at 2, when the first has 8 left: it ends at 5 and the first at 13. The third finds it idle.
    assert mean_on_one_machine([0.0, 2.0, 20.0], [10.0, 3.0, 1.0]) == pytest.approx((13.0 + 3.0 + 1.0) / 3.0)
    # One that has less left than the newcomer goes on.
    assert mean_on_one_machine([0.0, 8.0], [10.0, 3.0]) == pytest.approx((10.0 + 5.0) / 2.0)


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_scheduler_is_below_the_bound(data: Path, setting: str) -> None:
    world = quiet(_world(data, setting))
    bound = bound_seconds(world.workload, world.environment, world.speeds)
    for name in ("oracle", "optimus-true-table", "srtf", "marginal", SET_TAUGHT):
        policy = load_policy(name, PolicyContext(true_speeds=world.speeds))
        jct = replay(world.workload, world.environment, policy, world.speeds).to_json()["avg_jct_seconds"]
        assert jct >= bound


def test_alone_with_room_for_all_it_wants_a_job_meets_the_bound(data: Path) -> None:
    world = quiet(_world(data, "allreduce-known"))
    alone = replace(world.workload, jobs=world.workload.jobs[:1])
    room = replace(world.environment, nodes=100)
    policy = load_policy("oracle", PolicyContext(true_speeds=world.speeds))
    jct = replay(alone, room, policy, world.speeds).to_json()["avg_jct_seconds"]
    assert jct == pytest.approx(bound_seconds(alone, room, world.speeds))


def test_a_job_that_fits_nowhere_has_no_bound(data: Path) -> None:
    world = _world(data, "allreduce-known")
    with pytest.raises(ValueError, match="can train nowhere"):
        bound_seconds(world.workload, replace(world.environment, gpus_per_node=0), world.speeds)


@pytest.mark.parametrize("setting", SETTINGS)
def test_who_knows_speeds_plans_on_them_before_anything_has_trained(data: Path, setting: str) -> None:
    world = _world(data, setting)
    policy = knowing_speeds(world)
    for job_type, kind in {(job.job_type, job.kind) for job in world.workload.jobs}:
        truth = world.speeds.grid(job_type)
        believed = truth if policy.beliefs is None else policy.beliefs.posterior(job_type)[0]
        for workers in (1, 2, 8, 16):
            ps = 4 if kind.uses_ps else 0
            assert believed[ps, workers] == pytest.approx(truth[ps, workers], rel=0.01)


def test_choices_are_made_on_earlier_windows_and_judged_on_later_ones() -> None:
    logs = {name: {"east": 1.0, "west": 1.0} for name in HEURISTICS}
    logs |= {"marginal": {"east": 0.5, "west": 0.9}, SET_TAUGHT: {"east": 0.4, "west": 0.8}}
    logs[BOUND] = {"east": 0.2, "west": 0.2}
    before = {"marginal": {"east": 0.3}, SET_TAUGHT: {"east": 0.4}}
    found = summary(logs, {SET_TAUGHT: {"east": 0.3}}, before)
    assert found["over_best_heuristic"][SET_TAUGHT]["mean"] == pytest.approx(math.exp(-0.1), abs=1e-4)
    assert found["taught_over_bound"]["mean"] == pytest.approx(math.exp(0.4), abs=1e-4)
    assert found["warm"][SET_TAUGHT]["mean"] == pytest.approx(math.exp(-0.1), abs=1e-4)
    assert found["chosen"]["policies"] == {"east": "marginal"}
    assert found["chosen"]["over_taught"]["mean"] == pytest.approx(math.exp(0.1), abs=1e-4)
    assert found["chosen"]["best"]["mean"] == pytest.approx(1.0)
    assert found["clusters"]["east"]["best_heuristic"] == "marginal"


@pytest.mark.heavy
def test_the_command_compares_all(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", str(data), "--settings", "mix-unknown", "--judge", "test", "--draws", "1"]
    assert main(arguments) == DONE
    found = json.loads(capsys.readouterr().out)["settings"]["mix-unknown"]
    over = found["over_best_heuristic"]
    assert {*HEURISTICS, SET_TAUGHT, BOUND, f"{SET_TAUGHT}, work known"} <= set(over)
    assert over[BOUND]["worst"] < 1.0
    assert min(over[name]["mean"] for name in HEURISTICS) >= 1.0
    assert found["warm"][SET_TAUGHT]["units"] == 1
    assert found["chosen"]["over_taught"]["units"] == 1


def test_no_draws_are_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(data), "--draws", "0"]) == BAD_INPUT
    assert "use 1 or more" in capsys.readouterr().err
