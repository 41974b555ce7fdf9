"""What faithful means, of writes: patches, server-side apply, strict decoding, built-in types, quotas, tables."""

from __future__ import annotations

import json
from typing import Any

import pytest
from contract_client import MAPS, MERGE, Json, Server, causes, version

PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
CONTAINER = {"name": "main", "image": "none"}


def pod(name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"containers": [CONTAINER], **spec}}


def config(**data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


def job(**spec: Any) -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    numbers = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    return {"metadata": {"name": "a"}, "spec": {**numbers, "template": template, **spec}}


def jobs(server: Server) -> str:
    return f"/apis/batch/v1/namespaces/{server.namespace}/jobs"


def test_a_json_patch_is_carried_out_or_refused_as_a_whole(server: Server) -> None:
    server.make("a", annotations={"a": "1"})
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "add", "path": "/metadata/annotations/b~1c", "value": "3"},
        {"op": "copy", "from": "/data/a", "path": "/data/d"},
        {"op": "move", "from": "/data/d", "path": "/data/e"},
    ]
    code, found = server.ask("PATCH", f"{MAPS}/a", operations, PATCH)
    assert (code, found["data"]) == (200, {"a": "2", "e": "2"})
    assert found["metadata"]["annotations"] == {"a": "1", "b/c": "3"}
    for wrong in (
        [{"op": "add", "path": "/data/x", "value": "9"}, {"op": "test", "path": "/data/a", "value": "1"}],
        [{"op": "remove", "path": "/data/none"}],
        [{"op": "replace", "path": "/data/none", "value": "1"}],
    ):
        code, status = server.ask("PATCH", f"{MAPS}/a", wrong, PATCH)
        assert (code, status["reason"]) == (422, "Invalid")
    assert server.ask("GET", f"{MAPS}/a")[1]["data"] == {"a": "2", "e": "2"}


@pytest.mark.parametrize("key", ["b/c", "", "ä", "..", "a" * 254])
def test_a_key_of_a_configmap_or_secret_is_a_files_name(server: Server, key: str) -> None:
    code, status = server.ask("POST", MAPS, {"metadata": {"name": "keys"}, "data": {key: "1"}})
    assert (code, causes(status)) == (422, [f"data[{key}]"])
    code, status = server.ask("POST", "secrets", {"metadata": {"name": "keys"}, "stringData": {key: "1"}})
    assert (code, causes(status)) == (422, [f"data[{key}]"])


def test_a_strategic_patch_merges_lists_by_their_keys(server: Server) -> None:
    body = pod("a")
    body["spec"]["containers"] = [{**CONTAINER, "name": name} for name in ("one", "two")]
    assert server.ask("POST", "pods", body)[0] == 201
    patch = {"spec": {"containers": [{"name": "two", "image": "other"}]}}
    code, found = server.ask("PATCH", "pods/a", patch, STRATEGIC)
    assert code == 200
    assert [each["image"] for each in found["spec"]["containers"]] == ["none", "other"]
    conditions = [{"type": name, "status": "True"} for name in ("x", "y")]
    server.ask("PATCH", "pods/a/status", {"status": {"conditions": conditions}}, STRATEGIC)
    patch = {"status": {"conditions": [{"type": "x", "$patch": "delete"}, {"type": "y", "status": "False"}]}}
    code, found = server.ask("PATCH", "pods/a/status", patch, STRATEGIC)
    assert [(each["type"], each["status"]) for each in found["status"]["conditions"]] == [("y", "False")]


