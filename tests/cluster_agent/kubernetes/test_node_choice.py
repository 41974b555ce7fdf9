"""Nodes that a pod may come to: as the stand-in for kube-scheduler has it, which was written for itself."""

from typing import Any

import pytest
from apiserver.controllers.fitting import refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_agent.kubernetes.capacity import NodeChoice, node_choice, node_facts

Json = dict[str, Any]
KEYS, VALUES = st.sampled_from(["zone", "gpu", "size"]), st.sampled_from(["a", "b", "1", "20", ""])
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])


@st.composite
def expressions(draw: st.DrawFn) -> Json:
    key, operator = draw(KEYS), draw(OPERATORS)
    if operator in ("Gt", "Lt"):
        return {"key": key, "operator": operator, "values": [str(draw(st.integers(-3, 30)))]}
    values = draw(st.lists(VALUES, min_size=1, max_size=2)) if operator.endswith("In") else []
    return {"key": key, "operator": operator, "values": values}


@st.composite
def pod_specs(draw: st.DrawFn) -> Json:
    spec: Json = {"nodeSelector": draw(st.dictionaries(KEYS, VALUES, max_size=1))}
    if draw(st.booleans()):
        names = [{"key": "metadata.name", "operator": "In", "values": [draw(st.sampled_from("nm"))]}]
        terms = st.fixed_dictionaries(
            {"matchExpressions": st.lists(expressions(), max_size=2)},
            optional={"matchFields": st.just(names)},
        )
        required = {"nodeSelectorTerms": draw(st.lists(terms, max_size=2))}
        # Terms that hold for none allow none; an affinity without any is refused by the server.
        if required["nodeSelectorTerms"]:
            key = "requiredDuringSchedulingIgnoredDuringExecution"
            spec["affinity"] = {"nodeAffinity": {key: required}}
    tolerations = st.fixed_dictionaries(
        {"key": KEYS}, optional={"operator": st.just("Exists"), "effect": st.just("NoSchedule")}
    )
    spec["tolerations"] = draw(st.lists(tolerations, max_size=2))
    return spec


@st.composite
def nodes(draw: st.DrawFn) -> Json:
    effects = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
    taints = st.lists(st.fixed_dictionaries({"key": KEYS, "value": st.just(""), "effect": effects}), max_size=1)
    labels = draw(st.dictionaries(KEYS, VALUES, max_size=3))
    return {"metadata": {"name": "n", "labels": labels}, "spec": {"taints": draw(taints)}}


@pytest.mark.heavy
@given(pod_specs(), nodes())
@settings(deadline=None, max_examples=500)
def test_it_allows_what_the_scheduler_s_stand_in_does(spec: Json, node: Json) -> None:
    assert node_choice(spec).allows(node_facts(node)) == (refusal({"spec": spec}, node) == "")


def required(*terms: Any) -> Json:
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
        }
    }


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        (required({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}]}), False),
        (required({"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["3"]}]}), True),
        (required({"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["3"]}]}), False),
        # What makes no sense allows nothing.
        (required(), False),
        (required({}), False),
        (required(7), False),
        (required({"matchExpressions": [{"key": "zone", "operator": "Near", "values": ["a"]}]}), False),
        (required({"matchExpressions": [{"key": "size", "operator": "Lt", "values": []}]}), False),
        ({"tolerations": "all", "nodeSelector": None, "affinity": []}, True),
    ],
)
def test_what_is_said_counts_and_what_makes_no_sense_allows_none(spec: Json, allowed: bool) -> None:
    node = {"metadata": {"name": "n", "labels": {"zone": "a", "size": "4"}}}
    assert node_choice(spec).allows(node_facts(node)) is allowed


def test_to_a_cordoned_node_none_may_come_and_whoever_chooses_alike_has_one_key() -> None:
    cordoned = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}}
    assert not NodeChoice(({"operator": "Exists"},)).allows(node_facts(cordoned))
    assert (
        node_choice({"nodeSelector": {"a": "1", "b": "2"}}).key
        == node_choice({"nodeSelector": {"b": "2", "a": "1"}}).key
    )
    assert node_choice({"nodeSelector": {"a": "1"}}).key != node_choice({}).key
