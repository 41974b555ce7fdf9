"""Access to an API server: which, as whom, over which TLS; all of it as the official client reads it.

The client brings kubeconfig files, tokens that a service account gets anew, and commands that fetch credentials. Its
typed objects are not used: decoding 10,000 pods into them takes 17.6 s of CPU, as JSON 0.35 s (docs/decisions/0051).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from cluster_agent.errors import BadConfig

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_POD_NAMESPACE = _TOKEN.with_name("namespace")


_MOST_CONTEXTS = 8
"""Named where another was asked for."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where credentials come from.

    Attributes:
        kubeconfig: a file; the pod's service account unless set or $KUBECONFIG says one, ~/.kube/config outside a pod.
        context: of the file; its current one where empty.
    """

    kubeconfig: Path | None = None
    context: str = ""


def open_client(access: Access) -> ApiClient:
    """The official client with its connection and credentials; nothing is sent yet.

    Raises:
        BadConfig: there is no such file, context or service account, or it cannot be used.
    """
    in_pod = access.kubeconfig is None and "KUBECONFIG" not in os.environ and _TOKEN.exists()
    where = "the pod's service account" if in_pod else str(access.kubeconfig or _usual_file())
    if not in_pod and not any(Path(file).expanduser().exists() for file in where.split(os.pathsep) if file):
        raise BadConfig(
            f"kubernetes: {where} cannot be used: there is no such file; name a kubeconfig with --kubeconfig, "
            "$KUBECONFIG or backend.kubeconfig"
        )
    # Not at the top: hundreds of models come along, which an agent of another backend never needs.
    from kubernetes.client import ApiClient, Configuration  # noqa: PLC0415
    from kubernetes.config import ConfigException, load_incluster_config, load_kube_config  # noqa: PLC0415

    configuration = Configuration()
    # Whoever asks knows whether a request may be sent twice; urllib3 does not.
    configuration.retries = False
    try:
        if in_pod:
            load_incluster_config(configuration)
        else:
            load_kube_config(where, access.context or None, configuration, persist_config=False)
        return ApiClient(configuration)
    except RecursionError as error:
        raise BadConfig(f"kubernetes: {where} cannot be used: it is nested too deeply") from error
    except (ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError) as error:
        missing = None if in_pod or not access.context else _missing_context(where, access.context)
        said = missing or " ".join(str(error).split()) or type(error).__name__
        raise BadConfig(f"kubernetes: {where} cannot be used: {said}") from error


def pod_namespace() -> str:
    """The namespace of the pod that this runs in; empty outside a pod."""
    try:
        return _POD_NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _missing_context(where: str, context: str) -> str | None:
    """That the file has no such context, and which it has; None where that is not what is wrong."""
    from kubernetes.config import ConfigException, list_kube_config_contexts  # noqa: PLC0415

    try:
        contexts, _ = list_kube_config_contexts(where)
        names = [str(each["name"]) for each in contexts]
    except (ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError):
        return None  # something else is wrong, which is said in its own words
    return None if context in names else f"it has no context {context}; there {_are(names)}"


def _are(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_CONTEXTS]) + (" …" if len(names) > _MOST_CONTEXTS else "")
    return f"is {shown}" if len(names) == 1 else f"are {shown}"


def _usual_file() -> str:
    return os.environ.get("KUBECONFIG") or "~/.kube/config"