def test_a_merge_patch_replaces_lists(server: Server) -> None:
    server.make("a", finalizers=["x.io/a"])
    code, found = server.ask("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["x.io/b"]}}, MERGE)
    assert (code, found["metadata"]["finalizers"]) == (200, ["x.io/b"])
    server.ask("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, MERGE)


def test_an_unknown_kind_of_patch_is_refused(server: Server) -> None:
    server.make("a")
    code, status = server.ask("PATCH", f"{MAPS}/a", {}, "application/nonsense")
    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


def test_two_appliers_of_one_field_conflict_until_one_forces(server: Server) -> None:
    code, found = server.apply(f"{MAPS}/a", config(x="1", y="1"))
    assert code == 201
    [entry] = found["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("one", "Apply")
    assert entry["fieldsV1"] == {"f:data": {"f:x": {}, "f:y": {}}}
    code, status = server.apply(f"{MAPS}/a", config(x="2"), "two")
    assert (code, status["reason"], causes(status)) == (409, "Conflict", [".data.x"])
    assert status["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    assert server.apply(f"{MAPS}/a", config(x="1"), "two")[0] == 200  # the same value may have two managers
    code, found = server.apply(f"{MAPS}/a", config(x="2"), "two", force=True)
    assert (code, found["data"]) == (200, {"x": "2", "y": "1"})
    code, found = server.apply(f"{MAPS}/a", config(y="1"))
    assert (code, found["data"]) == (200, {"x": "2", "y": "1"})


def test_what_is_no_longer_applied_goes_unless_another_has_it(server: Server) -> None:
    server.apply(f"{MAPS}/a", config(x="1", y="1", z="1"))
    server.apply(f"{MAPS}/a", config(y="1"), "two")
    code, found = server.apply(f"{MAPS}/a", config(z="1"))
    assert (code, found["data"]) == (200, {"y": "1", "z": "1"})


def test_applying_the_same_again_changes_nothing(server: Server) -> None:
    _, first = server.apply(f"{MAPS}/a", config(x="1"))
    code, second = server.apply(f"{MAPS}/a", config(x="1"))
    assert (code, version(second)) == (200, version(first))


def test_an_update_takes_fields_from_their_applier(server: Server) -> None:
    server.apply(f"{MAPS}/a", config(x="1"))
    server.ask("PATCH", f"{MAPS}/a?fieldManager=hand", {"data": {"x": "2"}}, MERGE)
    code, status = server.apply(f"{MAPS}/a", config(x="1"))
    assert (code, causes(status)) == (409, [".data.x"])
    assert 'conflict with "hand"' in status["message"]


def test_who_applies_says_who_it_is(server: Server) -> None:
    code, status = server.ask("PATCH", f"{MAPS}/a", config(x="1"), "application/apply-patch+yaml")
    assert (code, status["reason"]) == (422, "Invalid")
    assert "fieldManager" in status["message"]


def test_a_typing_error_in_a_pod_is_refused_where_one_asks_for_it(server: Server) -> None:
    body = pod("a", restartPolciy="Never")
    code, status = server.ask("POST", "pods?dryRun=All&fieldValidation=Strict", body)
    assert (code, status["reason"]) == (400, "BadRequest")
    assert 'unknown field "spec.restartPolciy"' in status["message"]
    with server.open("POST", "pods?fieldValidation=Warn", body) as answer:
        assert "unknown field" in answer.headers["Warning"]
        assert "restartPolciy" not in json.load(answer)["spec"]
    code, _ = server.ask("POST", "pods?dryRun=All&fieldValidation=Strict", pod("b"))
    assert code == 201


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"metadata": {"name": "a"}, "spec": {"containers": []}}, "spec.containers"),
        (pod("a", containers=[{"name": "main"}]), "spec.containers[0].image"),
        (pod("a", containers=[CONTAINER, CONTAINER]), "spec.containers[1].name"),
        (
            pod("a", containers=[{**CONTAINER, "volumeMounts": [{"name": "none", "mountPath": "/x"}]}]),
            "spec.containers[0].volumeMounts[0].name",
        ),
        (pod("Large"), "metadata.name"),
    ],
)
def test_pods_that_make_no_sense(server: Server, body: Json, field: str) -> None:
    code, status = server.ask("POST", "pods", body)
    assert (code, status["reason"]) == (422, "Invalid")
    assert field in causes(status)


def test_a_pod_stays_what_it_is_but_for_its_image(server: Server) -> None:
    server.ask("POST", "pods", pod("a"))
    image = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    assert server.ask("PATCH", "pods/a", image, STRATEGIC)[0] == 200
    code, status = server.ask("PATCH", "pods/a", {"spec": {"restartPolicy": "Never"}}, MERGE)
    assert (code, causes(status)) == (422, ["spec"])


def test_a_pod_is_bound_once_also_to_a_node_that_is_not_there(server: Server) -> None:
    server.ask("POST", "pods", pod("a"))
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "never-made"}}
    assert server.ask("POST", "pods/a/binding", binding)[0] == 201
    assert server.ask("GET", "pods/a")[1]["spec"]["nodeName"] == "never-made"
    code, status = server.ask("POST", "pods/a/binding", binding)
    assert (code, status["reason"]) == (409, "Conflict")


def test_a_job_gets_defaults_and_a_selector_of_its_own(server: Server) -> None:
    code, found = server.ask("POST", jobs(server), job())
    assert code == 201
    assert (found["spec"]["backoffLimit"], found["spec"]["suspend"]) == (6, False)
    labels = found["spec"]["selector"]["matchLabels"]
    assert labels == {"batch.kubernetes.io/controller-uid": found["metadata"]["uid"]}
    assert labels.items() <= found["spec"]["template"]["metadata"]["labels"].items()


def test_sizes_of_an_indexed_job_move_together_only(server: Server) -> None:
    server.ask("POST", jobs(server), job())
    path = f"{jobs(server)}/a"
    code, found = server.ask("PATCH", path, {"spec": {"parallelism": 3, "completions": 3}}, MERGE)
    assert (code, found["spec"]["completions"]) == (200, 3)
    code, status = server.ask("PATCH", path, {"spec": {"completions": 5}}, MERGE)
    assert (code, causes(status)) == (422, ["spec.completions"])
    assert server.ask("PATCH", path, {"spec": {"parallelism": 1}}, MERGE)[0] == 200


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"completions": None}, "spec.completions"),
        ({"parallelism": -1}, "spec.parallelism"),
        ({"template": {"spec": {"containers": [CONTAINER]}}}, "spec.template.spec.restartPolicy"),
    ],
)
def test_jobs_that_make_no_sense(server: Server, change: Json, field: str) -> None:
    code, status = server.ask("POST", jobs(server), job(**change))
    assert (code, status["reason"]) == (422, "Invalid")
    assert field in causes(status)


