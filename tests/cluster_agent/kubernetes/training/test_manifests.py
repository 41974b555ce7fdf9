"""Objects of a TrainingJob: the author's templates with what a task needs to find its job, and none of theirs lost."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest
from training_objects import all_reduce_spec, job, job_object, spec, template

from cluster_agent.kubernetes.capacity import requests_of
from cluster_agent.kubernetes.training import manifests
from cluster_agent.kubernetes.training.credentials import ServingPair
from cluster_agent.kubernetes.training.training_job import TrainingJob, training_job
from elastic_runtime.coordinator.__main__ import parse
from policy_net.domain import Allocation

Json = dict[str, Any]
ADDRESS = "10.0.0.1:7770"


def worker(made: Json, node: str = "", **more: Any) -> Json:
    found = job(worker={"min": 1, "max": 4, "template": made}, **more)
    assert not found.problem
    before = copy.deepcopy(found.worker.template)
    pod = manifests.task_pod(found, "worker-0", ADDRESS, node)
    assert found.worker.template == before, "the template is the cache's"
    return pod


def environment(pod: Json) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][0]["env"]}


def test_names_labels_and_owners() -> None:
    found = job("a" * 48)
    assert not found.problem
    pods = [manifests.coordinator_pod(found, Allocation(1, 1), relaunched=False)]
    pods += [manifests.task_pod(found, task, ADDRESS) for task in ("worker-123456", "ps-0")]
    service = manifests.service(found)
    secret = manifests.secret(found, "t", ServingPair("c", "k"))
    for each in (*pods, service, secret):
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["kind"]) == (found.uid, True, "TrainingJob")
        assert len(each["metadata"]["name"]) <= (63 if each["kind"] != "Secret" else 253)
        assert all(len(value) <= 63 for value in each["metadata"]["labels"].values())
    assert pods[1]["metadata"]["labels"]["fedl2.io/role"] == "worker"
    assert service["spec"]["selector"].items() <= pods[0]["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= pods[1]["metadata"]["labels"].items()
    assert base64.b64decode(secret["data"]["token"]) == b"t"


def test_a_job_made_anew_under_its_name_has_another_secret_and_other_folders() -> None:
    before, after = job(), job()
    after = type(after)(**{**{n: getattr(after, n) for n in after.__slots__}, "uid": "fedcba98-7654"})
    assert manifests.secret_name(before) != manifests.secret_name(after)
    command = [manifests.coordinator_pod(each, Allocation(1, 1), relaunched=False) for each in (before, after)]
    folders = [
        {part for part in pod["spec"]["containers"][0]["command"] if part.startswith(("--folder", "--checkpoints"))}
        for pod in command
    ]
    assert not folders[0] & folders[1]


def test_what_the_agent_sets_wins_and_what_it_does_not_stays() -> None:
    made = template(nodeSelector={"disk": "fast"}, volumes=[{"name": "data", "emptyDir": {}}])
    made["metadata"] = {"labels": {"team": "a", "fedl2.io/task": "mine"}, "annotations": {"note": "x"}}
    container = made["spec"]["containers"][0]
    container["env"] = [
        {"name": "ELASTIC_JOB", "value": "another"},
        {"name": "RATE", "value": "0.1"},
        {"name": "FEDL2_POD_IP", "value": "1.2.3.4"},
    ]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    pod = worker(made)
    found = environment(pod)
    names = [each["name"] for each in pod["spec"]["containers"][0]["env"]]
    assert len(names) == len(set(names))
    assert (found["ELASTIC_JOB"], found["RATE"]) == (job().runtime_name, "0.1")
    assert names.index("FEDL2_POD_IP") < names.index("ELASTIC_BIND"), "what refers to another comes after it"
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["labels"]["fedl2.io/task"] == "worker-0"
    assert pod["metadata"]["annotations"] == {"note": "x"}
    assert pod["spec"]["nodeSelector"] == {"disk": "fast"}
    assert [each["name"] for each in pod["spec"]["volumes"]] == ["data", "fedl2-secret", "fedl2-checkpoints"]
    mounts = {each["name"] for each in pod["spec"]["containers"][0]["volumeMounts"]}
    assert mounts == {each["name"] for each in pod["spec"]["volumes"]}
    assert pod["spec"]["restartPolicy"] == "Never"


def test_volumes_are_claims_or_of_the_pod_alone() -> None:
    volumes = {each["name"]: each for each in worker(template())["spec"]["volumes"]}
    assert volumes["fedl2-checkpoints"]["persistentVolumeClaim"] == {"claimName": "shared"}
    without = spec()
    del without["checkpoints"]
    pod = manifests.coordinator_pod(job(checkpoints=None, coordinator={}), Allocation(1, 1), relaunched=False)
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert volumes["fedl2-checkpoints"]["emptyDir"] == {}
    assert volumes["fedl2-journal"]["emptyDir"] == {}


def test_a_store_is_named_to_all_and_its_secret_is_in_their_environment_beside_what_was_there() -> None:
    made = template()
    made["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "mine"}}]
    checkpoints = {"store": "s3://models/digits/", "secretName": "keys"}
    pod = worker(made, checkpoints=checkpoints)
    url = "s3://models/digits/digits-01234567"
    assert environment(pod)["ELASTIC_CHECKPOINTS"] == url
    secret = {"secretRef": {"name": "keys"}}
    assert pod["spec"]["containers"][0]["envFrom"] == [{"configMapRef": {"name": "mine"}}, secret]
    found = job(checkpoints=checkpoints)
    leader = manifests.coordinator_pod(found, Allocation(1, 1), relaunched=False)
    assert f"--checkpoints={url}" in leader["spec"]["containers"][0]["command"]
    for each in (leader, manifests.task_pod(found, "ps-0", ADDRESS)):
        assert each["spec"]["containers"][0]["envFrom"] == [secret]
    assert "envFrom" not in worker(template())["spec"]["containers"][0]


@pytest.mark.parametrize(
    "nothing", [{"terminationGracePeriodSeconds": None, "affinity": None, "volumes": None}, {"affinity": {}}]
)
def test_fields_that_are_null_are_as_good_as_missing(nothing: Json) -> None:
    pod = worker(template(**nothing), node="a")
    assert pod["spec"]["affinity"]["nodeAffinity"]
    assert environment(pod)["ELASTIC_GRACE_SECONDS"] == "25"


def test_grace() -> None:
    assert environment(worker(template(terminationGracePeriodSeconds=3)))["ELASTIC_GRACE_SECONDS"] == "1"
    assert environment(worker(template(terminationGracePeriodSeconds=300)))["ELASTIC_GRACE_SECONDS"] == "295"


OWN = {
    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]},
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
                {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["bad"]}]},
            ]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
    },
}


def test_a_node_is_preferred_beside_what_the_author_prefers() -> None:
    affinity = worker(template(affinity=copy.deepcopy(OWN)), node="a")["spec"]["affinity"]
    assert affinity["podAntiAffinity"] == OWN["podAntiAffinity"]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    assert affinity["nodeAffinity"][required] == OWN["nodeAffinity"][required]
    first, second = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert first == {"weight": 1, "preference": {}}
    assert second["preference"]["matchFields"][0]["values"] == ["a"]


def test_a_node_is_required_in_each_alternative() -> None:
    affinity = worker(template(affinity=copy.deepcopy(OWN)), node="a", placement="Require")["spec"]["affinity"]
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert len(terms) == 2
    assert all(each["matchFields"][-1]["values"] == ["a"] for each in terms)
    assert terms[0]["matchExpressions"]
    assert len(terms[1]["matchFields"]) == 2
    alone = worker(template(), node="a", placement="Require")["spec"]["affinity"]["nodeAffinity"]
    assert len(alone["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]) == 1


def test_nothing_is_placed_by_us_where_the_scheduler_is_to_do_it() -> None:
    affinity = worker(template(affinity=copy.deepcopy(OWN)), node="a", placement="Scheduler")["spec"]["affinity"]
    assert affinity == OWN


def test_a_server_without_a_template_has_the_workers_image_and_asks_for_what_is_counted() -> None:
    found = job()
    pod = manifests.task_pod(found, "ps-0", ADDRESS)
    assert pod["spec"]["containers"][0]["image"] == "trainer"
    assert requests_of(pod["spec"], {}) == {**found.ps.requests, "pods": 1}


def contexts(pod: Json | None = None, container: Json | None = None) -> list[Json]:
    """What the containers may do that are ours, of a job whose workers have these securityContexts."""
    made = template(**({} if pod is None else {"securityContext": pod}))
    if container is not None:
        made["spec"]["containers"][0]["securityContext"] = container
    found = job(worker={"min": 1, "max": 4, "template": made})
    pods = [manifests.coordinator_pod(found, Allocation(1, 1), relaunched=False)]
    pods.append(manifests.task_pod(found, "ps-0", ADDRESS))
    assert all(each["spec"].get("securityContext") == pod for each in pods)
    return [each["spec"]["containers"][0]["securityContext"] for each in pods]


LEAST = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
DEFAULT = {"seccompProfile": {"type": "RuntimeDefault"}}


@pytest.mark.parametrize(
    ("pod", "container", "ours"),
    [
        ({"runAsNonRoot": True}, None, {**LEAST, **DEFAULT}),
        (None, {"runAsNonRoot": True, "privileged": True}, {**LEAST, **DEFAULT, "runAsNonRoot": True}),
        ({"runAsUser": 1000}, None, {**LEAST, **DEFAULT, "runAsNonRoot": True}),
        (
            {"runAsUser": 0},
            {"runAsUser": 7, "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}},
            {
                **LEAST,
                "runAsUser": 7,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
            },
        ),
        ({**DEFAULT, "runAsNonRoot": True, "fsGroup": 5}, {}, LEAST),
    ],
)
def test_what_is_added_may_do_no_more_than_it_needs_and_is_who_the_workers_are(
    pod: Json | None, container: Json | None, ours: Json
) -> None:
    assert contexts(pod, container) == [ours, ours]


@pytest.mark.parametrize("pod", [None, {"runAsUser": 0}, {"runAsNonRoot": False}])
def test_root_may_still_write_to_volumes_of_others(pod: Json | None) -> None:
    ours = {**LEAST, **DEFAULT, "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]}}
    assert contexts(pod) == [ours, ours]


def test_the_coordinator_is_told_where_to_say_how_it_ended(tmp_path: Any) -> None:
    made = template()
    made["spec"]["containers"][0]["terminationMessagePath"] = "/tmp/other"  # noqa: S108 — of a container
    pod = manifests.coordinator_pod(job(coordinator={"template": made}), Allocation(3, 2), relaunched=True)
    container = pod["spec"]["containers"][0]
    assert f"--end-file={container['terminationMessagePath']}" in container["command"]
    (tmp_path / "token").write_text("a" * 32)
    files = {"--token-file": "token", "--certificate": "token", "--key": "token"}
    command = [part for part in container["command"][3:] if part.partition("=")[0] not in files]
    command = [part.replace("$(FEDL2_POD_IP)", "fd00::1") for part in command]
    options = parse([*command, f"--token-file={tmp_path / 'token'}"])
    assert (options.settings.workers, options.settings.servers) == (3, 2)
    assert options.relaunched
    assert options.bind == "[fd00::1]:7770"


def ranks_job(**more: Any) -> TrainingJob:
    return training_job({**job_object(), "spec": all_reduce_spec(**more)})


def test_ranks_find_the_first_one_by_the_variables_of_torchrun() -> None:
    found = ranks_job()
    first, second = (environment(manifests.rank_pod(found, f"worker-{rank}", (7, 3), "10.0.0.1")) for rank in (0, 1))
    assert (first["RANK"], second["RANK"]) == ("0", "1")
    assert (first["MASTER_ADDR"], second["MASTER_ADDR"]) == ("$(FEDL2_POD_IP)", "10.0.0.1")
    port = str(manifests.rendezvous_port(found))
    for each in (first, second):
        assert (each["WORLD_SIZE"], each["LOCAL_RANK"], each["MASTER_PORT"]) == ("3", "0", port)
        assert each["ELASTIC_RANKS_FOLDER"] == f"/fedl2/checkpoints/{found.runtime_name}"
        assert "ELASTIC_COORDINATOR" not in each
        assert "ELASTIC_CHECKPOINT_SECONDS" not in each, "it is the author's to say"
    assert 20000 <= int(port) < 30000


def test_a_rank_says_of_which_gang_it_is_and_has_time_to_stop() -> None:
    pod = manifests.rank_pod(ranks_job(), "worker-2", (7, 3), "10.0.0.1", "node-a")
    labels = pod["metadata"]["labels"]
    assert (labels["fedl2.io/gang"], labels["fedl2.io/world-size"], labels["fedl2.io/role"]) == ("7", "3", "worker")
    assert pod["spec"]["terminationGracePeriodSeconds"] == 120
    assert pod["spec"]["affinity"]["nodeAffinity"]
    stated = ranks_job(worker={"max": 2, "template": template(terminationGracePeriodSeconds=7)})
    assert manifests.rank_pod(stated, "worker-0", (1, 2), "h")["spec"]["terminationGracePeriodSeconds"] == 7
    without = environment(manifests.rank_pod(ranks_job(checkpoints=None), "worker-0", (1, 2), "h"))
    assert float(without["ELASTIC_CHECKPOINT_SECONDS"]) > 1e8


def test_the_service_of_an_all_reduce_job_reaches_its_first_rank() -> None:
    found = ranks_job()
    made = manifests.service(found)
    assert made["metadata"]["name"] == "digits-worker-0"
    assert made["spec"]["selector"] == {"fedl2.io/training-job": "digits", "fedl2.io/task": "worker-0"}
    ports = {each["name"]: each["port"] for each in made["spec"]["ports"]}
    assert ports == {"control": manifests.PORT, "rendezvous": manifests.rendezvous_port(found)}
    assert manifests.hosts(found, "10.0.0.1")[1] == "digits-worker-0.team.svc"
    assert manifests.secret_name(found).endswith("-worker-0")
