"""The demonstration on Kubernetes, `make demo-kube`: a cluster, kubectl, a learner, and an agent that is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deploy.kube.demo import KubeOptions, run_on_kubernetes
from deploy.kube.jobs import PLAIN_JOBS, TRAINING_JOBS
from foundation.command_line import leave, run

app = typer.Typer(add_completion=False)


@app.command()
def demo_kube(
    training_jobs: Annotated[
        int, typer.Option("--training-jobs", min=1, max=TRAINING_JOBS, help="So many TrainingJobs.")
    ] = TRAINING_JOBS,
    plain_jobs: Annotated[
        int, typer.Option("--plain-jobs", min=0, max=PLAIN_JOBS, help="So many Jobs of batch/v1.")
    ] = PLAIN_JOBS,
    seconds: Annotated[
        float, typer.Option("--seconds", min=30.0, help="What is not complete then, and gets on no more, is a failure.")
    ] = 280.0,
    run_folder: Annotated[Path, typer.Option("--run-folder", help="Configurations, logs, state.")] = Path("run-kube"),
    report_folder: Annotated[Path, typer.Option("--report-folder", help="What kubectl showed, and a summary.")] = Path(
        "report"
    ),
) -> None:
    """Apply jobs with kubectl to a test cluster whose pods are real processes, and watch them train and be resized."""
    run_on_kubernetes(KubeOptions(training_jobs, plain_jobs, seconds, run_folder, report_folder))


def main() -> None:
    """Entry point of `python -m deploy.kube`."""
    leave(run(app, "demo-kube"))


if __name__ == "__main__":
    main()
