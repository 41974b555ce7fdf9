"""One process that forks all-reduce workers, which then need not import torch."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "faults" / "elastic"))
sys.path.insert(0, str(Path(__file__).parents[1] / "launcher"))

from forks import Forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks(preload="torch._dynamo torch.distributed safetensors.torch") as forks:
        yield forks
