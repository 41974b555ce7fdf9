"""Ctrl-C at every moment of a program's start: one line or silence, and exit code 130; never a traceback.

A moment is an import: the interrupt comes right when the program's n-th module is looked for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
ENTRIES = {name: entry.split(":") for name, entry in SCRIPTS.items()}
MOMENTS = 5
DRIVER = """
import atexit, os, signal, sys
{imported}
moment, looked = int(sys.argv.pop(1)), [0]
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        looked[0] += 1
        if looked[0] == moment:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
if not moment:
    atexit.register(lambda: print(looked[0]))
{begin}
"""


def started(program: str, moment: int, *words: str) -> subprocess.CompletedProcess[str]:
    """A program whose start is interrupted at a moment; at 0, it is not, and counts them."""
    imported, begin = "from foundation import program_life", "program_life.begin('demo', 'deploy.local.demo')"
    if program in ENTRIES:
        module, function = ENTRIES[program]
        assert module == "foundation.start", "which imports nothing that takes time"
        imported, begin = "from foundation import start", f"sys.argv[0] = {program!r}\nstart.{function}()"
    driver = DRIVER.replace("{imported}", imported).replace("{begin}", begin)
    command = [sys.executable, "-c", driver, str(moment), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=200, cwd=ROOT)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Programs are not told to ignore them, as those are that a shell starts in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.heavy
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("program", [*ENTRIES, "demo"])
def test_an_interrupt_while_a_program_starts_is_one_line(program: str) -> None:
    whole = started(program, 0, "--help")
    assert whole.returncode == 0, whole.stderr
    looked = int(whole.stdout.splitlines()[-1])
    assert looked > 50
    for number in range(MOMENTS):
        moment = 1 + number * (looked - 1) // (MOMENTS - 1)
        done = started(program, moment, "--help")
        assert done.stderr in ("", f"{program}: interrupted\n"), f"at import {moment} of {looked}"
        assert done.returncode == 130, f"at import {moment} of {looked}"


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("function", [function for _, function in ENTRIES.values()])
def test_an_interrupt_at_any_import_of_the_console_script_is_one_line(function: str) -> None:
    """From the first statement of ours on, whatever is looked for; the module that answers is looked for before."""
    driver = (
        "import importlib.machinery, os, signal, sys\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name not in ('foundation', 'foundation.start'): os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder)\nsys.argv[0] = '/usr/bin/program'\n"
        f"from foundation import start\nstart.{function}()"
    )
    done = subprocess.run([sys.executable, "-c", driver], check=False, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (130, "program: interrupted\n")


def test_a_program_that_was_told_to_ignore_interrupts_goes_on() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = started("policyctl", 20, "--help")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.returncode == 0, done.stderr


def test_the_start_itself_imports_nothing_that_takes_time() -> None:
    program = (
        "import sys; before = {*sys.modules}; import foundation.start, foundation.program_life\n"
        "print(*sorted({*sys.modules} - before))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", program], check=True, capture_output=True, text=True, cwd=ROOT)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    light = {"foundation", "signal", "enum", "contextlib", "importlib", "collections", "types", "functools", "operator"}
    assert loaded <= light | sys.stdlib_module_names
    assert not loaded & {"asyncio", "dataclasses", "inspect", "typing_extensions", "logging", "threading"}


def test_a_program_that_ends_has_written_everything_and_waited_for_its_threads() -> None:
    program = (
        "import atexit, sys, threading\nfrom foundation import program_life\n"
        "print('begun', end=' ')\natexit.register(lambda: print('told', end=' '))\n"
        "go = threading.Event()\nthreading.Thread(target=lambda: (go.wait(60), print('done', end=' '))).start()\n"
        "class Loop:\n    def __del__(self): print('taken apart')\n"
        "loop = Loop()\nloop.itself = loop\ngo.set()\nprogram_life.end(7)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (7, "begun done told ", "")


@pytest.mark.parametrize("collects", [True, False])
def test_while_it_imports_nothing_is_looked_through_for_garbage(collects: bool) -> None:
    program = (
        f"import gc\nfrom foundation import program_life\nif not {collects}: gc.disable()\n"
        "with program_life.importing():\n    print(gc.isenabled())\n    kept = [[]]\n"
        "print(gc.isenabled(), any(found is kept for found in gc.get_objects()))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["False", str(collects), "False"]


@pytest.mark.parametrize("program", ["policy_net", "global_learner"])
@pytest.mark.parametrize("stated", [None, "2"])
def test_numpy_starts_no_threads_in_programs_that_run_no_script_of_a_user(program: str, stated: str | None) -> None:
    source = (
        "import os\nfrom foundation import start\nstart._begin = lambda *names: None\n"
        f"start.{program}()\nimport numpy\n"
        "print(os.environ['OPENBLAS_NUM_THREADS'], len(os.listdir('/proc/self/task')))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    if stated is not None:
        environment["OPENBLAS_NUM_THREADS"] = stated
    done = subprocess.run(
        [sys.executable, "-c", source], check=True, capture_output=True, text=True, timeout=200, env=environment
    )
    threads = min(int(stated or "1"), len(os.sched_getaffinity(0)))
    assert done.stdout.split() == [stated or "1", str(threads)]
