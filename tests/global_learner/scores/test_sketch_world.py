"""Work that is made up from a sketch is of its kind, the same for the same seed, and can always be replayed."""

import json
import math
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from global_learner.scores.replay_process import NoAnswer
from global_learner.scores.scorer import SketchReplayer
from global_learner.scores.scoring import LEAST_JOBS, MOST_JOBS, arrival_seconds, drawn, mean_jcts, world_of
from global_learner.section_settings import ScoreSettings
from policy_net.domain import JobKind
from policy_net.errors import BadInput
from policy_net.exchange.workload_sketch import KindSketch, WorkloadSketch
from policy_net.laboratory.simulation.admission import check_jobs_can_run
from policy_net.laboratory.speeds.speed import default_speeds

PS = KindSketch(JobKind.PS, 0.75, (600.0, 1200.0, 2400.0, 4800.0, 9600.0), (1, 1, 2, 4, 8), (1, 1, 1, 2, 2))
RING = KindSketch(JobKind.ALLREDUCE, 0.25, (600.0,) * 5, (1, 2, 4, 8, 16), (0,) * 5)
SKETCH = WorkloadSketch(8, 2, 8, 40.0, (0.0, 0.0, 0.25, 0.25, 0.25, 0.25, 0.0, 0.0), (PS, RING))
SPEEDS = default_speeds()


@pytest.mark.heavy
@settings(max_examples=60, deadline=None)
@given(
    nodes=st.integers(1, 16_384),
    gpus=st.integers(1, 16),
    cpus=st.integers(4, 128),
    rate=st.floats(0.01, 1e6),
    seed=st.integers(0, 2**48),
)
def test_every_sketch_makes_a_bounded_workload_that_its_machines_can_run(
    nodes: int, gpus: int, cpus: int, rate: float, seed: int
) -> None:
    sketch = replace(SKETCH, nodes=nodes, gpus_per_node=gpus, cpus_per_node=cpus, jobs_a_day=rate)
    workload, environment = world_of(sketch, seed, SPEEDS)
    assert LEAST_JOBS <= len(workload.jobs) <= MOST_JOBS
    grids = {job.job_type: SPEEDS.grid(job.job_type).tolist() for job in workload.jobs}
    check_jobs_can_run(workload, environment, grids)
    assert all(math.isfinite(job.submit_time_seconds) and job.total_epochs > 0.0 for job in workload.jobs)
    assert world_of(sketch, seed, SPEEDS)[0] == workload


def test_arrivals_follow_rate_and_day_and_jobs_the_kinds() -> None:
    times = arrival_seconds(SKETCH, 4000, SKETCH.jobs_a_day, np.random.default_rng(3))
    assert 3700 < SKETCH.jobs_a_day * times[-1] / 86_400.0 < 4300
    by_day = np.mean([(6 * 3600 <= at % 86_400 < 18 * 3600) for at in times])
    assert 0.9 < by_day < 1.0
    workload, _ = world_of(replace(SKETCH, jobs_a_day=96.0), 5, SPEEDS)
    kinds = Counter(job.kind for job in workload.jobs)
    assert 0.6 < kinds[JobKind.PS] / len(workload.jobs) < 0.9
    assert {job.requested.workers for job in workload.jobs} <= set(range(1, 17))


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_what_is_drawn_rises_with_its_place_and_stays_within_what_was_said(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert 599.9 <= drawn(PS.run_seconds, low) <= drawn(PS.run_seconds, high) + 1e-6 <= 9600.1


def test_heuristics_are_replayed_on_a_sketch_and_a_damaged_version_is_not(tmp_path: Path) -> None:
    question = {"sketch": SKETCH.to_json(), "seed": 7, "policies": {"drf": None, "optimus": None}}
    found = mean_jcts(json.loads(json.dumps(question)))
    assert set(found) == {"drf", "optimus"}
    assert all(value is not None and value > 0.0 for value in found.values())
    file = tmp_path / "v2.safetensors"
    file.write_bytes(b"else")
    with pytest.raises(BadInput, match="damaged"):
        mean_jcts({**question, "policies": {"v2": {"file": str(file), "digest": "0" * 64}}})


@pytest.mark.parametrize(
    ("code", "seconds", "reason"),
    [
        ("while True: pass", 0.5, "it took longer than 0.5 s"),
        ("import os; os.kill(os.getpid(), 9)", 60.0, "its process was ended by SIGKILL"),
        ("print('{}')", 60.0, "its process printed no times"),
        ("print('{\"drf\": []}')", 60.0, "its process printed no times"),
    ],
)
async def test_a_process_that_gives_no_times_says_why(code: str, seconds: float, reason: str) -> None:
    replayer = SketchReplayer(ScoreSettings(sketch_deadline_seconds=seconds), (sys.executable, "-c", code))
    assert await replayer(SKETCH.to_json(), 1, {"drf": None}) == NoAnswer(reason)


@pytest.mark.heavy
async def test_the_process_itself_answers() -> None:
    replayer = SketchReplayer(ScoreSettings(nice=0))
    found = await replayer(SKETCH.to_json(), 7, {"drf": None, "optimus": None})
    assert found == mean_jcts({"sketch": SKETCH.to_json(), "seed": 7, "policies": {"drf": None, "optimus": None}})
