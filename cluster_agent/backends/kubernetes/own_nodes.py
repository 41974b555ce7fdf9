"""Nodes of an agent's own: what is free there is known without a look at the pods of others.

Pods of namespaces that the agent has no rights in cannot be seen, neither one by one nor in sum. On nodes that are kept
for the namespaces that it looks after there are none, but for daemons, whose part an operator states.
"""

from __future__ import annotations

from dataclasses import replace

from cluster_agent.backend_settings import OwnNodes
from cluster_agent.kubernetes.api_server import Json, Query
from cluster_agent.kubernetes.capacity import NodeFacts, amounts, node_facts


def selector_of(own: OwnNodes | None) -> Query | None:
    """The nodes to follow; None: all."""
    return None if own is None else {"labelSelector": own.selector}


def facts_of(node: Json, own: OwnNodes | None) -> NodeFacts:
    """What is kept of a node; of one of its own, less what daemons take."""
    facts = node_facts(node)
    if own is None or facts.allocatable is None:
        return facts
    reserved = amounts(dict(own.reserved))
    left = tuple((name, max(0, amount - reserved.get(name, 0))) for name, amount in facts.allocatable)
    return replace(facts, allocatable=left)


def meant_by_free(own: OwnNodes | None, namespaces: tuple[str, ...]) -> str:
    """What it means that something is free, in a line; empty where nothing has to be said."""
    if own is None:
        return ""
    reserved = ", ".join(f"{name} {amount}" for name, amount in sorted(own.reserved.items()))
    less = f" and {reserved} for daemons on each" if reserved else ""
    return (
        f"free is what nodes with {own.selector} have, less the pods of {', '.join(namespaces)}{less}: pods of other"
        " namespaces are not seen"
    )
