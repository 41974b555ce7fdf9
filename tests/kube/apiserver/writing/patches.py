"""Patches: merge patches, JSON patches, and strategic merge patches of the built-in types.

Source: RFC 7386, RFC 6902; of strategic merges: lists merged by a key, `$patch`, `$deleteFromPrimitiveList`,
`$setElementOrder`, `$retainKeys`.
"""

from __future__ import annotations

import copy
from typing import Any

from apiserver.store import Refused

Json = dict[str, Any]
LIST_KEYS = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""Keys of the lists of built-in types that are merged item by item; `ports` are told apart by what they are of."""
SETS = ("finalizers",)
"""Lists of built-in types that are merged as sets."""


def list_keys(name: str, items: list[Any]) -> tuple[str, ...]:
    """The keys by which a built-in type's list is merged; empty where it is replaced as a whole."""
    if name == "ports":
        return ("containerPort", "protocol") if any("containerPort" in each for each in items) else ("port", "protocol")
    return LIST_KEYS.get(name, ())


def merged(found: Any, patch: Any) -> Any:
    """A merge patch applied."""
    if not isinstance(patch, dict):
        return patch
    result = dict(found) if isinstance(found, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def patched(found: Json, operations: Any) -> Json:
    """A JSON patch applied.

    Raises:
        Refused: 400, it is no patch; 422, a test fails, or a path is not there.
    """
    if not isinstance(operations, list):
        raise Refused(400, "BadRequest", "a JSON patch is a list of operations")
    result: Any = {"": copy.deepcopy(found)}
    for operation in operations:
        try:
            _carry_out(result, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            line = "the server rejected our request due to an error in our request"
            raise Refused(422, "Invalid", line, {"causes": [{"message": f"{operation}: {error}"}]}) from error
    whole: Json = result[""]
    return whole


def _carry_out(whole: Json, operation: Json) -> None:
    kind, path = operation["op"], _tokens(operation["path"])
    if kind == "test":
        if _at(whole, path) != operation["value"]:
            raise ValueError("testing value failed")
    elif kind == "remove":
        _take(whole, path)
    elif kind in ("add", "replace"):
        if kind == "replace":
            _take(whole, path)
        _put(whole, path, copy.deepcopy(operation["value"]))
    elif kind == "move":
        _put(whole, path, _take(whole, _tokens(operation["from"])))
    elif kind == "copy":
        _put(whole, path, copy.deepcopy(_at(whole, _tokens(operation["from"]))))
    else:
        raise ValueError(f"no such operation: {kind}")


def _tokens(path: str) -> list[str]:
    return [each.replace("~1", "/").replace("~0", "~") for each in path.split("/")]


def _at(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def _take(whole: Json, path: list[str]) -> Any:
    holder = _at(whole, path[:-1])
    return holder.pop(int(path[-1]) if isinstance(holder, list) else path[-1])


def _put(whole: Json, path: list[str], value: Any) -> None:
    holder, name = _at(whole, path[:-1]), path[-1]
    if isinstance(holder, dict):
        holder[name] = value
        return
    at = len(holder) if name == "-" else int(name)
    if at > len(holder):
        raise IndexError(f"no place {at} in a list of {len(holder)}")
    holder.insert(at, value)


def strategically_merged(found: Any, patch: Any) -> Any:
    """A strategic merge patch applied."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    result = dict(found) if isinstance(found, dict) else {}
    if "$retainKeys" in patch:
        result = {name: value for name, value in result.items() if name in patch["$retainKeys"]}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            of = name.partition("/")[2]
            result[of] = [each for each in result.get(of) or () if each not in value]
        elif name.startswith("$"):
            continue
        elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            result.pop(name, None)
        elif isinstance(value, list):
            result[name] = _merged_list(name, result.get(name) or [], value)
        else:
            result[name] = strategically_merged(result.get(name), value)
    for name, order in patch.items():
        of = name.partition("/")[2]
        if name.startswith("$setElementOrder/") and of in result:
            result[of] = _in_order(of, result[of], order)
    return result


def _merged_list(name: str, found: list[Any], patch: list[Any]) -> list[Any]:
    if name in SETS:
        return [*found, *(each for each in patch if each not in found)]
    keys = list_keys(name, [*found, *patch])[:1]
    if not keys or any(isinstance(each, dict) and each.get("$patch") == "replace" for each in patch):
        return [each for each in patch if not (isinstance(each, dict) and "$patch" in each)]
    [key] = keys
    result = list(found)
    for item in patch:
        if key not in item:
            raise Refused(400, "BadRequest", f"map: {item} does not contain declared merge key: {key}")
        at = next((number for number, each in enumerate(result) if each.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(strategically_merged({}, item))
        else:
            result[at] = strategically_merged(result[at], item)
    return result


def _in_order(name: str, found: list[Any], order: list[Any]) -> list[Any]:
    keys = list_keys(name, found)[:1]

    def rank(item: Any) -> int:
        wanted = {keys[0]: item.get(keys[0])} if keys and isinstance(item, dict) else item
        return order.index(wanted) if wanted in order else len(order)

    return sorted(found, key=rank)
