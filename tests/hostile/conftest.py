import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog

if TYPE_CHECKING:
    from command_table import Place

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


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Place"]:
    """Where command lines are tried."""
    import command_place  # of no use to most modules

    yield from command_place.opened_place(tmp_path_factory)


@pytest.fixture
def somewhere_else(place: "Place", monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command line is typed in a folder of its own, and starts nothing."""
    import command_place

    yield from command_place.entered(place, monkeypatch)
