"""Source of a user's script, read before it runs: whether it joins a job, and what may be imported ahead for it.

A script that never joins would train whole in every worker, each for itself, and its job would fail at the end.

Imports that stand before anything that could change what they do are done ahead, of packages that are installed. The
script's own modules, and packages that are installed from a folder in which somebody works, are read when the script
is, as in every start of Python.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import re
import stat
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = "elastic_runtime"
_DISTRIBUTED = frozenset({"init_process_group", "DistributedDataParallel"})
"""Of torch's own way to train in several processes, which torchrun starts."""
_MOST_MODULES = 200
"""Modules of the script's own that are looked through."""


def names_python(word: str) -> bool:
    """Whether a program is a Python, by its name."""
    return re.fullmatch(r"(python|pypy)[0-9.]*", Path(word).name) is not None


def is_own_python(path: Path) -> bool:
    """Whether a Python is this process's: of the same environment, by whatever name."""
    own = Path(sys.executable)
    return path.parent.resolve() == own.parent.resolve() and path.resolve() == own.resolve()


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
            for module in _siblings(folder, name):
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
    """Imported modules: number of dots in front, and name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from package import module` may name a module of a package.
            module = node.module or ""
            yield node.level, module
            yield from ((node.level, f"{module}.{alias.name}".strip(".")) for alias in node.names)


def _siblings(folder: Path, name: str) -> Iterator[Path]:
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


BASE = ("torch", "numpy", "elastic_runtime")
_LONGEST_SCRIPT_BYTES = 1 << 20
MORE_VARIABLE = "ELASTIC_ALSO_IMPORT"
"""Modules that tasks need beside, by their names."""
_ENVIRONMENT = frozenset({"environ", "environb", "putenv", "unsetenv"})


@dataclass(frozen=True, slots=True)
class Import:
    """`import name`, or `from name import parts`; parts may be modules too."""

    name: str
    parts: tuple[str, ...] = ()

    @property
    def top(self) -> str:
        """Its top-level package."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class ScriptImports:
    """Imports of a script, by its text.

    Attributes:
        obstacle: why the script has to start with nothing imported, in a line; empty if it need not.
    """

    ahead: tuple[Import, ...] = ()
    obstacle: str = ""


def imports_of(source: bytes, name: str) -> ScriptImports:
    """Read a script; what cannot be compiled has no imports, and says so itself when it runs."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last of a text that nests too deep
        return ScriptImports()
    late = _set_before(tree)
    if late:
        return ScriptImports(obstacle=f"{name} touches the environment before it imports {late}")
    return ScriptImports(tuple(_leading(tree.body)))


def obstacle_in(script: Path) -> str:
    """Why a script, as it is now, has to start with nothing imported; empty if it need not, or cannot be read."""
    try:
        return imports_of(script.read_bytes(), script.name).obstacle
    except OSError:
        return ""


def imports_ahead(script: Path, environment: Mapping[str, str]) -> list[Import]:
    """What may be imported before a script runs: of installed packages, and what the environment names beside."""
    more = [Import(name) for name in environment.get(MORE_VARIABLE, "").split()]
    source = _text_of(script)
    return more + [found for found in imports_of(source, script.name).ahead if is_installed(found.top)]


def _text_of(script: Path) -> bytes:
    """Text of a script; empty if it cannot be read, is no file, or is too long to be looked at while others wait."""
    try:
        with open(os.open(script, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > _LONGEST_SCRIPT_BYTES:
                return b""
            return file.read(_LONGEST_SCRIPT_BYTES)
    except OSError:
        return b""


def is_installed(top: str) -> bool:
    """Whether a package comes from where packages are installed, or with Python."""
    if top in sys.builtin_module_names:
        return True
    try:
        spec = importlib.machinery.PathFinder.find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin is None:
        return spec is not None and spec.origin == "frozen"
    folders = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(Path(spec.origin).is_relative_to(folder) for folder in folders)


def shadowed(folder: Path, loaded: Mapping[str, str]) -> str:
    """Module that a script would find in its own folder, but that is loaded from elsewhere; empty if there is none.

    Args:
        loaded: files of top-level modules that the interpreter has not loaded by itself; empty: it has none.
    """
    try:
        names = {entry.partition(".")[0]: entry for entry in sorted(_entries(folder))}
    except OSError:
        return ""
    found = ((entry, loaded[name]) for name, entry in names.items() if name in loaded)
    return next(
        (e for e, file in found if not file or not Path(file).resolve().is_relative_to((folder / e).resolve())), ""
    )


def _entries(folder: Path) -> Iterator[str]:
    for entry in folder.iterdir():
        is_module = entry.suffix == ".py" or entry.name.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
        if is_module or (entry / "__init__.py").is_file():
            yield entry.name


def _set_before(tree: ast.Module) -> str:
    """Package of `BASE` that is first imported after a line that may set variables which it reads as it is imported."""
    first: dict[str, int] = {}
    touched = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for found in _imports(node):
                first[found.top] = min(node.lineno, first.get(found.top, node.lineno))
        elif (isinstance(node, ast.Attribute) and node.attr in _ENVIRONMENT) or (
            isinstance(node, ast.Name) and node.id in _ENVIRONMENT
        ):
            touched = node.lineno if touched is None else min(touched, node.lineno)
    if touched is None:
        return ""
    return next((name for name in BASE if first.get(name, 0) > touched), "")


def _leading(body: list[ast.stmt]) -> Iterator[Import]:
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield from _imports(statement)
        elif not _does_nothing(statement):
            return


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name) for alias in node.names)
    elif node.module and not node.level and node.module != "__future__":
        yield Import(node.module, tuple(alias.name for alias in node.names if alias.name != "*"))


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return not statement.decorator_list
    if isinstance(statement, ast.If):
        test = statement.test
        name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
        return name == "TYPE_CHECKING" and not statement.orelse
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        plain = all(isinstance(target, ast.Name) for target in targets)
        value = statement.value
        return plain and not any(isinstance(node, ast.Call) for node in ast.walk(value or ast.Constant(None)))
    return False
