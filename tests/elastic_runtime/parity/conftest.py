"""Runs of one script alone, as torchrun starts it, and elastic, by one process that forks them all."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "faults" / "elastic"))
sys.path.insert(0, str(Path(__file__).parent))

from forks import Forks


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with Forks(preload="torch._dynamo torch.distributed safetensors.torch") as forks:
        yield forks
