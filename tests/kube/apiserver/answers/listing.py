"""Lists, in pages of the state that the first one showed."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from apiserver.registry import Served
from apiserver.selection import selected
from apiserver.store import Refused, Store

Json = dict[str, Any]


def listed(store: Store, served: Served, namespace: str, query: Mapping[str, str]) -> Json:
    """A list as its query asks for it.

    Raises:
        Refused: 400, the query makes no sense; 410, its page is of a state that is no longer kept; 504, the version
            that it asks for is of the future.
    """
    matches = selected(served.plural, query.get("labelSelector", ""), query.get("fieldSelector", ""), served.fields)
    version, after = store.version, ("", "")
    if query.get("continue"):
        version, after = _page(query["continue"])
        if version < store.compacted:
            line = "The provided continue parameter is too old to display a consistent list result."
            raise Refused(410, "Expired", line)
    else:
        _check_version(store, query.get("resourceVersion", ""))
    table = store.objects.get(served.table, {}) if version == store.version else store.at(served.table, version)
    limit = int(query.get("limit") or 0)
    keys = sorted(key for key in table if key > after and (not namespace or key[0] == namespace))
    items, rest = [], 0
    for number, key in enumerate(keys):
        if matches(table[key]):
            items.append((key, table[key]))
            if limit and len(items) == limit:
                rest = len(keys) - number - 1
                break
    metadata: Json = {"resourceVersion": str(version)}
    if rest:
        token = json.dumps({"rv": version, "start": items[-1][0]}).encode()
        metadata["continue"] = base64.urlsafe_b64encode(token).decode()
        metadata["remainingItemCount"] = rest
    found = {"kind": f"{served.kind}List", "apiVersion": served.api_version, "metadata": metadata}
    return {**found, "items": [item for _, item in items]}


def _page(token: str) -> tuple[int, tuple[str, str]]:
    try:
        at = json.loads(base64.urlsafe_b64decode(token))
        namespace, name = at["start"]
        return int(at["rv"]), (namespace, name)
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(400, "BadRequest", "continue key is not valid") from error


def _check_version(store: Store, stated: str) -> None:
    if stated not in ("", "0") and int(stated) > store.version:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        line = f"Too large resource version: {stated}, current: {store.version}"
        raise Refused(504, "Timeout", line, {"causes": [cause], "retryAfterSeconds": 1})
