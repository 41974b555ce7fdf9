import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.rollout.__main__ import main, measure
from benchmarks.rollout.fleets import BETTER, EQUAL, WORSE, bad_on_two, run_rollout
from benchmarks.rollout.pool import BlockRecord, ClusterRecord, PairRecord, record_cluster
from benchmarks.rollout.versions import NEGATED, PLANNER, WORSE_5, WORSE_10, build_version
from benchmarks.rollout.worlds import WrongSpeeds, build_cluster, jobs_in_system
from global_learner.rollout.verdicts.verdict import StageOutcome
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.speeds.speed import default_speeds

LOSSES = {PLANNER: 0.0, WORSE_5: 0.05, WORSE_10: 0.1, NEGATED: 0.4}


def _record(name: str, seed: int) -> ClusterRecord:
    """A cluster whose load wanders and whose twin is right to a twentieth."""
    generator = np.random.default_rng((9, seed))
    pairs: dict[str, list[PairRecord]] = {version: [] for version in LOSSES}
    for _ in range(12):
        bases = 20.0 * np.exp(generator.normal(0.0, 0.4, 2))
        errors = generator.normal(0.0, 1.0, 2)
        for version, loss in LOSSES.items():

            def block(at: int, lost: float, loss: float = loss, bases=bases, errors=errors) -> BlockRecord:  # type: ignore[no-untyped-def]
                twin = bases[at] + errors[at]
                jobs = bases[at] * (1.0 + lost)
                return BlockRecord(jobs, jobs, twin, twin + loss * bases[at], 20, 30)

            pairs[version].append(PairRecord((block(0, 0.0), block(1, loss)), (block(0, loss), block(1, 0.0))))
    ratios = {version: 1.0 + loss for version, loss in LOSSES.items()}
    return ClusterRecord(name, 6 * 3600.0, 20.0, ratios, {version: tuple(rows) for version, rows in pairs.items()})


@pytest.fixture(scope="module")
def records() -> list[ClusterRecord]:
    return [_record(f"made-{number}", number) for number in range(8)]


@pytest.mark.parametrize(
    ("contest", "outcome"),
    [(EQUAL, StageOutcome.PASS), (WORSE, StageOutcome.FAIL), (BETTER, StageOutcome.PASS)],
    ids=str,
)
def test_what_is_drawn_from_a_pool_is_what_was_recorded(records: list[ClusterRecord], contest, outcome) -> None:  # type: ignore[no-untyped-def]
    ended = [run_rollout(records, contest, seed, days=60.0, with_twin=True) for seed in range(3)]
    assert {one.outcome for one in ended} == {outcome}
    again = run_rollout(records, contest, 0, days=60.0, with_twin=True)
    assert again == ended[0]
    costs = [one.extra_job_days for one in ended]
    if contest is EQUAL:
        assert costs == [0.0] * 3
    else:
        assert all((cost > 0.0) == (contest is WORSE) for cost in costs)


def test_a_version_that_is_bad_on_two_clusters_is_so_there_alone() -> None:
    contest = bad_on_two([2, 5])
    assert [contest.of(place) for place in (1, 2, 5)] == [(WORSE_5, True), (WORSE_10, False), (WORSE_10, False)]


@pytest.mark.heavy
def test_all_figures_are_there(records: list[ClusterRecord]) -> None:
    figures = measure(records, 2)
    promised = {
        "false_alarm_share",
        "caught_5_percent_worse_share",
        "cluster_days",
        "cluster_days_without_twin",
        "canary_loss_percent",
    }
    assert promised <= set(figures)
    assert figures["gate_on_much_worse"] == "fail"
    json.dumps(figures)


def test_a_data_folder_that_lacks_a_recording_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--data", str(tmp_path)])
    assert "has no workloads/itp-01.csv" in capsys.readouterr().err


def test_jobs_in_the_system_are_counted_by_time() -> None:
    submits, ends = np.array([0.0, 5.0, 90.0]), np.array([10.0, np.inf, 95.0])
    assert jobs_in_system(submits, ends, 0.0, 20.0) == pytest.approx((10.0 + 15.0) / 20.0)


def test_wrong_speeds_are_wrong_in_the_same_way_every_time() -> None:
    truth = default_speeds()
    wrong, same, other = (WrongSpeeds(truth, 0.15, seed) for seed in (3, 3, 4))
    name = "resnet-50"
    assert np.array_equal(wrong.grid(name), same.grid(name))
    assert not np.array_equal(wrong.grid(name), other.grid(name))
    assert wrong.samples_per_second(name, 1, 0) == 0.0
    assert np.array_equal(WrongSpeeds(truth, 0.0, 3).grid(name), truth.grid(name))


@pytest.mark.heavy
def test_a_cluster_is_recorded_in_both_orders(tmp_path: Path) -> None:
    cluster = build_cluster("drawn-0", None, tmp_path, 4.0)
    record = record_cluster(cluster, 1)
    assert record.jct_ratios[WORSE_5] == pytest.approx(1.05, abs=0.03)
    (equal,) = record.pairs[PLANNER]
    assert equal.incumbent_first == equal.candidate_first
    (worse,) = record.pairs[WORSE_5]
    assert worse.incumbent_first[0] == equal.incumbent_first[0] or (
        worse.incumbent_first[0].priced == equal.incumbent_first[0].priced
    )
    assert worse.candidate_first[0].twin_candidate == worse.incumbent_first[0].twin_candidate


def test_a_version_that_is_kept_from_gpus_never_takes_them(tmp_path: Path) -> None:
    cluster = build_cluster("drawn-1", None, tmp_path, 1.0)
    simulation = Simulation(cluster.workload, cluster.environment, cluster.truth)
    policy = build_version(WORSE_5, cluster, {WORSE_5: 0.25})
    gpus = cluster.environment.gpus
    for _ in range(40):
        if simulation.finished:
            break
        state, trigger = simulation.observe()
        decision = policy.decide(state, trigger)
        demand = {job.job_id: job for job in state.jobs}
        taken = sum(
            given.workers * demand[name].worker_demand.gpu + given.ps * demand[name].ps_demand.gpu
            for name, given in decision.allocation.items()
        )
        assert taken <= gpus - int(0.25 * gpus)
        policy.observe(simulation.apply(decision))
