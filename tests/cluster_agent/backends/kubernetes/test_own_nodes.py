"""Nodes of an agent's own, and the settings that name them and namespaces: what is free there, what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cluster_agent.backend_settings import KubernetesBackendSettings, OwnNodes
from cluster_agent.backends.kubernetes.cluster_watch import (
    NamespaceNews,
    facts_of,
    meant_by_free,
    namespaces_of,
    selector_of,
)
from cluster_agent.kubernetes.capacity import node_facts
from cluster_agent.telemetry import AgentTelemetry

OWN = OwnNodes(selector="pool=research", reserved={"cpu": "500m", "memory": "1Gi"})


def node(**allocatable: str) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "status": {"allocatable": allocatable}}


def test_what_daemons_take_is_not_free() -> None:
    found = facts_of(node(cpu="8", memory="32Gi", pods="110"), OWN).allocatable
    assert dict(found or ()) == {"cpu": 7500, "memory": 31 << 30, "pods": 110}


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_nothing_becomes_less_than_nothing_and_nothing_more_than_there_is(cpu: int, reserved: int) -> None:
    own = OwnNodes(selector="a", reserved={"cpu": f"{reserved}m"})
    ((_, left),) = facts_of(node(cpu=f"{cpu}m"), own).allocatable or ()
    assert left == max(0, cpu - reserved)


def test_of_all_nodes_nothing_is_taken_and_one_that_cannot_be_read_stays_so() -> None:
    assert facts_of(node(cpu="8"), None) == node_facts(node(cpu="8"))
    assert facts_of(node(cpu="x"), OWN).allocatable is None
    assert selector_of(None) is None
    assert meant_by_free(None, ("team",)) == ""


def test_it_is_said_what_free_means() -> None:
    assert selector_of(OWN) == {"labelSelector": "pool=research"}
    line = meant_by_free(OWN, ("team", "lab"))
    assert line.startswith("free is what nodes with pool=research have, less the pods of team, lab and cpu 500m")
    assert line.endswith("pods of other namespaces are not seen")


@pytest.mark.parametrize(
    ("stated", "names"),
    [({}, ("",)), ({"namespace": "team"}, ("team",)), ({"namespaces": ["team", "lab"]}, ("team", "lab"))],
    ids=["all", "one", "several"],
)
def test_namespaces_are_all_one_or_several(stated: dict[str, Any], names: tuple[str, ...]) -> None:
    assert namespaces_of(KubernetesBackendSettings.model_validate(stated)) == names


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"namespace": "a", "namespaces": ["b"]}, "both say whose jobs"),
        ({"namespaces": ["a", "a"]}, "a is there twice"),
        ({"namespaces": ["Team"]}, "'Team' is no namespace"),
        ({"namespaces": [""]}, "'' is no namespace"),
        ({"namespaces": ["a" * 64]}, "is no namespace"),
        ({"own_nodes": {"selector": "a=b"}}, "own_nodes needs namespaces"),
        ({"namespaces": ["a"], "own_nodes": {"selector": ""}}, "at least 1 character"),
        ({"namespaces": ["a"], "own_nodes": {"selector": "a", "reserved": {"cpu": "-1"}}}, "'-1' is no quantity"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused(stated: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        KubernetesBackendSettings.model_validate(stated)


def test_a_namespace_that_cannot_be_read_is_counted_until_everything_of_it_can() -> None:
    telemetry = AgentTelemetry()
    news = NamespaceNews(("team", "lab"), telemetry.namespace_unread)

    def state(name: str) -> float | None:
        return telemetry.registry.get_sample_value("fedl2_agent_namespace_unread_state", {"namespace": name})

    assert (state("team"), state("lab")) == (0.0, 0.0)
    for _ in range(2):
        news.poll("ElasticTargets", {"lab": "refused"})
        news.poll("TrainingJobs", {"lab": "refused"})
    assert (state("team"), state("lab")) == (0.0, 1.0)
    news.poll("ElasticTargets", {})
    assert state("lab") == 1.0
    news.poll("TrainingJobs", {})
    assert state("lab") == 0.0
