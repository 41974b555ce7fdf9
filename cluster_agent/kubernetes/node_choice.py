"""Choice of nodes: which of them a pod may come to by its word and theirs, whatever room they have; pure.

Tolerations, `nodeSelector` and required node affinity, as kube-scheduler reads them. What is only preferred is left to
it, and so are affinity between pods, spreading, and volumes that are on some nodes only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cluster_agent.kubernetes.capacity import NodeFacts, tolerates
from cluster_agent.kubernetes.resources import Json, as_dict, dicts_in


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """What a pod's spec says of nodes.

    Attributes:
        selector: labels that a node has to have.
        terms: of the required affinity, of which one has to hold; None where nothing is required.
    """

    tolerations: tuple[Json, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Json, ...] | None = None

    @property
    def key(self) -> str:
        """The same of all that choose alike."""
        return repr((self.tolerations, self.selector, self.terms))

    def allows(self, node: NodeFacts) -> bool:
        """Whether a pod may come to a node; to one that is cordoned none may."""
        if node.is_cordoned or not all(tolerates(self.tolerations, taint) for taint in node.taints):
            return False
        labels = dict(node.labels)
        if any(labels.get(name) != value for name, value in self.selector):
            return False
        return self.terms is None or any(_matches(term, labels, node.name) for term in self.terms)


def node_choice(spec: Json) -> NodeChoice:
    """What a pod's spec, or a template's, says of nodes; what makes no sense allows none."""
    tolerations = tuple(dicts_in(spec.get("tolerations")))
    selector = as_dict(spec.get("nodeSelector"))
    affinity = as_dict(as_dict(spec.get("affinity")).get("nodeAffinity"))
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = None if required is None else tuple(_list(as_dict(required).get("nodeSelectorTerms")))
    return NodeChoice(tolerations, tuple(sorted((str(name), str(value)) for name, value in selector.items())), terms)


def _matches(term: Any, labels: Mapping[str, str], name: str) -> bool:
    """Whether a term of an affinity holds; an empty one does of no node."""
    of_labels = _list(as_dict(term).get("matchExpressions"))
    of_fields = _list(as_dict(term).get("matchFields"))
    if not of_labels and not of_fields:
        return False
    fields = {"metadata.name": name}
    return all(_holds(each, labels) for each in of_labels) and all(_holds(each, fields) for each in of_fields)


def _holds(requirement: Any, values: Mapping[str, str]) -> bool:
    found = as_dict(requirement)
    value, stated = values.get(str(found.get("key"))), [str(each) for each in _list(found.get("values"))]
    if value is None:
        return found.get("operator") in ("NotIn", "DoesNotExist")
    rule = _RULES.get(str(found.get("operator")))
    return found.get("operator") == "Exists" or (rule is not None and rule(value, stated))


def _difference(value: str, other: Sequence[str]) -> int:
    """By how much a label is above the one number that is stated; 0 where one of them is no number."""
    try:
        (than,) = other
        return int(value) - int(than)
    except ValueError:
        return 0


_RULES: Final[Mapping[str, Callable[[str, Sequence[str]], bool]]] = {
    "In": lambda value, stated: value in stated,
    "NotIn": lambda value, stated: value not in stated,
    "Gt": lambda value, stated: _difference(value, stated) > 0,
    "Lt": lambda value, stated: _difference(value, stated) < 0,
}
"""By operator: what a label that is there has to be."""


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []
