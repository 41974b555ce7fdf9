"""Job-selecting and event-driven schedulers run to the end on the same simulator, through the same interface."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sample_policies import EventDriven, JobSelection

from policy_net.domain import Allocation, CapacityMode, ClusterState, Decision, Progress, Resources, Trigger
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.policy import SchedulerPolicy


class Watched:
    """Passes everything through and keeps what it saw."""

    def __init__(self, policy: SchedulerPolicy) -> None:
        self._policy = policy
        self.name = policy.name
        self.seen: list[tuple[ClusterState, Trigger, Decision]] = []

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        decision = self._policy.decide(state, trigger)
        self.seen.append((state, trigger, decision))
        return decision

    def observe(self, progress: Sequence[Progress]) -> None:
        self._policy.observe(progress)


def workload() -> Workload:
    jobs = tuple(
        WorkloadJob(
            job_id=f"job-{number}",
            job_type=("resnet-50", "dssm", "vgg-16")[number % 3],
            submit_time_seconds=400.0 * number,
            total_epochs=300.0 + 50 * number,
            samples_per_epoch=115.0,
            worker_demand=Resources(2000, 1),
            ps_demand=Resources(2000, 0),
            requested=Allocation(1 + number % 2, 1 + number % 3),
        )
        for number in range(12)
    )
    return Workload("contract", jobs)


def run(policy: SchedulerPolicy, mode: CapacityMode, decide_on: DecideOn) -> Watched:
    watched = Watched(policy)
    environment = Environment(nodes=3, decide_on=decide_on, capacity_mode=mode)
    result = replay(workload(), environment, watched, default_speeds(), clock=lambda: 0.0)
    assert result.to_json()["completed"] == 12
    assert result.counters.trimmed_tasks == 0
    return watched


@pytest.mark.parametrize("decide_on", DecideOn)
@pytest.mark.parametrize("mode", CapacityMode)
def test_job_selection_never_resizes_or_stops_what_it_started(mode: CapacityMode, decide_on: DecideOn) -> None:
    waited = False
    for state, _, decision in run(JobSelection(), mode, decide_on).seen:
        for job in state.jobs:
            given = decision.of(job.job_id)
            assert given in (job.requested, Allocation(0, 0))
            assert given == job.requested or not job.current.tasks
            waited = waited or not given.tasks
    assert waited  # the cluster was small enough for a queue


@pytest.mark.parametrize("mode", CapacityMode)
def test_event_driven_scheduling_is_told_why_and_keeps_still_at_a_tick(mode: CapacityMode) -> None:
    seen = run(EventDriven(), mode, DecideOn.EVENT).seen
    triggers = {trigger for _, trigger, _ in seen}
    assert {Trigger.ARRIVAL, Trigger.COMPLETION, Trigger.SLOT} <= triggers
    for state, trigger, decision in seen:
        assert len(decision.allocation) <= EventDriven.scheduled_jobs
        if trigger is Trigger.SLOT:
            for job in state.jobs[: EventDriven.scheduled_jobs]:
                assert decision.of(job.job_id) == job.current
