"""What recorded pasts teach: a fleet of its own within the demo learns from replays, and is judged on later jobs.

With files the past is the first jobs of each, and what follows is held out. Without, both are made up here as people
submit them: in sweeps of runs that are alike and whose length nobody says, which is what a policy can learn of.
Learner, agents, twins, pushes and versions are the real ones, but a lesson may take a whole core, and a version is made
every few updates: a demonstration has a minute, not weeks. Every version is judged on windows of later jobs against the
first: both meet the same jobs with the same models and noise, so that the mean's error is that of its windows.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deploy.demonstration.configs import FleetSettings
from deploy.demonstration.frame import Demonstration
from deploy.local.comparison import Task, evaluate
from deploy.local.fleet import PublishedVersion
from deploy.local.plan import HELD_OUT_SEED, ClusterPlan
from global_learner.report.learning import LessonCurve, LessonScore
from policy_net.dl2.network import initial_weights
from policy_net.exchange.policy_file import PolicyFile, write_policy_file
from policy_net.exchange.spec import SET
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.group_training import GroupLearner
from policy_net.laboratory.training.settings import Dl2Settings
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
"""As the agents' own replays have it (`cluster_agent/settings.py`)."""
FEWEST_JOBS = 60
"""A held-out window of fewer tells nothing but its chance."""

Row = tuple[str, float, float, int]
"""Name, submission and duration in seconds, GPUs."""


