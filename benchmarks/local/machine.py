"""One run: an agent over this machine with one policy, the jobs of a plan, and what became of each.

What an agent has learned of types in one run it knows in the next one in the same folder, as agents run for weeks.
"""

from __future__ import annotations

import math
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.processes import cpu_seconds
from cluster_agent.jobs.client import JobClient
from deploy.demonstration.processes import DemoFailed, Processes
from deploy.train.__main__ import answers, end_jobs
from deploy.train.jobs import EXAMPLES
from deploy.train.story import decisions, resizes
from elastic_runtime.launcher.job_folder import JobFolder


@dataclass(frozen=True, slots=True)
class Kind:
    """A script of the documentation, the batch of its jobs, and from how many to how many epochs they take."""

    model_type: str
    example: str
    global_batch: int
    shortest: int
    longest: int


KINDS = (
    Kind("digits-cnn", "digits", 256, 16, 120),
    Kind("small-gpt", "gpt", 128, 1, 8),
    Kind("tabular-mlp", "tabular", 32, 20, 140),
)
"""Some ten to eighty seconds each with one worker. The batches of the first two are large beside those of the
documentation, so that a step is worth sharing out; the third's are not, as there are such jobs too."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job file, and when it is submitted: seconds from the first."""

    name: str
    after_seconds: float
    file: dict[str, Any]


def plan(seed: int, jobs: int, work: float, gap_seconds: float) -> tuple[Submission, ...]:
    """The jobs of a seed, in the order in which they come.

    Args:
        work: of each job's usual work so much.
        gap_seconds: mean time from one submission to the next; exponentially distributed. Sizes are even in their
            logarithm: few long jobs and many short ones, as in the traces of clusters.
    """
    draw = random.Random(seed)
    at, submissions = 0.0, []
    for number in range(jobs):
        kind = KINDS[number % len(KINDS)] if number < len(KINDS) else draw.choice(KINDS)
        drawn = kind.shortest * (kind.longest / kind.shortest) ** draw.random()
        epochs = max(1, round(work * drawn))
        submissions.append(Submission(f"{kind.example}-{seed}-{number}", at, _file(kind, epochs)))
        at += draw.expovariate(1.0 / gap_seconds)
    return tuple(submissions)


def _file(kind: Kind, epochs: int) -> dict[str, Any]:
    return {
        "modelType": kind.model_type,
        "work": {"epochs": epochs},
        "worker": {"min": 1, "max": 4, "replicas": 2, "cpu": "400m"},
        "ps": {"min": 1, "max": 2, "replicas": 1, "cpu": "100m"},
        "script": str(EXAMPLES / kind.example / "train.py"),
        "args": ["--epochs", str(epochs), "--global-batch", str(kind.global_batch)],
        "env": {"OMP_NUM_THREADS": "1"},
        "checkpointSeconds": 30,
    }


SLOT_SECONDS = 15.0
DEBOUNCE_SECONDS = 2.0
RESERVED_CPU_MILLI = 200
"""For the agent, and for the launchers and coordinators of jobs that start."""
_POLL_SECONDS = 0.25
_ASK_SECONDS = 2.0
"""Between two questions to the agent, as of somebody who watches: whoever asks more often is seen in its own share."""
_SETTLE_SECONDS = 6.0
"""From an agent's first answer to the first submission: what it keeps ready for launchers is imported by then."""


@dataclass(frozen=True, slots=True)
class Run:
    """What became of the jobs under a policy.

    Attributes:
        facts: of each job, as the agent says them.
        resized_seconds: for every live resize, from its decision until the job had the size.
        start_shares: of each, how much of it processes took to start.
        agent_cpu_share: of one core, over the whole run.
    """

    policy: str
    facts: tuple[dict[str, Any], ...]
    resized_seconds: tuple[float, ...]
    start_shares: tuple[float, ...]
    stall_seconds: float
    agent_cpu_share: float

    @property
    def average_jct_seconds(self) -> float:
        """Over all jobs."""
        return math.fsum(facts["ageSeconds"] for facts in self.facts) / len(self.facts)

    @property
    def run_seconds(self) -> float:
        """That jobs ran, together."""
        return math.fsum(facts["runSeconds"] for facts in self.facts)


