"""One parameter of a command for a group of options: commands that share options name them once.

A group is a frozen dataclass whose fields are annotated as typer's options are, each with a plain default or none.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for every field of a dataclass, in the place of the parameter that has its type.

    The command is given the dataclass with what was typed; typer sees, and calls, a command of single options. Raises
    TypeError if no parameter's type is a dataclass; ValueError if an option's name is a parameter's too.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and dataclasses.is_dataclass(kind)}
    if not groups:
        raise TypeError(f"{command.__name__}: no parameter's type is a dataclass of options")
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _options(groups[name])
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name]))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        gathered = {
            name: group(**{item.name: values.pop(item.name) for item in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**gathered, **values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # where typer looks
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _options(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for item in dataclasses.fields(group):
        default = inspect.Parameter.empty if item.default is dataclasses.MISSING else item.default
        yield inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[item.name])
