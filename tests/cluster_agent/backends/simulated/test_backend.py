import json
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cluster_agent.backend_settings import SimulatedBackendSettings
from cluster_agent.backends.base import AgentParts
from cluster_agent.backends.simulated.backend import SNAPSHOT, Baselines, SimulatedBackend, open_backend
from cluster_agent.backends.simulated.episodes import Episodes, load_episodes
from cluster_agent.errors import BadAgentConfig, StateDamaged
from policy_net.domain import Allocation, ClusterState, Decision
from policy_net.errors import BadInput
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Workload, WorkloadOptions


def free(simulated_seconds: float) -> bool:
    """Holds nothing back."""
    return False


def make_episodes(*sources: str, **changes: object) -> Episodes:
    content = {
        "workloads": [{"source": source} for source in sources],
        "environment": {"nodes": 12, "speed_noise": 0.2},
    }
    return load_episodes(SimulatedBackendSettings.model_validate(content | changes))


def make_backend(folder: Path, episodes: Episodes) -> SimulatedBackend:
    return SimulatedBackend(episodes, folder, free)


def pairs(state: ClusterState) -> Decision:
    return Decision({job.job_id: Allocation(2, 1) for job in state.jobs})


def live(backend: SimulatedBackend, decisions: int = 10**6) -> list[ClusterState]:
    states = []
    for _ in range(decisions):
        observed = backend.observe()
        if observed is None:
            break
        states.append(observed[0])
        backend.apply(pairs(observed[0]))
    return states


DISTURBED = {
    "nodes": 12,
    "decide_on": "event",
    "job_noise": 0.27,
    "placement": "pack",
    "locality": True,
    "resize_seconds": 20.0,
    "resume_seconds": 40.0,
    "start_seconds": 30.0,
    "checkpoint_seconds": 600.0,
    "node_mtbf_hours": 50.0,
}


def test_a_disturbed_cluster_goes_on_after_a_kill_as_if_nothing_had_happened(tmp_path: Path) -> None:
    workloads = [{"source": "dl2:jobs=6,seed=3", "durations": "unknown"}]
    episodes = make_episodes(workloads=workloads, environment=DISTURBED)
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole = make_backend(tmp_path / "whole", episodes)
    expected = live(whole)
    before = live(make_backend(tmp_path / "killed", episodes), 40)
    assert before + live(make_backend(tmp_path / "killed", episodes)) == expected
    assert {len(state.nodes) for state in expected} > {12}
    assert not expected[0].jobs[0].work_known


def test_places_cannot_matter_where_tasks_have_none() -> None:
    with pytest.raises(BadAgentConfig, match=r"locality needs backend\.environment\.capacity_mode nodes"):
        make_episodes("dl2:jobs=6", environment={"nodes": 12, "locality": True, "capacity_mode": "pooled"})


@pytest.mark.parametrize("killed_after", [0, 1, 7, 60])
def test_an_agent_that_is_killed_finds_its_cluster_where_it_stood(tmp_path: Path, killed_after: int) -> None:
    episodes = make_episodes("dl2:jobs=6,seed=3", "dl2:jobs=5,seed=4")
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = make_backend(tmp_path / "whole", episodes)
    expected = live(whole)
    before = live(make_backend(tmp_path / "killed", episodes), killed_after)
    resumed = make_backend(tmp_path / "killed", episodes)
    assert before + live(resumed) == expected
    # The load of a run is kept in memory: after a kill it begins where the agent goes on.
    assert replace(resumed.status(), load=()) == replace(whole.status(), load=())


def test_between_two_decisions_the_status_says_what_the_jobs_hold(tmp_path: Path) -> None:
    backend = make_backend(tmp_path, make_episodes("dl2:jobs=6,seed=3"))
    for _ in range(3):
        observed = backend.observe()
        assert observed is not None
        backend.apply(pairs(observed[0]))
        between = backend.status()
        again = backend.observe()
        assert again is not None
        assert between == backend.status()
        running = sum(job.current == Allocation(2, 1) for job in again[0].jobs)
        assert (between.jobs_running, between.jobs_waiting) == (running, len(again[0].jobs) - running)
        assert running > 0


