"""Tables in place of objects, for clients that ask for them, as `kubectl get` does."""

from __future__ import annotations

from typing import Any

from apiserver.answers.columns import columns_of
from apiserver.registry import Served

Json = dict[str, Any]


def wants_table(accept: str) -> bool:
    """Whether a client would rather have a table than anything else that this server has."""
    first = accept.partition(",")[0].replace(" ", "")
    return "as=Table" in first and "g=meta.k8s.io" in first


def table_of(served: Served, found: list[Json], metadata: Json, now: float, include: str, *, head: bool = True) -> Json:
    """Objects as a table.

    Args:
        now: Unix seconds, from which ages count.
        include: what rows have of their object: None, Metadata or Object.
        head: whether the columns are described; of a watch's tables only the first does.
    """
    columns = columns_of(served.table, served.columns, is_custom=served.is_custom)
    definitions = [
        {
            "name": column.name,
            "type": column.type,
            "format": "name" if number == 0 else "",
            "description": column.text,
            "priority": column.priority,
        }
        for number, column in enumerate(columns)
    ]
    rows = [
        {"cells": [column.cell(each, now) for column in columns], "object": _object(served, each, include)}
        for each in found
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions if head else None,
        "rows": rows,
    }


def _object(served: Served, found: Json, include: str) -> Json | None:
    if include == "None":
        return None
    if include == "Object":
        return {"kind": served.kind, "apiVersion": served.api_version, **found}
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": found["metadata"]}
