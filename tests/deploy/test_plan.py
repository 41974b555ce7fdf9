from pathlib import Path

import pytest

from deploy.local.plan import make_plan
from policy_net.errors import BadInput


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    for name, jobs in (("north", 30), ("south", 12), ("west", 4)):
        rows = "".join(f"{name}-{index},{index * 300},{600 + index},1\n" for index in range(jobs))
        (tmp_path / f"{name}.csv").write_text("job_id,submit_time_s,duration_s,num_gpus\n" + rows)
    return tmp_path


def test_without_files_there_are_three_clusters_of_different_size_and_mix() -> None:
    plan = make_plan(None, (), seed=0, jobs=None)
    assert len(plan) == 3
    assert len({cluster.nodes for cluster in plan}) == 3
    types = [{job.job_type for job in cluster.world(cluster.own, cluster.own.speeds())[0].jobs} for cluster in plan]
    assert types[0] != types[1] != types[2] != types[0]


def test_held_out_workloads_are_never_the_clusters_own() -> None:
    for cluster in make_plan(None, (), seed=7, jobs=10):
        speeds = cluster.own.speeds()
        own = cluster.world(cluster.own, speeds)[0]
        assert cluster.held_out
        assert all(cluster.world(world, speeds)[0].jobs != own.jobs for world in cluster.held_out)


def test_a_csv_cluster_is_judged_on_the_jobs_after_its_own(traces: Path) -> None:
    (cluster,) = make_plan(traces, ("north",), seed=0, jobs=10)
    speeds = cluster.own.speeds()
    own = {job.job_id for job in cluster.world(cluster.own, speeds)[0].jobs}
    (world,) = cluster.held_out
    assert not own & {job.job_id for job in cluster.world(world, speeds)[0].jobs}
    assert not cluster.held_out_note


def test_a_csv_without_enough_further_jobs_says_what_it_is_judged_on(traces: Path) -> None:
    (cluster,) = make_plan(traces, ("south",), seed=0, jobs=10)
    assert len(cluster.held_out) == 1
    assert "south" in cluster.held_out_note


@pytest.mark.parametrize(
    ("fleet", "jobs", "said"),
    [
        (("east",), 10, "'east'"),
        (("north", "north"), 10, "twice"),
        (("west",), 10, "4 jobs, 10 wanted"),
        (("north",), 0, "JOBS=0"),
    ],
)
def test_what_cannot_be_planned_is_named(fleet: tuple[str, ...], jobs: int, said: str, traces: Path) -> None:
    with pytest.raises(BadInput, match=said):
        make_plan(traces, fleet, seed=0, jobs=jobs)


def test_a_folder_that_is_not_there_or_empty_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        make_plan(tmp_path / "nowhere", (), 0, None)
    with pytest.raises(BadInput, match="holds no csv file"):
        make_plan(tmp_path, (), 0, None)


def test_built_in_clusters_are_named_when_one_is_unknown() -> None:
    with pytest.raises(BadInput, match="vision"):
        make_plan(None, ("sound",), 0, None)


def test_jobs_of_rollouts_keep_coming_for_longer_than_the_clusters_own() -> None:
    for cluster in make_plan(None, (), seed=0, jobs=None):
        assert cluster.lasting is not None
        source, world = cluster.lasting
        lasting = world.workload(source, world.speeds())
        own = cluster.world(cluster.own, cluster.own.speeds())[0]
        assert lasting.jobs[-1].submit_time_seconds > 10 * own.jobs[-1].submit_time_seconds
        assert {job.job_type for job in lasting.jobs} == {job.job_type for job in own.jobs}
