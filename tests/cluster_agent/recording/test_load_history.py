"""What an agent keeps of its cluster's load: right, bounded, and there again after a restart."""

import json
import math
from pathlib import Path

import pytest
from agent_fakes import make_job, make_state
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from cluster_agent.recording.load_history import KEPT, LONGEST_STEP_SECONDS, MOST_STEPS, UNKNOWN, LoadHistory
from policy_net.domain import Allocation, ClusterState, Progress

UNIX = 1_795_248_000.0
HOUR = 3600.0


def state(time_seconds: float, jobs: int) -> ClusterState:
    empty = make_state(jobs=0, time_seconds=time_seconds)
    return ClusterState(time_seconds, empty.nodes, tuple(make_job(number) for number in range(jobs)), 600.0)


def held(number: int, workers: int, seconds: float, finished: bool = False) -> Progress:
    return Progress(f"job-{number}", "vgg-16", Allocation(workers, 1), seconds, 1.0, 1.0, 2.0, finished)


GPUS = state(0.0, 0).total.gpu


def test_gpus_in_use_and_waiting_jobs_are_means_over_steps() -> None:
    assert make_job(0).worker_demand.gpu == 1
    history = LoadHistory(math.inf)
    assert history.curve() is None
    history.on_interval(state(0.0, 3), [held(0, 2, 90.0), held(1, 1, 45.0, finished=True)], 90.0)
    curve = history.curve()
    assert curve is not None
    assert (curve.begin_seconds, curve.step_seconds, curve.policy, curve.ended) == (0.0, 60.0, "", False)
    # The job that ended in the middle of the interval held its GPU for half of it.
    assert curve.gpus_used == pytest.approx((2.5, 2.5))
    assert curve.jobs_waiting == (1.0, 1.0)
    assert curve.gpus == (GPUS, GPUS)


def test_a_cluster_without_jobs_stood_idle_and_of_one_with_jobs_nothing_is_known_between_decisions() -> None:
    idle, away = LoadHistory(), LoadHistory()
    idle.on_interval(state(UNIX, 1), [held(0, 1, 60.0, finished=True)], 60.0)
    away.on_interval(state(UNIX, 1), [held(0, 1, 60.0)], 60.0)
    for history in (idle, away):
        history.on_interval(state(UNIX + 180.0, 1), [held(0, 4, 60.0)], 60.0)
    rested, lost = idle.curve(), away.curve()
    assert rested is not None
    assert lost is not None
    assert rested.gpus_used == (1.0, 0.0, 0.0, 4.0)
    assert lost.gpus_used == (1.0, UNKNOWN, UNKNOWN, 4.0)
    assert lost.gpus == (GPUS, UNKNOWN, UNKNOWN, GPUS)


def test_until_now_an_idle_cluster_is_known_to_be_idle() -> None:
    history = LoadHistory()
    history.on_interval(state(UNIX, 1), [held(0, 1, 60.0, finished=True)], 60.0)
    curve = history.curve(UNIX + 240.0)
    assert curve is not None
    assert curve.gpus_used == (1.0, 0.0, 0.0, 0.0)


def test_a_heartbeat_within_a_jobs_first_interval_costs_nothing_of_what_is_known() -> None:
    history = LoadHistory()
    history.on_interval(state(UNIX, 1), [held(0, 1, 6000.0, finished=True)], 6000.0)
    assert history.curve(UNIX + 6060.0) is not None
    assert history.curve(UNIX + 6090.0) is not None
    history.on_interval(state(UNIX + 6060.0, 1), [held(0, 4, 60.0)], 60.0)
    curve = history.curve(UNIX + 6120.0)
    assert curve is not None
    assert len(curve.gpus_used) == 102
    assert curve.gpus_used[:101] == (1.0,) * 100 + (0.0,)
    assert curve.gpus_used[101] == pytest.approx(2.0), "until the heartbeat nothing was known of the job"


def test_a_cluster_whose_last_job_failed_is_idle_too() -> None:
    history = LoadHistory()
    assert history.curve(UNIX, nobody=True) is None
    history.on_interval(state(UNIX, 1), [held(0, 1, 60.0)], 60.0)
    assert history.curve(UNIX + 180.0, nobody=True) is not None
    history.on_interval(state(UNIX + 240.0, 1), [held(0, 4, 60.0)], 60.0)
    curve = history.curve()
    assert curve is not None
    assert curve.gpus_used == (1.0, 0.0, 0.0, 0.0, 4.0)


