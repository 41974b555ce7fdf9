"""What the server says of itself: its version, its groups and resources, and their schemas."""

from __future__ import annotations

import zlib
from typing import Any

from apiserver.registry import Registry, Served
from apiserver.store import Refused
from apiserver.writing.models import components_of, has_model, model_of

Json = dict[str, Any]
_PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "pods": {"log": ("get",), "binding": ("create",), "eviction": ("create",)},
}


def discovered(registry: Registry, schemas: dict[tuple[str, str], Json], path: str) -> Json | str:
    """The document at a path; a text for probes.

    Args:
        schemas: of custom resources, by table and version.

    Raises:
        Refused: 404, there is none.
    """
    parts = [part for part in path.split("/") if part]
    found = _fixed(parts) or _groups(registry, parts)
    if found is None and parts[:2] == ["openapi", "v3"]:
        found = _openapi(registry, schemas, parts[2:])
    if found is None:
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    return found


def _fixed(parts: list[str]) -> Json | str | None:
    if parts in (["healthz"], ["readyz"], ["livez"]):
        return "ok"
    if parts == ["version"]:
        return {"major": "1", "minor": "36", "gitVersion": "v1.36.0-test", "platform": "linux/amd64"}
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    return None


def _groups(registry: Registry, parts: list[str]) -> Json | None:
    groups = {name: versions for name, versions in registry.groups().items() if name}
    if parts == ["apis"]:
        listed = [_group(name, versions) for name, versions in groups.items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    if parts[:1] == ["apis"] and len(parts) == 2 and parts[1] in groups:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], groups[parts[1]])}
    if (parts[:1], len(parts)) not in ((["api"], 2), (["apis"], 3)):
        return None
    found = registry.of("" if len(parts) == 2 else parts[1], parts[-1])
    resources = [entry for each in found for entry in _entries(each)]
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "/".join(parts[1:])}
    return {**head, "resources": resources} if found else None


def _group(name: str, versions: list[str]) -> Json:
    found = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": found, "preferredVersion": found[0]}


def _entries(served: Served) -> list[Json]:
    entry: Json = {
        "name": served.plural,
        "singularName": served.kind.lower(),
        "namespaced": served.namespaced,
        "kind": served.kind,
        "verbs": list(served.verbs),
        **({"shortNames": list(served.short)} if served.short else {}),
        **({"categories": list(served.categories)} if served.categories else {}),
    }
    parts: dict[str, tuple[str, ...]] = {} if served.is_custom else {**_PARTS.get(served.plural, {})}
    if served.has_status:
        parts["status"] = ("get", "patch", "update")
    more = [
        {
            "name": f"{served.plural}/{part}",
            "singularName": "",
            "namespaced": served.namespaced,
            "kind": {"binding": "Binding", "eviction": "Eviction"}.get(part, served.kind),
            "verbs": list(verbs),
        }
        for part, verbs in parts.items()
    ]
    return [entry, *more]


def _openapi(registry: Registry, schemas: dict[tuple[str, str], Json], parts: list[str]) -> Json:
    groups = {
        _root(group, version): (group, version) for group, versions in registry.groups().items() for version in versions
    }
    if not parts:
        # The hash changes with what is served: clients keep a document for as long as it is the same.
        state = zlib.crc32(repr(sorted(registry.served)).encode() + repr(schemas).encode())
        return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}?hash={state:x}"} for root in groups}}
    root = "/".join(parts)
    if root not in groups:
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    components: dict[str, Json] = {}
    paths: Json = {}
    components_of("V1ObjectMeta", components)
    for served in registry.of(*groups[root]):
        kind = {"group": served.group, "version": served.version, "kind": served.kind}
        schema = _schema_of(served, schemas, components)
        components[f"{root.replace('/', '.')}.{served.kind}"] = {**schema, "x-kubernetes-group-version-kind": [kind]}
        where = f"/{root}/namespaces/{{namespace}}" if served.namespaced else f"/{root}"
        paths[f"{where}/{served.plural}"] = {"post": _operation("post", kind)}
        paths[f"{where}/{served.plural}/{{name}}"] = {
            verb: _operation(action, kind) for verb, action in (("get", "get"), ("put", "put"), ("patch", "patch"))
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0-test"},
        "paths": paths,
        "components": {"schemas": components},
    }


def _schema_of(served: Served, schemas: dict[tuple[str, str], Json], components: dict[str, Json]) -> Json:
    own = schemas.get((served.table, served.version))
    if own is not None:
        always = {
            "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"allOf": [{"$ref": "#/components/schemas/V1ObjectMeta"}], "description": "Standard metadata."},
        }
        return {**own, "properties": {**always, **(own.get("properties") or {})}}
    model = model_of(served)
    if not has_model(model):
        return {"type": "object"}
    components_of(model, components)
    return dict(components[model])


def _operation(action: str, kind: Json) -> Json:
    names = ("dryRun", "fieldManager", "fieldValidation") if action != "get" else ()
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    return {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
    }


def _root(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"
