"""The command `cluster-agent simulate`: when a job would start and end if it were submitted now.

Of a job of this machine the agent says what it knows (`local_forecast.py`); of a manifest (`-f`) the cluster is read
(`cluster_forecast.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cluster_agent.errors import BadJobFile
from cluster_agent.jobs.client import JobClient
from cluster_agent.jobs.cluster_access import Config, Context, Kubeconfig
from cluster_agent.jobs.options import Socket
from cluster_agent.jobs.submission import (
    Cpu,
    Epochs,
    Gpu,
    ModelType,
    PsCpu,
    Servers,
    TaskWords,
    Workers,
    described,
)
from foundation.output import Form, Output, show

Asked = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE... | -- python SCRIPT [ARGUMENTS]...",
        help="A job file (YAML; - is standard input), or a command.",
    ),
]
Manifest = Annotated[
    Path | None,
    typer.Option(
        "-f",
        "--filename",
        metavar="FILE",
        help="A Kubernetes manifest (- is standard input): a batch/v1 Job, and an ElasticTarget for it if it has one;"
        " or a TrainingJob.",
    ),
]
Samples = Annotated[
    float | None, typer.Option(min=1.0, help="How many samples it has to train, where its manifest does not say it.")
]
Hours = Annotated[
    float | None, typer.Option(min=0.001, help="How long it trains at the size of its manifest, instead of --samples.")
]
Runs = Annotated[int, typer.Option(min=1, max=1000, help="How often the future is drawn.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the first draw.")]


def simulate(
    job: Asked = None,
    filename: Manifest = None,
    model_type: ModelType = None,
    epochs: Epochs = None,
    workers: Workers = None,
    ps: Servers = None,
    cpu: Cpu = None,
    ps_cpu: PsCpu = None,
    gpu: Gpu = None,
    samples: Samples = None,
    hours: Hours = None,
    runs: Runs = 15,
    seed: Seed = 0,
    socket: Socket = None,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = Form.TABLE,
) -> None:
    """Say when a job would start and end if it were submitted now, with an interval; nothing is submitted."""
    if filename is not None:
        of_jobs = {"--model-type": model_type, "--epochs": epochs, "--workers": workers, "--ps": ps, "--cpu": cpu}
        _refuse(
            of_jobs | {"--ps-cpu": ps_cpu, "--gpu": gpu, "a job": job or None},
            "does not go with -f, whose manifest says it",
        )
        # Loaded here: this takes a second, and jobs of this machine need nothing of it.
        from cluster_agent.jobs.cluster_access import opened  # noqa: PLC0415

        with opened(config, kubeconfig, context) as cluster:
            from cluster_agent.jobs.cluster_forecast import JobWork, foresee_manifest, sentences  # noqa: PLC0415
            from cluster_agent.jobs.forecast import Draws  # noqa: PLC0415

            answer = foresee_manifest(cluster, filename, JobWork(samples, hours), Draws(runs, seed))
        show(output, answer, lambda: sentences(answer), [answer])
        return
    of_clusters = {"--config": config, "--kubeconfig": kubeconfig, "--context": context}
    _refuse(of_clusters | {"--samples": samples, "--hours": hours}, "goes with -f, and a Kubernetes manifest")
    if not job:
        raise BadJobFile("no job: give a job file, a command, or a Kubernetes manifest with -f")
    given = {"modelType": model_type, "work": None if epochs is None else {"epochs": epochs}}
    messages = described(job, given, {"worker": TaskWords(workers, cpu, gpu), "ps": TaskWords(ps, ps_cpu)})
    if len(messages) > 1:
        raise BadJobFile(f"there are {len(messages)} jobs; one at a time is foreseen")
    client = JobClient(socket)
    facts = client.call("simulate", messages[0])
    # As above: jobs that are submitted wait for none of it.
    from cluster_agent.jobs.local_forecast import foreseen_here, said  # noqa: PLC0415

    answer = foreseen_here(facts, runs, seed)
    show(output, answer, said(answer), [answer])


def _refuse(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise BadJobFile(f"{name} {why}")