def run(
    policy: str,
    submissions: Sequence[Submission],
    folder: Path,
    deadline_seconds: float,
    on_step: Callable[[str], None],
    cgroup: Path | None,
) -> Run:
    """Run a plan to its end.

    Args:
        folder: of the agent, which goes on from what it did there before.
        cgroup: in which each job is kept to its exact millicores.

    Raises:
        DemoFailed: the agent ended, a job failed, or not all ended in time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "agent.yaml"
    content = {
        "cluster": "this-machine",
        "state_dir": "state",
        "backend": {
            "kind": "local",
            "slot_seconds": SLOT_SECONDS,
            "debounce_seconds": DEBOUNCE_SECONDS,
            "socket": "s/jobs.sock",
            "reserved_cpu_milli": RESERVED_CPU_MILLI,
            **({} if cgroup is None else {"cgroup": str(cgroup)}),
        },
        "policy": {"initial": policy},
        "telemetry": {"log_level": "info"},
    }
    config.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    with Processes(folder) as processes:
        processes.start("agent", "cluster_agent.cli", ["run", "--config", str(config)])
        socket = folder / "s" / "jobs.sock"
        began, pid = time.monotonic(), processes.pid_of("agent")
        while not answers(socket):
            processes.check()
            _in_time(began, deadline_seconds, "the agent does not answer")
            time.sleep(_POLL_SECONDS)
        time.sleep(_SETTLE_SECONDS)
        client = JobClient(socket)
        cpu, since = cpu_seconds(pid), time.monotonic()
        try:
            facts = _watch(submissions, client, processes, deadline_seconds, on_step)
        finally:
            share = (cpu_seconds(pid) - cpu) / (time.monotonic() - since)
            end_jobs(client)
        processes.stop(["agent"])
    state_dir = folder / "state"
    failed = [entry["name"] for entry in facts if entry["state"] != "done"]
    if failed:
        raise DemoFailed(f"job {failed[0]} is not done; see {JobFolder(state_dir / 'jobs' / failed[0]).path}")
    acted, _ = decisions(state_dir)
    moments = [entry.unix_seconds for entry in acted]
    carried_out = [entry for entry in resizes(state_dir / "jobs", [entry["name"] for entry in facts]) if entry.done]
    live = [entry for entry in carried_out if entry.live]
    took = [entry.ended_unix_seconds - _before(moments, entry.began_unix_seconds) for entry in live]
    return Run(
        policy,
        tuple(facts),
        tuple(took),
        tuple(entry.start_seconds / seconds for entry, seconds in zip(live, took, strict=True) if seconds > 0),
        math.fsum(entry.stall_seconds for entry in carried_out),
        share,
    )


def _watch(
    submissions: Sequence[Submission],
    client: JobClient,
    processes: Processes,
    deadline_seconds: float,
    on_step: Callable[[str], None],
) -> list[dict[str, Any]]:
    began, waiting = time.monotonic(), list(submissions)
    ask_at, names = began, {job.name for job in submissions}
    while True:
        processes.check()
        while waiting and waiting[0].after_seconds <= time.monotonic() - began:
            job = waiting.pop(0)
            message = {"job": {"name": job.name, **job.file}, "folder": str(Path.cwd()), "source": job.name}
            client.call("submit", message)
        if time.monotonic() >= ask_at:
            facts = [entry for entry in client.call("jobs", {})["jobs"] if entry["name"] in names]
            if not waiting and all(entry["ended"] for entry in facts):
                return facts
            on_step(f"{sum(entry['ended'] for entry in facts)} of {len(submissions)} jobs have ended")
            ask_at = time.monotonic() + _ASK_SECONDS
        _in_time(began, deadline_seconds, "not all jobs have ended")
        time.sleep(_POLL_SECONDS)


def _in_time(began: float, seconds: float, what: str) -> None:
    if time.monotonic() - began > seconds:
        raise DemoFailed(f"{what} after {seconds:g} s")


def _before(moments: Sequence[float], moment: float) -> float:
    """The newest decision before a moment."""
    return moments[max(0, bisect_right(moments, moment) - 1)]