def test_episodes_follow_one_another_and_are_counted_together(tmp_path: Path) -> None:
    episodes = make_episodes("dl2:jobs=4,seed=3", "dl2:jobs=5,seed=4")
    backend = make_backend(tmp_path, episodes)
    live(backend)
    status = backend.status()
    assert (status.jobs_done, status.jobs_total) == (9, 9)
    assert status.simulated
    alone = []
    for number, source in enumerate(("dl2:jobs=4,seed=3", "dl2:jobs=5,seed=4")):
        folder = tmp_path / str(number)
        folder.mkdir()
        # The second episode has noise of its own, so its machines are those of the second round.
        part = Episodes((episodes.items[number],), episodes.speeds, source)
        one = make_backend(folder, part)
        live(one)
        alone.append(one.status())
    assert status.avg_jct_seconds == pytest.approx((4 * alone[0].avg_jct_seconds + 5 * alone[1].avg_jct_seconds) / 9)
    assert status.time_seconds == pytest.approx(alone[0].time_seconds + alone[1].time_seconds)


def test_rounds_have_fresh_seeds_unless_the_source_names_one() -> None:
    free = make_episodes("dl2:jobs=4", episodes=2)
    fixed = make_episodes("dl2:jobs=4,seed=3", episodes=2)
    assert free.items[0].workload.jobs != free.items[1].workload.jobs
    assert fixed.items[0].workload.jobs == fixed.items[1].workload.jobs


def test_a_snapshot_of_other_workloads_is_not_gone_on_from(tmp_path: Path) -> None:
    live(make_backend(tmp_path, make_episodes("dl2:jobs=4,seed=3")), 3)
    with pytest.raises(StateDamaged, match="other workloads"):
        make_backend(tmp_path, make_episodes("dl2:jobs=4,seed=4"))


@pytest.mark.parametrize("content", ["{", "[]", '{"digest": "DIGEST"}', '{"digest": "DIGEST", "episode": 9}'])
def test_a_damaged_snapshot_is_one_clear_error(tmp_path: Path, content: str) -> None:
    episodes = make_episodes("dl2:jobs=4,seed=3")
    (tmp_path / SNAPSHOT).write_text(content.replace("DIGEST", episodes.digest))
    with pytest.raises(StateDamaged, match=SNAPSHOT):
        make_backend(tmp_path, episodes)


def test_a_snapshot_is_small(tmp_path: Path) -> None:
    live(make_backend(tmp_path, make_episodes("dl2:jobs=6,seed=3")), 20)
    assert len((tmp_path / SNAPSHOT).read_bytes()) < 300 * 6 + 1000
    json.loads((tmp_path / SNAPSHOT).read_bytes())


def test_an_agent_that_is_to_stop_gets_no_state_and_loses_none(tmp_path: Path) -> None:
    episodes = make_episodes("dl2:jobs=4,seed=3")
    answers = iter([True, False])
    backend = SimulatedBackend(episodes, tmp_path, lambda _: next(answers))
    assert backend.observe() is None
    assert not backend.finished
    assert backend.observe() is not None


def test_a_workload_may_suggest_the_number_of_nodes() -> None:
    (episode,) = make_episodes("dl2:jobs=4", environment={}).items
    assert episode.environment.nodes == episode.workload.suggested_nodes


def test_a_number_of_nodes_that_nobody_knows_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_suggestion(source: str, options: WorkloadOptions) -> Workload:
        return replace(load_workload(source, options), suggested_nodes=None)

    monkeypatch.setattr("cluster_agent.backends.simulated.episodes.load_workload", without_suggestion)
    with pytest.raises(BadAgentConfig, match=r"backend\.environment\.nodes"):
        make_episodes("dl2:jobs=4", environment={})


def test_a_source_that_cannot_be_used_is_bad_input() -> None:
    with pytest.raises(BadInput, match=r"nowhere\.csv"):
        make_episodes("nowhere.csv")


