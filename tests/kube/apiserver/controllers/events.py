"""Events that stand-ins write, as `kubectl describe` shows them; the same again raises a count."""

from __future__ import annotations

import zlib
from typing import Any

from apiserver.store import Refused, Store

Json = dict[str, Any]


def record(
    store: Store, about: Json, kind: str, reason: str, text: str, component: str, *, warns: bool = False
) -> None:
    """Write an Event of an object, or raise the count of the one there is.

    Args:
        about: the object, with its metadata.
        kind: the object's.
    """
    metadata = about["metadata"]
    namespace = metadata.get("namespace") or "default"
    mark = zlib.crc32(f"{metadata['uid']} {reason} {text} {component}".encode())
    name, now = f"{metadata['name']}.{mark:08x}", store.now()
    try:
        found = store.get("events", namespace, name)
    except Refused:
        api_version = {"Job": "batch/v1"}.get(kind, "v1")
        store.create(
            "events",
            {
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {
                    "kind": kind,
                    "namespace": metadata.get("namespace", ""),
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "apiVersion": api_version,
                    "resourceVersion": metadata["resourceVersion"],
                },
                "reason": reason,
                "message": text,
                "type": "Warning" if warns else "Normal",
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "source": {"component": component},
                "reportingComponent": component,
                "reportingInstance": "",
                "eventTime": None,
            },
        )
        return
    store.replace("events", namespace, name, {**found, "count": found["count"] + 1, "lastTimestamp": now})
