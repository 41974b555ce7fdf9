"""Jobs that keep the size that they asked for: which they are, and that every policy keeps it."""

import dataclasses
import math

import pytest
from worlds import make_spec

import policy_net.baselines
import policy_net.set_policy  # noqa: F401  (both register policies' names)
from policy_net.domain import Allocation, PolicyContext, Resources
from policy_net.errors import BadInput
from policy_net.laboratory.simulation.admission import with_elastic_share
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.workload import Workload
from policy_net.policy import build_policy

ENVIRONMENT = Environment(nodes=4, gpus_per_node=4, cpus_per_node=64, decide_on=DecideOn.EVENT)


def workload(jobs: int = 60, workers: int = 3) -> Workload:
    return Workload(
        "made",
        tuple(
            make_spec(
                job_id=f"job-{number}", job_type="resnet-50", total_epochs=20_000.0,
                submit_time_seconds=60.0 * number, requested=Allocation(workers, 1),
                worker_demand=Resources(1000, 1),
            )
            for number in range(jobs)
        ),
    )  # fmt: skip


def test_the_share_is_drawn_by_seed_and_id_and_grows_job_by_job() -> None:
    def fixed(share: float, seed: int = 0) -> set[str]:
        return {job.job_id for job in with_elastic_share(workload(), ENVIRONMENT, share, seed).jobs if job.fixed_size}

    assert fixed(1.0) == set()
    assert len(fixed(0.0)) == 60
    assert 15 < len(fixed(0.5)) < 45
    assert fixed(0.8) < fixed(0.5)
    assert fixed(0.5) != fixed(0.5, seed=1)


def test_a_fixed_job_asks_for_what_it_asked_for_and_a_note_says_how_many_there_are() -> None:
    of_share = with_elastic_share(workload(4), ENVIRONMENT, 0.0, 0)
    job = of_share.jobs[0]
    assert (job.min_workers, job.max_workers, job.min_ps, job.max_ps) == (3, 3, 1, 1)
    assert of_share.notes[-1] == "4 of 4 jobs keep the size that they asked for, drawn with seed 0"


def test_who_asked_for_more_than_there_is_stays_resizable() -> None:
    small = dataclasses.replace(ENVIRONMENT, nodes=1, gpus_per_node=2)
    assert not any(job.fixed_size for job in with_elastic_share(workload(3), small, 0.0, 0).jobs)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(BadInput, match="elastic-share"):
        with_elastic_share(workload(1), ENVIRONMENT, share, 0)


@pytest.mark.parametrize("policy", ["drf", "optimus", "marginal", "set-taught"])
def test_under_every_policy_a_fixed_job_has_its_size_or_nothing(policy: str) -> None:
    of_share = with_elastic_share(workload(12), ENVIRONMENT, 0.5, 0)
    speeds = default_speeds()
    result = replay(of_share, ENVIRONMENT, build_policy(policy, PolicyContext()), speeds, record_timeline=True)
    held = {job.job_id: {entry[1:] for entry in result.timeline[job.job_id]} for job in of_share.jobs}
    fixed = [job.job_id for job in of_share.jobs if job.fixed_size]
    assert fixed
    assert all(held[job_id] == {(0, 0), (3, 1)} or held[job_id] == {(3, 1), (0, 0)} for job_id in fixed)
    assert any(held[job.job_id] - {(0, 0), (3, 1)} for job in of_share.jobs if not job.fixed_size)
