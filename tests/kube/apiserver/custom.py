"""Custom resources: what a CRD serves, and what its schema makes of an object: defaults, pruning, refusals.

Of a schema: types, required fields, bounds, lengths, enumerations, nullable, `x-kubernetes-preserve-unknown-fields`.
Its rules in CEL are not carried out here; the real server carries them out, and the agent checks for itself.
"""

from __future__ import annotations

import copy
from typing import Any

from apiserver.registry import Served
from apiserver.store import Refused

Json = dict[str, Any]
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


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
        )
        for version in spec["versions"]
        if version.get("served")
    ]


def schemas_of(crd: Json) -> dict[str, Json]:
    """The schema of each version."""
    return {each["name"]: each["schema"]["openAPIV3Schema"] for each in crd["spec"]["versions"]}


def admitted(served: Served, schema: Json, found: Json) -> Json:
    """The object as it is stored: pruned, with its defaults.

    Raises:
        Refused: 422, with every field that is wrong.
    """
    result = copy.deepcopy(found)
    always: Json = {name: result[name] for name in ("apiVersion", "kind", "metadata") if name in result}
    body = {name: value for name, value in result.items() if name not in always}
    _complete(schema, body)
    causes: list[Json] = []
    _check(schema, body, "", causes)
    if causes:
        name = always["metadata"].get("name", "")
        lines = [f"{cause['field']}: {cause['message']}" for cause in causes]
        line = f'{served.kind}.{served.group} "{name}" is invalid: {", ".join(lines)}'
        raise Refused(422, "Invalid", line, {"name": name, "kind": served.kind, "causes": causes})
    return {**always, **body}


def _complete(schema: Json, value: Any) -> None:
    if isinstance(value, list):
        for each in value:
            _complete(schema.get("items") or {}, each)
    if not isinstance(value, dict) or schema.get("type") != "object":
        return
    known = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    if not more and not schema.get("x-kubernetes-preserve-unknown-fields"):
        for name in [name for name in value if name not in known]:
            del value[name]
    for name, inner in known.items():
        if name not in value and "default" in inner:
            value[name] = copy.deepcopy(inner["default"])
        if name in value and value[name] is None and not inner.get("nullable"):
            del value[name]
        if name in value:
            _complete(inner, value[name])


def _check(schema: Json, value: Any, where: str, causes: list[Json]) -> None:
    def wrong(reason: str, message: str, field: str = where) -> None:
        causes.append({"reason": reason, "message": message, "field": field})

    if value is None and schema.get("nullable"):
        return
    kinds = _TYPES.get(schema.get("type", ""), (object,))
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds and object not in kinds):
        wrong("FieldValueTypeInvalid", f'Invalid value: "{value}": must be of type {schema["type"]}')
        return
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(f'"{each}"' for each in schema["enum"])
        wrong("FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {allowed}')
    if "minimum" in schema and value < schema["minimum"]:
        wrong("FieldValueInvalid", f"Invalid value: {value}: should be greater than or equal to {schema['minimum']}")
    if "maximum" in schema and value > schema["maximum"]:
        wrong("FieldValueInvalid", f"Invalid value: {value}: should be less than or equal to {schema['maximum']}")
    if isinstance(value, str) and not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1 << 30):
        wrong("FieldValueInvalid", f'Invalid value: "{value}": has a wrong length')
    if isinstance(value, list):
        for number, each in enumerate(value):
            _check(schema.get("items") or {}, each, f"{where}[{number}]", causes)
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                wrong("FieldValueRequired", "Required value", f"{where}.{name}".lstrip("."))
        for name, inner in (schema.get("properties") or {}).items():
            if name in value:
                _check(inner, value[name], f"{where}.{name}".lstrip("."), causes)
