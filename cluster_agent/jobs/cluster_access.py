"""Access of users' commands to a Kubernetes cluster: with their own kubeconfig, and by an agent's configuration.

An agent on Kubernetes has no port that users could ask. What it decided stands in the cluster, and in its state.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster_agent.errors import BadAgentConfig, ClusterRefused, ClusterUnreachable, JobRefused

if TYPE_CHECKING:
    from cluster_agent.backend_settings import KubernetesBackendSettings
    from cluster_agent.kubernetes.api_server import ApiServer

Config = Annotated[
    Path | None,
    typer.Option("--config", help="An agent's configuration (YAML): its cluster, its policy, and what it has seen."),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="Of a Kubernetes cluster; the configuration's, $KUBECONFIG or ~/.kube/config."),
]
Context = Annotated[str | None, typer.Option("--context", help="Of the kubeconfig; its current one unless given.")]

USUAL_POLICY = "set-taught"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that a command asks, with what a configuration says of its agent.

    `policy` advises; `trains` says whether TrainingJobs are decided about, as far as anybody knows.
    """

    api: ApiServer
    settings: KubernetesBackendSettings
    state_dir: Path | None
    policy: str
    trains: bool = True


@contextlib.contextmanager
def opened(config: Path | None, kubeconfig: Path | None, context: str | None) -> Iterator[Cluster]:
    """A cluster, for the length of a command.

    Raises:
        BadConfig: the configuration or the kubeconfig cannot be used.
        ClusterUnreachable, ClusterRefused: what the API server's own errors become.
    """
    from cluster_agent.backend_settings import KubernetesBackendSettings  # noqa: PLC0415  (brings pydantic)
    from cluster_agent.kubernetes.access import Access, clients_of_command  # noqa: PLC0415

    settings, state_dir, policy = KubernetesBackendSettings(), None, USUAL_POLICY
    if config is not None:
        settings, state_dir, policy = _configured(config)
    changes: dict[str, object] = {} if kubeconfig is None else {"kubeconfig": kubeconfig, "context": ""}
    changes |= {} if context is None else {"context": context}
    settings = settings.model_copy(update=changes)
    clients = clients_of_command(Access(settings.kubeconfig, settings.context), _say_refused)
    # Only now: who named no kubeconfig that is there waits for none of it.
    from cluster_agent.kubernetes.api_server import ApiServer  # noqa: PLC0415
    from cluster_agent.kubernetes.errors import ApiUnanswered, Forbidden, Unauthorized  # noqa: PLC0415

    api = ApiServer(clients, settings.request_seconds)
    try:
        yield Cluster(api, settings, state_dir, policy, trains=config is None or settings.training is not None)
    except ApiUnanswered as error:
        raise ClusterUnreachable(f"{error}; check the address and the network, or name another --context") from error
    except (Forbidden, Unauthorized) as error:
        raise ClusterRefused(
            f"{error}; ask for the rights of the role fedl2-advice, or name another --context"
        ) from error
    finally:
        api.close()


def _say_refused(reason: str) -> None:
    print(f"{reason}; the credentials from before are used", file=sys.stderr, flush=True)


def check_in_scope(cluster: Cluster, namespace: str) -> None:
    """Refuse a question about a namespace that the agent has nothing to do with.

    Raises:
        JobRefused: it has some namespaces, and this is none of them.
    """
    names = cluster.settings.namespaces
    if names and namespace not in names:
        raise JobRefused(f"namespace {namespace}: the agent looks after {', '.join(names)} only (backend.namespaces)")


def _configured(config: Path) -> tuple[KubernetesBackendSettings, Path | None, str]:
    from cluster_agent.backend_settings import KubernetesBackendSettings  # noqa: PLC0415
    from cluster_agent.settings_file import read_settings  # noqa: PLC0415

    found = read_settings(config)
    if not isinstance(found.backend, KubernetesBackendSettings):
        raise BadAgentConfig(
            f"{config}: backend.kind is {found.backend.kind}, and this asks a cluster of kind kubernetes"
        )
    state_dir = found.state_dir if found.state_dir.is_dir() else None
    return found.backend, state_dir, found.policy.initial or USUAL_POLICY
