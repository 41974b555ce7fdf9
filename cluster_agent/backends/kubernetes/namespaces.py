"""Namespaces that an agent is to look after and cannot: a line in the log when that begins and when it ends, and a
metric as long as it is so.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog
from prometheus_client import Gauge

from cluster_agent.backend_settings import KubernetesBackendSettings, OwnNodes
from cluster_agent.kubernetes.api_server import Query
from cluster_agent.kubernetes.capacity import NodeFacts, amounts, node_facts
from cluster_agent.kubernetes.resources import Json

_log = structlog.get_logger()


def namespaces_of(settings: KubernetesBackendSettings) -> tuple[str, ...]:
    """Those that are followed, each by itself; an empty name stands for all there are."""
    return settings.namespaces or (settings.namespace,)


class NamespaceNews:
    """Logs what is new of namespaces that cannot be read; from any thread.

    Args:
        names: of all that are looked after.
        gauge: of those that cannot be read, with their names.
    """

    def __init__(self, names: Sequence[str], gauge: Gauge) -> None:
        self._gauge = gauge
        self._lock = threading.Lock()
        self._unread: dict[str, dict[str, str]] = {name: {} for name in names if name}
        for name in self._unread:
            gauge.labels(name).set(0)

    def poll(self, whose: str, unread: Mapping[str, str]) -> None:
        """Take note why namespaces cannot be read, by their names; `whose` says of which objects."""
        with self._lock:
            for name, reasons in self._unread.items():
                before, now = reasons.get(whose, ""), unread.get(name, "")
                if now and not before:
                    _log.warning(
                        "namespace-left-out",
                        namespace=name,
                        objects=whose,
                        error=now,
                        hint="is there such a namespace, and the agent's Role in it? The others go on",
                    )
                elif before and not now:
                    _log.info("namespace-looked-after", namespace=name, objects=whose)
                if now:
                    reasons[whose] = now
                else:
                    reasons.pop(whose, None)
                self._gauge.labels(name).set(1 if reasons else 0)

    @property
    def lines(self) -> list[str]:
        """Of each namespace that is left out, why."""
        with self._lock:
            return [f"namespace {name}: {line}" for name, why in self._unread.items() for line in why.values()]


# Nodes of an agent's own: what is free there is known without a look at the pods of others.
#
# Pods of namespaces that the agent has no rights in cannot be seen, neither one by one nor in sum. On nodes that are
# kept for the namespaces that it looks after there are none, but for daemons, whose part an operator states.


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
    """What counts as free, in a line; empty where that needs no words."""
    if own is None:
        return ""
    reserved = ", ".join(f"{name} {amount}" for name, amount in sorted(own.reserved.items()))
    less = f" and {reserved} for daemons on each" if reserved else ""
    return (
        f"free is what nodes with {own.selector} have, less the pods of {', '.join(namespaces)}{less}: pods of other"
        " namespaces are not seen"
    )
