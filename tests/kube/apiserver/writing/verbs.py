"""Verbs that write: what a body becomes before it is stored, as the server's admission makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from apiserver.asked import Asked
from apiserver.registry import Served
from apiserver.selection import selected
from apiserver.store import Refused, Store, conflict, copied
from apiserver.writing import applying, builtin, models, security
from apiserver.writing.custom import admitted, established, invalid, unknown_in
from apiserver.writing.patches import SETS, list_keys, merged, patched, strategically_merged
from apiserver.writing.quota import Quotas
from apiserver.writing.schema import wrong_fields

Json = dict[str, Any]
CRDS = "customresourcedefinitions.apiextensions.k8s.io"
_JSON, _MERGE = "application/json-patch+json", "application/merge-patch+json"
_STRATEGIC, _APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"


class Writer:
    """Writes for clients.

    Args:
        schemas: of custom resources, by table and version.
    """

    def __init__(self, store: Store, schemas: Mapping[tuple[str, str], Json]) -> None:
        self._store, self._schemas = store, schemas
        self.quotas = Quotas(store)
        self.service_address: Callable[[], str] = lambda: ""
        """An address for a new Service; without any, none is given."""
        store.on_create.append(self._complete_new)

    def delete(self, asked: Asked, options: Any, query: Mapping[str, str]) -> Json:
        """Delete an object."""
        return self._store.delete(
            asked.resource, asked.namespace, asked.name, _options(options, query), dry_run=asked.dry_run
        )

    def delete_all(self, served: Served, asked: Asked, options: Any, query: Mapping[str, str]) -> list[Json]:
        """Delete the objects that a selection matches."""
        matches = selected(served.plural, query.get("labelSelector", ""), query.get("fieldSelector", ""), served.fields)
        found = [each for each in self._store.all(asked.resource, asked.namespace) if matches(each)]
        for each in found:
            where, name = each["metadata"].get("namespace", ""), each["metadata"]["name"]
            self._store.delete(asked.resource, where, name, _options(options, query), dry_run=asked.dry_run)
        return found

    def bind(self, asked: Asked, body: Json) -> None:
        """Put a pod on a node, which need not be there.

        Raises:
            Refused: 409, the pod has a node, or is gated.
        """
        pod = self._store.get("pods", asked.namespace, asked.name)
        on = pod["spec"].get("nodeName")
        if on or pod["spec"].get("schedulingGates"):
            why = (
                f"pod {asked.name} is already assigned to node {on!r}"
                if on
                else "pod has non-empty .spec.schedulingGates"
            )
            line = f'Operation cannot be fulfilled on pods/binding "{asked.name}": {why}'
            raise Refused(409, "Conflict", line, {"name": asked.name, "kind": "pods/binding"})
        bound = {**pod, "spec": {**pod["spec"], "nodeName": body["target"]["name"]}}
        self._store.replace("pods", asked.namespace, asked.name, bound, "binding", dry_run=asked.dry_run)

    def create(
        self, served: Served, asked: Asked, body: Json, query: Mapping[str, str], agent: str
    ) -> tuple[Json, list[str]]:
        """Take a new object; also: fields that it names and that there are not."""
        body, unknown = self._taken(served, asked, body, query)
        if served.namespaced:
            self._may_be_made_in(asked)
        body = self._prepared(served, body, None, "")
        if served.has_status and served.table not in ("pods", "nodes"):
            body = {name: value for name, value in body.items() if name != "status"}
        manager = query.get("fieldManager") or agent
        body = applying.updated(None, body, manager, self._keys(served), self._store.now(), "")
        return self._store.create(served.table, body, dry_run=asked.dry_run), unknown

    def replace(
        self, served: Served, asked: Asked, body: Json, query: Mapping[str, str], agent: str
    ) -> tuple[Json, list[str]]:
        """Take an object in another's place."""
        body, unknown = self._taken(served, asked, body, query)
        before = self._store.get(served.table, asked.namespace, asked.name)
        body = self._prepared(served, body, before, asked.part)
        manager = query.get("fieldManager") or agent
        body = applying.updated(before, body, manager, self._keys(served), self._store.now(), asked.part)
        return self._replace(served, asked, body), unknown

    def patch(
        self, served: Served, asked: Asked, patch: Any, kind: str, query: Mapping[str, str], agent: str
    ) -> tuple[Json, list[str], bool]:
        """Change an object; also: whether it is new.

        Raises:
            Refused: 415, there is no such patch for this type; 409, another manager has a field that is applied.
        """
        if kind not in (_JSON, _MERGE, _APPLY) and (kind != _STRATEGIC or served.is_custom):
            accepted = ", ".join([_JSON, _MERGE, _APPLY] + ([] if served.is_custom else [_STRATEGIC]))
            line = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
            raise Refused(415, "UnsupportedMediaType", line)
        if kind == _APPLY:
            return self._apply(served, asked, patch, query)
        before = self._store.get(served.table, asked.namespace, asked.name)
        if kind == _JSON:
            body = patched(before, patch)
        elif not isinstance(patch, dict):
            raise Refused(400, "BadRequest", "a merge patch is an object")
        else:
            body = merged(before, patch) if kind == _MERGE else strategically_merged(before, patch)
        found, unknown = self.replace(served, asked, body, query, agent)
        return found, unknown, False

    def _apply(
        self, served: Served, asked: Asked, config: Any, query: Mapping[str, str]
    ) -> tuple[Json, list[str], bool]:
        manager = query.get("fieldManager")
        if not manager:
            line = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            raise Refused(422, "Invalid", line)
        config, unknown = self._taken(served, asked, config, query)
        if "managedFields" in config["metadata"]:
            raise Refused(400, "BadRequest", "metadata.managedFields must be nil")
        self._check_config(served, config)
        config["metadata"].setdefault("name", asked.name)
        live = self._store.objects.get(served.table, {}).get((asked.namespace, asked.name))
        stated = config["metadata"].get("resourceVersion")
        if live is not None and stated and stated != live["metadata"]["resourceVersion"]:
            raise conflict(served.plural, asked.name, "resourceVersion", live["metadata"]["resourceVersion"], stated)
        force = query.get("force") == "true"
        keys, now = self._keys(served), self._store.now()
        if live is None:
            if served.namespaced:
                self._may_be_made_in(asked)
            body = self._prepared(served, config, None, "")
            body = applying.with_managers(
                body,
                applying.apply(None, config, manager, keys, now, force=force, part="")["metadata"]["managedFields"],
            )
            return self._store.create(served.table, body, dry_run=asked.dry_run), unknown, True
        body = applying.apply(live, config, manager, keys, now, force=force, part=asked.part)
        managers = body["metadata"].get("managedFields") or []
        body = self._prepared(served, body, live, asked.part)
        return self._replace(served, asked, applying.with_managers(body, managers)), unknown, False

    def _replace(self, served: Served, asked: Asked, body: Json) -> Json:
        part = asked.part if asked.part == "status" else ""
        return self._store.replace(served.table, asked.namespace, asked.name, body, part, dry_run=asked.dry_run)

    def _check_place(self, served: Served, asked: Asked, body: Json) -> None:
        stated = body.get("metadata", {}).get("name")
        if (
            body.get("kind", served.kind) != served.kind
            or body.get("apiVersion", served.api_version) != served.api_version
        ):
            raise Refused(400, "BadRequest", f"the object is no {served.kind} of {served.api_version}")
        if asked.name and stated not in (None, asked.name):
            line = f"the name of the object ({stated}) does not match the name on the URL ({asked.name})"
            raise Refused(400, "BadRequest", line)
        if served.namespaced:
            inside = body.setdefault("metadata", {}).setdefault("namespace", asked.namespace)
            if inside != asked.namespace:
                line = "the namespace of the object does not match the namespace on the request"
                raise Refused(400, "BadRequest", line)
        body |= {"kind": served.kind, "apiVersion": served.api_version}

    def _unknown(self, served: Served, body: Json, query: Mapping[str, str]) -> list[str]:
        """Fields that there are not.

        Raises:
            Refused: 400, there are some, and the request wants them refused.
        """
        level = query.get("fieldValidation", "Warn")
        if level == "Ignore":
            return []
        schema = self._schemas.get((served.table, served.version))
        found = models.strict_errors(served, body) if schema is None else unknown_in(schema, body)
        if found and level == "Strict":
            unknown = ", ".join(f'unknown field "{each}"' for each in found)
            line = f'{served.kind} in version "{served.version}" cannot be handled as a {served.kind}'
            raise Refused(400, "BadRequest", f"{line}: strict decoding error: {unknown}")
        return found

    def _taken(self, served: Served, asked: Asked, body: Any, query: Mapping[str, str]) -> tuple[Json, list[str]]:
        """A body as this server reads it, in a copy; also: fields in it that there are not.

        Raises:
            Refused: 400, it is no such object.
        """
        if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
            raise Refused(400, "BadRequest", f"the body is no {served.kind}: it, or its metadata, is no object")
        body = copied(body)
        body["metadata"] = body.get("metadata") or {}
        unknown = self._unknown(served, body, query)
        if not served.is_custom and served.table != CRDS:
            models.prune(served, body)
        wrong = models.wrong_types(served, body) if served.table != CRDS else []
        if wrong:
            line = f'{served.kind} in version "{served.version}" cannot be handled as a {served.kind}'
            raise Refused(400, "BadRequest", f"{line}: {wrong[0]['field']}: {wrong[0]['message']}")
        self._check_place(served, asked, body)
        return body, unknown

    def _check_config(self, served: Served, config: Json) -> None:
        """Hold what is applied of a custom resource, which may be a part of it, against its schema."""
        schema = self._schemas.get((served.table, served.version))
        body = {name: value for name, value in config.items() if name not in ("apiVersion", "kind", "metadata")}
        causes = wrong_fields(schema, body) if schema is not None else []
        causes = [each for each in causes if each["reason"] != "FieldValueRequired"]
        if causes:
            raise invalid(f"{served.kind}.{served.group}", served.kind, config["metadata"].get("name", ""), causes)

    def _prepared(self, served: Served, body: Json, before: Json | None, part: str) -> Json:
        """A body with its defaults, and held against what its type takes."""
        schema = self._schemas.get((served.table, served.version))
        if part == "status" and before is not None:
            body = {**before, "metadata": body["metadata"], "status": body.get("status") or {}}
        _check_times(served, body)
        if schema is not None:
            body = admitted(served, schema, body, before)
            builtin.check(served, body, before, "status")
        else:
            body = copied(body)
            builtin.defaulted(served.table, body)
        if not served.is_custom:
            builtin.check(served, body, before, part)
        return {**body, "kind": served.kind, "apiVersion": served.api_version}

    def _complete_new(self, table: str, found: Json) -> None:
        """What every new object gets, whoever makes it."""
        builtin.defaulted(table, found)
        if table == "jobs.batch" and isinstance(found.get("spec"), dict):
            builtin.own_selector(found)
        elif table == "services" and isinstance(found.get("spec"), dict) and not found["spec"].get("clusterIP"):
            address = self.service_address()
            if address:
                found["spec"]["clusterIP"] = address
        elif table == CRDS:
            found["status"] = established(found, self._store.now())
        if table == "pods":
            security.check(self._store, found)
        self.quotas.check(table, found)

    def _may_be_made_in(self, asked: Asked) -> None:
        where = self._store.get("namespaces", "", asked.namespace)
        if "deletionTimestamp" in where["metadata"]:
            line = f"unable to create new content in namespace {asked.namespace} because it is being terminated"
            raise Refused(403, "Forbidden", line)

    def _keys(self, served: Served) -> applying.Keys:
        """By what lists of a type are told apart."""
        schema = self._schemas.get((served.table, served.version))

        def of_built_in(path: applying.Path, name: str, items: list[Any]) -> tuple[str, ...]:
            del path
            if name in SETS:
                return ("",)
            keys = list_keys(name, items)
            return keys if all(isinstance(each, dict) and keys and keys[0] in each for each in items) else ()

        def of_custom(path: applying.Path, name: str, items: list[Any]) -> tuple[str, ...]:
            if path[:1] == ("f:metadata",):
                return of_built_in(path, name, items)
            at: Json = schema or {}
            for step in (*path, f"f:{name}"):
                inner = (at.get("properties") or {}).get(step[2:]) or at.get("additionalProperties")
                at = (at.get("items") if step[:2] == "k:" else inner) or {}
                if not isinstance(at, dict):
                    return ()
            kind = at.get("x-kubernetes-list-type")
            return (
                tuple(at.get("x-kubernetes-list-map-keys") or ()) if kind == "map" else ("",) if kind == "set" else ()
            )

        return of_built_in if schema is None else of_custom


def _options(options: Any, query: Mapping[str, str]) -> Json:
    found = dict(options) if isinstance(options, dict) else {}
    if "gracePeriodSeconds" in query:
        found["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
    if "propagationPolicy" in query:
        found["propagationPolicy"] = query["propagationPolicy"]
    return found


def _check_times(served: Served, body: Json) -> None:
    if served.table == "leases.coordination.k8s.io":
        for name in ("renewTime", "acquireTime"):
            value = (body.get("spec") or {}).get(name)
            if value is not None and not _is_micro_time(value):
                raise Refused(400, "BadRequest", f'Lease in version "v1" cannot be handled: parsing time "{value}"')


def _is_micro_time(value: Any) -> bool:
    whole, dot, fraction = str(value).partition(".")
    return len(whole) == 19 and dot == "." and len(fraction) == 7 and fraction[:6].isdigit() and fraction[6] == "Z"