def test_a_quota_refuses_one_pod_too_many(server: Server) -> None:
    hard = {"pods": "1"}
    server.ask("POST", "resourcequotas", {"metadata": {"name": "few"}, "spec": {"hard": hard}})
    # Where no controller counts, as in this suite, the status has to be there before a quota counts.
    status = {"status": {"hard": hard, "used": {"pods": "0"}}}
    assert server.ask("PATCH", "resourcequotas/few/status", status, MERGE)[0] == 200
    assert server.ask("POST", "pods", pod("a"))[0] == 201
    code, refusal = server.ask("POST", "pods", pod("b"))
    assert (code, refusal["reason"]) == (403, "Forbidden")
    wanted = 'pods "b" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1'
    assert refusal["message"] == wanted


def test_a_selection_is_deleted_at_once(server: Server) -> None:
    for name in "abc":
        server.make(name, labels={"app": name})
    code, _ = server.ask("DELETE", f"{MAPS}?labelSelector=app%20in%20(a,b)")
    assert code == 200
    names = [each["metadata"]["name"] for each in server.ask("GET", MAPS)[1]["items"]]
    assert set("abc") & set(names) == {"c"}


def test_a_table_has_cells_where_others_have_objects(server: Server) -> None:
    made = server.make("a")
    table = server.table(f"{MAPS}/a")
    assert (table["kind"], [each["name"] for each in table["columnDefinitions"]]) == ("Table", ["Name", "Data", "Age"])
    [row] = table["rows"]
    assert [str(each) for each in row["cells"][:2]] == ["a", "1"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert version(server.table(MAPS)) > 0


def test_one_may_ask_what_one_may(server: Server) -> None:
    attributes = {"namespace": server.namespace, "verb": "create", "resource": "pods"}
    body = {"spec": {"resourceAttributes": attributes}}
    code, found = server.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert (code, found["status"]["allowed"]) == (201, True)


def test_text_of_a_secret_is_kept_encoded(server: Server) -> None:
    code, found = server.ask("POST", "secrets", {"metadata": {"name": "a"}, "stringData": {"x": "y"}})
    assert (code, found["data"], "stringData" in found) == (201, {"x": "eQ=="}, False)


def label_namespace(server: Server, **labels: str) -> None:
    patch = {"metadata": {"labels": {f"pod-security.kubernetes.io/{name}": level for name, level in labels.items()}}}
    assert server.ask("PATCH", f"/api/v1/namespaces/{server.namespace}", patch, MERGE)[0] == 200


def test_a_namespace_refuses_pods_that_violate_its_level(server: Server) -> None:
    label_namespace(server, enforce="restricted")
    code, status = server.ask("POST", "pods?dryRun=All", pod("a"))
    assert (code, status["reason"]) == (403, "Forbidden")
    assert status["message"] == (
        'pods "a" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container '
        '"main" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "main" '
        'must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "main" must set '
        'securityContext.runAsNonRoot=true), seccompProfile (pod or container "main" must set '
        'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
    )
    fit = pod("a", securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}})
    within = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    fit["spec"]["containers"] = [{**CONTAINER, "securityContext": within}]
    fit["spec"]["volumes"] = [{"name": "own", "emptyDir": {}}]
    assert server.ask("POST", "pods", fit)[0] == 201
    fit["metadata"]["name"] = "b"
    for change, words in (
        ({"hostNetwork": True}, "host namespaces (hostNetwork=true)"),
        ({"volumes": [{"name": "disk", "hostPath": {"path": "/"}}]}, 'hostPath volumes (volume "disk")'),
        ({"containers": [{**CONTAINER, "securityContext": {**within, "runAsUser": 0}}]}, "runAsUser=0 (container"),
    ):
        code, status = server.ask("POST", "pods", {**fit, "spec": {**fit["spec"], **change}})
        assert (code, words in status["message"]) == (403, True), status


def test_the_baseline_allows_root_and_no_more(server: Server) -> None:
    label_namespace(server, enforce="baseline", warn="restricted")
    assert server.ask("POST", "pods", pod("a"))[0] == 201
    for added, code in (("DAC_OVERRIDE", 201), ("SYS_ADMIN", 403)):
        body = pod(added.lower().replace("_", "-"))
        body["spec"]["containers"] = [{**CONTAINER, "securityContext": {"capabilities": {"add": [added]}}}]
        assert server.ask("POST", "pods", body)[0] == code
