"""What faithful means, of custom resources: defaults, pruning, refusals, rules, the status, tables, selections."""

from __future__ import annotations

import time
from typing import Any

import pytest
from contract_client import MERGE, Json, Server, causes, version

GROUP = "contract.fedl2.io"
SPEC: Json = {
    "type": "object",
    "required": ["size"],
    "x-kubernetes-validations": [
        {"rule": "self.min <= self.size", "message": "size must not be below min"},
        {"rule": "has(self.kind) == has(oldSelf.kind)", "message": "kind comes or goes never"},
    ],
    "properties": {
        "size": {"type": "integer", "minimum": 0, "maximum": 100},
        "min": {"type": "integer", "default": 1},
        "mode": {"type": "string", "enum": ["Off", "Auto"], "default": "Off"},
        "word": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
        "kind": {
            "type": "string",
            "maxLength": 63,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "kind is immutable"}],
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2},
        "parts": {
            "type": "array",
            "maxItems": 3,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
            },
        },
    },
}
CRD: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"things.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.mode"}],
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": SPEC,
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def things(server: Server) -> str:
    """The path of things, once they are served."""
    path = f"/apis/{GROUP}/v1/namespaces/{server.namespace}/things"
    code, _ = server.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
    assert code in (201, 409)
    deadline = time.monotonic() + 60.0
    while True:  # a real server serves a new resource a little later
        code, found = server.ask("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{GROUP}")
        conditions = {each["type"]: each["status"] for each in (found.get("status") or {}).get("conditions", ())}
        if conditions.get("Established") == "True" and server.ask("GET", path)[0] == 200:
            return path
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def thing(name: str = "a", **spec: Any) -> Json:
    body = {"size": 2, **spec}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": {"name": name}, "spec": body}


def test_an_object_gets_defaults_and_loses_what_its_schema_does_not_know(server: Server, things: str) -> None:
    code, found = server.ask("POST", things, thing(unknown=1, free={"any": {"thing": 1}}, labels={"a": "b"}))
    assert code == 201
    wanted = {"size": 2, "min": 1, "mode": "Off", "free": {"any": {"thing": 1}}, "labels": {"a": "b"}}
    assert found["spec"] == wanted


def test_strict_decoding_names_the_field(server: Server, things: str) -> None:
    code, status = server.ask("POST", f"{things}?fieldValidation=Strict", thing(unknown=1))
    assert (code, status["reason"]) == (400, "BadRequest")
    assert 'unknown field "spec.unknown"' in status["message"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"size": -1}, "spec.size"),
        ({"size": 101}, "spec.size"),
        ({"size": "2"}, "spec.size"),
        ({"size": 2.5}, "spec.size"),
        ({"mode": "On"}, "spec.mode"),
        ({"word": "A"}, "spec.word"),
        ({"word": "abcdef"}, "spec.word"),
        ({"labels": {"a": 1}}, "spec.labels.a"),
        ({"labels": {"a": "", "b": "", "c": ""}}, "spec.labels"),
        ({"parts": [{"name": "x"}, {"name": "x"}]}, "spec.parts[1]"),
        ({"parts": [{"name": each} for each in "wxyz"]}, "spec.parts"),
        ({"parts": [{"size": 1}]}, "spec.parts[0].name"),
        ({"min": 5}, "spec"),
    ],
)
def test_what_a_schema_refuses(server: Server, things: str, spec: Json, field: str) -> None:
    code, status = server.ask("POST", things, thing(**spec))
    assert (code, status["reason"], status["details"]["kind"]) == (422, "Invalid", "Thing")
    assert field in causes(status)
    assert status["message"].startswith(f'Thing.{GROUP} "a" is invalid: ')


def test_a_missing_field_is_named(server: Server, things: str) -> None:
    body = {**thing(), "spec": {}}
    code, status = server.ask("POST", things, body)
    # The second one, of no field, says that rules were not looked at.
    assert (code, causes(status)) == (422, ["spec.size", "<nil>"])
    assert "some validation rules were not checked" in status["message"]
    assert status["details"]["causes"][0]["reason"] == "FieldValueRequired"