def make_pasts(plan: Sequence[ClusterPlan], folder: Path, seed: int, made_up: bool) -> tuple[ClusterPlan, ...]:
    """Write the recordings, and what follows on them, of which windows are held out; a cluster whose file holds too
    little for that is left out.

    Raises:
        BadInput: a file cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pasts: list[ClusterPlan] = []
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
        # As many machines as the past suggests; every window draws its jobs' models anew.
        usual = WorldOptions(job_kind=JobKindChoice.MIX, durations="unknown", speed_noise=SPEED_NOISE, seed=seed)
        there = usual.environment(usual.workload(str(recording), usual.speeds()))
        own = replace(usual, nodes=there.nodes, gpus_per_node=there.gpus_per_node, cpus_per_node=there.cpus_per_node)
        held_out = tuple(
            replace(own, seed=HELD_OUT_SEED + seed + window, limit_jobs=length, window=window)
            for window in range(len(later) // length)
        )
        source, recorded = str(following.resolve()), str(recording.resolve())
        pasts.append(ClusterPlan(cluster.name, source, own, held_out, length, there.nodes, past=recorded))
    return tuple(pasts)


def sweeps(generator: np.random.Generator, jobs: int, runs: int) -> list[Row]:
    """Jobs as people submit them who try a model with many settings, in so many runs of a sweep on average."""
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


START_UPDATES = 20
"""From random weights, of v1 of a `dl2` fleet: about as good as FIFO with EASY backfill. Before, a lesson's gradient
teaches next to nothing (docs/experiments.md)."""


def with_pasts(plan: Sequence[ClusterPlan], folder: Path) -> tuple[ClusterPlan, ...]:
    """The plan with what lessons of `dl2` replay: jobs of the generator, drawn anew each time, or those of a file that
    the cluster runs, but not those behind them, which are held out.

    Raises:
        BadInput: a file cannot be read.
    """
    # A folder that a demonstration empties: beside it there may be the user's own files.
    own = folder / "lessons"
    own.mkdir(parents=True, exist_ok=True)
    found = []
    for cluster in plan:
        past = cluster.source
        if not past.startswith("dl2:"):
            recording = own / f"{cluster.name}-past.csv"
            write_rows(recording, cluster.name, rows_of(Path(past))[: cluster.jobs])
            past = str(recording.resolve())
        found.append(replace(cluster, past=past))
    return tuple(found)


def weak_start(plan: Sequence[ClusterPlan], demo: Demonstration, seed: int) -> Path:
    """Let v1 be DL2's network after a few updates from random weights, on workloads on which it is not judged.

    Raises:
        BadInput, PolicyNetError: a workload cannot be used, or teaches nothing.
    """
    demo.display.phase(f"training v1: {START_UPDATES} updates of DL2's network from random weights")
    worlds = (
        cluster.world(replace(cluster.own, seed=2 * HELD_OUT_SEED + seed + draw), cluster.own.speeds())
        for draw in itertools.count()
        for cluster in plan
    )
    spec = Dl2Settings().spec(MODEL_NAMES)
    learner = GroupLearner(spec, initial_weights(spec, seed), worlds, default_speeds(), Dl2Settings().groups, seed)
    for update in range(START_UPDATES):
        learner.update(0.0)
        demo.display.progress((update + 1) / START_UPDATES)
    out = demo.folder / "v1.safetensors"
    write_policy_file(
        out, PolicyFile(spec, learner.weights, {"source": f"{START_UPDATES} updates from random weights"})
    )
    return out


LESSONS = FleetSettings(
    units="spreads",
    # As in docs/results/twin_learning.md.
    learning_rate=0.3,
    decay_steps=40,
    updates=60,
    publish_every_steps=6,
    # Versions average the last ten steps.
    average_decay=0.9,
    seconds=60.0,
    # The clusters decide meanwhile, a minute in a second: an agent learns of its past once it has decided something.
    speedup=60.0,
)
"""How a fleet learns from recorded pasts, and for how long."""


NORMAL_95 = 1.96


def judge_lessons(
    pasts: Sequence[ClusterPlan], versions: Sequence[PublishedVersion], on_progress: Callable[[float], None]
) -> LessonCurve:
    """Replay every version on every held-out window.

    Raises:
        PolicyNetError: a replay fails.
    """
    files = [str(version.file) for version in versions]
    windows = [(past, world) for past in pasts for world in past.held_out]
    tasks = [Task(past, world, policy) for past, world in windows for policy in (SET, *files)]
    seconds = evaluate(tasks, on_progress)

    def logs(policy: str) -> dict[str, list[float]]:
        """Log ratios of windows, by cluster."""
        found: dict[str, list[float]] = {past.name: [] for past in pasts}
        for past, world in windows:
            ratio = seconds[Task(past, world, policy)] / seconds[Task(past, world, files[0])]
            found[past.name].append(math.log(ratio))
        return found

    scores = [lesson_score(version.version, version.head_step, logs(str(version.file))) for version in versions]
    shipped = lesson_score(0, 0, logs(SET)).mean
    return LessonCurve(scores, len(windows), sum(past.jobs for past, _ in windows), shipped)


def lesson_score(version: int, head_step: int, logs: Mapping[str, Sequence[float]]) -> LessonScore:
    """What a version is worth.

    Args:
        logs: of average JCT over the first version's in each window, by cluster.
    """
    every = [log for of_cluster in logs.values() for log in of_cluster]
    mean = math.fsum(every) / len(every)
    spread = math.fsum((log - mean) ** 2 for log in every) / (len(every) - 1) if len(every) > 1 else 0.0
    reach = NORMAL_95 * math.sqrt(spread / len(every))
    by = {cluster: math.exp(math.fsum(values) / len(values)) for cluster, values in logs.items()}
    ratio = math.exp(mean)
    return LessonScore(version, head_step, ratio, ratio - reach, ratio + reach, by)


def lessons_json(lessons: LessonCurve) -> dict[str, Any]:
    """As `summary.json` has it: changes of average JCT, as fractions; −0.01 is 1% less."""
    last = lessons.scores[-1]
    return {
        "windows": lessons.windows,
        "jobs": lessons.jobs,
        "updates": last.head_step,
        "learned_mean": last.mean - 1.0,
        "learned_ci95": [last.low - 1.0, last.high - 1.0],
        "points": [
            {"version": score.version, "head_step": score.head_step, "mean": score.mean - 1.0,
             "error": (score.high - score.low) / (2 * NORMAL_95),
             "by": {cluster: ratio - 1.0 for cluster, ratio in score.by.items()}}
            for score in lessons.scores
        ],
    }  # fmt: skip
