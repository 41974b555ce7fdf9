"""Run of the demonstration from its configuration files to its page, in its order."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cluster_agent.errors import AgentError
from cluster_agent.jobs.client import JobClient
from cluster_agent.jobs.views import job_table
from deploy.local.configs import administrator_file
from deploy.local.demo import interrupt, own_folder
from deploy.local.display import Display
from deploy.local.first_version import shipped_start
from deploy.local.fleet import enroll, wait_until
from deploy.local.processes import DemoFailed, Processes
from deploy.local.watch import LearnerWatch
from deploy.train.configs import CLUSTER, write_configs
from deploy.train.jobs import Arrival, arrivals
from deploy.train.pace import free_cores, said, share_of_work
from deploy.train.page import write_training_page
from deploy.train.records import decisions, gradients, resizes
from deploy.train.story import Story
from deploy.train.watching import JobWatch
from policy_net.laboratory.report import check_folder, prepare_folder

_LOOK_SECONDS = 0.5
_SAY_SECONDS = 10.0
_CANCEL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """What a user may choose.

    Attributes:
        work: of each job's usual work so much; None: what the machine has time for.
        seconds: what has not ended by then is cancelled, and said.
    """

    jobs: int
    work: float | None
    seconds: float
    run_folder: Path
    report_folder: Path


def run_training(options: TrainOptions) -> Story:
    """Run everything; prints as it goes.

    Raises:
        BadInput: a folder cannot be used; nothing has been started then.
        DemoFailed: a process failed, or no job was through in time.
    """
    console = Console() if sys.stdout.isatty() else Console(width=120)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupt)
    check_folder(options.report_folder, 1)  # or it is found out after the jobs have run
    with own_folder(options.run_folder) as folder:
        planned = arrivals(options.jobs, _work(options.work, console))
        with Processes(folder) as processes, Display(1.0, console) as display:
            policy = shipped_start(folder, display)
            story = _run(planned, folder, policy, processes, display, options.seconds)
        prepare_folder(options.report_folder, 1)
        files = [write_training_page(story, options.report_folder), _write_summary(story, options.report_folder)]
    console.print(job_table([life.facts for life in story.lives]))
    console.print(story.sentence, soft_wrap=True)
    console.print("written: " + ", ".join(str(path) for path in files), soft_wrap=True)
    return story


def _run(
    planned: Sequence[Arrival], folder: Path, policy: Path, processes: Processes, display: Display, seconds: float
) -> Story:
    display.phase("starting a learner, and an agent over this machine")
    address, page = f"127.0.0.1:{processes.port()}", f"127.0.0.1:{processes.port()}"
    learner, agent = write_configs(folder, policy, address, processes.port(), page)
    processes.start("learner", "global_learner.cli", ["serve", "--config", str(learner)])
    administrator = administrator_file(folder)
    wait_until(administrator.exists, processes)
    watch = LearnerWatch(address, administrator)
    try:
        wait_until(lambda: watch.now() is not None, processes)
        enroll([CLUSTER], folder, address, administrator, processes)
        processes.start("agent", "cluster_agent.cli", ["run", "--config", str(agent)])
        socket = folder / "s" / "jobs.sock"
        wait_until(lambda: _answers(socket), processes)
        display.phase(f"to look in: cluster-agent jobs --socket {socket}, or http://{page}/")
        with JobClient(socket) as client:
            began = time.time()
            jobs = JobWatch(client, began)
            try:
                _watch(planned, jobs, client, watch, processes, display, seconds)
            finally:
                _end_jobs(jobs, client)
        display.phase("stopping the agent")
        processes.stop(["agent"])
        versions = watch.versions()
    finally:
        watch.close()
    processes.stop(["learner"])
    acted, speeds = decisions(folder / "agent")
    lives = sorted(jobs.lives.values(), key=lambda life: life.submitted_seconds)
    found = resizes(folder / "agent" / "jobs", [life.name for life in lives])
    return Story(
        began, time.time() - began, tuple(lives), tuple(found), tuple(acted), tuple(speeds),
        tuple(gradients(folder / "learner", policy)), tuple(card.version for card in versions), _cores(),
    )  # fmt: skip


def _watch(
    planned: Sequence[Arrival],
    jobs: JobWatch,
    client: JobClient,
    watch: LearnerWatch,
    processes: Processes,
    display: Display,
    seconds: float,
) -> None:
    """Hand the jobs over as their time comes, and look on until all have ended."""
    began, said = time.monotonic(), -math.inf
    waiting, first_trains_at = list(planned), math.inf
    while True:
        processes.check()
        elapsed = time.monotonic() - began
        if any(life.ended or life.facts["workers"] for life in jobs.lives.values()):
            first_trains_at = min(first_trains_at, elapsed)
        while waiting and (waiting[0].after_seconds <= elapsed - first_trains_at or waiting[0] is planned[0]):
            job = waiting.pop(0)
            client.call("submit", {"job": job.file(_cores()), "folder": str(Path.cwd()), "source": job.name})
        jobs.look(time.time())
        running = [life for life in jobs.lives.values() if not life.ended]
        if elapsed - said >= _SAY_SECONDS:
            said = elapsed
            now = watch.now()
            sizes = ", ".join(
                f"{life.name} {life.facts['workers']}+{life.facts['ps']}"
                if life.facts["workers"]
                else f"{life.name} {life.facts['state']}"
                for life in running
            )
            step = f"head step {now.head_step}, v{now.latest_version}" if now is not None else "the learner is away"
            display.phase(f"{elapsed:4.0f} s  {step} | workers+PSs: {sizes or 'none'}")
        display.progress(elapsed / seconds)
        if (not waiting and not running) or elapsed > seconds:
            return
        time.sleep(_LOOK_SECONDS)


def _end_jobs(jobs: JobWatch, client: JobClient) -> None:
    """Leave none behind: an agent's jobs outlive it."""
    with suppress(AgentError):
        left = [life.name for life in jobs.lives.values() if not life.ended]
        for name in left:
            client.call("cancel", {"name": name})
        deadline = time.monotonic() + _CANCEL_SECONDS
        while left and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            jobs.look(time.time())
            left = [name for name in left if not jobs.lives[name].ended]
        if left:
            raise DemoFailed(f"{left[0]} does not end; see `elastic-run status`")


def _work(stated: float | None, console: Console) -> float:
    if stated is not None:
        return stated
    cores = _cores()
    free = free_cores(cores)
    work = share_of_work(free)
    for line in said(cores, free, work):
        console.print(line, highlight=False)
    return work


def _answers(socket: Path) -> bool:
    try:
        with JobClient(socket) as client:
            client.call("jobs", {})
    except AgentError:
        return False
    return True


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _write_summary(story: Story, folder: Path) -> Path:
    path = folder / "summary.json"
    path.write_text(json.dumps(story.to_json(), indent=2) + "\n", encoding="utf-8")
    return path
