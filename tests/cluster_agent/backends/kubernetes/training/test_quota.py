"""Quota of TrainingJobs as it is planned: case by case, and against a Kueue and a job that do anything in any order."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_training import Brain
from training_objects import job

from cluster_agent.backends.kubernetes.training.quota import (
    Act,
    Quota,
    QuotaUse,
    Verb,
    plan_quota,
    refused,
    unread,
    use_of,
)
from cluster_agent.backends.kubernetes.training.step import CoordinatorReport, JobStanding, JobStep
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.training.training_job import TrainingJob
from cluster_agent.kubernetes.training.workloads import KueueWorkload, WorkloadState
from elastic_runtime.control.messages import Size
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

QUEUED = {"kueue": {"queueName": "research"}}
NOTHING = QuotaUse(any=False, size=SUSPENDED)


def the_job(**more: object) -> TrainingJob:
    return job(**{**QUEUED, **more})


def workload(number: int, size: Allocation, state: WorkloadState, replaces: int | None = None) -> KueueWorkload:
    name = f"digits-01234567-{number}"
    before = "" if replaces is None else f"digits-01234567-{replaces}"
    return KueueWorkload(
        "team", name, f"u{number}", "1", the_job().uid, number, size, state, line="said", replaces=before
    )


def pod(task: str, phase: str = "Running", deleting: bool = False) -> TaskPod:
    return TaskPod("team", f"digits-{task}", "digits", task, task, the_job().uid, phase, deleting=deleting)


def holds(size: Allocation) -> QuotaUse:
    return QuotaUse(any=True, size=size)


def verbs(quota: Quota) -> list[tuple[Verb, int, Allocation]]:
    return [(act.verb, act.workload.number if act.workload else -1, act.size) for act in quota.acts]


def test_what_runs_is_held_and_what_the_coordinator_means_to_have_too() -> None:
    brain = Brain(Size(2, 3), JobPhase.RESIZING)
    pods = [pod("coordinator"), pod("worker-0"), pod("worker-1", "Succeeded"), pod("ps-0", deleting=True)]
    assert use_of(pods, None) == QuotaUse(any=True, size=None, tasks=Allocation(1, 1))
    assert use_of(pods, CoordinatorReport(brain.status(), 0.0)) == QuotaUse(
        any=True, size=Allocation(3, 2), tasks=Allocation(1, 1)
    )
    assert use_of([pod("worker-0")], None) == QuotaUse(any=True, size=Allocation(1, 0), tasks=Allocation(1, 0))
    assert use_of([pod("worker-0", "Failed")], None) == NOTHING


@pytest.mark.parametrize("patient", [True, False])
def test_a_job_that_runs_though_its_workload_was_deleted_asks_for_all_that_it_holds(patient: bool) -> None:
    running = QuotaUse(any=True, size=None, tasks=Allocation(3, 1))
    quota = plan_quota(the_job(), Allocation(1, 2), running, [], patient)
    assert quota.allowed == SUSPENDED
    assert verbs(quota) == [(Verb.CREATE, -1, Allocation(3, 2 if patient else 1))]
    pending = workload(0, Allocation(3, 2), WorkloadState.PENDING)
    gone = plan_quota(the_job(), Allocation(1, 2), NOTHING, [pending])
    assert verbs(gone) == [(Verb.COUNT, 0, Allocation(1, 2))]


def test_where_nobody_knows_what_is_held_nothing_is_lowered() -> None:
    ground = workload(0, Allocation(4, 2), WorkloadState.ADMITTED)
    quota = plan_quota(the_job(), Allocation(1, 1), QuotaUse(any=True, size=None), [ground])
    assert (quota.allowed, quota.acts) == (Allocation(1, 1), ())
    quota = plan_quota(the_job(), Allocation(1, 1), holds(Allocation(2, 2)), [ground])
    assert verbs(quota) == [(Verb.COUNT, 0, Allocation(2, 2))]


def test_more_of_the_one_and_less_of_the_other_asks_for_all_that_is_held_meanwhile() -> None:
    ground = workload(0, Allocation(2, 2), WorkloadState.ADMITTED)
    quota = plan_quota(the_job(), Allocation(4, 1), holds(Allocation(2, 2)), [ground])
    assert quota.allowed == Allocation(2, 1)
    assert verbs(quota) == [(Verb.CREATE, 0, Allocation(4, 2))]


def test_a_slice_that_is_not_wanted_any_more_is_deleted_before_it_is_admitted() -> None:
    ground, asked = (
        workload(0, Allocation(2, 1), WorkloadState.ADMITTED),
        workload(1, Allocation(4, 1), WorkloadState.PENDING, 0),
    )
    quota = plan_quota(the_job(), Allocation(2, 1), holds(Allocation(2, 1)), [ground, asked])
    assert verbs(quota) == [(Verb.DELETE, 1, SUSPENDED)]
    reserved = replace(asked, state=WorkloadState.RESERVED)
    assert plan_quota(the_job(), Allocation(2, 1), holds(Allocation(2, 1)), [ground, reserved]).acts == ()


def test_of_two_that_are_admitted_the_later_counts_and_the_other_is_finished() -> None:
    first, second = (
        workload(0, Allocation(1, 1), WorkloadState.ADMITTED),
        workload(1, Allocation(3, 1), WorkloadState.ADMITTED, 0),
    )
    quota = plan_quota(the_job(), Allocation(3, 1), holds(Allocation(1, 1)), [second, first])
    assert quota.allowed == Allocation(3, 1)
    assert verbs(quota) == [(Verb.FINISH, 0, SUSPENDED)]
    over = replace(first, state=WorkloadState.FINISHED)
    assert verbs(plan_quota(the_job(), Allocation(3, 1), holds(Allocation(1, 1)), [second, over])) == [
        (Verb.DELETE, 0, SUSPENDED)
    ]


def test_while_checks_of_a_slice_are_done_it_trains_on_the_one_before() -> None:
    over = workload(0, Allocation(1, 1), WorkloadState.FINISHED)
    checked = workload(1, Allocation(3, 1), WorkloadState.RESERVED, 0)
    quota = plan_quota(the_job(), Allocation(3, 1), holds(Allocation(1, 1)), [over, checked])
    assert (quota.allowed, quota.reason, quota.acts) == (Allocation(1, 1), "WaitsForMoreQuota", ())
    assert plan_quota(the_job(), Allocation(3, 1), NOTHING, [over, checked]).allowed == SUSPENDED


def test_what_is_admitted_below_the_least_size_starts_nothing() -> None:
    wide = the_job(workers=(2, 4))
    ground = workload(0, Allocation(1, 1), WorkloadState.ADMITTED)
    assert plan_quota(wide, Allocation(2, 1), NOTHING, [ground]).allowed == SUSPENDED
    assert plan_quota(wide, Allocation(2, 1), holds(Allocation(1, 1)), [ground]).allowed == Allocation(1, 1)


def test_it_is_of_no_interest_what_others_have() -> None:
    theirs = replace(workload(0, Allocation(4, 2), WorkloadState.ADMITTED), owner="another")
    odd = replace(workload(0, Allocation(4, 2), WorkloadState.ADMITTED), number=-1)
    quota = plan_quota(the_job(), Allocation(1, 1), NOTHING, [theirs, odd])
    assert (quota.allowed, quota.acts) == (SUSPENDED, (Act(Verb.CREATE, None, Allocation(1, 1), 0),))


def test_no_pod_is_made_beyond_what_was_admitted() -> None:
    ground = workload(0, Allocation(2, 1), WorkloadState.ADMITTED)
    quota = plan_quota(the_job(), Allocation(2, 1), holds(Allocation(2, 1)), [ground])
    step = JobStep(JobStanding.RUNNING, create=("worker-4", "worker-5", "ps-1", "coordinator"))
    pods = [pod("worker-0"), pod("worker-1", "Failed"), pod("ps-0", deleting=True)]
    assert quota.limit(step, pods).create == ("worker-4", "ps-1", "coordinator")
    assert replace(quota, ground=None).limit(step, pods).create == ()


def test_without_kueue_nothing_begins_and_nothing_ends() -> None:
    for quota in (unread(Allocation(4, 2), NOTHING, "404"), unread(Allocation(4, 2), NOTHING, "")):
        assert quota.allowed == SUSPENDED
    running = unread(Allocation(4, 1), holds(Allocation(2, 2)), "404")
    assert (running.allowed, running.reason) == (Allocation(2, 1), "KueueMissing")
    assert unread(Allocation(4, 1), QuotaUse(any=True, size=None), "").allowed == Allocation(4, 1)
    assert unread(SUSPENDED, holds(Allocation(2, 2)), "404").allowed == SUSPENDED


def test_a_job_whose_new_workload_is_refused_keeps_what_it_has() -> None:
    held = holds(Allocation(2, 1))
    quota = plan_quota(the_job(), Allocation(4, 1), held, [])
    assert quota.allowed == SUSPENDED
    assert refused(quota, Allocation(4, 1), held, "404").allowed == Allocation(2, 1)
    evicted = plan_quota(the_job(), Allocation(2, 1), NOTHING, [workload(0, Allocation(2, 1), WorkloadState.EVICTED)])
    assert refused(evicted, Allocation(2, 1), NOTHING, "500").allowed == SUSPENDED


# Anything in any order.

SIZES = [Allocation(workers, servers) for workers, servers in itertools.product(range(1, 5), range(1, 3))]


@dataclass
class Life:
    """A job and a Kueue that counts tasks; `step` is one look of the agent, whose writes may get lost."""

    quota: int = 12
    knows_slices: bool = True
    checks: bool = True
    wanted: Allocation = SIZES[0]
    pods: Allocation = SUSPENDED
    leads: bool = False
    all: dict[int, KueueWorkload] = field(default_factory=dict)

    def put(self, found: KueueWorkload) -> None:
        self.all[found.number] = found

    def used(self) -> int:
        return sum(
            each.size.tasks
            for each in self.all.values()
            if each.state in (WorkloadState.RESERVED, WorkloadState.ADMITTED, WorkloadState.EVICTED)
        )

    def poll(self, writes: int, patient: bool = True) -> None:
        held = QuotaUse(self.leads, self.pods if self.leads else SUSPENDED, trains=False)
        quota = plan_quota(the_job(), self.wanted, held, list(self.all.values()), patient)
        for act in quota.acts[:writes]:
            self.write(act)
        self.follow(quota)

    def write(self, act: Act) -> None:
        if act.verb is Verb.CREATE:
            assert act.number not in self.all
            self.put(
                workload(act.number, act.size, WorkloadState.PENDING, act.workload.number if act.workload else None)
            )
            return
        assert act.workload is not None
        found = self.all[act.workload.number]
        if act.verb is Verb.DELETE:
            assert found.state in (WorkloadState.PENDING, WorkloadState.FINISHED) or not self.leads, (
                "its pods still run on it"
            )
            del self.all[found.number]
        elif act.verb is Verb.COUNT:
            if found.state is not WorkloadState.PENDING:
                assert found.size.most(act.size) == found.size, "counts of what has quota only fall"
                assert act.size.most(self.pods) == act.size, "its pods still run"
            self.put(replace(found, size=act.size))
        elif act.verb is Verb.GIVE_BACK:
            assert not self.leads, "its pods still run"
            self.put(replace(found, state=WorkloadState.PENDING))
        elif act.verb is Verb.FINISH:
            self.put(replace(found, state=WorkloadState.FINISHED))

    def follow(self, quota: Quota) -> None:
        """The job has what it may have, one task at a time."""
        if quota.allowed == SUSPENDED:
            self.pods, self.leads = SUSPENDED, False
            return
        if quota.ground is None:
            return
        steps = [
            (have < may) - (have > may)
            for have, may in ((self.pods.workers, quota.allowed.workers), (self.pods.ps, quota.allowed.ps))
        ]
        self.pods, self.leads = Allocation(self.pods.workers + steps[0], self.pods.ps + steps[1]), True
        most = quota.ground.size
        assert self.pods.most(most) == most, "more pods than were admitted"

    def kueue(self) -> None:
        """Kueue admits what fits, the older first."""
        for each in sorted(self.all.values(), key=lambda found: found.number):
            if each.state is WorkloadState.RESERVED and self.checks:
                self.put(replace(each, state=WorkloadState.ADMITTED))
            if each.state is not WorkloadState.PENDING:
                continue
            before = next((old for old in self.all.values() if self.knows_slices and old.name == each.replaces), None)
            before = before if before and before.state in (WorkloadState.RESERVED, WorkloadState.ADMITTED) else None
            if self.used() - (before.size.tasks if before else 0) + each.size.tasks <= self.quota:
                self.put(replace(each, state=WorkloadState.ADMITTED if self.checks else WorkloadState.RESERVED))
                if before is not None:
                    self.put(replace(before, state=WorkloadState.FINISHED))

    def evict(self) -> None:
        for each in list(self.all.values()):
            if each.state in (WorkloadState.RESERVED, WorkloadState.ADMITTED):
                self.put(replace(each, state=WorkloadState.EVICTED))

    def vanish(self) -> None:
        """Somebody deletes the newest one."""
        if self.all:
            del self.all[max(self.all)]


@pytest.mark.heavy
@settings(max_examples=300, deadline=None)
@given(st.data(), st.booleans(), st.booleans())
def test_in_any_order_pods_keep_within_quota_and_in_the_end_the_job_has_what_it_wants(
    data: st.DataObject, knows_slices: bool, begun: bool
) -> None:
    life = Life(knows_slices=knows_slices)
    if begun:
        for _ in range(3):
            life.poll(9)
            life.kueue()
    moves = st.sampled_from(["look", "look", "look", "kueue", "kueue", "want", "evict", "vanish", "quota", "checks"])
    for move in data.draw(st.lists(moves, min_size=10, max_size=40)):
        if move == "look":
            life.poll(data.draw(st.sampled_from([9, 9, 0, 1, 2])), data.draw(st.booleans()))
        elif move == "want":
            life.wanted = data.draw(st.sampled_from([*SIZES, SUSPENDED]))
        elif move == "quota":
            life.quota = data.draw(st.integers(0, 12))
        elif move == "checks":
            life.checks = not life.checks
        else:
            {"kueue": life.kueue, "evict": life.evict, "vanish": life.vanish}[move]()
    life.quota, life.checks = 12, True
    life.wanted = data.draw(st.sampled_from([*SIZES, SUSPENDED]))
    for _ in range(30):
        life.poll(9)
        life.kueue()
    assert life.pods == life.wanted
    left = [(each.size, each.state) for each in life.all.values()]
    assert left == ([(life.wanted, WorkloadState.ADMITTED)] if life.wanted != SUSPENDED else [])
