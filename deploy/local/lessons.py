"""What recorded pasts teach: a fleet of its own within the demo learns from replays, and is judged on later jobs.

With files the past is the first jobs of each, and what follows is held out. Without, both are made up here as people
submit them: in sweeps of runs that are alike and whose length nobody says, which is what a policy can learn of.
Learner, agents, twins, pushes and versions are the real ones, but a lesson may take a whole core, and a version is made
every few updates: a demonstration has a minute, not weeks. Every version is judged on windows of later jobs against the
first: both meet the same jobs with the same models and noise, so that the mean's error is that of its windows.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from deploy.demonstration.configs import FleetSettings, agent_content, learner_content
from deploy.demonstration.frame import DemoLearner, Demonstration
from deploy.local.comparison import Task, evaluate
from deploy.local.fleet import PublishedVersion, download, watch_learning
from deploy.local.plan import HELD_OUT_SEED, ClusterPlan
from global_learner.report.learning import LessonCurve, LessonScore
from policy_net.exchange.policy_file import write_policy_file
from policy_net.exchange.spec import SET
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.workloads.sources import read_csv
from policy_net.laboratory.workloads.workload import JobKindChoice
from policy_net.set_policy.policy import default_set_file, extended

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


SPEEDUP = 60.0
"""The clusters decide meanwhile, a minute in a second: an agent learns of its past once it has decided something."""
JUDGED_VERSIONS = 6
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
    job_timelines=0,
    sharing_seconds=60.0,
)
"""How a fleet learns from recorded pasts, and for how long."""
GRADIENT_PAIRS = 6
"""Half of a gradient's time goes into replays, the rest into the start of its process."""


def run_lessons(pasts: Sequence[Past], demo: Demonstration, settings: FleetSettings) -> tuple[PublishedVersion, ...]:
    """Versions from the first, which has learned nothing, to the last; the first alone if no gradient came in time.

    Raises:
        DemoFailed: a process ended with an error, or the learner never answered.
    """
    learner = DemoLearner(demo, demo.folder / "lessons", "lessons-learner")
    start = learner.folder / "v1.safetensors"
    write_policy_file(start, extended(default_set_file(), "set"))
    settings = replace(settings, publish_every_steps=min(settings.publish_every_steps, settings.updates))
    with learner.running(learner_content(start, learner, settings)) as watch:
        learner.enroll([past.later.name for past in pasts])
        agents = [f"lessons-{past.later.name}" for past in pasts]
        for past, agent in zip(pasts, agents, strict=True):
            learner.start_agent(agent, taught_agent(past, learner, settings))
        watch_learning(watch, agents, demo, settings, shown=False)
        demo.processes.stop(agents)
        demo.processes.check()
        return download(watch, watch.versions(), JUDGED_VERSIONS, learner.folder / "versions")


def taught_agent(past: Past, learner: DemoLearner, settings: FleetSettings) -> dict[str, Any]:
    """The configuration of an agent whose twin replays a recording."""
    first, recording = past.later.own, str(past.recording.resolve())
    assert first.job_kind is not None  # noqa: S101  (narrows the type)
    sections = {
        "backend": {
            "kind": "simulated",
            "workloads": [
                {
                    "source": recording,
                    "seed": first.seed,
                    "job_kind": first.job_kind.value,
                    "durations": first.durations,
                }
            ],
            "environment": {
                "nodes": past.later.nodes,
                "gpus_per_node": first.gpus_per_node,
                "cpus_per_node": first.cpus_per_node,
                "capacity_mode": first.capacity.value,
            },
            "pace": {"kind": "scaled", "speedup": SPEEDUP},
            "baseline": False,
        },
        "learning": {
            "source": "twin",
            "twin": {
                "history": [recording],
                "job_kind": first.job_kind.value,
                "window_jobs": past.later.jobs,
                "cpu_percent": 100,
                "work_known": first.durations == "known",
                "gradient": {"pairs": GRADIENT_PAIRS},
            },
        },
    }
    return agent_content(past.later.name, learner, settings, sections)


NORMAL_95 = 1.96


def judge_lessons(
    pasts: Sequence[Past], versions: Sequence[PublishedVersion], on_progress: Callable[[float], None]
) -> LessonCurve:
    """Replay every version on every held-out window.

    Raises:
        PolicyNetError: a replay fails.
    """
    files = [str(version.file) for version in versions]
    windows = [(past.later, world) for past in pasts for world in past.later.held_out]
    tasks = {
        (cluster.name, world, policy): Task(cluster, world, policy)
        for cluster, world in windows
        for policy in (SET, *files)
    }
    scores = evaluate(list(tasks.values()), on_progress)

    def logs(policy: str) -> dict[str, list[float]]:
        """Log ratios of windows, by cluster."""
        found: dict[str, list[float]] = {}
        for cluster, world in windows:
            took, before = (scores[tasks[cluster.name, world, each]].avg_jct_seconds for each in (policy, files[0]))
            found.setdefault(cluster.name, []).append(math.log(took / before))
        return found

    points = [
        lesson_score(version.version, version.head_step, logs(file))
        for version, file in zip(versions, files, strict=True)
    ]
    shipped = lesson_score(0, 0, logs(SET)).mean
    return LessonCurve(points, len(windows), sum(cluster.jobs for cluster, _ in windows), shipped)


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
