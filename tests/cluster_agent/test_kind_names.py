"""What trains in two ways under one name has two types, for whoever decides and learns."""

from __future__ import annotations

from dataclasses import replace

from agent_fakes import make_job, make_state

from cluster_agent.loop import KindNames
from policy_net.domain import Allocation, ClusterState, Job, JobKind, Progress
from policy_net.throughput.parametric import OnlineFit

RING = {"kind": JobKind.ALLREDUCE, "max_ps": 0, "min_ps": 0, "requested": Allocation(1, 0)}


def state_of(*jobs: Job) -> ClusterState:
    return replace(make_state(0), jobs=jobs)


def trained(job: Job, grant: Allocation) -> Progress:
    """What a cluster says of a job: its user's word for the type."""
    return Progress(job.job_id, job.job_type, grant, 10.0, 100.0, 1.0, 5.0)


def names_for(beliefs: OnlineFit, *jobs: Job) -> KindNames:
    return KindNames(beliefs, lambda: [job.job_type for job in jobs])


def types_seen(beliefs: OnlineFit, *jobs: Job) -> list[str]:
    return [job.job_type for job in names_for(beliefs, *jobs).named_by_kind(state_of(*jobs)).jobs]


def test_the_second_kind_of_a_type_is_decided_about_and_learned_of_by_a_name_of_its_own() -> None:
    beliefs = OnlineFit()
    jobs = make_job(0), make_job(1, **RING), make_job(2, job_type="other")
    names = names_for(beliefs, *jobs)
    assert [job.job_type for job in names.named_by_kind(state_of(*jobs)).jobs] == [
        "vgg-16",
        "vgg-16-allreduce",
        "other",
    ]
    progress = names.renamed([trained(jobs[0], Allocation(1, 1)), trained(jobs[1], Allocation(1, 0))])
    assert [entry.job_type for entry in progress] == ["vgg-16", "vgg-16-allreduce"]
    beliefs.observe(progress)
    assert beliefs.samples_per_second("vgg-16-allreduce", 0, 1) > 0.0
    assert beliefs.samples_per_second("vgg-16", 1, 1) > 0.0


def test_what_was_measured_says_whose_name_it_is_also_after_a_restart() -> None:
    beliefs = OnlineFit()
    beliefs.observe([Progress("", "vgg-16", Allocation(2, 2), 10.0, 100.0, 1.0, 5.0)])
    assert types_seen(beliefs, make_job(1, **RING), make_job(2)) == ["vgg-16-allreduce", "vgg-16"]


def test_a_type_is_not_taken_for_another_one_that_a_user_named_so() -> None:
    beliefs = OnlineFit()
    beliefs.observe([Progress("", "vgg-16-allreduce", Allocation(2, 0), 10.0, 100.0, 1.0, 5.0)])
    new, old = make_job(0, **RING), make_job(1, job_type="vgg-16-allreduce", **RING)
    assert types_seen(beliefs, new, old) == ["vgg-16", "vgg-16-allreduce"]
    assert types_seen(beliefs, new) == ["vgg-16-allreduce"], "nobody did: it was this one's"


def test_where_no_type_is_of_two_kinds_nothing_changes() -> None:
    jobs = make_job(0), make_job(1, job_type="ring", **RING)
    names, state = names_for(OnlineFit(), *jobs), state_of(*jobs)
    assert names.named_by_kind(state) is state
    progress = [trained(jobs[1], Allocation(1, 0))]
    assert names.renamed(progress) is progress
