"""Source of a user's script, looked at before anything is started: whether it joins a job at all.

A script that never joins would train whole in every worker, each for itself, and its job would fail at the end.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = "elastic_runtime"
_DISTRIBUTED = frozenset({"init_process_group", "DistributedDataParallel"})
"""Of torch's own way to train in several processes, which torchrun starts."""
_MOST_MODULES = 200
"""Of the script's own that are looked through."""


def joins(script: Path, tree: ast.AST) -> bool:
    """Whether a script, or a module beside it that it imports, imports the elastic runtime.

    Args:
        script: where it is; modules count from its folder.
    """
    seen = {script}
    waiting = [(script, tree)]
    while waiting and len(seen) <= _MOST_MODULES:
        path, parsed = waiting.pop()
        for level, name in _imported(parsed):
            if not level and name.split(".")[0] == _PACKAGE:
                return True
            # A relative name counts from the module's own package.
            folder = path.parents[level - 1] if 0 < level <= len(path.parents) else script.parent
            for module in _beside(folder, name):
                if module not in seen:
                    seen.add(module)
                    waiting.extend((module, found) for found in _parsed(module))
    return False


def is_distributed(tree: ast.AST) -> bool:
    """Whether a script sets up torch's own data parallelism, which needs torchrun around it."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr in _DISTRIBUTED)
        or (isinstance(node, ast.Name) and node.id in _DISTRIBUTED)
        for node in ast.walk(tree)
    )


def _imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What is imported, by its name, and of how many dots in front."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from package import module` may name a module of a package.
            module = node.module or ""
            yield node.level, module
            yield from ((node.level, f"{module}.{alias.name}".strip(".")) for alias in node.names)


def _beside(folder: Path, name: str) -> Iterator[Path]:
    """The files that a module's name may stand for, below the script's folder."""
    parts = [part for part in name.split(".") if part]
    for count in range(1, len(parts) + 1):
        place = folder.joinpath(*parts[:count])
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                yield path


def _parsed(path: Path) -> Iterator[ast.AST]:
    """A module's tree; one that cannot be read or is no Python joins nothing, and fails where it is imported."""
    try:
        yield ast.parse(path.read_bytes(), filename=str(path))
    except (OSError, SyntaxError, ValueError):
        return
