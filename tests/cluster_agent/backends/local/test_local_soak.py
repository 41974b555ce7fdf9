"""A day's worth of small jobs at speed, with deaths in between: memory stays flat, and no file or GPU is left."""

from __future__ import annotations

import gc
import pathlib
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from local_world import LocalWorld

from cluster_agent.backends.local.job_table import JobState
from policy_net.domain import SUSPENDED, Allocation, Decision

JOBS = 1000
KINDS = [
    {"worker": {"gpu": 1, "cpu": 1}},
    {"communication": "AllReduce", "worker": {"gpu": 1, "cpu": 1}},
    {"elastic": False, "communication": "AllReduce", "worker": {"min": 1, "max": 1, "replicas": 1, "cpu": 1}},
]


@pytest.fixture
def fast_folder(tmp_path: Path) -> Iterator[Path]:
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


def one_day(world: LocalWorld, jobs: int, first: int) -> None:
    """So many jobs, twelve at a time; every fortieth launcher dies, and the agent with every hundredth job."""
    for number in range(first, first + jobs, 12):
        names = [f"job-{number + one}" for one in range(12)]
        for one, name in enumerate(names):
            world.submit(name, epochs=0.2 + 0.2 * (one % 3), **KINDS[one % 3])
        if number % 40 < 12:
            world.at.append((world.now + 4.0, world.jobs[names[0]].kill))
        while not world.backend.finished:
            observed = world.backend.observe()
            if observed is None:
                break
            left, wanted = observed[0].total, {}
            for job in observed[0].jobs:
                size = Allocation(job.min_workers, job.min_ps) if job.max_workers else SUSPENDED
                takes = job.worker_demand * size.workers + job.ps_demand * size.ps
                if takes.fits_in(left):
                    left, wanted[job.job_id] = left - takes, size
            world.backend.apply(Decision(wanted))
        for name in names:
            del world.jobs[name]
        if number % 100 < 12:
            world.restart()


def traced_bytes() -> int:
    """Without the interpreter's own table of interned strings, which doubles now and then."""
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, pathlib.__file__)])
    return sum(trace.size for trace in snapshot.traces)


@pytest.mark.heavy
def test_a_thousand_jobs_leave_nothing_behind(fast_folder: Path) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    world = LocalWorld(fast_folder, cpu_milli=8000, gpus=4, slot_seconds=6.0)
    world.longest_seconds = float("inf")
    tracemalloc.start()
    one_day(world, JOBS // 2, 0)  # from here on each that ends takes the place of one that ended long ago
    gc.collect()  # what tests before this one left in the same process goes first, or it would go meanwhile
    files, descriptors = sorted((fast_folder / "jobs").iterdir()), len(list(Path("/proc/self/fd").iterdir()))
    before = traced_bytes()
    one_day(world, JOBS // 2, JOBS)
    gc.collect()
    after = traced_bytes()
    tracemalloc.stop()
    records = [world.backend.table.get(name) for name in world.ends]
    assert len(records) >= JOBS
    assert {record.state for record in records} == {JobState.DONE}
    assert set(world.ends.values()) == {1}
    assert world.ledger.granted == {}
    assert sorted((fast_folder / "jobs").iterdir()) == files
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors
    per_job = (after - before) / (JOBS // 2)
    assert per_job < 1_000, f"{per_job:.0f} bytes a job stay"
