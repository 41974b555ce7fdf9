"""The page of settings; a setting's meaning stands in its `settings.py`, once."""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cluster_agent.settings import AgentSettings
from global_learner.settings import LearnerSettings
from policy_net.laboratory.training.settings import TrainingSettings
from policy_net.settings_problems import sections_in, settings_of

_HEAD = """# Settings

One YAML file a program, checked whole before anything starts; an unknown key is an error. Relative paths count from
the file's own folder; `[]` marks a list. This page is made from the settings' own descriptions by `make reference`.
"""

_PROGRAMS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("global-learner serve", LearnerSettings),
    ("cluster-agent run", AgentSettings),
    ("policy-net train", TrainingSettings),
)


def settings_page() -> str:
    """The whole page, in Markdown."""
    parts = [_HEAD]
    for command, model in _PROGRAMS:
        parts.append(f"\n## `{command}`\n\n| setting | default | meaning |\n|---|---|---|\n")
        parts += [f"| `{name}` | {default} | {meaning} |\n" for name, default, meaning in _rows(model, "")]
    return "".join(parts)


def _rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    """Name, default and meaning of every setting, sections resolved."""
    documented = _docstrings(model)
    for name, field in settings_of(model).items():
        meaning = documented.get(name) or field.description or ""
        if not meaning and typing.get_origin(field.annotation) is Literal:
            meaning = model.__doc__ or ""  # the word that chooses this section says what the section is
        sections = sections_in(field.annotation)
        if meaning or not sections:
            yield f"{prefix}{field.alias or name}", _default(field, bool(sections)), _cell(meaning)
        for section in sections:
            repeated = "[]" if typing.get_origin(field.annotation) is tuple else ""
            yield from _rows(section, f"{prefix}{name}{repeated}.")


def _default(field: FieldInfo, is_section: bool) -> str:
    if field.is_required():
        return "required"
    if field.default is None:
        return "none"
    if is_section:
        return ""
    default = field.get_default(call_default_factory=True)
    shown = getattr(default, "value", default)
    if isinstance(shown, tuple):
        shown = list(shown)
    return f"`{str(shown).lower() if isinstance(shown, bool) else shown}`"


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The strings that stand under the fields in the source, of the class and those it builds on."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base is BaseModel or not issubclass(base, BaseModel):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        if not isinstance(body, ast.ClassDef):
            continue
        for field, text in pairwise(body.body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                found[field.target.id] = str(text.value.value)
    return found


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
