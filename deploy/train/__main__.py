"""The demonstration of real jobs, `make demo-train`: a learner, an agent over this machine, six jobs that train."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cluster_agent.errors import AgentError
from cluster_agent.jobs.client import JobClient
from cluster_agent.jobs.views import job_table
from deploy.demonstration.configs import REAL_JOBS, learner_content, real_agent
from deploy.demonstration.frame import DemoLearner, Demonstration, LearnerWatch, demonstration, shipped_start
from deploy.demonstration.processes import DemoFailed
from deploy.train.jobs import ARRIVALS, Arrival, arrivals, free_cores, share_of_work
from deploy.train.page import training_page
from deploy.train.story import JobWatch, Story, decisions, resizes, sentence
from foundation.command_line import run, with_option_groups
from foundation.page import PAGE_NAME
from foundation.program_life import end

CLUSTER = "this-machine"
_POLL_SECONDS = 0.5
_CANCEL_SECONDS = 60.0

app = typer.Typer(add_completion=False)


@dataclass(frozen=True)  # without slots, so that the command line finds the defaults
class TrainOptions:
    """What a user may choose."""

    jobs: Annotated[
        int, typer.Option("--jobs", min=1, max=len(ARRIVALS), help="So many of the six jobs, from the first on.")
    ] = len(ARRIVALS)
    work: Annotated[
        float | None,
        typer.Option(
            "--work",
            min=0.01,
            max=100.0,
            help="Each has so much of its usual work; unless given, what there is time for.",
        ),
    ] = None
    seconds: Annotated[
        float, typer.Option("--seconds", min=10.0, help="What has not ended by then is cancelled, and said.")
    ] = 210.0
    run_folder: Annotated[Path, typer.Option("--run-folder", help="Configurations, logs, state.")] = Path("run-train")
    report_folder: Annotated[Path, typer.Option("--report-folder", help="Page and summary.")] = Path("report")


@app.command()
@with_option_groups
def demo_train(options: TrainOptions) -> None:
    """Train six real jobs on this machine, resized by a policy that learns from them."""
    with demonstration(options.run_folder, options.report_folder) as demo:
        work = options.work
        if work is None:
            free = free_cores(_cores())
            work = share_of_work(free)
            if work < 1.0:
                busy = f"others keep this machine busy ({free:.1f} of {_cores()} cores are free)"
                demo.display.say(f"{busy}: jobs get {work:.0%} of their work")
        story = _run(arrivals(options.jobs, work), shipped_start(demo), demo, options.seconds)
    summary = story.to_json()
    files = {PAGE_NAME: training_page(story), "summary.json": json.dumps(summary, indent=2) + "\n"}
    demo.leave(options.report_folder, files, job_table([life.facts for life in story.lives]), sentence(summary))


def _run(planned: Sequence[Arrival], policy: Path, demo: Demonstration, seconds: float) -> Story:
    demo.display.phase("starting a learner, and an agent over this machine")
    folder, learner = demo.folder, DemoLearner(demo, demo.folder)
    with learner.running(learner_content(policy, learner, REAL_JOBS)) as watch:
        learner.enroll([CLUSTER], watch)
        backend = {"kind": "local", "debounce_seconds": 3.0, "socket": "s/jobs.sock"}
        learner.start_agent("agent", real_agent(CLUSTER, learner, backend))
        socket = folder / "s" / "jobs.sock"
        demo.wait_until(lambda: answers(socket), "agent")
        demo.display.phase(f"to look in: cluster-agent jobs --socket {socket}, or http://{learner.page}/")
        client = JobClient(socket)
        began = time.time()
        jobs = JobWatch(client, began)
        try:
            _watch(planned, jobs, client, watch, demo, seconds)
        finally:
            end_jobs(client)
            with suppress(AgentError):
                jobs.poll(time.time())
        demo.display.phase("stopping the agent")
        demo.processes.stop(["agent"])
        versions, gradients = watch.versions(), watch.fleet().updates_accepted
    acted, speeds = decisions(folder / "agent")
    lives = sorted(jobs.lives.values(), key=lambda life: life.submitted_seconds)
    found = resizes(folder / "agent" / "jobs", [life.name for life in lives])
    return Story(
        began,
        time.time() - began,
        lives,
        found,
        acted,
        speeds,
        gradients,
        [card.version for card in versions],
        _cores(),
    )


def _watch(
    planned: Sequence[Arrival],
    jobs: JobWatch,
    client: JobClient,
    watch: LearnerWatch,
    demo: Demonstration,
    seconds: float,
) -> None:
    """Hand the jobs over as their time comes, and look on until all have ended."""
    waiting, first_trains_at = list(planned), math.inf
    for elapsed in demo.polls(_POLL_SECONDS):
        if any(life.ended or life.facts["workers"] for life in jobs.lives.values()):
            first_trains_at = min(first_trains_at, elapsed)
        while waiting and (waiting[0].after_seconds <= elapsed - first_trains_at or waiting[0] is planned[0]):
            job = waiting.pop(0)
            client.call("submit", {"job": job.file(_cores()), "folder": str(Path.cwd()), "source": job.name})
        jobs.poll(time.time())
        running = [life.facts for life in jobs.lives.values() if not life.ended]
        if demo.display.is_due(elapsed):
            now = watch.now()
            sizes = ", ".join(
                f"{job['name']} {job['workers']}+{job['ps']}" if job["workers"] else f"{job['name']} {job['state']}"
                for job in running
            )
            step = f"head step {now.head_step}, v{now.latest_version}" if now is not None else "the learner is away"
            demo.display.phase(f"{elapsed:4.0f} s  {step} | workers+PSs: {sizes or 'none'}", elapsed)
        demo.display.progress(elapsed / seconds)
        if (not waiting and not running) or elapsed > seconds:
            return


def end_jobs(client: JobClient) -> None:
    """Cancel all jobs that have not ended: an agent's jobs outlive it.

    Raises:
        DemoFailed: one does not end.
    """
    with suppress(AgentError):
        deadline = time.monotonic() + _CANCEL_SECONDS
        while left := [job["name"] for job in client.call("jobs", {})["jobs"] if not job["ended"]]:
            if time.monotonic() > deadline:
                raise DemoFailed(f"{left[0]} does not end; see `elastic-run status`")
            for name in left:
                client.call("cancel", {"name": name})
            time.sleep(_POLL_SECONDS)


def answers(socket: Path) -> bool:
    """Whether an agent listens there."""
    try:
        JobClient(socket).call("jobs", {})
    except AgentError:
        return False
    return True


def _cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    end(run(app, "demo-train"))
