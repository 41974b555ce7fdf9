"""A task that is forked behaves as one that starts Python: what it sees, how it ends, what it leaves."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from started_tasks import Ended, Tasks

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

SEES = """
import os, sys
import torch
import helper
print(sys.argv, sys.orig_argv, __name__, __file__, __spec__, __package__, __doc__, __builtins__)
print(sys.path, os.getcwd(), helper.VALUE, sys.modules["__main__"].os is os)
print(sorted(vars(sys.modules["__main__"])))
print(sys.stdin.read(), sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.line_buffering, sys.stderr.errors)
ours = {"PYTHONUNBUFFERED", "OMP_NUM_THREADS", "HOME", "ELASTIC_TASK", "CUDA_VISIBLE_DEVICES"}
print({name: os.environ.get(name) for name in sorted(ours)}, os.getsid(0) == os.getpid() == os.getpgid(0))
print(torch.get_num_threads(), torch.get_num_interop_threads(), torch.is_grad_enabled(), torch.get_default_dtype())
print(open("/proc/self/oom_score_adj").read(), open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"))
print(sorted(os.listdir("/proc/self/fd")))
print(len(os.listdir("/proc/self/task")), __import__("gc").isenabled(), __import__("gc").get_threshold())
import signal
print([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), __import__("threading").main_thread().ident > 0)
print(__import__("multiprocessing").current_process().name, __import__("threading").current_thread().name)
"""
ENDS = {
    "raises": "def f():\n    raise ValueError('x')\nf()\n",
    "raises from another": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('y') from e\n",
    "is no Python": "x = (\n",
    "ends with a number": "import sys\nsys.exit(3)\n",
    "ends with words": "import sys\nsys.exit('sorry')\n",
    "ends with none": "raise SystemExit\n",
    "ends at once": "import os\nprint('a')\nos._exit(4)\n",
    "is interrupted": "raise KeyboardInterrupt\n",
    "is killed": "import os\nos.kill(os.getpid(), 9)\n",
    "is terminated": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nsignal.pause()\n",
    "writes without end of line": "import sys\nprint('a', end='')\nsys.stderr.write('b')\n",
    "has a hook": "import sys\nsys.excepthook = lambda *e: print('hook', e[0], e[2].tb_frame.f_code.co_name)\n1 / 0\n",
    "has work for the end": (
        "import atexit, threading, time\natexit.register(print, 'at exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\nprint('end')\n"
    ),
    "fails at the end": "import atexit\natexit.register(lambda: 1 / 0)\nprint('end')\n",
    "fails in a thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()\n",
    "warns": "import warnings\nwarnings.warn('careful')\n",
    "refuses its input": "import elastic_runtime as e\ne.join\nraise e.BadInput('a bad thing')\n",
}
PICKLES = """
import multiprocessing, pickle, sys
from dataclasses import dataclass
import torch
from torch.utils.data import DataLoader, Dataset

@dataclass
class Point:
    x: int

class Squares(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.tensor(index * index)

def double(point):
    return Point(2 * point.x)

def main():
    print(pickle.loads(pickle.dumps(Point(3))), Point.__module__)
    for way in ("fork", "spawn"):
        context = multiprocessing.get_context(way)
        with context.Pool(1) as pool:
            print(way, pool.map(double, [Point(1), Point(2)]))
        loader = DataLoader(Squares(), batch_size=4, num_workers=1, multiprocessing_context=way)
        print([batch.tolist() for batch in loader])
    queue = multiprocessing.get_context("spawn").Queue()
    queue.put(1)
    print(queue.get())

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tasks]:
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "train.py").write_text("import torch\nimport sklearn.datasets\nimport multiprocessing\n", "utf-8")
    (folder / "helper.py").write_text("VALUE = 1\n", encoding="utf-8")
    with Tasks(folder) as tasks:
        yield tasks


def both(tasks: Tasks, source: str, *words: str, variables: dict[str, str] | None = None) -> Ended:
    """What a script does when it is forked, having found that it does the same cold."""
    warm = tasks.run(source, *words, variables=variables)
    cold = tasks.run(source, *words, warm=False, variables=variables)
    assert warm.warm, tasks.reported()
    assert not cold.warm
    assert (warm.code, warm.out) == (cold.code, cold.out)
    assert addressless(warm.errors) == addressless(cold.errors)
    return warm


