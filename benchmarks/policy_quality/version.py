"""The version of a figure: a digest of the code that produced it, so that a resumed run never mixes two versions.

Only code counts that is imported, directly or not, by the simulator or by the policy; comments and docstrings do not.
So a figure outlives a new scheduler, a new loader of another format, or a better explanation. The compiled twin counts
with all of its sources.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import policy_net.baselines  # noqa: F401  (registers the policies' names)
from policy_net.exchange.shipped import SHIPPED_FILES
from policy_net.policy import policy_factory, policy_names
from policy_net.set_policy.policy import DEFAULT_SET_FILE, SetPolicy
from policy_net.twin.library import CORE, source_digest

WORLD_MODULES = ("benchmarks.policy_quality.worlds", "policy_net.laboratory.simulation.replay")
LEARNED_MODULE = "policy_net.dl2.policy"
OURS = ("policy_net", "benchmarks")


def policy_version(policy: str, given: Path | None = None, twin: Path = CORE) -> str:
    """A digest of the code behind a policy's figures, and of the file that holds the policy or that it is given.

    Raises:
        OSError: a file cannot be read.
    """
    factory = policy_factory(policy) if policy in policy_names() else None
    code = code_digest((*WORLD_MODULES, LEARNED_MODULE if factory is None else factory.__module__))
    of_set = factory is not None and factory.__module__ == SetPolicy.__module__
    shipped = SHIPPED_FILES.get(policy, DEFAULT_SET_FILE if of_set else None)
    of_policy = Path(policy) if factory is None else shipped
    files = [path for path in (of_policy, given) if path is not None]
    return "-".join(
        [code, source_digest(twin)[:16], *(hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in files)]
    )


@cache
def code_digest(modules: tuple[str, ...]) -> str:
    """A digest of these modules and all modules of ours that they import, directly or not."""
    digest = hashlib.sha256()
    for module in sorted(_closure(modules)):
        digest.update(f"{module}\n{_code(module)}\n".encode())
    return digest.hexdigest()[:16]


def _closure(modules: Iterable[str]) -> set[str]:
    """The modules and what they import; packages' own files are left out, as they only re-export and register."""
    waiting, found = list(modules), set[str]()
    while waiting:
        module = waiting.pop()
        if module in found or _file(module) is None:
            continue
        found.add(module)
        waiting += _imports(module)
    return found


@cache
def _file(module: str) -> Path | None:
    """The source of a module of ours; None for packages and for what is no module."""
    if module.partition(".")[0] not in OURS:
        return None
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # the parent is no package: a name in a module
        return None
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        return None
    return Path(spec.origin)


@cache
def _tree(module: str) -> ast.Module:
    file = _file(module)
    assert file is not None  # noqa: S101  (only modules with a source are asked for; narrows the type)
    return ast.parse(file.read_text(encoding="utf-8"))


def _imports(module: str) -> list[str]:
    names: list[str] = []
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


@cache
def _code(module: str) -> str:
    """The module without comments, layout and docstrings."""
    tree = _tree(module)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]  # every node with a list for a body takes one
                statement
                for statement in body
                if not (
                    isinstance(statement, ast.Expr)
                    and isinstance(statement.value, ast.Constant)
                    and isinstance(statement.value.value, str)
                )
            ]
    return ast.dump(tree)
