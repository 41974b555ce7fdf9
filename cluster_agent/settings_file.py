"""Reads an agent's configuration file: checked whole, its paths made absolute, each fault one clear line."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import ValidationError

from cluster_agent.errors import BadConfig
from cluster_agent.settings import AgentSettings


def read_settings(path: Path) -> AgentSettings:
    """Read and check a configuration file.

    Raises:
        BadConfig: not there, no YAML, an unknown key, a wrong type or value; the message is one line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise BadConfig(f"{path}: cannot be read ({reason}); name a YAML configuration file") from error
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "not readable"
        raise BadConfig(f"{path}{where}: no valid YAML ({problem})") from error
    if not isinstance(content, dict):
        raise BadConfig(f"{path}: holds no settings; it needs at least cluster, state_dir, backend and policy")
    try:
        settings = AgentSettings.model_validate(content)
    except ValidationError as error:
        raise BadConfig(f"{path}: {_first_problem(error)}") from error
    return _resolved(settings, path.resolve().parent)


def _first_problem(error: ValidationError) -> str:
    problems = error.errors()
    first = problems[0]
    where = ".".join(str(part) for part in first["loc"]) or "settings"
    if first["type"] == "extra_forbidden":
        message = f"unknown setting {where}"
    elif first["type"] == "missing":
        message = f"setting {where} is missing"
    else:
        message = f"setting {where} = {first['input']!r}: {first['msg'].removeprefix('Value error, ')}"
        if first["type"] == "value_error":
            message = f"setting {where}: {first['msg'].removeprefix('Value error, ')}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return message + more


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
    if initial is not None and (folder / initial).is_file():
        changes["policy"] = settings.policy.model_copy(update={"initial": str(folder / initial)})
    learner = settings.learner
    if learner is not None and learner.tls is not None:
        files = {name: folder / value for name, value in learner.tls}
        changes["learner"] = learner.model_copy(update={"tls": learner.tls.model_copy(update=files)})
    return settings.model_copy(update=changes)


def _resolved_source(source: str, folder: Path) -> str:
    """A workload's source with the path in it, if one is, taken from the folder."""
    begin, at, file = source.rpartition("@")
    return f"{begin}{at}{folder / file}" if (folder / file).is_file() else source