def test_malformed_rows_are_warned_of_or_refused(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_time_s,duration_s,num_gpus\na,0,600,1\nb,0,long,1\n")
    with capture_logs() as logs:
        assert len(make_episodes(str(trace)).items[0].workload.jobs) == 1
    [warning] = [line for line in logs if line["event"] == "rows-skipped"]
    assert "jobs.csv, line 3: duration_s is 'long'" in warning["note"]
    with pytest.raises(BadInput, match="line 3: duration_s is 'long'"):
        make_episodes(workloads=[{"source": str(trace), "strict": True}])


def test_baselines_are_averages_over_the_same_jobs(tmp_path: Path) -> None:
    episodes = make_episodes("dl2:jobs=4,seed=3", "dl2:jobs=5,seed=4")
    baselines = Baselines(episodes, "drf")
    assert baselines.average_jct_seconds(0, set()) == {}, "not known before it was computed"
    baselines.compute(0)
    assert baselines.average_jct_seconds(1, set()) == {}
    baselines.compute(1)
    first = baselines.average_jct_seconds(0, {job.job_id for job in episodes.items[0].workload.jobs})
    one_job = baselines.average_jct_seconds(0, {episodes.items[0].workload.jobs[0].job_id})
    both = baselines.average_jct_seconds(1, set())
    assert set(first) == {"drf", "fifo-easy"}
    assert first == both
    assert 0.0 < one_job["drf"] != first["drf"]
    assert baselines.average_jct_seconds(1, {"stranger"}) == {}


def test_a_run_that_ended_is_told_with_its_load_under_the_baselines(tmp_path: Path) -> None:
    episodes = make_episodes("dl2:jobs=4,seed=3", "dl2:jobs=5,seed=4")
    baselines = Baselines(episodes, "drf")
    backend = SimulatedBackend(episodes, tmp_path, free, baselines)
    live(backend, 1)
    (so_far,) = backend.status().load
    assert (so_far.policy, so_far.ended) == ("", False)
    baselines.compute(0)
    while not backend.status().load[0].ended:
        live(backend, 1)
    ran, *others = backend.status().load
    assert [curve.policy for curve in others] == ["fifo-easy", "drf"]
    assert all(curve.ended and curve.begin_seconds == 0.0 and max(curve.gpus_used) > 0.0 for curve in others)
    assert all(0.0 < curve.nearly_done_seconds <= 168 * curve.step_seconds * 1.001 for curve in (ran, *others))
    live(backend, 1)
    assert backend.status().load[0] == ran, "the whole run is told while the next one has just begun"


def test_what_was_recorded_is_a_baseline_where_every_start_is_known(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_time_s,start_time_s,duration_s,num_gpus\na,0,0,600,1\nb,0,600,600,1\n")
    episodes = make_episodes(str(trace))
    baselines = Baselines(episodes, "drf")
    baselines.compute(0)
    assert baselines.average_jct_seconds(0, {"a", "b"})["recorded"] == pytest.approx(900.0)
    recorded, *_ = baselines.load(0)
    assert recorded.policy == "recorded"
    assert sum(recorded.jobs_waiting) * recorded.step_seconds == pytest.approx(600.0)
    assert sum(recorded.gpus_used) * recorded.step_seconds == pytest.approx(1200.0)


def test_a_full_disk_costs_the_way_back_but_not_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = make_backend(tmp_path, make_episodes("dl2:jobs=4,seed=3"))
    expected = live(make_backend(tmp_path / "other", make_episodes("dl2:jobs=4,seed=3")))

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cluster_agent.backends.simulated.backend.write_json", full)
    assert live(backend) == expected
    assert backend.finished


@pytest.mark.parametrize(("waits", "stands"), [(True, True), (False, False)])
def test_the_clock_stands_for_a_twin_that_is_behind_where_it_is_to(tmp_path: Path, waits: bool, stands: bool) -> None:
    content = {"workloads": [{"source": "dl2:jobs=6,seed=3"}], "environment": {"nodes": 12}, "wait_for_twin": waits}
    looks: list[float] = []

    def wait(seconds: float) -> bool:
        looks.append(seconds)
        return seconds > 0.0  # the agent is to stop: or it would wait for ever

    parts = AgentParts(tmp_path, "drf", None, wait, lambda: 0.0, twin_waiting=lambda: 9)
    backend = open_backend(SimulatedBackendSettings.model_validate(content), parts)
    assert (backend.observe() is None) == stands
    assert (max(looks) > 0.0) == stands


def test_a_cluster_goes_on_whether_or_not_its_clock_waits_for_the_twin() -> None:
    digests = {make_episodes("dl2:jobs=4,seed=3", wait_for_twin=waits).digest for waits in (True, False)}
    assert len(digests) == 1
