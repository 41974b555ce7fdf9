"""What a cluster tells of single jobs: bounded, numbered, and right about times and sizes."""

from pathlib import Path

from agent_fakes import make_job, make_state
from hypothesis import given
from hypothesis import strategies as st

from cluster_agent.backend_settings import SimulatedBackendSettings
from cluster_agent.backends.simulated.backend import SimulatedBackend
from cluster_agent.backends.simulated.episodes import load_episodes
from cluster_agent.recording.job_timelines import MOST_INTERVENTIONS, MOST_POINTS, JobTimelines
from policy_net.domain import Allocation, ClusterState, Decision, Progress

SLOT = 1200.0


def progress(job_id: str, workers: int, ps: int, seconds: float = SLOT, finished: bool = False) -> Progress:
    return Progress(job_id, "vgg-16", Allocation(workers, ps), seconds, 1.0, 1.0, 2.0, finished)


def state(time_seconds: float, *numbers: int) -> ClusterState:
    empty = make_state(jobs=0, time_seconds=time_seconds)
    jobs = tuple(make_job(number, submit_time_seconds=0.0) for number in numbers)
    return ClusterState(time_seconds, empty.nodes, jobs, SLOT)


def test_a_job_is_followed_from_its_submission_to_its_end() -> None:
    timelines = JobTimelines(4)
    timelines.on_interval(state(600.0, 0), [], SLOT, [])
    timelines.on_interval(state(1800.0, 0), [progress("job-0", 2, 1)], SLOT, ["over-cap"])
    timelines.on_interval(state(3000.0, 0), [progress("job-0", 2, 1)], SLOT, [])
    timelines.on_interval(state(4200.0, 0), [progress("job-0", 3, 1, seconds=500.0, finished=True)], SLOT, [])
    (job,) = timelines.latest
    assert job.sizes == ((0.0, 0, 0), (1800.0, 2, 1), (4200.0, 3, 1))
    assert job.interventions == ((1800.0, "over-cap"),)
    assert (job.completed, job.seconds, job.resizes, job.number) == (True, 4700.0, 1, 1)
    assert "job-0" not in repr(job)


def test_a_decision_at_the_submission_leaves_no_waiting() -> None:
    timelines = JobTimelines(2)
    timelines.on_interval(state(0.0, 0), [progress("job-0", 1, 1)], SLOT, [])
    assert timelines.latest[0].sizes == ((0.0, 1, 1),)


def test_jobs_of_another_episode_are_others_whatever_they_are_called() -> None:
    timelines = JobTimelines(4)
    timelines.on_interval(state(9000.0, 0), [progress("job-0", 1, 1)], SLOT, [])
    timelines.on_interval(state(0.0, 0), [progress("job-0", 2, 2)], SLOT, [])
    (job,) = timelines.latest
    assert (job.number, job.seconds) == (2, SLOT)


def test_jobs_with_an_unknown_past_are_not_followed() -> None:
    timelines = JobTimelines(8, resumed=True)
    timelines.on_interval(state(9000.0, 0), [progress("job-0", 1, 1)], SLOT, [])
    timelines.on_interval(state(10200.0, 0, 1), [], SLOT, [])
    assert [job.number for job in timelines.latest] == [2]


@given(
    st.integers(1, 16),
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4), st.booleans()), max_size=8), max_size=40),
)
def test_whatever_happens_little_is_told_and_in_order(
    places: int, intervals: list[list[tuple[int, int, bool]]]
) -> None:
    timelines = JobTimelines(places)
    for index, jobs in enumerate(intervals):
        there = {number: (workers, done) for number, workers, done in jobs}
        reported = [progress(f"job-{n}", workers, workers, finished=done) for n, (workers, done) in there.items()]
        timelines.on_interval(state(index * SLOT, *there), reported, SLOT, ["nan"] * len(jobs))
        assert len(timelines.latest) <= places
        for job in timelines.latest:
            moments = [at for at, _, _ in job.sizes]
            assert moments == sorted(moments)
            assert moments[-1] <= job.seconds
            assert len(job.interventions) <= MOST_INTERVENTIONS


def test_of_a_job_that_is_resized_for_ever_the_latest_changes_stay() -> None:
    timelines = JobTimelines(1)
    for index in range(3 * MOST_POINTS):
        timelines.on_interval(state(index * SLOT, 0), [progress("job-0", 1 + index % 2, 1)], SLOT, [])
    (job,) = timelines.latest
    assert len(job.sizes) == MOST_POINTS
    assert job.sizes[-1][0] == (3 * MOST_POINTS - 1) * SLOT
    assert job.resizes == 3 * MOST_POINTS - 1


def test_completion_times_are_those_of_the_cluster(tmp_path: Path) -> None:
    settings = SimulatedBackendSettings.model_validate(
        {"workloads": [{"source": "dl2:jobs=5,arrivals=google,seed=3"}], "environment": {"nodes": 12}}
    )
    backend = SimulatedBackend(load_episodes(settings), tmp_path, lambda _: False)
    timelines = JobTimelines(16)
    reported = []
    while not backend.finished:
        observed = backend.observe()
        assert observed is not None
        decision = Decision({job.job_id: Allocation(2, 1) for job in observed[0].jobs})
        happened = backend.apply(decision)
        timelines.on_interval(observed[0], happened, backend.time_seconds - observed[0].time_seconds, [])
        reported = [job.seconds for job in timelines.latest if job.completed]
    assert len(reported) == 5
    assert abs(sum(reported) / 5 - backend.status().avg_jct_seconds) < 1.0
