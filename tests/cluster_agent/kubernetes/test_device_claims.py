"""Devices that claims hold are GPUs that a node has no more: which claims count, where, and how often."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_agent.kubernetes.capacity import NodeFacts, free_amounts
from cluster_agent.kubernetes.device_claims import (
    ClaimFacts,
    SliceFacts,
    claim_facts,
    less_taken,
    served_version,
    slice_facts,
    taken_devices,
)

Json = dict[str, Any]
NVIDIA = "gpu.nvidia.com"


def held(device: str, driver: str = NVIDIA, pool: str = "a", **more: Any) -> Json:
    return {"request": "gpu", "driver": driver, "pool": pool, "device": device, **more}


def on(node: str) -> Json:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {"nodeSelectorTerms": [{"matchFields": fields}]}


def claim(*results: Json, selector: Json | None = None, **annotations: str) -> Json:
    allocation: Json = {"devices": {"results": list(results)}}
    if selector is not None:
        allocation["nodeSelector"] = selector
    return {"metadata": {"name": "c", "annotations": annotations}, "status": {"allocation": allocation}}


def offered(*devices: str, node: str = "a", pool: str = "a", driver: str = NVIDIA) -> Json:
    names = [{"name": device} for device in devices]
    return {"spec": {"driver": driver, "nodeName": node, "pool": {"name": pool}, "devices": names}}


def node(gpus: int = 4, name: str = "a") -> NodeFacts:
    return NodeFacts(name, (("cpu", 8000), ("nvidia.com/gpu", gpus)), (), is_cordoned=False, gpu_type="")


def taken(*claims: Json, slices: tuple[Json, ...] = ()) -> dict[str, dict[str, int]]:
    facts, places = map(claim_facts, claims), map(slice_facts, slices)
    return taken_devices([each for each in facts if each], [each for each in places if each])


def test_a_device_that_a_claim_holds_is_one_gpu_less_where_its_slice_is() -> None:
    found = taken(claim(held("gpu-0"), held("gpu-1")), slices=(offered("gpu-0", "gpu-1", node="b"),))
    assert found == {"b": {"nvidia.com/gpu": 2}}
    (left,) = less_taken([node(name="b")], found)
    assert free_amounts([left], [])["b"] == {"cpu": 8000, "nvidia.com/gpu": 2}


def test_where_no_slice_says_it_the_claim_s_own_node_counts_and_else_none() -> None:
    assert taken(claim(held("gpu-0"), selector=on("b"))) == {"b": {"nvidia.com/gpu": 1}}
    assert taken(claim(held("gpu-0"))) == {}
    two = {"nodeSelectorTerms": [*on("a")["nodeSelectorTerms"], *on("b")["nodeSelectorTerms"]]}
    assert taken(claim(held("gpu-0"), selector=two)) == {}
    label = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]}
    assert taken(claim(held("gpu-0"), selector=label)) == {}


def test_a_device_that_several_claims_hold_counts_once() -> None:
    assert taken(claim(held("gpu-0"), selector=on("a")), claim(held("gpu-0"), selector=on("a"))) == {
        "a": {"nvidia.com/gpu": 1}
    }


@pytest.mark.parametrize(
    "harmless",
    [
        claim(held("nic-0", driver="dra.example.com"), selector=on("a")),
        claim(held("gpu-0", adminAccess=True), selector=on("a")),
        claim(held("gpu-0"), selector=on("a"), **{"resource.kubernetes.io/extended-resource-claim": "true"}),
        {"metadata": {"name": "waits"}, "status": {}},
        {"metadata": {"name": "new"}},
        {"metadata": {"name": "odd"}, "status": {"allocation": {"devices": {"results": "gpu-0"}}}},
        {"metadata": {"name": "odd"}, "status": {"allocation": [1]}},
        {"metadata": {"name": "odd"}, "status": {"allocation": {"devices": {"results": [7, {"driver": ["x"]}]}}}},
    ],
)
def test_what_holds_no_gpu_of_a_node_takes_none(harmless: Json) -> None:
    assert claim_facts(harmless) is None


def test_devices_may_have_nodes_of_their_own_also_in_the_older_form() -> None:
    spec = {"driver": NVIDIA, "pool": {"name": "p"}, "perDeviceNodeSelection": True}
    devices = [{"name": "x", "nodeName": "a"}, {"name": "y", "basic": {"nodeName": "b"}}, {"name": "z"}]
    found = slice_facts({"spec": {**spec, "devices": devices}})
    assert found == SliceFacts((((NVIDIA, "p", "x"), "a"), ((NVIDIA, "p", "y"), "b")))


@pytest.mark.parametrize(
    "odd", [{}, {"spec": 3}, offered("nic-0", driver="dra.example.com"), {"spec": {"driver": NVIDIA, "allNodes": True}}]
)
def test_a_slice_without_gpus_of_a_node_says_nothing(odd: Json) -> None:
    assert slice_facts(odd) is None


def test_a_node_whose_gpus_only_slices_offer_has_none_to_give_and_one_that_cannot_be_read_stays_so() -> None:
    bare = NodeFacts("a", (("cpu", 8000),), (), is_cordoned=False, gpu_type="")
    unread = NodeFacts("a", None, (), is_cordoned=False, gpu_type="")
    assert less_taken([bare, unread], {"a": {"nvidia.com/gpu": 1}}) == [bare, unread]


@pytest.mark.parametrize(
    ("versions", "best"),
    [
        (["v1beta1", "v1", "v1beta2"], "v1"),
        (["v1beta1", "v1beta2"], "v1beta2"),
        (["v1alpha3", "v1beta1"], "v1beta1"),
        (["v1alpha3"], ""),
        ([], ""),
    ],
)
def test_the_best_version_that_is_understood_is_asked_for(versions: list[str], best: str) -> None:
    assert served_version({"versions": [{"version": version} for version in versions]}) == best


def test_a_group_that_makes_no_sense_has_no_version() -> None:
    assert served_version({}) == served_version({"versions": "v1"}) == served_version({"versions": ["v1"]}) == ""


DEVICES = st.tuples(st.just(NVIDIA), st.sampled_from(["p", "q"]), st.sampled_from(["0", "1", "2"]))
NODES = st.sampled_from(["", "a", "b"])
CLAIMS = st.lists(st.builds(ClaimFacts, st.frozensets(DEVICES, min_size=1), NODES), max_size=6)
PLACES = st.dictionaries(DEVICES, st.sampled_from(["a", "b"]), max_size=6)


@given(CLAIMS, PLACES, st.integers(0, 4))
def test_no_node_loses_more_than_its_devices_nor_gains_any(
    claims: list[ClaimFacts], places: dict[Any, str], gpus: int
) -> None:
    slices = [SliceFacts(((device, where),)) for device, where in places.items()]
    found = taken_devices(claims, slices)
    everything = {device for each in claims for device in each.devices}
    for name in ("a", "b"):
        here = found.get(name, {}).get("nvidia.com/gpu", 0)
        surely = {device for device in everything if places.get(device) == name}
        assert len(surely) <= here <= len(everything)
        (left,) = less_taken([node(gpus, name)], found)
        assert dict(left.allocatable or ())["nvidia.com/gpu"] == max(0, gpus - here)
        assert dict(left.allocatable or ())["cpu"] == 8000
    # One claim more never gives room.
    for count in range(len(claims)):
        fewer = taken_devices(claims[:count], slices)
        assert all(found.get(where, {}).get("nvidia.com/gpu", 0) >= n["nvidia.com/gpu"] for where, n in fewer.items())
