"""Nodes that a pod may be on by what it and they say: selectors, affinity, taints; not by their room.

Of affinity: that to nodes, required and preferred. Affinity between pods and spreading are not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]


def refusal(pod: Json, node: Json) -> str:
    """Why a pod may not be on a node, in kube-scheduler's words; empty where it may."""
    spec, node_spec = pod.get("spec") or {}, node.get("spec") or {}
    tolerations = spec.get("tolerations") or ()
    if node_spec.get("unschedulable") and not _tolerates(
        tolerations, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return "node(s) were unschedulable"
    for taint in node_spec.get("taints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not _tolerates(tolerations, taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    labels = node["metadata"].get("labels") or {}
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if any(labels.get(name) != value for name, value in (spec.get("nodeSelector") or {}).items()) or (
        affinity and not any(_matches(term, node) for term in affinity.get("nodeSelectorTerms") or ())
    ):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def preference(pod: Json, node: Json) -> int:
    """How much a pod would like a node: the weights of its preferred terms, less the taints that advise against it."""
    spec = pod.get("spec") or {}
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "preferredDuringSchedulingIgnoredDuringExecution"
    )
    liked = sum(int(term["weight"]) for term in affinity or () if _matches(term["preference"], node))
    taints = (node.get("spec") or {}).get("taints") or ()
    soft = [taint for taint in taints if taint.get("effect") == "PreferNoSchedule"]
    return liked - sum(1 for taint in soft if not _tolerates(spec.get("tolerations") or (), taint))


def _tolerates(tolerations: Iterable[Json], taint: Json) -> bool:
    return any(
        each.get("effect") in (None, "", taint.get("effect"))
        and (
            (each.get("operator") == "Exists" and each.get("key") in (None, "", taint["key"]))
            or (each.get("key") == taint["key"] and each.get("value", "") == taint.get("value", ""))
        )
        for each in tolerations
    )


def _matches(term: Json, node: Json) -> bool:
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    expressions, of_fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not of_fields:
        return False  # an empty term matches nothing
    return all(_holds(each, labels) for each in expressions) and all(_holds(each, fields) for each in of_fields)


def _holds(requirement: Json, values: Json) -> bool:
    key, operator = requirement["key"], requirement["operator"]
    stated: Sequence[str] = requirement.get("values") or ()
    value = values.get(key)
    if operator == "In":
        return value in stated
    if operator == "NotIn":
        return value not in stated
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if value is None or not str(value).lstrip("-").isdigit() or operator not in ("Gt", "Lt"):
        return False
    return int(value) > int(stated[0]) if operator == "Gt" else int(value) < int(stated[0])
