"""A folder with what an image has installed and nothing else, made of the packages that are installed here."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from rendered import DEPLOY

ROOT = DEPLOY.parent
REMOVED = ("tests/*", "*/tests/*", "kubernetes/aio/*")
"""What the images' Dockerfiles remove."""


def requirements(image: str) -> list[Requirement]:
    """What an image's file asks for, with what it refers to."""
    found = []
    for line in (DEPLOY / "images" / f"{image}-requirements.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("-r "):
            found += requirements(line.removeprefix("-r ").removesuffix("-requirements.txt"))
        elif line and not line.startswith("#"):
            found.append(Requirement(line))
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions(image: str) -> dict[str, importlib.metadata.Distribution]:
    """All that pip installs for it, by name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(requirement, frozenset(requirement.extras)) for requirement in requirements(image)]
    while waiting:
        requirement, extras = waiting.pop()
        name = _normal(requirement.name)
        if name in found:
            continue
        distribution = found[name] = importlib.metadata.distribution(requirement.name)
        for text in distribution.requires or []:
            needed = Requirement(text)
            environments = [{"extra": extra} for extra in (extras or {""})]
            if needed.marker is None or any(needed.marker.evaluate(each) for each in environments):
                waiting.append((needed, frozenset(needed.extras)))
    return found


def installed_files(image: str) -> Iterator[tuple[Path, Path]]:
    """Each file of the image's packages: its place below site-packages, and where it lies here."""
    for distribution in distributions(image).values():
        for file in distribution.files or []:
            name = str(file)
            if name.startswith("..") or name.endswith(".pyc") or any(fnmatch.fnmatch(name, each) for each in REMOVED):
                continue
            yield Path(name), Path(str(distribution.locate_file(file)))


def make_site(image: str, folder: Path, *, with_project: bool = True) -> Path:
    """The folder, with links; bytecode that there is beside a source is at hand, since it compiles as long as it runs.

    Args:
        with_project: whether it has the project, too.
    """
    seen: set[Path] = set()
    for name, source in installed_files(image):
        target = folder / name
        if target.parent not in seen:
            seen.add(target.parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            if (bytecode := source.parent / "__pycache__").is_dir():
                (target.parent / "__pycache__").symlink_to(bytecode)  # without its source Python takes none of it
        target.symlink_to(source)
    if not with_project:
        return folder
    # The project lies in its clone; what it is called, and of which version it is, pip leaves beside it.
    own = folder / "fedl2.dist-info" / "METADATA"
    own.parent.mkdir()
    own.write_text(importlib.metadata.distribution("fedl2").read_text("METADATA") or "", encoding="utf-8")
    return folder


def bare_python(site: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    """A command and environment in which Python finds this project and that folder, and no other package."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    return [sys.executable, "-S", *words], environment


def run_bare(site: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program there."""
    command, environment = bare_python(site, "-c", program)
    return subprocess.run(command, env=environment, cwd=site, capture_output=True, text=True, timeout=240, check=False)
