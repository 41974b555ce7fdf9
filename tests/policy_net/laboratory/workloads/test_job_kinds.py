"""How the jobs of a recorded workload train: by parameter servers, asynchronously, by all-reduce, or half and half."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import policy_net.baselines  # noqa: F401  (registers fifo)
from policy_net.domain import Allocation, CapacityMode, JobKind, PolicyContext, Resources
from policy_net.laboratory.catalogue import CATALOGUE, MODEL_NAMES, find_model, model_names
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import TableSpeedModel, default_speeds
from policy_net.laboratory.workloads.recorded import trace_of
from policy_net.laboratory.workloads.sources import load_workload, read_csv
from policy_net.laboratory.workloads.workload import JobKindChoice, Workload, WorkloadOptions
from policy_net.policy import build_policy

HEADER = "job_id,submit_time_s,duration_s,num_gpus"
KINDS = list(JobKindChoice)


def write(folder: Path, *lines: str, header: str = HEADER) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def read(path: Path, kind: JobKindChoice, **options: object) -> Workload:
    given = WorkloadOptions(job_kind=kind, **options)
    return trace_of(read_csv(path, given.strict), given)


def many(folder: Path, count: int = 2000) -> Path:
    return write(folder, *(f"job{index},{index},600,{1 + index % 20}" for index in range(count)))


rows = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 64)), min_size=1, max_size=12)


@pytest.mark.heavy
@settings(deadline=None, max_examples=40)
@given(st.sampled_from(KINDS), rows)
def test_with_unlimited_gpus_every_recorded_duration_is_reproduced(
    tmp_path_factory, kind: JobKindChoice, recorded: list[tuple[int, int, int]]
) -> None:
    path = write(tmp_path_factory.mktemp("trace"), *(f"{i},{s},{d},{g}" for i, (s, d, g) in enumerate(recorded)))
    workload = read(path, kind)
    plenty = Environment(
        nodes=len(recorded) * 40, decide_on=DecideOn.EVENT, debounce_seconds=0.0, capacity_mode=CapacityMode.POOLED
    )
    result = replay(workload, plenty, build_policy("fifo", PolicyContext()), default_speeds())
    assert len(result.job_results) == len(recorded)
    for job in result.job_results:
        assert job.jct_seconds == pytest.approx(recorded[int(job.job_id)][1], rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("kind", [choice for choice in KINDS if choice is not JobKindChoice.MIX])
def test_all_jobs_are_of_the_kind_that_was_chosen(kind: JobKindChoice, tmp_path: Path) -> None:
    workload = read(many(tmp_path), kind)
    assert {job.kind for job in workload.jobs} == {JobKind(kind.value)}
    assert {job.job_type for job in workload.jobs} == set(model_names(JobKind(kind.value), on_gpus=True))


def test_an_all_reduce_job_asks_for_workers_alone(tmp_path: Path) -> None:
    rows = ("a,0,60,1", "b,0,60,16", "c,0,60,40", "d,0,60,64", "e,0,60,65")
    workload = read(write(tmp_path, *rows), JobKindChoice.ALLREDUCE)
    assert [job.requested for job in workload.jobs] == [Allocation(asked, 0) for asked in (1, 16, 40, 64, 64)]
    assert [job.max_workers for job in workload.jobs] == [16, 16, 40, 64, 64]
    for job in workload.jobs:
        assert (job.max_ps, job.min_ps, job.min_workers) == (0, 0, 1)
        assert job.worker_demand == Resources(2000, 1)
    notes = "\n".join(workload.notes)
    assert "jobs: 5 by all-reduce" in notes
    assert "1 requests above 64 GPUs count as 64" in notes
    assert "above 16" not in notes
    assert "PSs" not in notes


def test_requests_beyond_the_speeds_that_are_known_count_as_the_largest_known(tmp_path: Path) -> None:
    grid = np.zeros((1, 65))
    grid[0, 1:33] = 10.0
    short = np.zeros((17, 17))
    short[0, 1:] = 10.0
    path = write(tmp_path, "a,0,60,8", "b,0,60,64")
    for known, most in ((grid, 32), (short, 16)):
        speeds = TableSpeedModel(dict.fromkeys(model_names(JobKind.ALLREDUCE), known), "test")
        workload = load_workload(str(path), WorkloadOptions(job_kind=JobKindChoice.ALLREDUCE, speeds=speeds))
        assert [job.requested.workers for job in workload.jobs] == [8, most]
        assert f"1 requests above {most} GPUs count as {most}" in workload.notes


def test_a_mix_is_half_of_each_whatever_the_model(tmp_path: Path) -> None:
    jobs = read(many(tmp_path), JobKindChoice.MIX).jobs
    shares = Counter(job.kind for job in jobs)
    assert set(shares) == {JobKind.PS, JobKind.ALLREDUCE}
    assert abs(shares[JobKind.PS] - 1000) < 4 * np.sqrt(2000) / 2
    ps_models = Counter(job.job_type for job in jobs if job.kind is JobKind.PS)
    assert max(ps_models.values()) < 1.4 * min(ps_models.values())
    notes = "\n".join(read(many(tmp_path), JobKindChoice.MIX).notes)
    assert (
        f"{shares[JobKind.PS]} synchronous over parameter servers, {shares[JobKind.ALLREDUCE]} by all-reduce" in notes
    )


def test_a_job_of_a_mix_is_what_it_would_be_among_its_own_kind_and_in_every_window(tmp_path: Path) -> None:
    path = many(tmp_path, 300)
    mixed = read(path, JobKindChoice.MIX, seed=3).jobs
    alone = {job.job_id: job for kind in ("ps", "allreduce") for job in read(path, JobKindChoice(kind), seed=3).jobs
             if job.kind in {mix.kind for mix in mixed if mix.job_id == job.job_id}}  # fmt: skip
    assert [job.job_type for job in mixed] == [alone[job.job_id].job_type for job in mixed]
    window = read(path, JobKindChoice.MIX, seed=3, limit_jobs=50, window=2).jobs
    assert [job.job_type for job in window] == [job.job_type for job in mixed[100:150]]
    assert [job.kind for job in mixed] != [job.kind for job in read(path, JobKindChoice.MIX, seed=4).jobs]


@pytest.mark.parametrize(
    ("kind", "model", "expected"),
    [
        ("ps", "VGG16", "vgg-16"),
        ("ps", "imagenet", "resnet-50"),
        ("async", "vgg16", "vgg-16-async"),
        ("async", "cnn-text", "cnn-text-classification-async"),
        ("allreduce", "vgg16", "vgg16-256-allreduce"),
        ("allreduce", "BERT", "bert-128-allreduce"),
        ("allreduce", "bert-64-allreduce", "bert-64-allreduce"),
        ("allreduce", "inception_v3", "inception3-128-allreduce"),
        ("allreduce", "deepspeech2", "deepspeech2-64-allreduce"),
        ("allreduce", "imagenet", "resnet50-256-allreduce"),
        ("mix", "bert", "bert-128-allreduce"),
        ("mix", "wlm", "wlm"),
    ],
)
def test_a_stated_model_is_resolved_for_the_kind_of_the_job(
    kind: str, model: str, expected: str, tmp_path: Path
) -> None:
    path = write(tmp_path, *(f"{index},0,60,1,{model}" for index in range(8)), header=f"{HEADER},model")
    workload = read(path, JobKindChoice(kind))
    assert {job.job_type for job in workload.jobs} == {expected}
    assert any("models: 8 as the file says" in note for note in workload.notes)


def test_a_model_that_no_chosen_kind_knows_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "a,0,60,1,bert", "b,0,60,1,wlm", header=f"{HEADER},model")
    assert any("1 jobs name a model that is not known" in note for note in read(path, JobKindChoice.PS).notes)
    assert any("1 jobs name a model that is not known" in note for note in read(path, JobKindChoice.ALLREDUCE).notes)


def test_every_type_is_found_by_its_name_and_bare_names_mean_the_synchronous_type_first() -> None:
    for name, profile in CATALOGUE.items():
        assert find_model(name) is profile
        assert find_model(name.upper(), profile.kind) is profile
    assert find_model("resnet50") is CATALOGUE["resnet-50"]
    assert find_model("gpt-2") is CATALOGUE["gpt2-256-allreduce"]
    assert find_model("wlm", JobKind.ALLREDUCE) is None
    assert find_model("llama") is None


def test_generated_jobs_may_be_of_any_kind() -> None:
    workload = load_workload("dl2:jobs=40,seed=2,mix=wlm+wlm-async+bert-128-allreduce")
    kinds = Counter(job.kind for job in workload.jobs)
    assert set(kinds) == set(JobKind)
    for job in workload.jobs:
        assert job.requested == (Allocation(2, 0) if job.kind is JobKind.ALLREDUCE else Allocation(2, 2))
    again = load_workload(workload.name)
    assert again.jobs == workload.jobs


GRIDS = [(name, default_speeds().grid(name)) for name in CATALOGUE]


@pytest.mark.parametrize(("name", "grid"), GRIDS, ids=list(CATALOGUE))
def test_every_type_has_speeds_exactly_where_it_can_train(name: str, grid: np.ndarray) -> None:
    where = np.zeros((17, 17) if CATALOGUE[name].kind.uses_ps else (1, 65), dtype=bool)
    where[slice(1, None) if CATALOGUE[name].kind.uses_ps else 0, 1:] = True
    assert np.isfinite(grid).all()
    assert (grid[where] > 0).all()
    assert not grid[~where].any()


@pytest.mark.parametrize("name", model_names(JobKind.ASYNC))
def test_more_asynchronous_workers_always_help_less_and_less_up_to_the_servers_bandwidth(name: str) -> None:
    grid = default_speeds().grid(name)[1:, 1:]
    gain = np.diff(grid, axis=1)
    assert (gain >= -1e-9 * grid[:, 1:]).all()
    assert (np.diff(gain, axis=1) <= 1e-6 * grid[:, 2:]).all()
    assert (grid <= grid[:, :1] * np.arange(1, 17) * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_one_asynchronous_worker_is_as_fast_as_one_synchronous(name: str) -> None:
    synchronous, asynchronous = default_speeds().grid(name), default_speeds().grid(f"{name}-async")
    assert asynchronous[:, 1] == pytest.approx(synchronous[:, 1])


@pytest.mark.parametrize("name", model_names(JobKind.ALLREDUCE))
def test_all_reduce_scales_at_most_linearly_and_a_larger_batch_scales_further(name: str) -> None:
    speeds = default_speeds().grid(name)[0, 1:]
    assert (speeds <= speeds[0] * np.arange(1, 65) * (1 + 1e-9)).all()
    assert speeds.max() > 1.5 * speeds[0]
    profile = CATALOGUE[name]
    for other in CATALOGUE.values():
        if other.family == profile.family and other.global_batch > profile.global_batch:
            larger = default_speeds().grid(other.name)[0, 1:]
            assert larger[15] / larger[0] > speeds[15] / speeds[0]


@pytest.mark.parametrize("name", model_names(JobKind.ALLREDUCE))
def test_a_nominal_all_reduce_job_lasts_twelve_hours_on_four_gpus(name: str) -> None:
    profile = CATALOGUE[name]
    seconds = profile.nominal_epochs * profile.samples_per_epoch / default_speeds().samples_per_second(name, 0, 4)
    assert seconds == pytest.approx(12 * 3600, rel=0.03)
