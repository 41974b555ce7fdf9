"""What clusters bring with them on their first day: a recording of their past, and later jobs that nobody learns from.

With files the past is the first jobs of each, and what follows is held out. Without, both are made up here as people
submit them: in sweeps of runs that are alike and whose length nobody says, which is what a policy can learn of.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deploy.local.plan import HELD_OUT_SEED, ClusterPlan
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.workloads.sources import read_csv
from policy_net.laboratory.workloads.workload import JobKindChoice

PAST_JOBS, WINDOW_JOBS, WINDOWS = 600, 300, 6
"""Of made-up recordings: jobs of the past, jobs of a held-out window, and windows."""
RUNS_OF_A_SWEEP = {"vision": 16, "language": 24, "mixed": 8}
"""Mean number; how many there are is geometric."""
SWEEP_GAP_SECONDS_PER_RUN = 400.0
"""Between two sweeps, on average, for every run of one: so that all clusters have about as many jobs an hour."""
RUN_GAP_SECONDS = 15.0
USUAL_SECONDS, SWEEP_SIGMA, RUN_SIGMA = 1500.0, 1.4, 0.3
"""Half of all sweeps have runs longer than this; the deviation of the log from sweep to sweep, and within one."""
SHORTEST_SECONDS = 30.0
REQUESTED_GPUS = {1: 0.6, 2: 0.2, 4: 0.1, 8: 0.08, 16: 0.02}
"""And how often: most jobs of recorded clusters ask for one or two."""
SPEED_NOISE = 0.27
"""As the agents' own replays have it (`learning.twin.speed_noise`)."""
FEWEST_JOBS = 60
"""A held-out window of fewer tells nothing but its chance."""

Row = tuple[str, float, float, int]
"""Name, submission and duration in seconds, GPUs."""


@dataclass(frozen=True, slots=True)
class Past:
    """One cluster of the lessons.

    Attributes:
        recording: what it learns from.
        later: its machines, and the held-out windows of what it ran later.
    """

    recording: Path
    later: ClusterPlan


def make_pasts(plan: Sequence[ClusterPlan], folder: Path, seed: int, made_up: bool) -> tuple[Past, ...]:
    """Write the recordings; a cluster whose file holds too little to hold anything out is left out.

    Raises:
        BadInput: a file cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pasts = []
    for number, cluster in enumerate(plan):
        if made_up:
            draws = [np.random.default_rng((each, number)) for each in (seed, HELD_OUT_SEED + seed)]
            runs = RUNS_OF_A_SWEEP[cluster.name]
            past = sweeps(draws[0], PAST_JOBS, runs)
            later, length = sweeps(draws[1], WINDOWS * WINDOW_JOBS, runs), WINDOW_JOBS
        else:
            rows = rows_of(Path(cluster.source))
            past, later, length = rows[: cluster.jobs], rows[cluster.jobs : (1 + WINDOWS) * cluster.jobs], cluster.jobs
        if length < FEWEST_JOBS or len(later) < length:
            continue
        recording, following = folder / f"{cluster.name}-past.csv", folder / f"{cluster.name}-later.csv"
        write_rows(recording, cluster.name, past)
        write_rows(following, cluster.name, later)
        pasts.append(Past(recording, _later(cluster.name, recording, following, length, len(later) // length, seed)))
    return tuple(pasts)


def _later(cluster: str, recording: Path, following: Path, length: int, windows: int, seed: int) -> ClusterPlan:
    """Windows of later jobs, on as many machines as the past suggests; every window draws its jobs' models anew."""
    usual = WorldOptions(job_kind=JobKindChoice.MIX, durations="unknown", speed_noise=SPEED_NOISE, seed=seed)
    workload = usual.workload(str(recording), usual.speeds())
    machines = usual.environment(workload)
    held_out = tuple(
        WorldOptions(
            nodes=machines.nodes,
            gpus_per_node=machines.gpus_per_node,
            cpus_per_node=machines.cpus_per_node,
            job_kind=JobKindChoice.MIX,
            durations="unknown",
            speed_noise=SPEED_NOISE,
            seed=HELD_OUT_SEED + seed + window,
            limit_jobs=length,
            window=window,
        )
        for window in range(windows)
    )
    return ClusterPlan(cluster, str(following.resolve()), held_out[0], held_out, length, machines.nodes)


def sweeps(generator: np.random.Generator, jobs: int, runs: int) -> list[Row]:
    """Jobs as people submit them who try a model with many settings.

    Args:
        runs: of a sweep, on average.
    """
    sizes, shares = list(REQUESTED_GPUS), list(REQUESTED_GPUS.values())
    rows: list[Row] = []
    seconds = 0.0
    while len(rows) < jobs:
        seconds += generator.exponential(SWEEP_GAP_SECONDS_PER_RUN * runs)
        usual = math.log(USUAL_SECONDS) + SWEEP_SIGMA * generator.standard_normal()
        gpus = int(generator.choice(sizes, p=shares))
        for _ in range(int(generator.geometric(1.0 / runs))):
            seconds += generator.exponential(RUN_GAP_SECONDS)
            length = math.exp(usual + RUN_SIGMA * generator.standard_normal())
            rows.append((f"job-{len(rows)}", round(seconds, 1), round(max(SHORTEST_SECONDS, length), 1), gpus))
    return rows[:jobs]


def rows_of(file: Path) -> list[Row]:
    """The jobs of a csv by submission."""
    records = sorted(read_csv(file).records, key=lambda record: (record.submit_seconds, record.number))
    return [(record.job_id, record.submit_seconds, record.duration_seconds, record.gpus) for record in records]


def write_rows(file: Path, cluster: str, rows: Iterable[Row]) -> None:
    """A csv as `policy-net replay` takes it."""
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(("cluster", "job_id", "submit_time_s", "duration_s", "num_gpus"))
        writer.writerows((cluster, *row) for row in rows)
