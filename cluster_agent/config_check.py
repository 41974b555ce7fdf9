"""Check of a configuration: all that an agent would read at its start is read, and nothing is begun.

What lies in the state directory is an agent's own and is left alone: one may run on it meanwhile. No learner and no
cluster is asked anything.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

from cluster_agent.active_policy import CandidateFactory
from cluster_agent.backend_settings import KubernetesBackendSettings, LocalBackendSettings
from cluster_agent.backends.base import AgentParts, backend_module
from cluster_agent.errors import BadAgentConfig
from cluster_agent.fleet.learner_client import LearnerClient
from cluster_agent.kubernetes.training.credentials import read_agent_key
from cluster_agent.settings import AgentSettings


def check_config(settings: AgentSettings) -> list[str]:
    """Read every file that the settings name; what was found, one line each.

    Raises:
        BadConfig, BadInput: something cannot be used, as a start would find.
    """
    found = [f"cluster {settings.cluster}", _state_dir(settings.state_dir)]
    initial = settings.policy.initial
    if initial is not None:
        candidate = CandidateFactory(settings.policy).from_name_or_file(initial)
        found.append(f"policy {candidate.identity.name}")
    learner, backend = settings.learner, settings.backend
    with tempfile.TemporaryDirectory() as folder:
        if learner is not None:
            identity = settings.state_dir / "identity"
            # Whoever opens an identity makes its folder.
            kept = identity if identity.is_dir() else Path(folder) / "identity"
            LearnerClient(learner, settings.cluster, lambda *_: None, kept).close()
            found.append(f"learner {learner.address}, which was not asked")
        wait = threading.Event().wait
        parts = AgentParts(Path(folder), settings.guard.fallback, None, wait, time.monotonic)
        if isinstance(backend, LocalBackendSettings) and backend.cgroup is not None:
            # To open it is to make its group, which would be this user's.
            found.append(f"control group {backend.cgroup}, which was not tried")
            backend = backend.model_copy(update={"cgroup": None})
        backend_module(backend.kind).open_backend(backend, parts)
    if isinstance(backend, KubernetesBackendSettings) and backend.training is not None:
        own = backend.training.key_file
        for key_file in (*(() if own is None else (own,)), *backend.training.earlier_key_files):
            read_agent_key(key_file, make=False)
    return [*found, f"backend {backend.kind}, which was not started"]


def _state_dir(path: Path) -> str:
    """What a start would make of the state directory.

    Raises:
        BadConfig: it is no folder, or cannot be made or written.
    """
    there = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise BadAgentConfig(f"setting state_dir: {path} cannot be used, as {there} is no folder that can be written")
    return f"state_dir {path}" + ("" if there == path else ", which will be made")
