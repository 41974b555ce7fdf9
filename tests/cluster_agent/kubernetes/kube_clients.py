"""Clients of the test API server, and objects to give it."""

from collections.abc import Callable
from typing import Any

from apiserver.serving import KubeServer
from kubernetes.client import ApiClient, Configuration

from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.errors import ApiError

__all__ = ["api_of", "pod"]


def api_of(
    server: KubeServer,
    bearer: str = "",
    request_seconds: float = 10.0,
    may_write: Callable[[], bool] = lambda: True,
    on_error: Callable[[ApiError], None] = lambda _: None,
) -> ApiServer:
    configuration = Configuration(host=server.address)
    configuration.retries = False
    if bearer:
        configuration.api_key["BearerToken"] = f"Bearer {bearer}"
    return ApiServer(ApiClient(configuration), request_seconds, may_write=may_write, on_error=on_error)


def pod(name: str, namespace: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, **({"labels": labels} if labels else {})},
        "spec": {"containers": [{"name": "main", "image": "none"}], **spec},
        "status": {"phase": "Pending"},
    }
