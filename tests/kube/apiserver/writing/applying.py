"""Server-side apply: who manages which field, what two appliers of one field get, and what one no longer applies.

A field is a path of steps: `f:NAME` of an object, `k:{...}` an item of a list with keys, `v:VALUE` of a set, as in
`managedFields`; `.` is the item or object itself. Lists without keys are one field as a whole.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from typing import Any

from apiserver.store import Refused

Json = dict[str, Any]
Path = tuple[str, ...]
Keys = Callable[[Path, str, list[Any]], tuple[str, ...]]
"""The keys of a list, by the path of its object, its name and its items; ("",) of a set, none where it is one field."""
_NOT_MANAGED = ("apiVersion", "kind", "status")
_OF_SERVER = (
    "name",
    "namespace",
    "generateName",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)


def fields_of(found: Json, keys: Keys, part: str = "") -> dict[Path, Any]:
    """All fields of an object that can be managed, with their values.

    Args:
        part: "status", where only those of the status are asked for.
    """
    result: dict[Path, Any] = {}
    if part == "status":
        _collect({"status": found.get("status") or {}}, (), keys, result)
        return result
    shown = {name: value for name, value in found.items() if name not in _NOT_MANAGED}
    metadata = {name: value for name, value in (found.get("metadata") or {}).items() if name not in _OF_SERVER}
    _collect({**shown, "metadata": metadata}, (), keys, result)
    result.pop(("f:metadata",), None)
    return result


def apply(live: Json | None, config: Json, manager: str, keys: Keys, now: str, *, force: bool, part: str) -> Json:
    """An object with a configuration applied to it.

    Args:
        live: as it is; None where it is not there yet.

    Raises:
        Refused: 409, another manager has set one of the fields to something else.
    """
    wanted = fields_of(config, keys, part)
    if live is None:
        return with_managers({**config}, [_entry(manager, "Apply", config, wanted, now, part)])
    entries = list(live["metadata"].get("managedFields") or ())
    theirs = [each for each in entries if not _is(each, manager, "Apply", part)]
    mine: set[Path] = set()
    for each in entries:
        if _is(each, manager, "Apply", part):
            mine |= paths_in(each["fieldsV1"])
    have = fields_of(live, keys, part)
    changed = {path for path, value in wanted.items() if path[-1] != "." and have.get(path, _MISSING) != value}
    contested = [(each, sorted(paths_in(each["fieldsV1"]) & changed)) for each in theirs]
    contested = [(each, paths) for each, paths in contested if paths]
    if contested and not force:
        raise _conflict(contested)
    kept = []
    for each in theirs:
        left = paths_in(each["fieldsV1"]) - changed
        if left:
            kept.append({**each, "fieldsV1": _as_tree(left)})
    result = copy.deepcopy(live)
    others: set[Path] = set()
    for each in kept:
        others |= paths_in(each["fieldsV1"])
    for path in sorted(mine - set(wanted) - others, key=lambda path: (-len(path), path)):
        item = path[:-1]
        if path[-1] == "." and any(each[: len(item)] == item for each in others):
            continue  # another has fields of the item
        if not _is_key(path):
            _remove(result, path)
    for path, value in wanted.items():
        _set(result, path, value)
    entry = _entry(manager, "Apply", config, wanted, now, part)
    same = [each for each in entries if _is(each, manager, "Apply", part)]
    if same and same[0]["fieldsV1"] == entry["fieldsV1"] and _plain(result) == _plain(live):
        return live
    return with_managers(result, [*kept, entry])


def updated(before: Json | None, after: Json, manager: str, keys: Keys, now: str, part: str) -> Json:
    """An object with its managers, after one has written it in another way than by applying."""
    was = fields_of(before, keys, part) if before else {}
    fields = fields_of(after, keys, part)
    changed = {path for path, value in fields.items() if was.get(path, _MISSING) != value}
    gone = set(was) - set(fields)
    entries = list(((before or {}).get("metadata") or {}).get("managedFields") or ())
    if not changed and not gone:
        return with_managers(after, entries)
    kept, mine = [], set(changed)
    for each in entries:
        same_part = each.get("subresource", "") == part
        if _is(each, manager, "Update", part):
            mine |= paths_in(each["fieldsV1"]) - gone
        elif same_part:
            left = paths_in(each["fieldsV1"]) - gone - {path for path in changed if path in was}
            if left:
                kept.append({**each, "fieldsV1": _as_tree(left)})
        else:
            kept.append(each)
    if mine:
        kept.append(_entry(manager, "Update", after, mine, now, part))
    return with_managers(after, kept)


def with_managers(found: Json, entries: list[Json]) -> Json:
    metadata = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
    return {**found, "metadata": {**metadata, **({"managedFields": entries} if entries else {})}}


def paths_in(tree: Json) -> set[Path]:
    """Fields of a `fieldsV1`."""
    found: set[Path] = set()
    for step, inner in tree.items():
        if step == "." or not inner:
            found.add((step,))
        found |= {(step, *path) for path in paths_in(inner)}
    return found


_MISSING = object()


def _plain(found: Json) -> Json:
    return with_managers(found, [])


def _is(entry: Json, manager: str, operation: str, part: str) -> bool:
    return (entry["manager"], entry["operation"], entry.get("subresource", "")) == (manager, operation, part)


def _entry(manager: str, operation: str, found: Json, paths: Iterable[Path], now: str, part: str) -> Json:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": found["apiVersion"],
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": _as_tree(paths),
        **({"subresource": part} if part else {}),
    }


def _as_tree(paths: Iterable[Path]) -> Json:
    tree: Json = {}
    for path in sorted(paths):
        at = tree
        for step in path:
            at = at.setdefault(step, {})
    return tree


def _collect(value: Any, path: Path, keys: Keys, result: dict[Path, Any]) -> None:
    if not isinstance(value, dict) or not value:
        result[path] = value
        return
    for name, inner in value.items():
        here = (*path, f"f:{name}")
        by = keys(path, name, inner) if isinstance(inner, list) else ()
        # An empty list of items that are managed one by one says nothing of any.
        if by == ("",):
            for each in inner:
                result[*here, f"v:{json.dumps(each)}"] = each
        elif by:
            for each in inner:
                item = (*here, _key_step(by, each))
                result[*item, "."] = {key: each[key] for key in by if key in each}
                _collect(each, item, keys, result)
        else:
            _collect(inner, here, keys, result)


def _key_step(by: tuple[str, ...], item: Any) -> str:
    if not isinstance(item, dict) or by[0] not in item:
        raise Refused(400, "BadRequest", f"an item of a list lacks its key {by[0]}")
    return "k:" + json.dumps({key: item[key] for key in by if key in item}, sort_keys=True, separators=(",", ":"))


def _conflict(contested: list[tuple[Json, list[Path]]]) -> Refused:
    causes, lines = [], []
    for entry, paths in contested:
        who = f'conflict with "{entry["manager"]}"'
        if entry["operation"] == "Update":
            who += f" using {entry['apiVersion']}"
        for path in paths:
            causes.append({"reason": "FieldManagerConflict", "message": who, "field": _dotted(path)})
        lines.append(f"{who}: {', '.join(_dotted(path) for path in paths)}")
    count = len(causes)
    line = f"Apply failed with {count} conflict{'s' if count > 1 else ''}: {'; '.join(lines)}"
    return Refused(409, "Conflict", line, {"causes": causes})


def _dotted(path: Path) -> str:
    words = []
    for step in path:
        kind, _, text = step.partition(":")
        if kind == "f":
            words.append(f".{text}")
        elif kind == "k":
            words.append("[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(text).items()) + "]")
        elif kind == "v":
            words.append(f"[={text}]")
    return "".join(words)


def _matches(item: Any, step: str) -> bool:
    kind, _, text = step.partition(":")
    wanted = json.loads(text)
    if kind == "v":
        return bool(item == wanted)
    return isinstance(item, dict) and all(item.get(key) == value for key, value in wanted.items())


def _set(found: Any, path: Path, value: Any) -> None:
    """Write a field, making what leads to it."""
    at = found
    for number, step in enumerate(path):
        last = number == len(path) - 1
        if step == ".":
            return
        if step.startswith("f:"):
            name = step[2:]
            if last:
                # An empty object among the wanted says that it is there, not that nothing is in it.
                if not (value == {} and isinstance(at.get(name), dict)):
                    at[name] = copy.deepcopy(value)
                return
            following = path[number + 1]
            kind: type = list if following[:2] in ("k:", "v:") else dict
            if not isinstance(at.get(name), kind):
                at[name] = kind()
            at = at[name]
            continue
        item = next((each for each in at if _matches(each, step)), None)
        if item is None:
            item = json.loads(step[2:])
            at.append(item)
        if last:
            return
        at = item


def _is_key(path: Path) -> bool:
    """Whether a field is a key of its list's item, which goes with the item only."""
    return len(path) > 1 and path[-2][:2] == "k:" and path[-1][2:] in json.loads(path[-2][2:])


def _remove(found: Any, path: Path) -> None:
    """Take a field away, if it is there."""
    at, holders = found, []
    steps = path[:-1] if path[-1] == "." else path
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        if isinstance(at, dict) and step.startswith("f:"):
            if step[2:] not in at:
                return
            if last:
                del at[step[2:]]
                break
            holders.append((at, step[2:]))
            at = at[step[2:]]
        elif isinstance(at, list):
            place = next((place for place, each in enumerate(at) if _matches(each, step)), None)
            if place is None:
                return
            if last:
                del at[place]
                break
            at = at[place]
    for holder, name in reversed(holders):
        if holder[name] in ({}, []):
            del holder[name]
        else:
            break