def addressless(text: str) -> str:
    """Without numbers that differ from run to run, and without what Python's resource tracker says on its own: a pool's
    process that is told to end between removing a semaphore and saying so leaves it on the tracker's list."""
    text = re.sub(r"^.*resource_tracker\.py:\d+: UserWarning: .*\n  warnings\.warn.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"0x[0-9a-f]+|Thread-\d+", "?", text)


def test_a_script_sees_the_same(tasks: Tasks) -> None:
    variables = {"ELASTIC_TASK": "worker-7", "CUDA_VISIBLE_DEVICES": ""}
    seen = both(tasks, SEES, "--rate", "0.1", variables=variables)
    assert seen.code == 0, seen.errors
    assert "worker-7" in seen.out


THREADS = (
    "import threading, numpy, torch, sklearn.datasets\nfrom threadpoolctl import threadpool_info\n"
    "print(sorted((p['prefix'], p['num_threads']) for p in threadpool_info()), torch.get_num_threads())\n"
    "t = threading.Thread(target=lambda: print(torch.get_num_threads()))\nt.start()\nt.join()\n"
    "print((torch.ones(600, 600) @ torch.ones(600, 600)).sum(), (numpy.ones((600, 600)) @ numpy.ones(600)).sum())\n"
)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_libraries_use_as_many_threads(tasks: Tasks, threads: str) -> None:
    assert "openblas" in both(tasks, THREADS, variables={"OMP_NUM_THREADS": threads}).out


@pytest.mark.parametrize("variable", ["OPENBLAS_NUM_THREADS", None])
def test_openblas_looks_at_its_own_variable_first_and_uses_no_more_than_its_cores(
    tmp_path: Path, variable: str | None
) -> None:
    (tmp_path / "train.py").write_text("import torch\nimport sklearn.datasets\n", encoding="utf-8")
    with Tasks(tmp_path, environment={} if variable is None else {variable: "1"}) as tasks:
        if variable is None:  # whatever it starts runs there, too
            os.sched_setaffinity(tasks.process.pid, {min(os.sched_getaffinity(0))})
        seen = both(tasks, THREADS, variables={"OMP_NUM_THREADS": "2"}).out
    assert "('libscipy_openblas', 1)" in seen
    assert "('libscipy_openblas', 2)" not in seen
    assert seen.splitlines()[1] == "2", "torch looks at OMP_NUM_THREADS alone"


@pytest.mark.parametrize("source", ENDS.values(), ids=ENDS)
def test_a_script_ends_the_same(tasks: Tasks, source: str) -> None:
    both(tasks, source, variables={"ELASTIC_COORDINATOR": "x"})


def test_what_a_script_defines_can_be_pickled_and_used_by_processes_that_it_starts(tasks: Tasks) -> None:
    done = both(tasks, PICKLES)
    assert done.code == 0, done.errors
    assert "spawn [Point(x=2), Point(x=4)]" in done.out


def test_each_start_has_random_numbers_of_its_own(tasks: Tasks) -> None:
    source = (
        "import multiprocessing, random, uuid, tempfile, numpy, torch\n"
        "print(torch.rand(3), torch.initial_seed())\nprint(random.random())\n"
        "print(numpy.random.rand())\nprint(uuid.uuid4())\n"
        "print(bytes(multiprocessing.current_process().authkey).hex())\nprint(tempfile.mktemp())\n"
    )
    first, second = (tasks.run(source).out.splitlines() for _ in range(2))
    assert len(first) == 6
    assert not set(first) & set(second)


def test_a_script_and_its_modules_are_read_anew(tasks: Tasks) -> None:
    seen = []
    for value in ("10", "200"):
        (tasks.folder / "changing.py").write_text(f"VALUE = {value}\n", encoding="utf-8")
        seen.append(tasks.run("import changing\nprint(changing.VALUE)\n").out)
    assert seen == ["10", "200"]


def test_a_script_that_has_gone_is_said_as_python_says_it(tasks: Tasks) -> None:
    command = [sys.executable, str(tasks.folder / "gone.py")]
    warm, cold = tasks.run_command(command), tasks.run_command(command, warm=False)
    assert warm.warm
    assert (warm.code, warm.errors) == (cold.code, cold.errors) == (2, cold.errors)


@pytest.mark.parametrize("words", [["--task=ps-0"], ["--rubbish"]])
def test_a_parameter_server_ends_the_same(tasks: Tasks, words: list[str]) -> None:
    command = [sys.executable, "-m", "elastic_runtime.server", *words]
    ours = {"PYTHONSAFEPATH": "1"}  # the server, which becomes a script too, has none
    warm, cold = (tasks.run_command(command, warm=warm, variables=ours) for warm in (True, False))
    assert (warm.warm, cold.warm) == (True, False)
    assert (warm.code, warm.out, warm.errors) == (cold.code, cold.out, cold.errors)


def test_a_script_elsewhere_finds_its_own_modules(tasks: Tasks, tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "neighbour.py").write_text("print('hello')\n", encoding="utf-8")
    (tmp_path / "place" / "real.py").write_text("import sys\nimport neighbour\nprint(sys.path[0])\n", "utf-8")
    link = tmp_path / "link.py"
    link.symlink_to(tmp_path / "place" / "real.py")
    warm, cold = (tasks.run_command([sys.executable, str(link)], warm=warm) for warm in (True, False))
    assert warm.warm
    assert (warm.out, warm.code) == (cold.out, cold.code) == (f"hello\n{tmp_path / 'place'}", 0)
