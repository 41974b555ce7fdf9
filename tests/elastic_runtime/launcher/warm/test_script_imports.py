"""Imports are done ahead only where nothing in the script comes before them."""

import os
from pathlib import Path

import pytest

from elastic_runtime.launcher.script_source import Import, imports_ahead, imports_of, is_installed, shadowed


def ahead(source: str) -> list[str]:
    return [found.name for found in imports_of(source.encode(), "train.py").ahead]


def test_imports_at_the_head_of_a_script_are_done_ahead() -> None:
    source = (
        '"""Doc."""\nfrom __future__ import annotations\nimport os, a.b as c\nfrom d import e, f as g\n'
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import h\nX = 3\ndef f(): import i\nimport j\n"
        "from . import k\nfrom l import *\n"
    )
    found = imports_of(source.encode(), "train.py").ahead
    assert found == (
        Import("os"),
        Import("a.b"),
        Import("d", ("e", "f")),
        Import("typing", ("TYPE_CHECKING",)),
        Import("j"),
        Import("l"),
    )
    assert found[1].top == "a"


@pytest.mark.parametrize(
    "does",
    [
        "print()",
        "x = make()",
        "a.b = 1",
        "c['HF_HOME'] = '/x'",
        "if x:\n    pass",
        "@register\ndef f(): pass",
        "class C: pass",
        "with x: pass",
        "try:\n    import apex\nexcept ImportError:\n    pass",
    ],
)
def test_what_comes_after_a_statement_that_may_do_something_is_left_to_the_script(does: str) -> None:
    assert ahead(f"import a\n{does}\nimport b\n") == ["a"]


@pytest.mark.parametrize(
    "sets",
    [
        "import os\nos.environ['OMP_NUM_THREADS'] = '1'",
        "import os\nos.environ.setdefault('MKL_NUM_THREADS', '1')",
        "from os import environ\nenviron['X'] = '1'",
        "import os\nos.putenv('X', '1')",
    ],
)
def test_a_script_that_sets_variables_before_it_imports_what_reads_them_starts_cold(sets: str) -> None:
    late = imports_of(f"{sets}\nimport torch\n".encode(), "train.py")
    assert late.obstacle == "train.py touches the environment before it imports torch"
    assert imports_of(f"{sets}\ndef main():\n    import numpy as np\n".encode(), "train.py").obstacle
    assert not imports_of(f"import torch\n{sets}\nimport torch\n".encode(), "train.py").obstacle
    assert not imports_of(f"{sets}\n".encode(), "train.py").obstacle


@pytest.mark.parametrize("source", [b"x = (", b"\0", b"\xff\xfe", b""])
def test_what_is_no_script_has_no_imports(source: bytes) -> None:
    found = imports_of(source, "train.py")
    assert (found.ahead, found.obstacle) == ((), "")


def test_what_nobody_should_wait_for_has_no_imports(tmp_path: Path) -> None:
    fifo, deep, long = tmp_path / "fifo.py", tmp_path / "deep.py", tmp_path / "long.py"
    os.mkfifo(fifo)
    deep.write_bytes(b"x = " + b"-" * 500_000 + b"1\nimport numpy\n")
    long.write_bytes(b"import numpy\n" + b"#" * (1 << 20))
    assert [imports_ahead(path, {}) for path in (fifo, deep, long, tmp_path / "none.py")] == [[], [], [], []]
    assert imports_ahead(fifo, {"ELASTIC_ALSO_IMPORT": "json numpy"}) == [Import("json"), Import("numpy")]


def test_only_what_is_installed_is_loaded_ahead() -> None:
    assert is_installed("torch")
    assert is_installed("json")
    assert is_installed("sys")
    assert not is_installed("elastic_runtime"), "it is installed from the folder in which somebody works"
    assert not is_installed("there_is_no_such_package")


def test_a_module_beside_the_script_that_would_have_been_found_first_is_noticed(tmp_path: Path) -> None:
    loaded = {"queue": "/lib/queue.py", "numpy": "/lib/numpy/__init__.py", "own": str(tmp_path / "own" / "__init__.py")}
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").touch()
    (tmp_path / "train.py").touch()
    (tmp_path / "numpy").mkdir()
    assert shadowed(tmp_path, loaded) == "", "a folder that is no package is found last"
    (tmp_path / "queue.py").touch()
    assert shadowed(tmp_path, loaded) == "queue.py"
    (tmp_path / "queue.py").unlink()
    (tmp_path / "numpy" / "__init__.py").touch()
    assert shadowed(tmp_path, loaded) == "numpy"
    assert shadowed(tmp_path / "gone", loaded) == ""
