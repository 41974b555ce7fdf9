import sys
from pathlib import Path

import pytest

from benchmarks.policy_quality import version
from policy_net.policy import policy_names


@pytest.mark.heavy
def test_every_registered_policy_has_a_version() -> None:
    assert len({version.policy_version(name) for name in policy_names()}) > 1


def test_policies_of_one_module_share_their_version() -> None:
    assert version.policy_version("marginal") == version.policy_version("oracle")


def test_a_policy_file_is_known_by_its_content(tmp_path: Path) -> None:
    for name, content in (("one", b"a"), ("same", b"a"), ("other", b"b")):
        (tmp_path / name).write_bytes(content)
    one, same, other = (version.policy_version(str(tmp_path / name)) for name in ("one", "same", "other"))
    assert one == same
    assert one != other


def test_what_a_policy_is_given_counts(tmp_path: Path) -> None:
    points = tmp_path / "points.csv"
    points.write_text("a")
    one = version.policy_version("drf", points)
    points.write_text("b")
    assert len({one, version.policy_version("drf", points), version.policy_version("drf")}) == 3


def test_what_the_compiled_twin_is_made_of_counts_for_all(tmp_path: Path) -> None:
    (tmp_path / "policy").write_bytes(b"a")
    found = []
    for source in ("int one;\n", "int other;\n"):
        (tmp_path / "core.c").write_text(source)
        names = ("drf", "set", str(tmp_path / "policy"))
        found.append([version.policy_version(name, twin=tmp_path) for name in names])
    assert all(one != other for one, other in zip(*found, strict=True))


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of which `leaf` is imported by `root`, and `apart` by nobody."""
    package = tmp_path / "versioned_sources"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "root.py").write_text("from versioned_sources import leaf\n\ndef use():\n    return leaf.NUMBER\n")
    (package / "leaf.py").write_text("NUMBER = 1\n")
    (package / "apart.py").write_text("NUMBER = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "versioned_sources", raising=False)
    monkeypatch.setattr(version, "OURS", ("versioned_sources",))
    return package


def _digest() -> str:
    for cached in (version.code_digest, version._file, version._tree, version._code):
        cached.cache_clear()
    return version.code_digest(("versioned_sources.root",))


def test_code_that_is_imported_counts(sources: Path) -> None:
    before = _digest()
    (sources / "leaf.py").write_text("NUMBER = 2\n")
    assert _digest() != before


def test_comments_docstrings_layout_and_other_modules_do_not(sources: Path) -> None:
    before = _digest()
    (sources / "leaf.py").write_text('"""Says why."""\n\n# one\nNUMBER  =  1\n"""The number."""\n')
    (sources / "apart.py").write_text("NUMBER = 2\n")
    assert _digest() == before
