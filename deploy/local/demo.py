"""The demo from plan to report, in its order; each part has a file of its own."""

from __future__ import annotations

import math
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from rich.console import Console

from deploy.local.comparison import compare
from deploy.local.configs import FLEETS, DemoPolicy, FleetSettings
from deploy.local.display import Display
from deploy.local.first_version import shipped_start, warm_start
from deploy.local.fleet import run_fleet
from deploy.local.guardian import end_leftovers
from deploy.local.learner_records import drop_moments, staleness_by_cluster
from deploy.local.lessons.fleet import LessonSettings, run_lessons
from deploy.local.lessons.judged import Lessons, judge_lessons
from deploy.local.lessons.pasts import make_pasts
from deploy.local.plan import ClusterPlan, make_plan
from deploy.local.processes import DemoFailed, Processes
from deploy.local.report import Report, print_report, write_report
from deploy.local.rollouts import contradiction
from foundation.locks import FileLock, LockHeld
from policy_net.errors import BadInput
from policy_net.exchange.spec import SET
from policy_net.laboratory.report import check_folder

MOST_EPISODES = 10_000
"""Rounds through its workload that a cluster is given at most; generated ones take some seconds to draw."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What a user may choose; `seconds` and `updates` are those of the policy unless given.

    Attributes:
        lessons: updates from recorded pasts, under `set`; 0 for none.
    """

    workloads: Path | None
    fleet: tuple[str, ...]
    seed: int
    jobs: int | None
    policy: DemoPolicy
    seconds: float | None
    updates: int | None
    imitation_steps: int
    lessons: int
    run_folder: Path
    report_folder: Path

    @property
    def settings(self) -> FleetSettings:
        """What the fleet is set to."""
        usual = FLEETS[self.policy]
        seconds = self.seconds or usual.seconds
        # A longer run goes through more rounds; each is read before the first begins, so no more of them than it takes.
        episodes = min(MOST_EPISODES, math.ceil(usual.episodes * max(1.0, seconds / usual.seconds)))
        return replace(usual, seconds=seconds, updates=self.updates or usual.updates, episodes=episodes)


def run_demo(options: DemoOptions) -> Report:
    """Run everything; prints as it goes.

    Raises:
        BadInput: an option cannot be used; nothing has been started then.
        DemoFailed: the fleet failed; or a verdict ended a rollout otherwise than it should, and the report is written.
    """
    began = time.monotonic()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    plan = make_plan(options.workloads, options.fleet, options.seed, options.jobs)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupt)
    check_folder(options.report_folder, len(plan))  # or it is found out after the fleet has run
    with own_folder(options.run_folder) as folder:
        for cluster in plan:
            console.print(f"{cluster.name}: {cluster.nodes} nodes, {cluster.jobs} jobs of {cluster.source}")
            if cluster.held_out_note:
                console.print(cluster.held_out_note)
        with Processes(folder) as processes, Display(plan[0].own.slot_seconds, console) as display:
            if options.policy is DemoPolicy.SET:
                v1 = shipped_start(folder, display)
            else:
                v1 = warm_start(plan, folder, processes, display, options.seed, options.imitation_steps)
            fleet = run_fleet(plan, folder, v1, processes, display, options.settings)
            lessons = _lessons(plan, folder, processes, display, options)
            display.phase("replaying every policy on the same jobs, and versions on jobs that nobody has seen")
            shipped = SET if options.policy is DemoPolicy.SET else ""
            comparison = compare(plan, fleet.versions, display.progress, shipped)
        staleness = staleness_by_cluster(folder / "learner", v1, [cluster.name for cluster in plan])
        report = Report(plan, fleet, comparison, staleness, time.monotonic() - began, options.policy, lessons)
        files = write_report(report, options.report_folder)
        drop_moments(folder / "learner")
    print_report(report, files, console)
    otherwise = contradiction(fleet.rollouts)
    if otherwise:
        raise DemoFailed(f"{otherwise}; see {files[-1]} and {folder}")
    return report


def _lessons(
    plan: Sequence[ClusterPlan], folder: Path, processes: Processes, display: Display, options: DemoOptions
) -> Lessons | None:
    """What the clusters' recorded pasts teach; None for another policy, or where files are too short."""
    if options.policy is not DemoPolicy.SET or not options.lessons:
        return None
    pasts = make_pasts(plan, folder / "lessons", options.seed, made_up=options.workloads is None)
    if not pasts:
        display.say("no lessons: no file has as many jobs again to judge them on, 60 or more; use fewer JOBS")
        return None
    settings = LessonSettings(options.lessons, options.seconds or LessonSettings.seconds)
    display.phase("what recorded pasts teach: a learner and twins that replay them")
    versions = run_lessons(pasts, folder / "lessons", processes, display, settings)
    display.phase("replaying what they taught on later jobs")
    return judge_lessons(pasts, versions, display.progress)


@contextmanager
def own_folder(folder: Path) -> Iterator[Path]:
    """The run folder, emptied of an earlier demo's files, and held so that no second demo empties this one's."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = FileLock(folder / ".lock")
    except LockHeld as error:
        raise BadInput(f"{folder}: another demo is running in this folder; wait for it or stop it") from error
    except OSError as error:
        raise BadInput(
            f"run folder {str(folder)[:200]!r} cannot be written to ({error.strerror}); name another"
        ) from error
    with held:
        left = end_leftovers(folder)
        if left:
            print(
                f"an earlier demo in {folder} was killed: ended what it had left running ({left} processes)", flush=True
            )
        for pattern in ("*.yaml", "*.log", "*.enrollment", "v1.safetensors"):
            for file in folder.glob(pattern):
                file.unlink()
        whole = [folder / name for name in ("learner", "versions", "lessons", "agent")]
        for old in (*whole, *folder.glob("agent-*")):
            if old.is_dir():
                shutil.rmtree(old)
        yield folder


def interrupt(number: int, frame: FrameType | None) -> None:
    """End on SIGTERM as on Ctrl-C, also where a shell had Ctrl-C ignored: the fleet first."""
    del number, frame
    raise KeyboardInterrupt
