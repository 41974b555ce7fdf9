"""Comparisons made by hand: what each job took under two policies, without simulating anything."""

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from worlds import make_spec

from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.metrics import JobOutcome, JobResult, RunCounters
from policy_net.laboratory.simulation.replay import ReplayResult
from policy_net.laboratory.workloads.workload import Workload

sys.path.append(str(Path(__file__).parents[3] / "global_learner"))  # `browser`

HOUR = 3600.0


def result_of(policy: str, jcts: Sequence[float], workers: Sequence[int], ids: Sequence[str]) -> ReplayResult:
    """A replay in which every job trains from its submission at 0 to its end, on as many GPUs as it asked for."""
    return ReplayResult(
        workload="made",
        policy=policy,
        outcomes=tuple(JobOutcome(job_id, 0.0, 0.0, jct) for job_id, jct in zip(ids, jcts, strict=True)),
        counters=RunCounters(gpu_seconds=math.fsum(jct * size for jct, size in zip(jcts, workers, strict=True))),
        gpu_utilization=0.5,
        inference_p50_us=None,
        slot_decide_p99_ms=0.1,
        wall_seconds=0.1,
        timeline={job_id: [(0.0, size, 1), (jct, 0, 0)] for job_id, jct, size in zip(ids, jcts, workers, strict=True)},
        gpu_training_share=0.4,
        job_results=tuple(
            JobResult(job_id, size, HOUR, jct, 0.0) for job_id, jct, size in zip(ids, jcts, workers, strict=True)
        ),
    )


@pytest.fixture
def made() -> Callable[..., Comparison]:
    """Builds a comparison from completion times in hours by policy."""

    def make(
        hours: dict[str, Sequence[float]],
        workers: Sequence[int] | None = None,
        ids: Sequence[str] | None = None,
        nodes_given: bool = True,
        name: str = "made",
        notes: tuple[str, ...] = (),
        **environment: object,
    ) -> Comparison:
        count = len(next(iter(hours.values())))
        workers = workers or [1] * count
        ids = ids or [f"job-{number}" for number in range(count)]
        settings: dict[str, object] = {"nodes": 4, "decide_on": DecideOn.EVENT, **environment}
        return Comparison(
            Workload(name, tuple(make_spec(job_id=job_id) for job_id in ids), notes, slotted=False),
            Environment(**settings),  # type: ignore[arg-type]
            tuple(
                result_of(policy, [value * HOUR for value in values], workers, ids) for policy, values in hours.items()
            ),
            nodes_given,
        )

    return make
