"""Reads an agent's configuration file: checked whole, its paths made absolute."""

from __future__ import annotations

from pathlib import Path

from cluster_agent.errors import BadConfig
from cluster_agent.settings import AgentSettings
from policy_net.errors import BadInput
from policy_net.laboratory.workloads.loaders.formats import FORMATS
from policy_net.paths import is_file
from policy_net.settings import read_settings_file


def read_settings(path: Path) -> AgentSettings:
    """Read and check a configuration file.

    Raises:
        BadConfig: not there, no YAML, an unknown key, a wrong type or value; the message is one line.
    """
    try:
        settings = read_settings_file(path, AgentSettings, "cluster, state_dir, backend and policy")
    except BadInput as error:
        raise BadConfig(str(error)) from error
    return _resolved(settings, path.resolve().parent)


def _resolved(settings: AgentSettings, folder: Path) -> AgentSettings:
    """The settings with paths that do not depend on the working directory."""
    backend = settings.backend
    workloads = tuple(
        episode.model_copy(update={"source": _resolved_source(episode.source, folder)}) for episode in backend.workloads
    )
    backend_changes: dict[str, object] = {"workloads": workloads}
    if backend.speeds is not None:
        backend_changes["speeds"] = folder / backend.speeds
    changes: dict[str, object] = {
        "state_dir": folder / settings.state_dir,
        "backend": backend.model_copy(update=backend_changes),
    }
    initial = settings.policy.initial
    if initial is not None and is_file(folder / initial):
        changes["policy"] = settings.policy.model_copy(update={"initial": str(folder / initial)})
    learner = settings.learner
    if learner is not None and learner.tls is not None:
        files = {name: folder / value for name, value in learner.tls}
        changes["learner"] = learner.model_copy(update={"tls": learner.tls.model_copy(update=files)})
    if learner is not None and learner.enrollment_file is not None:
        changes["learner"] = learner.model_copy(update={"enrollment_file": folder / learner.enrollment_file})
    return settings.model_copy(update=changes)


def _resolved_source(source: str, folder: Path) -> str:
    """A workload's source with the paths in it, if any are, taken from the folder."""
    name, colon, text = source.partition(":")
    begin = f"{name}:" if colon and name in FORMATS else ""
    text = text if begin else source
    whole = _resolved_path(text, folder)
    if whole != text:
        return f"{begin}{whole}"
    # TRACE@FILE of reference traces, FILE@VC of recordings, TASKS@JOBS of two tables
    return begin + "@".join(_resolved_path(part, folder) for part in text.rsplit("@", 1))


def _resolved_path(text: str, folder: Path) -> str:
    return str(folder / text) if text and is_file(folder / text) else text
