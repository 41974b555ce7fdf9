import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

# Test modules share makers, those of the learner's, the agent's and the launcher's tests included; with importlib
# import mode no folder is on the path by itself.
FOLDER = Path(__file__).parent
TESTS = FOLDER.parent
for folder in (TESTS / "cluster_agent", TESTS / "global_learner", TESTS / "elastic_runtime" / "launcher", FOLDER):
    sys.path.insert(0, str(folder))


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command line that a test runs in this process sends log lines to a stream that is closed with the test."""
    yield
    structlog.reset_defaults()
