"""The demonstration of real jobs, `make demo-train`: a learner, an agent over this machine, six jobs that train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deploy.train.demo import TrainOptions, run_training
from deploy.train.jobs import ARRIVALS
from foundation.command_line import leave, run

app = typer.Typer(add_completion=False)


@app.command()
def demo_train(
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, max=len(ARRIVALS), help="So many of the six jobs, from the first on.")
    ] = len(ARRIVALS),
    work: Annotated[
        float | None,
        typer.Option(
            "--work",
            min=0.01,
            max=100.0,
            help="Each has so much of its usual work; unless given, what there is time for.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=10.0, help="What has not ended by then is cancelled, and said.")
    ] = 210.0,
    run_folder: Annotated[Path, typer.Option("--run-folder", help="Configurations, logs, state.")] = Path("run-train"),
    report_folder: Annotated[Path, typer.Option("--report-folder", help="Page and summary.")] = Path("report"),
) -> None:
    """Train six real jobs on this machine, resized by a policy that learns from them."""
    run_training(TrainOptions(jobs, work, seconds, run_folder, report_folder))


def main() -> None:
    """Entry point of `python -m deploy.train`."""
    leave(run(app, "demo-train"))


if __name__ == "__main__":
    main()
