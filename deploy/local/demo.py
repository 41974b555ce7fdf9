"""The demo, `make demo`: a learner and three clusters on this machine, and proof of what they learned."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from deploy.demonstration.configs import FleetSettings
from deploy.demonstration.frame import Demonstration, demonstration, shipped_start
from deploy.demonstration.processes import DemoFailed
from deploy.local.comparison import compare
from deploy.local.fleet import run_fleet
from deploy.local.lessons import LESSONS, judge_lessons, make_pasts, weak_start, with_pasts
from deploy.local.plan import FLEETS, ClusterPlan, DemoPolicy, make_plan
from deploy.local.report import Report, report_page, sentences, times_table
from deploy.local.rollouts import contradiction
from foundation.command_line import run, with_option_groups
from foundation.page import PAGE_NAME
from foundation.program_life import end
from global_learner.report.learning import LessonCurve
from policy_net.exchange.policy_file import write_policy_file
from policy_net.laboratory.training.twin_windows import FEWEST_JOBS
from policy_net.set_policy.policy import default_set_file, extended

MOST_EPISODES = 10_000
"""Rounds through its workload that a cluster is given at most; generated ones take some seconds to draw."""

app = typer.Typer(add_completion=False)


@dataclass(frozen=True)  # without slots, so that the command line finds the defaults
class DemoOptions:
    """What a user may choose; `seconds` and `updates` are those of the policy unless given."""

    workloads: Annotated[
        Path | None, typer.Option("--workloads", metavar="FOLDER", help="Folder of csv files; generated jobs if none.")
    ] = None
    fleet: Annotated[
        str, typer.Option("--fleet", metavar="A,B,C", help="Clusters: csv names in the folder, or built-in mixes.")
    ] = ""
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draws jobs, models and explorations.")] = 0
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Jobs per cluster; 300 of a csv, else 60.")] = None
    policy: Annotated[
        DemoPolicy,
        typer.Option("--policy", help="set: as it ships, good at once; dl2: a network that has all to learn."),
    ] = DemoPolicy.SET
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=1.0, help="The fleet runs so long, or to its first version; set 60, dl2 120."),
    ] = None
    updates: Annotated[
        int | None, typer.Option("--updates", min=1, help="The fleet ends after so many updates; 400 unless given.")
    ] = None
    lessons: Annotated[
        int, typer.Option("--lessons", min=0, max=100_000, help="Updates from recorded pasts, for set; 0: none.")
    ] = LESSONS.updates
    run_folder: Annotated[Path, typer.Option("--run-folder", help="Configurations, logs, state.")] = Path("run")
    report_folder: Annotated[Path, typer.Option("--report-folder", help="Page and summary.")] = Path("report")

    @property
    def settings(self) -> FleetSettings:
        """What the fleet is set to."""
        usual = FLEETS[self.policy]
        seconds = self.seconds or usual.seconds
        # A longer run goes through more rounds; each is read before the first begins, so no more of them than it takes.
        episodes = min(MOST_EPISODES, math.ceil(usual.episodes * max(1.0, seconds / usual.seconds)))
        return replace(usual, seconds=seconds, updates=self.updates or usual.updates, episodes=episodes)


@app.command()
@with_option_groups
def demo(options: DemoOptions) -> None:
    """Run a fleet on this machine, watch it learn, compare it with FIFO with backfill, DRF and Optimus."""
    began = time.monotonic()
    names = tuple(name.strip() for name in options.fleet.split(",") if name.strip())
    of_set = options.policy is DemoPolicy.SET
    plan = make_plan(options.workloads, names, options.seed, options.jobs, 1 if of_set else FEWEST_JOBS)
    with demonstration(options.run_folder, options.report_folder, len(plan), plan[0].own.slot_seconds) as demo:
        display, folder = demo.display, demo.folder
        for cluster in plan:
            display.say(f"{cluster.name}: {cluster.nodes} nodes, {cluster.jobs} jobs of {cluster.source}")
            if cluster.held_out_note:
                display.say(cluster.held_out_note)
        if not of_set:
            plan = with_pasts(plan, folder)
        v1 = shipped_start(demo) if of_set else weak_start(plan, demo, options.seed)
        fleet = run_fleet(plan, v1, demo, options.settings)
        if fleet.report.fleet.updates_accepted == 0:
            raise DemoFailed(f"no update reached the learner (see {folder}/agent-*.log)")
        lessons = _lessons(plan, demo, options) if of_set and options.lessons else None
        display.phase("replaying every policy on the same jobs, and versions on jobs that nobody has seen")
        replays, validation_jct = compare(plan, fleet, options.policy, lessons, display.progress)
        report = Report(plan, fleet, replays, validation_jct, time.monotonic() - began)
    written = {PAGE_NAME: report_page(report), "summary.json": json.dumps(report.to_json(), indent=2) + "\n"}
    files = demo.leave(options.report_folder, written, times_table(report), *sentences(report))
    otherwise = contradiction(fleet.rollouts)
    if otherwise:
        raise DemoFailed(f"{otherwise}; see {files[-1]} and {folder}")


def _lessons(plan: Sequence[ClusterPlan], demo: Demonstration, options: DemoOptions) -> LessonCurve | None:
    """What the clusters' recorded pasts teach; None where files are too short."""
    pasts = make_pasts(plan, demo.folder / "lessons", options.seed, made_up=options.workloads is None)
    if not pasts:
        demo.display.say("no lessons: no file has as many jobs again to judge them on, 60 or more; use fewer JOBS")
        return None
    demo.display.phase("what recorded pasts teach: a learner and twins that replay them")
    settings = replace(LESSONS, updates=options.lessons, seconds=options.seconds or LESSONS.seconds)
    start = demo.folder / "lessons" / "v1.safetensors"
    write_policy_file(start, extended(default_set_file(), "set"))
    fleet = run_fleet(pasts, start, demo, settings, "lessons")
    demo.display.phase("replaying what they taught on later jobs")
    return judge_lessons(pasts, fleet.versions, demo.display.progress)


def main() -> None:
    """Entry point of `python -m deploy.local`."""
    end(run(app, "demo"))
