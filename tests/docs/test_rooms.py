"""Modules keep to what `docs/contributing.md` says of them, and the map in `docs/architecture.md` is true."""

import ast
import re
from pathlib import Path

import pytest
from docs_pages import ROOT, code

PACKAGES = ("foundation", "policy_net", "elastic_runtime", "cluster_agent", "global_learner")
SOURCES = sorted(
    path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__init__.py" and "generated" not in path.parts
)
ROOMS = sorted({path.parent for path in SOURCES})
MAPS = [ROOT / "docs/architecture.md", ROOT / "docs/adding.md", *ROOT.glob("docs/decisions/*.md")]
A_FILE = re.compile(rf"(?:{'|'.join(PACKAGES)}|deploy|benchmarks|tests|docs)/[\w./-]+")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=[name_of(path) for path in SOURCES])
def test_a_module_says_first_what_it_is(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert text, "it has no docstring"
    first = text.split()[0].strip(",:").lower()
    assert first not in {"what", "who", "which", "how", "whether", "where", "when", "why", "whatever", "whoever"}


def test_the_map_names_files_that_exist() -> None:
    named = {word for page in MAPS for text in code(page) for word in A_FILE.findall(text)}
    for page in MAPS:
        named |= set(A_FILE.findall(page.read_text(encoding="utf-8")))
    assert len(named) > 40
    assert sorted(name for name in named if not (ROOT / name.rstrip("./")).exists()) == []


def test_the_map_names_every_room() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    assert [name_of(room) for room in ROOMS if f"{name_of(room)}/" not in text] == []
