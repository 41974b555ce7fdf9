"""The configuration file of an agent: read, checked whole, its paths made absolute."""

from __future__ import annotations

from pathlib import Path

from cluster_agent.backend_settings import resolved_source
from cluster_agent.backends.base import backend_module
from cluster_agent.errors import BadAgentConfig
from cluster_agent.settings import AgentSettings
from foundation.files import is_file
from policy_net.errors import BadInput
from policy_net.settings import LEARNERS_FILE, read_settings_file


def read_settings(path: Path) -> AgentSettings:
    """Read and check a configuration file.

    Raises:
        BadConfig: not there, no YAML, an unknown key, a wrong type or value; the message is one line.
    """
    try:
        settings = read_settings_file(path, AgentSettings, "cluster, state_dir, backend and policy", LEARNERS_FILE)
    except BadInput as error:
        raise BadAgentConfig(str(error)) from error
    return _resolved(settings, path.resolve().parent)


def _resolved(settings: AgentSettings, folder: Path) -> AgentSettings:
    backend = settings.backend
    changes: dict[str, object] = {
        "state_dir": folder / settings.state_dir,
        "backend": backend_module(backend.kind).resolve_paths(backend, folder),
    }
    initial = settings.policy.initial
    if initial is not None and is_file(folder / initial):
        changes["policy"] = settings.policy.model_copy(update={"initial": str(folder / initial)})
    twin = settings.learning.twin
    if twin.history:
        found = twin.model_copy(update={"history": tuple(resolved_source(source, folder) for source in twin.history)})
        changes["learning"] = settings.learning.model_copy(update={"twin": found})
    learner = settings.learner
    if learner is not None and learner.tls is not None:
        files = {name: folder / value for name, value in learner.tls}
        changes["learner"] = learner.model_copy(update={"tls": learner.tls.model_copy(update=files)})
    if learner is not None and learner.enrollment_file is not None:
        changes["learner"] = learner.model_copy(update={"enrollment_file": folder / learner.enrollment_file})
    return settings.model_copy(update=changes)
