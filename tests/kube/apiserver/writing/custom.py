"""Custom resources: what a CRD serves, and what its schema makes of an object: defaults, pruning, refusals.

Deviation: an object whose field was wrong before and is not changed is refused again; the real server lets it be.
"""

from __future__ import annotations

import copy
from typing import Any

from apiserver.registry import Served
from apiserver.store import Refused
from apiserver.writing.rules import broken_rules, has_rules
from apiserver.writing.schema import cause, complete, unknown_fields, wrong_fields

Json = dict[str, Any]

_BLOCKING = {
    "FieldValueRequired", "FieldValueNotSupported", "FieldValueTypeInvalid", "FieldValueTooLong", "FieldValueTooMany"
}  # fmt: skip
"""Beside these no rule is looked at, and a last cause, of no field, says so."""
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)


def served_by(crd: Json) -> list[Served]:
    """What a CRD brings."""
    spec = crd["spec"]
    names = spec["names"]
    return [
        Served(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            has_status="status" in (version.get("subresources") or {}),
            short=tuple(names.get("shortNames", ())),
            fields=tuple(each["jsonPath"].lstrip(".") for each in version.get("selectableFields", ())),
            categories=tuple(names.get("categories", ())),
            columns=tuple(version.get("additionalPrinterColumns", ())),
            is_custom=True,
        )
        for version in spec["versions"]
        if version.get("served")
    ]


def schemas_of(crd: Json) -> dict[str, Json]:
    """The schema of each version."""
    return {each["name"]: each["schema"]["openAPIV3Schema"] for each in crd["spec"]["versions"]}


def established(crd: Json, now: str) -> Json:
    """The status that the server gives a CRD which it serves."""
    texts = {"NamesAccepted": ("NoConflicts", "no conflicts found"), "Established": ("InitialNamesAccepted", "")}
    conditions = [
        {
            "type": kind,
            "status": "True",
            "lastTransitionTime": now,
            "reason": reason,
            "message": text or "the initial names have been accepted",
        }
        for kind, (reason, text) in texts.items()
    ]
    stored = [each["name"] for each in crd["spec"]["versions"] if each.get("storage")]
    return {"conditions": conditions, "acceptedNames": crd["spec"]["names"], "storedVersions": stored}


def admitted(served: Served, schema: Json, found: Json, before: Json | None = None) -> Json:
    """The object as it is stored: pruned, with its defaults.

    Args:
        before: the object in whose place it comes, for rules that compare.

    Raises:
        Refused: 422, with every field that is wrong.
    """
    result = copy.deepcopy(found)
    always: Json = {name: result[name] for name in ("apiVersion", "kind", "metadata") if name in result}
    body = {name: value for name, value in result.items() if name not in always}
    complete(schema, body)
    causes = wrong_fields(schema, body)
    if not any(each["reason"] in _BLOCKING for each in causes):  # rules may count on the types of what they read
        causes += broken_rules(schema, {**always, **body}, before)
    elif has_rules(schema):
        causes.append(cause("FieldValueInvalid", f"Invalid value: null: {_UNCHECKED}", "<nil>"))
    if before is not None and found.get("spec") == before.get("spec"):
        # What was stored before its schema had a rule can still get a status. A real server (1.33) passes over every
        # field that did not change; here it is the whole spec, or nothing.
        causes = [each for each in causes if each["field"].partition(".")[0] != "spec"]
    if causes:
        raise invalid(f"{served.kind}.{served.group}", served.kind, always["metadata"].get("name", ""), causes)
    return {**always, **body}


def unknown_in(schema: Json, found: Json) -> list[str]:
    """Fields of an object that its schema does not know, which strict decoding refuses."""
    body = {name: value for name, value in found.items() if name not in ("apiVersion", "kind", "metadata")}
    return unknown_fields(schema, body)


def invalid(what: str, kind: str, name: str, causes: list[Json]) -> Refused:
    """The refusal of an object with fields that are wrong.

    Args:
        what: the kind, with the group of a custom resource.
    """
    lines = [f"{cause['field']}: {cause['message']}" for cause in causes]
    listed = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    line = f'{what} "{name}" is invalid: {listed}'
    return Refused(422, "Invalid", line, {"name": name, "kind": kind, "causes": causes})
