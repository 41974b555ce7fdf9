"""What trains in two ways under one name has two types, for whoever decides and learns."""

from __future__ import annotations

from agent_fakes import make_job, make_state

from cluster_agent.backends.base import Backend, BackendStatus
from cluster_agent.backends.kinds_apart import KindsApart
from policy_net.domain import Allocation, ClusterState, Decision, Job, JobKind, Progress, Trigger
from policy_net.throughput.parametric import OnlineFit

RING = {"kind": JobKind.ALLREDUCE, "max_ps": 0, "min_ps": 0, "requested": Allocation(1, 0)}


class Scripted(Backend):
    """A cluster with the jobs that it is given; each trains 100 samples in ten seconds with whatever it gets."""

    finished, time_seconds, baseline_policy, not_ready = False, 0.0, "", ""

    def __init__(self, *jobs: Job) -> None:
        self.jobs = jobs

    @property
    def job_types(self) -> list[str]:
        return list(dict.fromkeys(job.job_type for job in self.jobs))

    def start(self) -> None: ...

    def close(self) -> None: ...

    def status(self) -> BackendStatus:
        return BackendStatus(0.0, 0, 0, 0, 0, 0.0)

    def observe(self) -> tuple[ClusterState, Trigger] | None:
        state = make_state(0)
        return ClusterState(0.0, state.nodes, self.jobs, state.slot_seconds), Trigger.SLOT

    def apply(self, decision: Decision) -> list[Progress]:
        types = {job.job_id: job.job_type for job in self.jobs}
        given = decision.allocation.items()
        return [Progress(job_id, types[job_id], grant, 10.0, 100.0, 1.0, 5.0) for job_id, grant in given]


def types_seen(backend: KindsApart) -> list[str]:
    observed = backend.observe()
    assert observed is not None
    return [job.job_type for job in observed[0].jobs]


def test_the_second_kind_of_a_type_is_decided_about_and_learned_of_by_a_name_of_its_own() -> None:
    beliefs = OnlineFit()
    backend = KindsApart(Scripted(make_job(0), make_job(1, **RING), make_job(2, job_type="other")), beliefs)
    assert types_seen(backend) == ["vgg-16", "vgg-16-allreduce", "other"]
    assert backend.job_types == ["vgg-16", "other", "vgg-16-allreduce"]
    grants = {"job-0": Allocation(1, 1), "job-1": Allocation(1, 0)}
    progress = backend.apply(Decision(grants))
    assert [entry.job_type for entry in progress] == ["vgg-16", "vgg-16-allreduce"]
    beliefs.observe(progress)
    assert beliefs.samples_per_second("vgg-16-allreduce", 0, 1) > 0.0
    assert beliefs.samples_per_second("vgg-16", 1, 1) > 0.0


def test_what_was_measured_says_whose_name_it_is_also_after_a_restart() -> None:
    beliefs = OnlineFit()
    beliefs.observe([Progress("", "vgg-16", Allocation(2, 2), 10.0, 100.0, 1.0, 5.0)])
    assert types_seen(KindsApart(Scripted(make_job(1, **RING), make_job(2)), beliefs)) == ["vgg-16-allreduce", "vgg-16"]


def test_a_type_is_not_taken_for_another_one_that_a_user_named_so() -> None:
    beliefs = OnlineFit()
    beliefs.observe([Progress("", "vgg-16-allreduce", Allocation(2, 0), 10.0, 100.0, 1.0, 5.0)])
    new, old = make_job(0, **RING), make_job(1, job_type="vgg-16-allreduce", **RING)
    assert types_seen(KindsApart(Scripted(new, old), beliefs)) == ["vgg-16", "vgg-16-allreduce"]
    assert types_seen(KindsApart(Scripted(new), beliefs)) == ["vgg-16-allreduce"], "nobody did: it was this one's"


def test_where_no_type_is_of_two_kinds_nothing_changes() -> None:
    inner = Scripted(make_job(0), make_job(1, job_type="ring", **RING))
    backend = KindsApart(inner, OnlineFit())
    assert backend.observe() == inner.observe()
    assert backend.job_types == inner.job_types
    decision = Decision({"job-1": Allocation(1, 0)})
    assert backend.apply(decision) == inner.apply(decision)
