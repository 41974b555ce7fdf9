"""Simulated worlds: generated workloads, and ten thousand jobs of a real cluster or of one that is drawn like it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from policy_net.laboratory.workloads.source_options import WorkloadOptions
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import JobKindChoice, Workload

SEED = 9973
"""Of the generated workloads; the one in the guide's example."""

REAL_FILE = "workloads/itp-04.csv"
"""The largest cluster of Microsoft ITP, as ElasticFlow's authors published it: 12,369 jobs."""
REAL_JOBS = 10_000
REAL_NODES = 1_000
REAL_LOAD = 0.9
"""GPUs asked for over GPUs there are; what a workload's suggested cluster size is made for."""

DRAWN_SIZES = (1, 2, 4, 8, 16, 32)
DRAWN_SHARES = (0.792, 0.01, 0.046, 0.131, 0.005, 0.016)
DRAWN_MEDIAN_SECONDS = 9_000.0
DRAWN_SIGMA = 1.1
DRAWN_GAP_SECONDS = 222.0
"""Of the drawn jobs; the figures are those of the real file's first ten thousand."""


def generated(jobs: int) -> Workload:
    """A generated workload; the number of jobs present at a time does not depend on how many there are in all."""
    return load_workload(f"dl2:jobs={jobs},arrivals=google,sizes=varied,seed={SEED}")


def real(data_folder: Path | None, scratch: Path) -> tuple[Workload, str]:
    """Ten thousand jobs that load a thousand nodes to 90%, and what they are.

    Args:
        data_folder: has `workloads/itp-04.csv`; None draws jobs like those of that file.
        scratch: a folder to write the drawn jobs to, as they go through the loader like any others.
    """
    path = scratch / "drawn.csv" if data_folder is None else data_folder / REAL_FILE
    if data_folder is None:
        draw_trace(path)
    kind = JobKindChoice.PS
    suggested = load_workload(str(path), WorkloadOptions(limit_jobs=REAL_JOBS, job_kind=kind)).suggested_nodes
    if suggested is None:
        raise ValueError(f"{path}: suggests no cluster size")
    scale = suggested / REAL_NODES
    workload = load_workload(str(path), WorkloadOptions(limit_jobs=REAL_JOBS, arrival_scale=scale, job_kind=kind))
    origin = REAL_FILE if data_folder else "drawn: exponential gaps, lognormal durations, ITP's sizes"
    return workload, f"{origin}, arrivals × {scale:.3g} for a load of {REAL_LOAD:g}"


def draw_trace(path: Path) -> None:
    """Write jobs drawn like ITP's fourth cluster: median and spread of durations, shares of sizes, mean gap."""
    generator = np.random.default_rng(SEED)
    sizes = generator.choice(DRAWN_SIZES, size=REAL_JOBS, p=DRAWN_SHARES)
    seconds = np.exp(generator.normal(np.log(DRAWN_MEDIAN_SECONDS), DRAWN_SIGMA, size=REAL_JOBS)).clip(60.0, 14 * 86400)
    submits = generator.exponential(DRAWN_GAP_SECONDS, size=REAL_JOBS).cumsum()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["job_id", "submit_time_s", "duration_s", "num_gpus"])
        for number, (submit, duration, size) in enumerate(zip(submits, seconds, sizes, strict=True)):
            writer.writerow([f"job-{number}", f"{submit:.0f}", f"{duration:.0f}", size])