def test_rules_compare_with_what_was_before(server: Server, things: str) -> None:
    server.ask("POST", things, thing(kind="x"))
    code, status = server.ask("PATCH", f"{things}/a", {"spec": {"kind": "y"}}, MERGE)
    assert (code, causes(status)) == (422, ["spec.kind"])
    assert "kind is immutable" in status["message"]
    code, status = server.ask("PATCH", f"{things}/a", {"spec": {"kind": None}}, MERGE)
    assert (code, causes(status)) == (422, ["spec"])
    code, status = server.ask("PATCH", f"{things}/a", {"spec": {"size": 0}}, MERGE)
    assert code == 422
    assert "size must not be below min" in status["message"]
    assert server.ask("PATCH", f"{things}/a", {"spec": {"size": 9}}, MERGE)[0] == 200


def test_the_status_is_written_apart_from_all_else(server: Server, things: str) -> None:
    code, made = server.ask("POST", things, {**thing(), "status": {"x": 1}})
    assert (code, "status" in made, made["metadata"]["generation"]) == (201, False, 1)
    code, found = server.ask("PATCH", f"{things}/a", {"spec": {"size": 3}, "status": {"x": 1}}, MERGE)
    assert ("status" in found, found["metadata"]["generation"]) == (False, 2)
    change = {"metadata": {"labels": {"a": "b"}}, "spec": {"size": 9}, "status": {"x": 2}}
    code, found = server.ask("PATCH", f"{things}/a/status", change, MERGE)
    assert (code, found["status"], found["spec"]["size"]) == (200, {"x": 2}, 3)
    assert found["metadata"]["generation"] == 2
    code, status = server.ask("PUT", f"{things}/a/status", made)
    assert (code, status["reason"]) == (409, "Conflict")


def test_there_are_no_strategic_patches(server: Server, things: str) -> None:
    server.ask("POST", things, thing())
    code, status = server.ask("PATCH", f"{things}/a", {}, "application/strategic-merge-patch+json")
    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


def test_lists_with_keys_are_applied_item_by_item(server: Server, things: str) -> None:
    one, two = thing(parts=[{"name": "x", "size": 1}]), thing(parts=[{"name": "y", "size": 2}])
    del two["spec"]["size"]
    assert server.apply(f"{things}/a", one)[0] == 201
    code, found = server.apply(f"{things}/a", two, "two")
    assert (code, [each["name"] for each in found["spec"]["parts"]]) == (200, ["x", "y"])
    two["spec"]["parts"] = [{"name": "x", "size": 5}]
    code, status = server.apply(f"{things}/a", two, "two")
    assert (code, causes(status)) == (409, ['.spec.parts[name="x"].size'])
    code, found = server.apply(f"{things}/a", thing(parts=[]))
    assert code == 200
    assert [each["name"] for each in found["spec"]["parts"]] == ["y"]


def test_a_field_that_can_be_selected_by(server: Server, things: str) -> None:
    server.ask("POST", things, thing())
    server.ask("POST", things, thing("b", mode="Auto"))
    code, found = server.ask("GET", f"{things}?fieldSelector=spec.mode%3DAuto")
    assert (code, [each["metadata"]["name"] for each in found["items"]]) == (200, ["b"])
    assert server.ask("GET", f"{things}?fieldSelector=spec.size%3D2")[0] == 400


def test_columns_of_a_table_are_those_of_the_definition(server: Server, things: str) -> None:
    server.ask("POST", things, thing())
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    server.ask("PATCH", f"{things}/a/status", status, MERGE)
    table = server.table(things)
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Size", "Ready"]
    assert table["rows"][0]["cells"] == ["a", 2, "True"]


def test_the_schema_is_published(server: Server, things: str) -> None:
    del things
    code, found = server.ask("GET", "/openapi/v3")
    assert code == 200
    code, document = server.ask("GET", found["paths"][f"apis/{GROUP}/v1"]["serverRelativeURL"])
    wanted = {"group": GROUP, "version": "v1", "kind": "Thing"}
    schemas = document["components"]["schemas"].values()
    [schema] = [each for each in schemas if wanted in each.get("x-kubernetes-group-version-kind", ())]
    assert schema["properties"]["spec"]["properties"]["size"]["maximum"] == 100


def test_versions_rise_with_every_write(server: Server, things: str) -> None:
    _, first = server.ask("POST", things, thing())
    _, second = server.ask("PATCH", f"{things}/a", {"spec": {"size": 4}}, MERGE)
    assert version(second) > version(first)
