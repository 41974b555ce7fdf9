"""Bodies that make no sense: refused with a Status, never a failure of the server, and nothing is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from apiserver.serving import KubeServer
from contract_client import APPLY, MERGE, Json, Server
from hypothesis import given, settings
from hypothesis import strategies as st
from test_contract_custom import CRD, GROUP

WORDS = st.sampled_from(
    ["metadata", "name", "spec", "status", "containers", "template", "labels", "size", "parts", "hard", "ports", "env"]
)
LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "A b", "1Gi"]) | st.floats(0, 1)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=12
)
PATHS = ["pods", "services", "secrets", "resourcequotas", "configmaps", "jobs", "leases", "things"]


@pytest.fixture(scope="module")
def plain() -> Iterator[Server]:
    with KubeServer().running() as running:
        server = Server(running.address)
        assert server.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)[0] == 201
        yield server


def path_of(server: Server, plural: str) -> str:
    group = {"jobs": "apis/batch", "leases": "apis/coordination.k8s.io", "things": f"apis/{GROUP}"}.get(plural, "api")
    return f"/{group}/v1/namespaces/{server.namespace}/{plural}"


@pytest.mark.parametrize("plural", PATHS)
@given(body=VALUES, spec=VALUES)
@settings(max_examples=60)
def test_what_is_made(plain: Server, plural: str, body: Any, spec: Any) -> None:
    for sent in (body, {"metadata": {"name": "a"}, "spec": spec}, {"metadata": {"generateName": "a-"}, "data": spec}):
        code, found = plain.ask("POST", f"{path_of(plain, plural)}?dryRun=All", sent)
        assert code == 201 or (400 <= code < 500 and found["kind"] == "Status" and found["message"])


@pytest.mark.parametrize("plural", ["pods", "jobs", "things"])
@pytest.mark.parametrize(
    "kind", [MERGE, APPLY, "application/json-patch+json", "application/strategic-merge-patch+json"]
)
@given(patch=VALUES, spec=VALUES)
@settings(max_examples=40)
def test_what_is_changed(plain: Server, plural: str, kind: str, patch: Any, spec: Any) -> None:
    path = path_of(plain, plural)
    container = {"name": "main", "image": "none"}
    pod: Json = {"restartPolicy": "Never", "containers": [container]}
    made = {"pods": pod, "jobs": {"template": {"spec": pod}}, "things": {"size": 2}}[plural]
    plain.ask("POST", path, {"metadata": {"name": "a"}, "spec": made})
    _, before = plain.ask("GET", f"{path}/a")
    for sent in (patch, {"spec": spec}, [{"op": "add", "path": "/spec", "value": spec}]):
        code, found = plain.ask("PATCH", f"{path}/a?dryRun=All&fieldManager=x", sent, kind)
        assert code == 200 or (400 <= code < 500 and found["kind"] == "Status" and found["message"])
    assert plain.ask("GET", f"{path}/a")[1] == before
