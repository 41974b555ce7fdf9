import os

# Before anything computes: tests share the cores by processes (`make test`), not by threads within them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import atexit
import gc
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

# Nothing that is imported or collected is garbage before the last test has ended (`pytest_collection_finish`).
gc.disable()


@atexit.register
def _end() -> None:
    """Of several processes each just ends: all was told. One alone leaves nothing, or libraries complain of leaks."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        os._exit(0)
    gc.unfreeze()


# In the background of a script SIGINT is ignored, also by every program that a test starts, and then ends with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What somebody has set to look after a learner of theirs is no business of a test, nor of the programs that it starts;
# nor is how wide their terminal is, which some shells tell.
for _name in ("FEDL2_LEARNER", "FEDL2_CERT", "COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# What tests of several packages use; with importlib import mode no folder is on the path by itself.
sys.path.insert(0, str(Path(__file__).parent / "sockets"))
sys.path.insert(0, str(Path(__file__).parent / "foundation"))
sys.path.insert(0, str(Path(__file__).parent / "made_up"))

# A test never asserts a time, and on a busy machine any example may take long. A run says something about the change
# that it is for: it draws the same examples as the run before, of which more find little. To search for others, and
# twice as many: `--hypothesis-profile=search`.
settings.register_profile("search", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("search"), max_examples=50, derandomize=True, print_blob=True)
settings.load_profile("same")


_LIBRARIES = ("FLWR_", "GRPC_VERBOSITY", "KMP_", "TORCH", "PYGAME_", "RAY_", "PYTHONBREAKPOINT", "PYTEST_")
"""Variables that libraries set when they are loaded begin so."""


@pytest.fixture(autouse=True)
def _environment_as_it_was() -> Iterator[None]:
    """What a test leaves in the environment would be found by the programs that later ones start."""
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    changed = {name for name in changed if not name.startswith(_LIBRARIES)}
    for name in changed:
        os.environ.pop(name, None)
        os.environ.update({name: before[name]} if name in before else {})
    assert not changed, f"the test leaves {', '.join(sorted(changed))} changed"


_MARK = re.compile(r"\bpytest\.mark\.(?:heavy|long)\b")
_MARKS_OF_ALL = re.compile(r"^pytestmark = (?:\[[^\]]*\]|.*)", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which `make test` or `make test-long` runs nothing: to import all takes each of its processes long."""
    if collection_path.suffix != ".py" or config.option.markexpr not in ("heavy or long", "not heavy and not long"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    if config.option.markexpr == "heavy or long":
        return None if _MARK.search(text) else True
    return True if any(_MARK.search(found) for found in _MARKS_OF_ALL.findall(text)) else None


@pytest.hookimpl(trylast=True)  # of what `-m` has left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where processes share the tests: files with long ones first, then those with heavy ones.

    A process takes whole files in this order: what is left for the end is short, and all end at about the same time.
    """
    if hasattr(config, "workerinput"):
        marked = {
            name: {item.path for item in items if item.get_closest_marker(name) is not None}
            for name in ("long", "heavy")
        }
        items.sort(key=lambda item: (item.path not in marked["long"], item.path not in marked["heavy"]))


def pytest_collection_finish() -> None:
    """Garbage is looked for from now on, and among what tests make alone."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _logging_of_one_test_only() -> Iterator[None]:
    """A program that runs inside a test sets up its logging; the next test is to see the logs that it asks for."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measured speeds and real traces, which the project does not ship; small made-up ones where they are not there."""
    from made_up_data import write_data

    folder = _measured()
    return folder if folder.is_dir() else write_data(tmp_path_factory.mktemp("made_up") / "data")


def _measured() -> Path:
    stated = os.environ.get("FEDL2_DATA")
    return Path(stated) if stated else Path(__file__).parents[2] / "shared" / "data"
