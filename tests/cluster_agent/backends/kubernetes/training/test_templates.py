"""Templates that make no pods: their authors hear of it at once, nothing is made, and the policy gives them nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apiserver.asked import Asked
from apiserver.cluster import Cluster, Waits, running_cluster
from pretended_coordinators import Pretended
from training_cluster import Agent, agent_of, install, pods_of, status_of, submit, wait_phase, wait_size, wait_told
from training_objects import TABLE, all_reduce_spec, job, spec, template

from cluster_agent.backends.kubernetes.training.templates import Templates
from cluster_agent.kubernetes.errors import ApiError, Forbidden, Invalid, NotActing, error_of
from cluster_agent.kubernetes.training.training_job import TrainingJob
from policy_net.domain import Allocation

Json = dict[str, Any]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running_cluster(waits=Waits(0.1, 0.1, 0.2)) as found:
        install(found)
        yield found


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[Agent]:
    with agent_of(cluster, connect=Pretended(cluster)) as found:
        yield found


def misspelt() -> Json:
    found = template()
    found["spec"]["containers"][0]["imagePullPolice"] = "Always"
    return found


def no_image() -> Json:
    found = template()
    del found["spec"]["containers"][0]["image"]
    return found


def makes_pods(asked: Asked) -> bool:
    return (asked.verb, asked.resource, asked.dry_run) == ("create", "pods", False)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            spec(worker={"min": 1, "max": 4, "template": misspelt()}),
            'spec.worker.template makes no pod: unknown field "spec.containers[0].imagePullPolice"',
        ),
        (spec(ps={"min": 1, "max": 2, "template": misspelt()}), "spec.ps.template makes no pod: unknown field"),
        (
            spec(coordinator={"template": no_image()}),
            "spec.coordinator.template makes no pod: spec.containers[0].image",
        ),
        (all_reduce_spec(worker={"min": 1, "max": 4, "template": no_image()}), "spec.worker.template makes no pod"),
    ],
    ids=["worker", "ps", "coordinator", "rank"],
)
def test_a_template_that_makes_no_pod_is_told_before_there_is_room(
    cluster: Cluster, agent: Agent, made: Json, words: str
) -> None:
    submit(cluster, made)
    wait_phase(cluster, "Invalid")
    assert words in status_of(cluster)["message"]
    (accepted,) = [each for each in status_of(cluster)["conditions"] if each["type"] == "Accepted"]
    assert (accepted["status"], accepted["reason"]) == ("False", "NotUsable")
    assert words in accepted["message"]
    wait_told(cluster, "Invalid", words)
    assert agent.counted("Invalid") == 1
    assert agent.observe() == []
    assert not any(map(makes_pods, cluster.server.asked))


def test_a_template_that_is_put_right_makes_pods(cluster: Cluster, agent: Agent) -> None:
    submit(cluster, spec(worker={"min": 1, "max": 4, "template": misspelt()}))
    wait_phase(cluster, "Invalid")

    def mended(found: Json) -> Json:
        return {**found, "spec": {**found["spec"], "worker": {"min": 1, "max": 4, "template": template()}}}

    cluster.change(TABLE, "digits", mended)
    agent.decide(digits=Allocation(2, 1))
    wait_size(cluster, 2, 1)
    assert any(map(makes_pods, cluster.server.asked))


def enforce(cluster: Cluster, level: str) -> None:
    """Have the namespace refuse pods that violate a level of Pod Security."""

    def labelled(found: Json) -> Json:
        labels = {**(found["metadata"].get("labels") or {}), "pod-security.kubernetes.io/enforce": level}
        return {**found, "metadata": {**found["metadata"], "labels": labels}}

    cluster.change("namespaces", "team", labelled, "")


def restricted() -> Json:
    """A template that the level `restricted` takes, said of the container as often as of the pod."""
    found = template(securityContext={"seccompProfile": {"type": "RuntimeDefault"}})
    found["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
    }
    return found


def test_where_the_workers_pods_are_taken_so_are_those_that_are_added(cluster: Cluster, agent: Agent) -> None:
    enforce(cluster, "restricted")
    submit(cluster, spec(worker={"min": 1, "max": 4, "template": restricted()}))
    agent.decide(digits=Allocation(2, 1))
    wait_size(cluster, 2, 1)
    assert set(pods_of(cluster)) == {"coordinator", "ps-0", "worker-0", "worker-1"}


@pytest.mark.parametrize("made", [spec(), all_reduce_spec()], ids=["ps", "ranks"])
def test_a_namespace_that_refuses_its_pods_is_told_before_any_is_made(
    cluster: Cluster, agent: Agent, made: Json
) -> None:
    enforce(cluster, "restricted")
    submit(cluster, made)
    wait_phase(cluster, "Invalid")
    (accepted,) = [each for each in status_of(cluster)["conditions"] if each["type"] == "Accepted"]
    assert (accepted["status"], accepted["reason"]) == ("False", "NotUsable")
    line = (
        "spec.worker.template makes no pod: namespace team refuses it, and is asked again every 10 minutes: violates "
        'PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "main" must set '
    )
    assert accepted["message"].startswith(line)
    assert accepted["message"].endswith('"RuntimeDefault" or "Localhost")')
    assert agent.observe() == []
    assert not any(map(makes_pods, cluster.server.asked))


def test_a_namespace_that_refuses_pods_of_a_job_that_runs_is_told_and_asked_seldom(
    cluster: Cluster, agent: Agent
) -> None:
    submit(cluster, spec())
    agent.decide(digits=Allocation(1, 1))
    wait_size(cluster, 1, 1)
    enforce(cluster, "restricted")
    agent.decide(digits=Allocation(2, 1))

    def accepted() -> Json:
        found = [each for each in status_of(cluster).get("conditions", ()) if each["type"] == "Accepted"]
        return found[0] if found else {}

    cluster.wait(lambda: accepted().get("status") == "False", "a condition that says that it is refused")
    assert accepted()["reason"] == "PodRefused"
    assert accepted()["message"].startswith("pod digits-worker-1 was refused: violates PodSecurity")
    tries = sum(map(makes_pods, cluster.server.asked))
    agent.skipped_seconds += 500.0
    wait_for_looks(cluster, agent)
    assert sum(map(makes_pods, cluster.server.asked)) == tries
    enforce(cluster, "privileged")
    agent.skipped_seconds += 100.0
    wait_size(cluster, 2, 1)
    cluster.wait(lambda: accepted().get("status") == "True", "it is taken again")


def wait_for_looks(cluster: Cluster, agent: Agent) -> None:
    """Until the agent has looked at all jobs again, as is seen by one that it takes up."""
    submit(cluster, spec(worker={"min": 1, "max": 4, "template": misspelt()}), "marker")
    wait_phase(cluster, "Invalid", "marker")


class Answers:
    """An API server that says to each pod what a test has it say."""

    def __init__(self) -> None:
        self.answer: Callable[[], ApiError | None] = lambda: None
        self.tried: list[Json] = []

    def create(self, path: str, body: Json, query: Json) -> Json:
        assert path == "/api/v1/namespaces/team/pods"
        assert query == {"fieldValidation": "Strict", "dryRun": "All"}
        self.tried.append(body)
        if (error := self.answer()) is not None:
            raise error
        return body


class Bench:
    """Templates under test, with a clock that a test moves."""

    def __init__(self) -> None:
        self.now, self.answers = 100.0, Answers()
        self.templates = Templates(self.answers, lambda: self.now)  # type: ignore[arg-type]

    def problem(self, found: TrainingJob) -> str:
        job_report = self.templates.tried(found).problem
        assert self.templates.problem(found) == (job_report if not found.problem else "")
        return job_report

    @property
    def tries(self) -> int:
        return len(self.answers.tried)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_templates_are_tried_once(bench: Bench) -> None:
    for _ in range(3):
        assert bench.problem(job()) == ""
        bench.now += 10_000.0
    assert bench.tries == 1, "PSs and coordinators without a template have the workers' image"
    assert bench.problem(job(ps={"max": 1, "template": template()}, coordinator={"template": template()})) == ""
    assert bench.tries == 4


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("exceeded quota: few", 403, "Forbidden"),
        Forbidden('pods is forbidden: User "agent" cannot create resource "pods" in API group ""', 403, "Forbidden"),
        Forbidden('pods "a" is forbidden: error looking up service account team/own: not found', 403, "Forbidden"),
        error_of(409, {"kind": "Status", "reason": "AlreadyExists"}, "POST pods"),
        error_of(404, None, "POST pods"),
        Invalid('400 BadRequest: admission webhook "a.b" does not support dry run', 400, "BadRequest"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_no_fault_of_a_template_is_none(bench: Bench, error: ApiError) -> None:
    bench.answers.answer = lambda: error
    assert bench.problem(job()) == ""
    assert bench.tries == 1


@pytest.mark.parametrize(
    "words",
    [
        'violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)',
        "ValidatingAdmissionPolicy 'images' with binding 'team' denied request: use images of ours",
        "failed quota: all: must specify limits.cpu for: main",
        "[maximum cpu usage per Container is 1, but limit is 2, minimum memory usage per Pod is 1Gi]",
    ],
)
def test_a_rule_that_pods_are_against_is_told(bench: Bench, words: str) -> None:
    status = {"kind": "Status", "reason": "Forbidden", "message": f'pods "digits-worker-0" is forbidden: {words}'}
    bench.answers.answer = lambda: error_of(403, status, "POST pods")
    assert bench.problem(job()).endswith(f"namespace team refuses it, and is asked again every 10 minutes: {words}")


def test_a_webhook_that_denies_is_told(bench: Bench) -> None:
    words = 'admission webhook "policies.example.org" denied the request: no'
    bench.answers.answer = lambda: error_of(403, {"kind": "Status", "message": words}, "POST pods")
    assert words in bench.problem(job())


def test_a_refusal_stands_until_the_template_is_another_or_some_time_is_over(bench: Bench) -> None:
    bench.answers.answer = lambda: error_of(422, {"kind": "Status", "message": "no\nroot"}, "POST pods")
    assert bench.problem(job()) == "spec.worker.template makes no pod: POST pods: 422: no root"
    bench.now += 599.0
    assert bench.problem(job()) != ""
    assert bench.tries == 1
    bench.answers.answer = lambda: None
    assert bench.problem(job(worker={"max": 2, "template": template(command=["true"])})) == ""
    assert bench.problem(job()) == ""
    assert bench.tries == 3


def test_a_refusal_is_tried_again_in_the_end(bench: Bench) -> None:
    bench.answers.answer = lambda: error_of(422, None, "POST pods")
    assert bench.problem(job()) != ""
    bench.now += 600.0
    bench.answers.answer = lambda: None
    assert bench.problem(job()) == ""


def test_a_server_that_does_not_answer_is_asked_again_later(bench: Bench) -> None:
    bench.answers.answer = lambda: error_of(503, None, "POST pods")
    assert [bench.problem(job()) for _ in range(3)] == [""] * 3
    assert bench.tries == 1
    bench.now += 10.0
    bench.answers.answer = lambda: error_of(422, None, "POST pods")
    assert bench.problem(job()) != ""


def test_jobs_that_began_are_over_or_cannot_be_used_are_not_tried(bench: Bench) -> None:
    bench.answers.answer = lambda: error_of(422, None, "POST pods")
    began = job(status={"startTime": "2026-01-01T00:00:00Z"})
    over = job(status={"conditions": [{"type": "Failed", "status": "True"}]})
    for found in (began, over, job(worker={"max": 99, "template": template()})):
        assert bench.problem(found) == found.problem
    assert bench.tries == 0


def test_of_many_that_come_at_once_some_are_tried_each_second(bench: Bench) -> None:
    many = [job(f"job-{number}", uid=f"uid-{number}") for number in range(50)]
    for _ in range(5):
        before = bench.tries
        for found in many:
            bench.problem(found)
        assert bench.tries - before <= 20
        bench.now += 1.0
    assert bench.tries == 50


def test_an_agent_that_does_not_act_tries_nothing(bench: Bench) -> None:
    bench.answers.answer = lambda: NotActing("another agent may act by now")
    with pytest.raises(NotActing):
        bench.templates.tried(job())


def test_a_template_that_is_no_pod_at_all_is_told(bench: Bench) -> None:
    odd = template()
    odd["spec"]["containers"][0]["env"] = 3
    assert "spec.worker.template makes no pod: it is no pod's" in bench.problem(job(worker={"max": 2, "template": odd}))
    assert bench.tries == 0


def test_what_is_gone_is_forgotten(bench: Bench) -> None:
    bench.answers.answer = lambda: error_of(422, None, "POST pods")
    assert bench.problem(job()) != ""
    bench.templates.forget(set())
    assert bench.templates.problem(job()) == ""
