"""Maker of a cluster's sketch, from what its decision log says of the last four weeks; a process of its own.

Few numbers leave it, and coarse ones. Kinds with fewer than `LEAST_JOBS` jobs are left out, and so is the shape of the
day where a part of it would rest on few jobs; with no kind left there is no sketch. Every figure is rounded to a step
of a grid, so that a quantile is not the figure of the one job that it falls on.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from policy_net.domain import MAX_TASKS_PER_ROLE, JobKind, Resources
from policy_net.errors import BadInput
from policy_net.exchange.workload_sketch import (
    LONGEST_SECONDS,
    PARTS_OF_DAY,
    QUANTILES,
    SHORTEST_SECONDS,
    KindSketch,
    WorkloadSketch,
)
from policy_net.laboratory.workloads.decided import RecordedJobs, read_recorded
from policy_net.laboratory.workloads.workload import WorkloadJob

LEAST_JOBS = 20
"""Of a kind; with fewer, nothing is said of it."""
LEAST_FOR_DAY = 160
"""Of all kinds, for the shape of the day: 20 a part on average."""
_WINDOW_SECONDS = 28 * 86_400.0
_DAY_SECONDS = 86_400.0
_SHARE_STEP = 0.05
_LENGTH_STEPS = 2
_RATE_STEPS = 4
_MOST_BYTES = 2**30


def sketch_of(recorded: RecordedJobs) -> WorkloadSketch | None:
    """A sketch of the jobs of the last four weeks of a log; None where they are too few, or no node has a GPU.

    Raises:
        BadInput: what comes out cannot be a sketch.
    """
    end = recorded.end_seconds - recorded.start_seconds
    lengths: dict[JobKind, list[tuple[WorkloadJob, float]]] = {}
    jobs = [spec for spec in recorded.workload.jobs if spec.submit_time_seconds >= end - _WINDOW_SECONDS]
    for spec in jobs:
        requested = spec.requested
        speed = (
            recorded.speeds.samples_per_second(spec.job_type, requested.ps, requested.workers)
            if requested.workers
            else 0.0
        )
        if speed > 0.0:
            run_seconds = spec.total_epochs * spec.samples_per_epoch / speed
            lengths.setdefault(spec.kind, []).append((spec, run_seconds))
    kept = {kind: entries for kind, entries in lengths.items() if len(entries) >= LEAST_JOBS}
    capacities = [node for node in recorded.usual_nodes if node.gpu > 0]
    if not kept or not capacities:
        return None
    total = sum(map(len, kept.values()))
    days = max(min(end, _WINDOW_SECONDS), 1.0) / _DAY_SECONDS
    starts = [recorded.start_seconds + spec.submit_time_seconds for entries in kept.values() for spec, _ in entries]
    return WorkloadSketch(
        nodes=max(1, round(on_grid(len(capacities), _RATE_STEPS))),
        gpus_per_node=_middle(capacities, "gpu"),
        cpus_per_node=max(1, _middle(capacities, "cpu_milli") // 1000),
        jobs_a_day=on_grid(len(jobs) / days, _RATE_STEPS),
        day_shares=_day_shares(starts),
        kinds=tuple(_kind(kind, entries, len(entries) / total) for kind, entries in sorted(kept.items())),
    )


def on_grid(value: float, steps: int) -> float:
    """The nearest of `steps` values to a doubling, to three digits."""
    return float(f"{2.0 ** (round(math.log2(value) * steps) / steps):.3g}")


def _kind(kind: JobKind, entries: Sequence[tuple[WorkloadJob, float]], share: float) -> KindSketch:
    seconds = [min(max(value, SHORTEST_SECONDS), LONGEST_SECONDS) for _, value in entries]
    return KindSketch(
        kind,
        max(_SHARE_STEP, round(_SHARE_STEP * round(share / _SHARE_STEP), 2)),
        tuple(min(on_grid(value, _LENGTH_STEPS), LONGEST_SECONDS) for value in np.quantile(seconds, QUANTILES)),
        # Learners from before jobs had more refuse a sketch with more.
        _counts([min(spec.requested.workers, MAX_TASKS_PER_ROLE) for spec, _ in entries], 1),
        _counts([spec.requested.ps for spec, _ in entries], spec_least_ps(kind)),
    )


def spec_least_ps(kind: JobKind) -> int:
    """Parameter servers without which a job of a kind does not train."""
    return 1 if kind.uses_ps else 0


def _counts(values: Sequence[int], least: int) -> tuple[int, ...]:
    return tuple(max(least, round(value)) for value in np.quantile(values, QUANTILES))


def _day_shares(starts: Sequence[float]) -> tuple[float, ...]:
    if len(starts) < LEAST_FOR_DAY:
        return ()
    parts = [int(at % _DAY_SECONDS // (_DAY_SECONDS / PARTS_OF_DAY)) for at in starts]
    counts = np.bincount(parts, minlength=PARTS_OF_DAY)
    return tuple(round(_SHARE_STEP * round(count / len(starts) / _SHARE_STEP), 2) for count in counts)


def _middle(capacities: Sequence[Resources], what: str) -> int:
    return int(np.median([getattr(node, what) for node in capacities]))


def main() -> int:
    """Print the sketch of the log of a state directory as JSON, or null, and return the exit code."""
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
    try:
        sketch = sketch_of(read_recorded(Path(sys.argv[1])))
    except BadInput as error:
        print(str(error), file=sys.stderr)
        return 1
    print(json.dumps(None if sketch is None else sketch.to_json()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
