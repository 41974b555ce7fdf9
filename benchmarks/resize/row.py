"""One row of the record: what the resizes of one model size and one mode cost, from what was observed.

Step times are the workers' own, by their clocks. What a step takes while blocks move is compared with quiet steps of
the same run right before and after, means with means, so that what else runs on the machine meets both.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.resize.resizing import AFTERMATH_SECONDS, Observation, Resize, Step, WorkerSteps
from elastic_runtime.control.messages import ResizeMode

SLOT_SECONDS = 1200.0
"""Between two resizes, of a scheduler that decides every 20 minutes (DL2 §6)."""


def row(
    model_mb: float, mode: ResizeMode, observation: Observation, minimum_bytes: Sequence[int], model_bytes: int
) -> dict[str, Any]:
    """Figures of one mode at one size.

    Args:
        model_mb: as it was asked for.
        minimum_bytes: of each resize: what any even assignment had to move at least.
        model_bytes: of all parameters: what a restart brings to its new places by way of the disk.
    """
    restarts = mode is ResizeMode.CHECKPOINT_RESTART
    costs = [_cost(observation, index, restarts) for index in range(len(observation.resizes))]
    requests = [resize.request for resize in observation.resizes]
    moved = [model_bytes if restarts else request.moved_bytes for request in requests]
    stalls_ms = [1000.0 * cost["stall_seconds"] for cost in costs]
    base = sum(cost["base_seconds"] * cost["steps"] for cost in costs)
    migrating = sum(cost["migrating_seconds"] for cost in costs)
    extra = statistics.fmean(cost["extra_seconds"] for cost in costs)
    return {
        "model_mb": model_mb,
        "mode": mode.value,
        "resizes": len(costs),
        "stall_p50_ms": _percentile(stalls_ms, 50),
        "stall_p99_ms": _percentile(stalls_ms, 99),
        "stall_max_ms": round(max(stalls_ms), 3),
        "extra_step_time_percent": round(100.0 * (migrating / base - 1.0), 2),
        "moved_bytes_over_minimum": round(sum(moved) / sum(minimum_bytes), 4) if sum(minimum_bytes) else None,
        "total_seconds": round(observation.total_seconds, 1),
        "overhead_percent_at_one_resize_per_20_minutes": round(100.0 * extra / SLOT_SECONDS, 4),
        "overhead_percent_of_moving_alone": round(100.0 * (migrating - base) / len(costs) / SLOT_SECONDS, 4),
        "extra_seconds_per_resize": round(extra, 3),
        "extra_seconds_per_resize_of_moving_alone": round((migrating - base) / len(costs), 3),
        "moved_bytes": moved,
        "planned_bytes": [request.minimum_bytes for request in requests],
        "minimum_bytes": list(minimum_bytes),
        "clocks": [request.clock for request in requests],
        "steps_per_resize": [request.steps for request in requests],
        "step_seconds_base": _mean(cost["base_seconds"] for cost in costs),
        "step_seconds_migrating": round(migrating / sum(cost["steps"] for cost in costs), 4),
        "step_seconds_longest_migrating": round(max(cost["longest_seconds"] for cost in costs), 4),
        "seconds_from_request_to_end": _mean(
            resize.done_seconds - resize.asked_seconds for resize in observation.resizes
        ),
        "phases_seconds": {
            "process_start": _median(request.start_seconds for request in _growing(observation)),
            "registration": _median(request.registration_seconds for request in _growing(observation)),
            "assignment": _median(request.assignment_seconds for request in requests),
            "agreement": _median(request.agreement_seconds for request in requests),
            "migration": _median(request.migration_seconds for request in requests),
            "worker_update": _median(cost["stall_seconds"] for cost in costs),
        },
        "longest_step_over_usual_ms": [round(1000.0 * (c["longest_seconds"] - c["base_seconds"]), 3) for c in costs],
        "stalls_at_workers_ms": [round(1000.0 * cost["worker_stall_seconds"], 3) for cost in costs],
        "stalls_ms": [round(stall, 3) for stall in stalls_ms],
    }


def _growing(observation: Observation) -> list[Any]:
    return [resize.request for resize in observation.resizes if resize.request.start_seconds] or [
        resize.request for resize in observation.resizes
    ]


def _cost(observation: Observation, index: int, restarts: bool) -> dict[str, float]:
    """What one resize cost, the mean over the workers where nothing else is said."""
    resizes, workers = observation.resizes, observation.workers
    resize = resizes[index]
    quiet = [(observation.warm_seconds, resizes[0].asked_seconds)]
    quiet += [(r.done_seconds + AFTERMATH_SECONDS, r.settled_seconds) for r in resizes]
    before, after = _mean_step(workers, quiet[index]), _mean_step(workers, quiet[index + 1])
    base = (before + after) / 2
    if restarts:
        gap = _longest_gap(workers, resize) - base
        return {
            "stall_seconds": gap,
            "worker_stall_seconds": gap,
            "base_seconds": base,
            "steps": 1.0,
            "migrating_seconds": base + gap,
            "longest_seconds": base + gap,
            "extra_seconds": gap,
        }
    first, last = resize.request.clock - 1, resize.request.clock + max(resize.request.steps, 1) - 1
    alive = [worker for worker in workers if worker.between(first, last)]
    moving = [step for worker in alive for step in worker.between(first, last)]
    stall = max(
        sum(step.stall_seconds for step in worker.during([(resize.asked_seconds, resize.settled_seconds)]))
        for worker in alive
    )
    window = (resize.asked_seconds, resize.done_seconds + AFTERMATH_SECONDS)
    extra = sum(
        step.seconds - (before if step.number < first else base if step.number <= last else after)
        for worker in alive
        for step in worker.during([window])
    )
    return {
        "worker_stall_seconds": stall,
        "stall_seconds": max(stall, resize.request.stall_seconds),
        "base_seconds": base,
        "steps": float(last - first + 1),
        "migrating_seconds": sum(step.seconds for step in moving) / len(alive),
        "longest_seconds": max(step.seconds for step in moving),
        "extra_seconds": extra / len(alive),
    }


def _mean_step(workers: Sequence[WorkerSteps], span: tuple[float, float]) -> float:
    steps: list[Step] = [step for worker in workers for step in worker.during([span])]
    if not steps:
        raise ValueError("no quiet step between two resizes; let the job settle for longer")
    return statistics.fmean(step.seconds for step in steps)


def _longest_gap(workers: Sequence[WorkerSteps], resize: Resize) -> float:
    """The longest time in which no process began a step."""
    began = sorted(
        seconds
        for worker in workers
        for seconds in (*(step.began_seconds for step in worker.steps), worker.last_seconds)
        if resize.asked_seconds <= seconds <= resize.settled_seconds
    )
    return max(later - earlier for earlier, later in itertools.pairwise(began))


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 6)


def _mean(values: Iterable[float]) -> float:
    return round(statistics.fmean(values), 6)


def _percentile(values: Sequence[float], percent: float) -> float:
    return round(float(np.percentile(values, percent)), 3)
