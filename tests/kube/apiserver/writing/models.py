"""Schemas of the built-in types, out of the models of the official client, which come from the API's own description.

They say which fields there are, for strict decoding and `kubectl explain`; bounds and defaults are not in them.
"""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

from apiserver.registry import Served
from apiserver.writing.patches import LIST_KEYS, SETS
from apiserver.writing.schema import complete, unknown_fields, wrong_fields

Json = dict[str, Any]
_CONTAINER = re.compile(r"^(List|Dict)\[(?:str, )?(.+)\]$")
_SIMPLE = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_QUANTITIES = ("limits", "requests", "hard", "used", "capacity", "allocatable", "overhead")
_QUANTITY = {"format": "quantity"}
_FREE = ("object", "Object", "V1FieldsV1", "JSON", "V1JSONSchemaProps")


def model_of(served: Served) -> str:
    """Name of the client's model of a built-in resource."""
    names = {"events": "CoreV1Event", "resourceclaims": "ResourceV1ResourceClaim"}
    return names.get(served.plural, f"V1{served.kind}")


@functools.cache
def properties_of(model: str) -> dict[str, tuple[str, str, bool]]:
    """Of each field of a model: its type, its description, and whether it is required."""
    found = getattr(importlib.import_module("kubernetes.client"), model)
    result = {}
    for name, kind in found.openapi_types.items():
        field = found.model_fields.get(name)  # Python's own words have another name there
        text = (field.description or "") if field else ""
        result[found.attribute_map[name]] = (kind, text, bool(field and field.is_required()))
    return result


@functools.cache
def has_model(model: str) -> bool:
    return hasattr(getattr(importlib.import_module("kubernetes.client"), model, None), "openapi_types")


def components_of(model: str, found: dict[str, Json]) -> None:
    """Add the schema of a model, and of all that it refers to, by name."""
    if model in found:
        return
    schema: Json = {"type": "object", "description": _description(model), "properties": {}}
    found[model] = schema
    required = []
    for name, (kind, text, is_required) in properties_of(model).items():
        schema["properties"][name] = _property(model, name, kind, text, found)
        if is_required:
            required.append(name)
    if required:
        schema["required"] = required


@functools.cache
def _whole(model: str) -> Json:
    """A model's schema without references, but for what refers to itself."""
    return _inlined(model, ())


def strict_errors(served: Served, found: Json) -> list[str]:
    """Paths of the fields of an object of a built-in type that there are not."""
    model = model_of(served)
    return unknown_fields(_whole(model), found) if has_model(model) else []


def prune(served: Served, found: Json) -> None:
    """Take what there is not away from an object of a built-in type, and what is null; in place."""
    if has_model(model_of(served)):
        complete(_whole(model_of(served)), found)


def wrong_types(served: Served, found: Json) -> list[Json]:
    """Causes of a Status for fields of an object of a built-in type, or the metadata of another, of the wrong type."""
    model = model_of(served)
    if served.is_custom or not has_model(model):
        return wrong_fields(_whole("V1ObjectMeta"), found.get("metadata", {}), "metadata")
    return wrong_fields(_whole(model), found)


def _inlined(model: str, above: tuple[str, ...]) -> Json:
    if model in above or not has_model(model):
        return {"x-kubernetes-preserve-unknown-fields": True}
    inner: Json = {}
    for name, (kind, _, _) in properties_of(model).items():
        if name in _QUANTITIES and kind == "Dict[str, str]":  # numbers are taken too
            inner[name] = {"type": "object", "additionalProperties": _QUANTITY}
        else:
            inner[name] = _inlined_type(kind, (*above, model))
    return {"type": "object", "properties": inner}


def _inlined_type(kind: str, above: tuple[str, ...]) -> Json:
    container = _CONTAINER.match(kind)
    if container and container[1] == "List":
        return {"type": "array", "items": _inlined_type(container[2], above)}
    if container:
        return {"type": "object", "additionalProperties": _inlined_type(container[2], above)}
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    return _inlined(kind, above) if kind not in _FREE else {"x-kubernetes-preserve-unknown-fields": True}


def _property(model: str, name: str, kind: str, text: str, found: dict[str, Json]) -> Json:
    result: Json = {"description": text} if text else {}
    container = _CONTAINER.match(kind)
    if container and container[1] == "List":
        result |= {"type": "array", "items": _reference(container[2], found)}
        keys = ("port",) if (model, name) == ("V1ServiceSpec", "ports") else LIST_KEYS.get(name, ())
        keys = ("containerPort",) if (model, name) == ("V1Container", "ports") else keys
        if name in SETS:
            result |= {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-list-type": "set"}
        elif keys and container[2] not in _SIMPLE:
            result |= {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": keys[0]}
        return result
    if container:
        return {**result, "type": "object", "additionalProperties": _reference(container[2], found)}
    reference = _reference(kind, found)
    # Beside a reference a description counts only with allOf.
    return {**result, "allOf": [reference]} if "$ref" in reference else {**result, **reference}


def _reference(kind: str, found: dict[str, Json]) -> Json:
    container = _CONTAINER.match(kind)
    if container and container[1] == "List":
        return {"type": "array", "items": _reference(container[2], found)}
    if container:
        return {"type": "object", "additionalProperties": _reference(container[2], found)}
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    if kind == "datetime":
        return {"type": "string", "format": "date-time"}
    if kind in _FREE or not has_model(kind):
        return {"type": "object"} if kind in ("object", "Object") else {}
    components_of(kind, found)
    return {"$ref": f"#/components/schemas/{kind}"}


def _description(model: str) -> str:
    found = getattr(importlib.import_module("kubernetes.client"), model)
    return str(found.__doc__ or "").partition("Attributes:")[0].strip()
