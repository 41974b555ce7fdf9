# ruff: noqa: E402  (what is imported is on the path only then)
"""Tests of real jobs on a real GPU: all are skipped on machines without one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
for _folder in (
    "faults/elastic",
    "elastic_runtime/launcher",
    "elastic_runtime/parity",
    "cluster_agent",
    "global_learner",
    "gpu",
):
    sys.path.insert(0, str(TESTS / _folder))

from forks import Forks


def has_gpu() -> bool:
    """Whether torch can use one; asked in a process of its own, as whoever has asked can be forked no more."""
    program = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.fixture(scope="session", autouse=True)
def gpu() -> None:
    """There is one."""
    if not has_gpu():
        pytest.skip("there is no GPU here that torch can use")


@pytest.fixture(scope="session")
def forks(gpu: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with Forks(preload="torch._dynamo torch.distributed safetensors.torch") as forks:
        yield forks
