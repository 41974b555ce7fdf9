"""Reads a YAML configuration file into a checked, frozen model; every fault is one clear line.

The agent and the learner have settings of their own, and this way of reading them in common: an unknown key is an
error, since a misspelt setting that is silently ignored is a cluster that runs otherwise than its operator believes.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from policy_net.errors import BadInput

Model = TypeVar("Model", bound=BaseModel)


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML in which a key stands once: of two, the last would win and nobody would know."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As the safe loader's, but a repeated key is an error at its line."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"{key.value} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_settings_file(path: Path, model: type[Model], least: str) -> Model:
    """Read and check a configuration file.

    Args:
        least: the settings that no file can do without, for the message about an empty one.

    Raises:
        BadInput: not there, no YAML, an unknown key, a wrong type or value.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)  # noqa: S506  (a safe loader)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); name a YAML configuration file") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is no UTF-8 text; name a YAML configuration file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "not readable"
        raise BadInput(f"{path}{where}: no valid YAML ({problem})") from error
    if not isinstance(content, dict):
        raise BadInput(f"{path}: holds no settings; it needs at least {least}")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise BadInput(f"{path}: {_first_problem(error)}") from error


def _first_problem(error: ValidationError) -> str:
    problems = error.errors()
    first = problems[0]
    where = ".".join(str(part) for part in first["loc"])
    said = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"unknown setting {where}"
    elif first["type"] == "missing":
        message = f"setting {where} is missing"
    elif not where:
        message = said
    elif first["type"] == "value_error":
        message = f"setting {where}: {said}"
    else:
        message = f"setting {where} = {first['input']!r}: {said}"
    return message + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")
