"""The project's own definitions: every rule refuses what it is there for, fields are selected by, all are explained.

Part of the contract suite: a real API server checks types and costs of rules in CEL when a definition is made.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from contract_client import MERGE, Json, Server, causes

DEFINITIONS = Path(__file__).parents[2] / "deploy" / "crds"
KINDS = ("trainingjobs", "elastictargets")
CRDS: dict[str, Json] = {name: yaml.safe_load((DEFINITIONS / f"{name}.yaml").read_text("utf-8")) for name in KINDS}
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POD = {"spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}


def schema_of(kind: str) -> Json:
    [version] = CRDS[kind]["spec"]["versions"]
    found: Json = version["schema"]["openAPIV3Schema"]
    return found


def under(schema: Json, where: str = "") -> Iterator[tuple[str, Json]]:
    """A schema and all that are below it, each with its path; items of lists have that of their list."""
    yield where, schema
    for name, inner in (schema.get("properties") or {}).items():
        yield from under(inner, f"{where}.{name}".lstrip("."))
    if isinstance(schema.get("items"), dict):
        yield from under(schema["items"], where)


def rules() -> list[tuple[str, str, str]]:
    """Kind, path and message of every rule."""
    return [
        (kind, where, rule["message"])
        for kind in KINDS
        for where, schema in under(schema_of(kind))
        for rule in schema.get("x-kubernetes-validations") or ()
    ]


@pytest.fixture
def definitions(server: Server) -> dict[str, str]:
    """Paths of both, once they are served."""
    paths = {}
    for kind, crd in CRDS.items():
        code, found = server.ask("POST", _CRDS, crd)
        assert code in (201, 409), found
        path = f"/apis/fedl2.io/v1alpha1/namespaces/{server.namespace}/{kind}"
        deadline = time.monotonic() + 60.0
        while server.ask("GET", path)[0] != 200:  # a real server serves a new resource a little later
            assert time.monotonic() < deadline, server.ask("GET", f"{_CRDS}/{kind}.fedl2.io")
            time.sleep(0.05)
        paths[kind] = path
    return paths


def training_job(**changes: Any) -> Json:
    spec = {"worker": {"max": 2, "template": _POD}, "ps": {"max": 1}, **changes}
    found = {
        "apiVersion": "fedl2.io/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "a"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }
    return copy.deepcopy(found)


def all_reduce(**changes: Any) -> Json:
    return training_job(**{"communication": "AllReduce", "ps": None, **changes})


def target(**changes: Any) -> Json:
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}
    spec = {"targetRef": ref, "max": 4, **changes}
    return {"apiVersion": "fedl2.io/v1alpha1", "kind": "ElasticTarget", "metadata": {"name": "a"}, "spec": spec}


CLAIM = {"claimName": "shared"}
BREAKS_AT_ONCE: list[tuple[str, str, str, Json]] = [
    *(
        ("trainingjobs", "", "at most 48 letters", {**training_job(), "metadata": {"name": name}})
        for name in ("a" * 49, "a.b", "7b")
    ),
    ("trainingjobs", "spec", "give ps, or communication: AllReduce", training_job(ps=None)),
    ("trainingjobs", "spec", "neither ps nor coordinator", all_reduce(ps={"max": 1})),
    ("trainingjobs", "spec", "neither ps nor coordinator", all_reduce(coordinator={"journal": CLAIM})),
    ("trainingjobs", "spec", "at most 16 workers", training_job(worker={"max": 17, "template": _POD})),
    ("trainingjobs", "spec", "backoffLimit is for all-reduce jobs", training_job(backoffLimit=1)),
    ("trainingjobs", "spec", "leave checkpoints.lastOnDelete", all_reduce(checkpoints={**CLAIM, "lastOnDelete": True})),
    ("trainingjobs", "spec.work", "either epochs or steps", training_job(work={"epochs": 1, "steps": 1})),
    ("trainingjobs", "spec.work", "either epochs or steps", training_job(work={})),
    (
        "trainingjobs",
        "spec.worker",
        "must not be below min",
        training_job(worker={"min": 3, "max": 2, "template": _POD}),
    ),
    ("trainingjobs", "spec.ps", "must not be below min", training_job(ps={"min": 2, "max": 1})),
    ("trainingjobs", "spec.checkpoints", "claimName or store", training_job(checkpoints={**CLAIM, "store": "s3://b"})),
    ("trainingjobs", "spec.checkpoints", "claimName or store", training_job(checkpoints={"lastOnDelete": True})),
    ("trainingjobs", "spec.checkpoints", "is for a store", training_job(checkpoints={**CLAIM, "secretName": "keys"})),
    ("elastictargets", "spec", "must not be below min", target(min=5)),
    ("elastictargets", "spec.progressFrom", "annotations or metrics", target(progressFrom={})),
    (
        "elastictargets",
        "spec.progressFrom",
        "annotations or metrics",
        target(progressFrom={"annotations": {"samples": "a"}, "metrics": {"port": 1, "samples": "a"}}),
    ),
]
BREAKS_LATER: list[tuple[str, str, str, Json, Json]] = [
    ("trainingjobs", "spec.modelType", "modelType cannot", training_job(), {"modelType": "resnet"}),
    ("trainingjobs", "spec.communication", "communication cannot", training_job(), {"communication": "AllReduce"}),
    ("trainingjobs", "spec", "checkpoints cannot", training_job(), {"checkpoints": CLAIM}),
    ("trainingjobs", "spec", "checkpoints cannot", training_job(checkpoints=CLAIM), {"checkpoints": None}),
    (
        "trainingjobs",
        "spec",
        "checkpoints cannot",
        training_job(checkpoints=CLAIM),
        {"checkpoints": {"claimName": "b"}},
    ),
    ("trainingjobs", "spec", "kueue cannot", training_job(), {"kueue": {"queueName": "a"}}),
    ("trainingjobs", "spec", "kueue cannot", training_job(kueue={"queueName": "a"}), {"kueue": {"queueName": "b"}}),
    ("elastictargets", "spec.targetRef", "stays with its job", target(), {"targetRef": {"name": "other"}}),
]


def test_every_rule_has_something_here_that_breaks_it() -> None:
    broken = [each[:3] for each in (*BREAKS_AT_ONCE, *BREAKS_LATER)]
    for kind, where, message in rules():
        assert any(kind == each and path == where and line in message for each, path, line in broken), (where, message)
    assert len(rules()) >= 16


@pytest.mark.parametrize(("kind", "where", "line", "found"), BREAKS_AT_ONCE)
def test_a_rule_refuses_an_object(
    server: Server, definitions: dict[str, str], kind: str, where: str, line: str, found: Json
) -> None:
    code, status = server.ask("POST", definitions[kind], found)
    assert (code, status["reason"]) == (422, "Invalid")
    assert line in status["message"]
    assert where in causes(status) or not where


@pytest.mark.parametrize(("kind", "where", "line", "found", "change"), BREAKS_LATER)
def test_a_rule_refuses_a_change(
    server: Server, definitions: dict[str, str], kind: str, where: str, line: str, found: Json, change: Json
) -> None:
    code, made = server.ask("POST", definitions[kind], found)
    assert code == 201, made
    code, status = server.ask("PATCH", f"{definitions[kind]}/a", {"spec": change}, MERGE)
    assert code == 422, status
    assert line in status["message"]
    assert where in causes(status)


def test_what_no_rule_is_against_is_taken(server: Server, definitions: dict[str, str]) -> None:
    assert server.ask("POST", definitions["elastictargets"], target(min=4, max=64))[0] == 201
    assert (
        server.ask("POST", definitions["trainingjobs"], training_job(checkpoints=CLAIM, work={"epochs": 2}))[0] == 201
    )
    changes = {"worker": {"min": 2, "max": 3}, "suspend": True, "updateMode": "Frozen", "work": {"epochs": 5}}
    code, found = server.ask("PATCH", f"{definitions['trainingjobs']}/a", {"spec": changes}, MERGE)
    assert code == 200, found
    large = {"max": 64, "template": _POD}
    made = {**all_reduce(backoffLimit=0, checkpoints=CLAIM, worker=large), "metadata": {"name": "b"}}
    assert server.ask("POST", definitions["trainingjobs"], made)[0] == 201


NAMED: list[tuple[str, str, Callable[[str], Json]]] = [
    (
        "trainingjobs",
        "spec.coordinator.journal.claimName",
        lambda name: training_job(coordinator={"journal": {"claimName": name}}),
    ),
    ("trainingjobs", "spec.checkpoints.claimName", lambda name: training_job(checkpoints={"claimName": name})),
    (
        "trainingjobs",
        "spec.checkpoints.secretName",
        lambda name: training_job(checkpoints={"store": "s3://b", "secretName": name}),
    ),
    ("trainingjobs", "spec.kueue.queueName", lambda name: training_job(kueue={"queueName": name})),
    (
        "elastictargets",
        "spec.targetRef.name",
        lambda name: target(targetRef={"apiVersion": "batch/v1", "kind": "Job", "name": name}),
    ),
]
NO_NAMES = ("", "b/c", "../b", "B", "a_b", "-a", "a-", "a..b", ".a", "a b", "a\n", "\u00e4", "a" * 254)


def test_every_field_that_names_an_object_is_held_to_what_can_be_a_name() -> None:
    fields = {
        (kind, where): schema
        for kind in KINDS
        for where, schema in under(schema_of(kind))
        if where.startswith("spec.") and (where.endswith("Name") or where.endswith("Ref.name"))
    }
    assert set(fields) == {(kind, where) for kind, where, _ in NAMED}
    assert all("pattern" in schema and schema["maxLength"] == 253 for schema in fields.values())


@pytest.mark.parametrize(("kind", "where", "named"), NAMED)
def test_a_name_that_no_object_can_have_is_refused(
    server: Server, definitions: dict[str, str], kind: str, where: str, named: Callable[[str], Json]
) -> None:
    for name in NO_NAMES:
        code, status = server.ask("POST", definitions[kind], named(name))
        assert (code, status["reason"]) == (422, "Invalid"), repr(name)
        assert where in causes(status), repr(name)
    assert server.ask("POST", definitions[kind], named("a.b-1.c"))[0] == 201


def test_templates_keep_what_the_schema_does_not_know(server: Server, definitions: dict[str, str]) -> None:
    pod = copy.deepcopy(_POD)
    pod["spec"]["containers"][0]["anything"] = {"at": ["all"]}
    code, found = server.ask("POST", definitions["trainingjobs"], training_job(worker={"max": 2, "template": pod}))
    assert (code, found["spec"]["worker"]["template"]) == (201, pod)


def test_jobs_are_selected_by_type_and_phase(server: Server, definitions: dict[str, str]) -> None:
    path = definitions["trainingjobs"]
    for name, kind in (("a", "cnn"), ("b", "lm")):
        assert server.ask("POST", path, {**training_job(modelType=kind), "metadata": {"name": name}})[0] == 201
    assert server.ask("PATCH", f"{path}/b/status", {"status": {"phase": "Running"}}, MERGE)[0] == 200
    for selector, names in (("spec.modelType%3Dcnn", ["a"]), ("status.phase%3DRunning", ["b"])):
        code, found = server.ask("GET", f"{path}?fieldSelector={selector}")
        assert (code, [each["metadata"]["name"] for each in found["items"]]) == (200, names)


@pytest.mark.parametrize("kind", KINDS)
def test_kubectl_explain_has_a_line_for_every_field(kind: str) -> None:
    """A program that prints them breaks lines itself."""
    said = {where: schema["description"] for where, schema in under(schema_of(kind)) if "description" in schema}
    for where, _ in under(schema_of(kind)):
        if where not in ("", "metadata") and ".template." not in where:  # of pods, others say it
            assert "\n" not in said.get(where, "\n").strip(), where
