import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

# Test modules share fakes, those of the learner's tests included; with importlib import mode no folder is on the path
# by itself.
sys.path.insert(0, str(Path(__file__).parents[1] / "global_learner"))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "kube"))
sys.path.insert(0, str(Path(__file__).parent / "kubernetes"))
sys.path.insert(0, str(Path(__file__).parent / "backends" / "kubernetes"))


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command line that a test runs in this process sends log lines to a stream that is closed with the test."""
    yield
    structlog.reset_defaults()
