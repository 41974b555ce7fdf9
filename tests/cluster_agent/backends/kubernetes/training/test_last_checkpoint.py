"""A deleted TrainingJob that asks for it writes a checkpoint before it goes; whatever fails, it goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.asked import Asked, Fault
from apiserver.cluster import Cluster, Waits, running_cluster
from pretended_coordinators import Pretended
from training_cluster import Agent, agent_of, events_of, install, pods_of, submit, wait_phase, wait_size, wait_told
from training_objects import TABLE, job, spec

from cluster_agent.backends.kubernetes.training.step import CoordinatorReport, JobMemory, Parting, SeenJob, parting
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.training.training_job import LAST_CHECKPOINT, TrainingJob
from elastic_runtime.control.messages import JobStatus
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import SUSPENDED, Allocation

Json = dict[str, Any]
KEPT = {"claimName": "shared", "lastOnDelete": True}
DELETED = "2026-01-01T00:00:00Z"
DELETED_SECONDS = 1767225600.0
_KUSTOMIZE = Path(__file__).parents[5] / "deploy" / "kustomize"


# ---- what is decided


def deleted(**status: Any) -> TrainingJob:
    found = job(status={"startTime": DELETED, "phase": "Running", **status}, checkpoints=KEPT)
    return replace(found, deleting=True, deleted=DELETED, finalizers=(LAST_CHECKPOINT,))


def pod(task: str = "coordinator", **more: Any) -> TaskPod:
    found = TaskPod("team", f"digits-{task}", "digits", task, f"uid-{task}", job().uid, "Running")
    return replace(found, **more)


def job_report(phase: JobPhase, **more: Any) -> CoordinatorReport:
    return CoordinatorReport(JobStatus("digits", phase, **more), 0.0)


def decided(
    found: TrainingJob,
    *pods: TaskPod,
    says: CoordinatorReport | None = None,
    seconds: float = 1.0,
    memory: JobMemory | None = None,
) -> Parting | None:
    seen = SeenJob(found, SUSPENDED, tuple(pods), says, memory or JobMemory(), 0.0, DELETED_SECONDS + seconds)
    return parting(seen, 300.0)


@pytest.mark.parametrize("phase", [JobPhase.RUNNING, JobPhase.RESIZING, JobPhase.SUSPENDING])
def test_one_that_trains_is_waited_for_until_the_deadline(phase: JobPhase) -> None:
    assert decided(deleted(), pod(), says=job_report(phase), seconds=299.0) is None
    found = decided(deleted(), pod(), says=job_report(phase), seconds=300.0)
    assert found is not None
    assert not found.is_written
    assert "no last checkpoint: there was none within 300 s; what it trained" in found.line


def test_why_there_was_none_in_time_is_told() -> None:
    memory = JobMemory(given_up=("deleted-suspend-0x0-1", "the disk is full"))
    found = decided(deleted(), pod(), says=job_report(JobPhase.RUNNING), seconds=301.0, memory=memory)
    assert found is not None
    assert "within 300 s: the disk is full" in found.line
    silent = decided(deleted(), pod(), seconds=301.0, memory=JobMemory(trouble="nobody answers at 10.0.0.1:7770"))
    assert silent is not None
    assert "nobody answers" in silent.line


def test_with_its_checkpoint_it_goes() -> None:
    found = decided(deleted(), pod(), says=job_report(JobPhase.SUSPENDED, epoch=2.5, samples=70))
    assert found == Parting(line="its last checkpoint is of 2.5 epochs, 70 samples")


@pytest.mark.parametrize(
    "found",
    [
        decided(replace(deleted(), status={})),  # it never began
        decided(deleted(conditions=[{"type": "Complete", "status": "True"}]), pod()),
        decided(deleted(phase="Suspended")),
        decided(deleted(phase="Queued")),
        decided(deleted(), pod(), says=job_report(JobPhase.STARTING)),
        decided(deleted(), pod(), says=job_report(JobPhase.RECOVERING)),
        decided(deleted(), pod(phase="Succeeded", last_words="finished: 3 epochs, 90 samples")),
    ],
)
def test_one_with_nothing_to_lose_goes_at_once_and_silently(found: Parting | None) -> None:
    assert found == Parting()


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (decided(deleted()), "its coordinator is gone"),
        (decided(deleted(), pod("worker-0")), "its coordinator is gone"),
        (decided(deleted(), pod(owner="another")), "its coordinator is gone"),
        (decided(deleted(), pod(deleting=True)), "its coordinator is gone"),
        (decided(deleted(), pod(phase="Failed", exit_code=-9)), "its coordinator is gone"),
        (
            decided(deleted(), pod(), says=job_report(JobPhase.FAILED, failure="loss is nan")),
            "it has failed: loss is nan",
        ),
    ],
)
def test_one_whose_checkpoint_nobody_can_write_goes_at_once_with_a_line(found: Parting | None, line: str) -> None:
    assert found is not None
    assert not found.is_written
    assert line in found.line


def test_a_time_that_nobody_can_read_holds_nothing_up() -> None:
    found = decided(replace(deleted(), deleted="yesterday"), pod(), says=job_report(JobPhase.RUNNING))
    assert found is not None


# ---- on a cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running_cluster(waits=Waits(0.1, 0.1, 0.2)) as found:
        install(found)
        yield found


@pytest.fixture
def pretended(cluster: Cluster) -> Pretended:
    return Pretended(cluster)


@pytest.fixture
def agent(cluster: Cluster, pretended: Pretended) -> Iterator[Agent]:
    with agent_of(cluster, connect=pretended) as found:
        yield found


def finalizers(cluster: Cluster) -> list[str]:
    return list((cluster.find(TABLE, "digits") or {"metadata": {}})["metadata"].get("finalizers") or ())


def begin(cluster: Cluster, agent: Agent, **more: Any) -> None:
    submit(cluster, spec(checkpoints=KEPT, **more))
    agent.decide(digits=Allocation(2, 1))
    wait_size(cluster, 2, 1)
    cluster.wait(lambda: finalizers(cluster) == [LAST_CHECKPOINT], "its finalizer")


def wait_gone(cluster: Cluster) -> None:
    cluster.wait(lambda: cluster.find(TABLE, "digits") is None, "the job is gone")
    cluster.wait(lambda: not pods_of(cluster), "its pods are gone")


def releases(asked: Asked) -> bool:
    return asked.verb == "patch" and asked.resource == TABLE and not asked.part


def test_a_deleted_job_goes_after_its_checkpoint(cluster: Cluster, agent: Agent, pretended: Pretended) -> None:
    begin(cluster, agent)
    cluster.delete(TABLE, "digits")
    wait_gone(cluster)
    (brain,) = pretended.brains.values()
    assert brain.phase is JobPhase.SUSPENDED
    wait_told(cluster, "LastCheckpoint", "its last checkpoint is of")


def test_the_role_of_the_mode_is_enough_for_it(cluster: Cluster, pretended: Pretended) -> None:
    roles = [_KUSTOMIZE / "base" / "advice-role.yaml", _KUSTOMIZE / "overlays" / "training" / "training-role.yaml"]
    documents = [each for path in roles for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    kubeconfig = cluster.grant("agent", [rule for each in documents for rule in each["rules"]])
    with agent_of(cluster, connect=pretended, kubeconfig=kubeconfig) as agent:
        begin(cluster, agent)
        cluster.delete(TABLE, "digits")
        wait_gone(cluster)
    wait_told(cluster, "LastCheckpoint")


def test_others_finalizers_stay_theirs(cluster: Cluster, agent: Agent) -> None:
    begin(cluster, agent)
    both = ["team.example/backup", LAST_CHECKPOINT]
    cluster.change(TABLE, "digits", lambda found: {**found, "metadata": {**found["metadata"], "finalizers": both}})
    cluster.delete(TABLE, "digits")
    cluster.wait(lambda: finalizers(cluster) == both[:1], "ours has gone")
    cluster.change(TABLE, "digits", lambda found: {**found, "metadata": {**found["metadata"], "finalizers": []}})
    wait_gone(cluster)


def test_a_job_that_does_not_ask_for_it_has_no_finalizer(cluster: Cluster, agent: Agent) -> None:
    submit(cluster, spec())
    agent.decide(digits=Allocation(1, 1))
    wait_size(cluster, 1, 1)
    assert finalizers(cluster) == []


def test_a_coordinator_that_is_gone_holds_nothing_up(cluster: Cluster, agent: Agent) -> None:
    begin(cluster, agent)
    agent.acts = False
    cluster.delete(TABLE, "digits")
    cluster.delete("pods", "digits-coordinator")
    cluster.wait(lambda: "coordinator" not in pods_of(cluster), "it is gone")
    agent.acts = True
    wait_gone(cluster)
    wait_told(cluster, "NoLastCheckpoint", "its coordinator is gone")


def test_a_coordinator_that_refuses_is_told_of_and_the_job_goes_at_its_deadline(
    cluster: Cluster, pretended: Pretended
) -> None:
    pretended.refuses = "the disk is full"
    with agent_of(cluster, connect=pretended, last_checkpoint_seconds=2.0) as agent:
        begin(cluster, agent)
        cluster.delete(TABLE, "digits")
        wait_gone(cluster)
    found = events_of(cluster)
    assert "the disk is full" in found["ResizeRefused"]
    assert "within 2 s: the disk is full" in found["NoLastCheckpoint"]


@pytest.mark.parametrize("fault", [Fault(code=500), Fault(cut=True)], ids=["not-done", "answer-lost"])
def test_an_agent_that_is_killed_before_it_lets_the_job_go_is_followed_by_one_that_does(
    cluster: Cluster, pretended: Pretended, fault: Fault
) -> None:
    with agent_of(cluster, connect=pretended) as first:
        begin(cluster, first)
        tries: list[Asked] = []

        def faults(asked: Asked) -> Fault | None:
            if releases(asked):
                tries.append(asked)
                return fault
            return None

        cluster.server.faults = faults
        cluster.delete(TABLE, "digits")
        cluster.wait(lambda: tries, "it is to let the job go")
    assert (cluster.find(TABLE, "digits") is None) is fault.cut
    cluster.server.faults = lambda asked: None
    with agent_of(cluster, connect=pretended):
        wait_gone(cluster)
    assert "NoLastCheckpoint" not in events_of(cluster)


def test_what_is_found_of_the_last_checkpoint_once_stays(cluster: Cluster, agent: Agent) -> None:
    begin(cluster, agent)
    tries: list[Asked] = []

    def faults(asked: Asked) -> Fault | None:
        if not releases(asked):
            return None
        tries.append(asked)
        return Fault(code=500)

    cluster.server.faults = faults
    cluster.delete(TABLE, "digits")
    cluster.wait(lambda: tries, "it is to let the job go")
    cluster.delete("pods", "digits-coordinator")
    cluster.wait(lambda: "coordinator" not in pods_of(cluster), "its coordinator has gone")
    seen = len(tries)
    cluster.wait(lambda: len(tries) > seen + 1, "it tries again, with no coordinator")
    cluster.server.faults = lambda asked: None
    wait_gone(cluster)
    wait_told(cluster, "LastCheckpoint")
    assert "NoLastCheckpoint" not in events_of(cluster)


def test_an_agent_that_comes_after_the_deletion_asks_for_the_checkpoint(cluster: Cluster, pretended: Pretended) -> None:
    with agent_of(cluster, connect=pretended) as first:
        begin(cluster, first)
    cluster.delete(TABLE, "digits")
    assert finalizers(cluster) == [LAST_CHECKPOINT]
    with agent_of(cluster, connect=pretended):
        wait_gone(cluster)
    wait_told(cluster, "LastCheckpoint")


def test_a_job_that_is_over_is_held_no_longer(cluster: Cluster, agent: Agent, pretended: Pretended) -> None:
    begin(cluster, agent)
    pretended.says = lambda status: replace(status, phase=JobPhase.FAILED, failure="loss is nan")
    wait_phase(cluster, "Failed")
    cluster.wait(lambda: finalizers(cluster) == [], "it is let go before anybody deletes it")
