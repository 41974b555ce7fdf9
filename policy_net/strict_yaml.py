"""YAML that people write, read strictly: bounded in size and depth, each key once, and every fault one clear line."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import yaml

from policy_net.errors import BadInput

_DEEPEST = 32
"""Sections lie five deep; a file of brackets would go on until Python's stack ends."""

brief = reprlib.Repr()
"""A wrong value may be megabytes long; its beginning is enough to find it."""
brief.maxstring = brief.maxother = brief.maxlong = 80
brief.maxdict = brief.maxlist = brief.maxtuple = 3
brief.maxlevel = 2


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML in which a key stands once, is a word, and a value is written where it is used.

    Of two equal keys the last would win and nobody would know; a few anchors within anchors expand to gigabytes.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """As the safe loader's, but no anchors, and not without end."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.composer.ComposerError(
                problem="anchors and aliases are not taken; write the value where it is used",
                problem_mark=event.start_mark,
            )
        self._depth += 1
        if self._depth > _DEEPEST:
            raise yaml.composer.ComposerError(
                problem=f"sections within sections, more than {_DEEPEST} deep", problem_mark=event.start_mark
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As the safe loader's, but a repeated key, or one that is no word, is an error at its line."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(problem="a key must be a word", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"{brief.repr(key.value)[1:-1]} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """As the safe loader's; a value that its type cannot hold, such as a 13th month, is an error at its line."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, OverflowError, TypeError) as error:
            raise yaml.constructor.ConstructorError(
                problem=f"{brief.repr(node.value)} is no {node.tag.rpartition(':')[2]}; put text in quotes",
                problem_mark=node.start_mark,
            ) from error


def shown_path(path: Path) -> str:
    """How a file is called in messages."""
    return "standard input" if str(path) == "-" else str(path)


def read_yaml(path: Path, expected: str, largest_bytes: int) -> Any:
    """Read a file of one document.

    Args:
        expected: what it should be, for the messages, such as `a job file`.

    Raises:
        BadInput: not there, too long, no text, no YAML, a key that stands twice, an anchor, a second document.
    """
    return _parsed(path, expected, largest_bytes, lambda text: yaml.load(text, Loader=_StrictLoader))  # noqa: S506  (safe)


def read_yaml_documents(path: Path, expected: str, largest_bytes: int) -> list[Any]:
    """Read all documents of a file, as `read_yaml`; `-` is standard input.

    Raises:
        BadInput: as `read_yaml`; none of them is returned then.
    """
    return list(_parsed(path, expected, largest_bytes, lambda text: list(yaml.load_all(text, Loader=_StrictLoader))))


def _parsed(path: Path, expected: str, largest_bytes: int, parse: Callable[[str], Any]) -> Any:
    source = shown_path(path)
    try:
        return parse(_text(path, expected, largest_bytes))
    except OSError as error:
        raise BadInput(f"{source}: cannot be read ({error.strerror}); name {expected}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{source}: is no UTF-8 text; name {expected}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it holds characters that no text has"
        raise BadInput(f"{source}{where}: no valid YAML ({problem})") from error


def _text(path: Path, expected: str, largest_bytes: int) -> str:
    source = shown_path(path)
    with sys.stdin.buffer if source != str(path) else path.open("rb") as stream:
        data = stream.read(largest_bytes + 1)
    if len(data) > largest_bytes:
        raise BadInput(f"{source}: is larger than {largest_bytes} bytes; name {expected}")
    return data.decode("utf-8-sig")
