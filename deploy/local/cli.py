"""The demo, `make demo`: a learner and three clusters on this machine, and proof of what they learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deploy.local.configs import DemoPolicy
from deploy.local.demo import DemoOptions, run_demo
from deploy.local.first_version import IMITATION_STEPS
from deploy.local.lessons.fleet import LessonSettings
from foundation.command_line import leave, run

app = typer.Typer(add_completion=False)


@app.command()
def demo(
    workloads: Annotated[
        Path | None, typer.Option("--workloads", metavar="FOLDER", help="Folder of csv files; generated jobs if none.")
    ] = None,
    fleet: Annotated[
        str, typer.Option("--fleet", metavar="A,B,C", help="Clusters: csv names in the folder, or built-in mixes.")
    ] = "",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draws jobs, models and explorations.")] = 0,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Jobs per cluster; 300 of a csv, else 60.")] = None,
    policy: Annotated[
        DemoPolicy, typer.Option("--policy", help="set: as it ships, good at once; dl2: learns from a warm start on.")
    ] = DemoPolicy.SET,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=1.0, help="The fleet runs so long, or to its first version; set 60, dl2 150."),
    ] = None,
    updates: Annotated[
        int | None, typer.Option("--updates", min=1, help="The fleet ends after so many updates; set 400, dl2 4500.")
    ] = None,
    imitation_steps: Annotated[
        int, typer.Option("--imitation-steps", min=1, help="Mini-batches of dl2's warm start.")
    ] = IMITATION_STEPS,
    lessons: Annotated[
        int, typer.Option("--lessons", min=0, max=100_000, help="Updates from recorded pasts, for set; 0: none.")
    ] = LessonSettings.updates,
    run_folder: Annotated[Path, typer.Option("--run-folder", help="Configurations, logs, state.")] = Path("run"),
    report_folder: Annotated[Path, typer.Option("--report-folder", help="Page and summary.")] = Path("report"),
) -> None:
    """Run a fleet on this machine, watch it learn, compare it with FIFO with backfill, DRF and Optimus."""
    names = tuple(name.strip() for name in fleet.split(",") if name.strip())
    run_demo(
        DemoOptions(
            workloads, names, seed, jobs, policy, seconds, updates, imitation_steps, lessons, run_folder, report_folder
        )
    )


def main() -> None:
    """Entry point of `python -m deploy.local`."""
    leave(run(app, "demo"))


if __name__ == "__main__":
    main()
