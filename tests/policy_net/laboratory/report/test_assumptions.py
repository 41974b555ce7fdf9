import dataclasses

import pytest
from worlds import make_spec

from policy_net.domain import Allocation, CapacityMode, JobKind
from policy_net.laboratory.report.caveats import assumptions, summary
from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.simulation.environment import DecideOn, NodeChange, PlacementStrategy
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob

HOURS = {"fifo": [2.0, 2.0], "set-taught": [1.0, 1.0]}


def _with_jobs(comparison: Comparison, *jobs: WorkloadJob) -> str:
    return " ".join(assumptions(dataclasses.replace(comparison, workload=Workload("made", jobs, slotted=False))))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({}, "Resizing, suspending and resuming a job takes no time."),
        ({}, "No machine fails, comes or goes."),
        ({}, "Speeds do not vary from run to run."),
        ({}, "when a job arrives or ends, at most once in 60 s and at least once in 20 min"),
        (
            {"resize_seconds": 30.0, "resume_seconds": 150.0},
            "stops a running job for 30 s; to go on after",
        ),
        ({"node_mtbf_seconds": 720 * 3600.0}, "A machine fails after 30 days on average and is back after 60 min"),
        ({"node_changes": (NodeChange(60.0, "node-9", True),)}, "Machines come and go 1 time by plan"),
        ({"job_noise": 0.2, "speed_noise": 0.1}, "by 20% for life and by 10% from decision to decision"),
        ({"job_noise": 0.2}, "A job’s speed varies by 20% for life (standard deviation)."),
        ({"decide_on": DecideOn.SLOT}, "Every policy decides once in 20 min, and jobs wait for that."),
        ({"capacity_mode": CapacityMode.POOLED}, "added up over all machines"),
        ({"placement": PlacementStrategy.PACK}, "each job on as few as possible"),
    ],
)
def test_assumptions_are_those_of_the_settings_used(made, setting: dict[str, object], said: str) -> None:
    assert said in " ".join(assumptions(made(HOURS, **setting)))


def test_where_the_cluster_size_comes_from_is_said(made) -> None:
    assert "The cluster has 4 machines with 2 GPUs and 8 CPU cores each, as given" in list(assumptions(made(HOURS)))[1]
    assert "Nobody said what it is" in list(assumptions(made(HOURS, nodes_given=False)))[1]
    assert "4 machines, their number chosen to suit the jobs." in summary(made(HOURS, nodes_given=False))


def test_what_policies_are_told_about_durations_is_said(made) -> None:
    exact, wrong, unknown = (
        make_spec(0),
        make_spec(1, declared_epochs=3.0),
        make_spec(2, declared_epochs=3.0, work_known=False),
    )
    comparison = made(HOURS)
    assert "told exactly how much work a job has left, which users can seldom say." in _with_jobs(comparison, exact)
    assert (
        "except that for 1 job they are told another amount than is needed and for 1 job they are told nothing"
        in _with_jobs(comparison, exact, wrong, unknown)
    )
    assert "told an estimate of how much work a job has left, not the truth." in _with_jobs(comparison, wrong)
    assert "No policy is told how much work a job is" in _with_jobs(comparison, unknown)


def test_how_jobs_train_is_said(made) -> None:
    server = make_spec(0)
    direct = make_spec(1, kind=JobKind.ALLREDUCE, max_ps=0, min_ps=0, requested=Allocation(2, 0))
    assert "All jobs train with parameter servers, in step." in _with_jobs(made(HOURS), server)
    assert "How the jobs train: 1 with parameter servers, in step; 1 by all-reduce." in _with_jobs(
        made(HOURS), server, direct
    )


def test_generated_jobs_are_not_called_recorded(made) -> None:
    comparison = made(HOURS)
    generated = dataclasses.replace(comparison, workload=dataclasses.replace(comparison.workload, slotted=True))
    assert "nobody's last week" in " ".join(assumptions(generated)).replace("’", "'")
    assert "recorded" not in " ".join(assumptions(generated))
