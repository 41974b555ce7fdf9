from dataclasses import replace

import numpy as np
from states import make_job

from policy_net.domain import Allocation
from policy_net.throughput.beliefs import TypeCache


class Speeds:
    """A model of one type."""

    def __init__(self) -> None:
        self.latest = np.ones((17, 17))

    def grid(self, job_type: str) -> np.ndarray:
        del job_type
        return self.latest

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        return float(self.grid(job_type)[ps, workers])


def test_a_thing_is_made_once_per_type_and_caps_and_anew_when_the_speeds_change() -> None:
    speeds = Speeds()
    made: list[tuple[int, int, Allocation]] = []

    def make(grid: np.ndarray, max_ps: int, max_workers: int, smallest: Allocation) -> int:
        assert grid is speeds.latest
        made.append((max_ps, max_workers, smallest))
        return len(made)

    cache = TypeCache(speeds, make)
    job = make_job(0, "a")
    assert cache.of(job) == cache.of(replace(job, job_id="another")) == 1
    assert cache.of(replace(job, max_workers=job.max_workers - 1)) == 2
    assert cache.of(job) == 1
    assert made[0] == (job.max_ps, job.max_workers, job.smallest)
    speeds.latest = speeds.latest.copy()
    assert cache.of(job) == 3