def test_a_month_is_its_last_week_by_the_hour() -> None:
    history = LoadHistory()
    for hour in range(30 * 24):
        history.on_interval(state(UNIX + hour * HOUR, 2), [held(0, 1 + hour % 3, HOUR)], HOUR)
    curve = history.curve()
    assert curve is not None
    assert curve.step_seconds <= LONGEST_STEP_SECONDS
    assert len(curve.gpus) == MOST_STEPS
    assert curve.begin_seconds + len(curve.gpus) * curve.step_seconds == pytest.approx(UNIX + 30 * 24 * HOUR, abs=HOUR)
    assert sum(curve.gpus_used) / len(curve.gpus_used) == pytest.approx(2.0, abs=0.1)


def test_a_simulated_year_fits_in_as_many_steps() -> None:
    history = LoadHistory(math.inf)
    for day in range(365):
        history.on_interval(state(day * 24 * HOUR, 1), [held(0, 2, 24 * HOUR)], 24 * HOUR)
    curve = history.curve()
    assert curve is not None
    assert curve.begin_seconds == 0.0
    assert len(curve.gpus) <= MOST_STEPS
    assert set(curve.gpus_used) == {2.0}


@given(st.lists(st.tuples(st.floats(0.0, 1e9), st.floats(0.0, 1e6)), min_size=1, max_size=40), st.booleans())
def test_whatever_time_does_the_curve_is_bounded_and_finite(
    intervals: list[tuple[float, float]], forgets: bool
) -> None:
    history = LoadHistory(LONGEST_STEP_SECONDS if forgets else math.inf)
    for begin, seconds in intervals:  # clocks that are set back begin it anew
        history.on_interval(state(begin, 2), [held(0, 1, seconds)], seconds)
    curve = history.curve()
    if curve is not None:
        assert 1 <= len(curve.gpus) <= MOST_STEPS + 1
        assert all(math.isfinite(value) and value >= UNKNOWN for value in curve.gpus_used)
        assert all(value == UNKNOWN or value == pytest.approx(1.0) for value in curve.jobs_waiting)


def test_it_goes_on_after_a_restart_and_nothing_is_known_of_the_time_between(tmp_path: Path) -> None:
    file = tmp_path / KEPT
    history = LoadHistory(file=file)
    history.on_interval(state(UNIX, 1), [held(0, 1, 120.0)], 120.0)
    again = LoadHistory(file=file)
    assert again.curve() == history.curve()
    again.on_interval(state(UNIX + 180.0, 1), [held(0, 2, 60.0)], 60.0)
    curve = again.curve()
    assert curve is not None
    assert curve.gpus_used == (1.0, 1.0, UNKNOWN, 2.0)


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[]",
        "{}",
        {"format": "another"},
        {"steps": [[60.0, 1.0]]},
        {"steps": []},
        {"steps": [[60.0, -1.0, 0.0, 1.0]]},
        {"steps": [[60.0, 1e300, 0.0, 1.0]]},
        {"steps": [[60.0, 1.0, 0.0, 1.0]] * 999},
        {"steps": [[60.0, "a", 0.0, 1.0]]},
        {"step_seconds": 1e9},
        {"step_seconds": 0.0},
        {"begin_seconds": "x"},
        {"until_seconds": 1e18},
    ],
)
def test_a_damaged_file_costs_the_curve_alone(tmp_path: Path, damage: str | dict[str, object]) -> None:
    file = tmp_path / KEPT
    LoadHistory(file=file).on_interval(state(UNIX, 1), [held(0, 1, 120.0)], 120.0)
    whole = json.loads(file.read_text())
    file.write_text(damage if isinstance(damage, str) else json.dumps(whole | damage))
    with capture_logs() as logs:
        history = LoadHistory(file=file)
    assert [line["event"] for line in logs] == ["load-begins-anew"]
    assert history.curve() is None
    history.on_interval(state(UNIX, 1), [held(0, 1, 120.0)], 120.0)
    assert json.loads(file.read_text()) == whole


def test_a_full_disk_is_reported_and_nothing_else(tmp_path: Path) -> None:
    (blocked := tmp_path / "file").write_text("")
    history = LoadHistory(file=blocked / KEPT)
    with capture_logs() as logs:
        history.on_interval(state(UNIX, 1), [held(0, 1, 120.0)], 120.0)
    assert [line["event"] for line in logs] == ["load-not-kept"]
    assert history.curve() is not None
