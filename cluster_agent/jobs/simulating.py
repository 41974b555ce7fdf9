"""The command `cluster-agent simulate`: when a job would start and end if it were submitted now.

Of a job of this machine the agent says what it knows; of a manifest (`-f`) the cluster is read (`cluster_forecast.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster_agent.errors import BadJobFile, JobRefused
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
from foundation.figures import counted
from foundation.output import Form, Output, show

if TYPE_CHECKING:
    from policy_net.laboratory.simulation.environment import Environment
    from policy_net.laboratory.workloads.workload import JobSpec

_GUESSED_EPOCHS = 1.0

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
            from cluster_agent.jobs.cluster_forecast import Work, foresee_manifest, sentences  # noqa: PLC0415
            from cluster_agent.jobs.forecast import Draws  # noqa: PLC0415

            answer = foresee_manifest(cluster, filename, Work(samples, hours), Draws(runs, seed))
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
    with JobClient(socket) as client:
        facts = client.call("simulate", messages[0])
    answer = foreseen_here(facts, runs, seed)
    show(output, answer, _sentences(answer), [answer])


def _refuse(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise BadJobFile(f"{name} {why}")


def foreseen_here(facts: dict[str, Any], runs: int, seed: int) -> dict[str, Any]:
    """Start and end in seconds from now, each as low (10%), median and high (90%), and whether it is a guess.

    Args:
        facts: what the agent says of the job, of the jobs that are there, and where its decisions are.

    Raises:
        JobRefused: no decision was taken yet, so that nothing is known of the policy.
    """
    # As the rest: jobs that are submitted wait for none of it.
    from cluster_agent.jobs.forecast import Draws, foreseen, job_of, told_apart, with_guesses  # noqa: PLC0415
    from cluster_agent.jobs.known_speeds import speeds_here  # noqa: PLC0415
    from cluster_agent.recording.decision_log import state_of  # noqa: PLC0415
    from cluster_agent.recording.last_decision import last_decision, policy_of  # noqa: PLC0415
    from policy_net.domain import PolicyContext  # noqa: PLC0415
    from policy_net.policy import build_policy  # noqa: PLC0415

    folder = Path(facts["stateDir"])
    line = last_decision(folder)
    if line is None:
        raise JobRefused("no decision was taken here yet: there is nothing to foresee from; submit the job")
    state = state_of(line)
    present = [job for job in state.jobs if job.job_id in set(facts["present"])]
    asked = _asked(facts)
    new = job_of(asked)
    speeds = speeds_here(facts, policy_of(folder, line), [*present, new])
    *present, new = speeds.jobs
    notes = []
    unknown = sorted({job.job_type for job in present if not speeds.known(job)} - {new.job_type})
    if unknown:
        notes.append(f"nothing was measured of {', '.join(unknown)}, of which jobs are here: when they end is a guess")
    guessed = not (speeds.known(new) and speeds.epochs_known)
    notes += speeds.notes_on(new)
    if facts["job"]["epochs"] is None:
        notes.append("the job does not say its work: one epoch is taken; say `work`, or --epochs")
    start_guessed = any(not speeds.known(job) for job in present)
    *present, new = told_apart([*present, new], speeds.fit)
    spread = foreseen(
        present,
        replace(asked, job_type=new.job_type),
        _environment(facts),
        lambda: policy_of(folder, line) or build_policy(_name_of(line), PolicyContext()),
        speeds.fit,
        Draws(runs, seed),
    )
    return {
        **with_guesses(spread, start=start_guessed, end=guessed or facts["job"]["epochs"] is None),
        "policy": line["policy"],
        "version": line["version"],
        "jobsPresent": len(present),
        "runs": runs,
        "notes": notes,
    }


def _environment(facts: dict[str, Any]) -> Environment:
    from policy_net.domain import CapacityMode, Resources  # noqa: PLC0415
    from policy_net.laboratory.simulation.environment import DecideOn, Environment  # noqa: PLC0415

    return Environment(
        nodes=1,
        node_sizes=(Resources(facts["cpuMilli"], facts["gpus"]),),
        slot_seconds=facts["slotSeconds"],
        decide_on=DecideOn.EVENT,
        debounce_seconds=facts["debounceSeconds"],
        capacity_mode=CapacityMode.POOLED,
    )


def _name_of(line: dict[str, Any]) -> str:
    from policy_net.policy import DEFAULT_POLICY, policy_names  # noqa: PLC0415

    name = str(line["policy"])
    return name if name in policy_names() else DEFAULT_POLICY


def _asked(facts: dict[str, Any]) -> JobSpec:
    from cluster_agent.jobs.forecast import NEW  # noqa: PLC0415
    from policy_net.domain import Allocation, JobKind, Resources  # noqa: PLC0415
    from policy_net.laboratory.workloads.workload import JobSpec  # noqa: PLC0415

    job = facts["job"]
    return JobSpec(
        job_id=NEW,
        job_type=job["modelType"],
        submit_time_seconds=0.0,
        total_epochs=job["epochs"] or _GUESSED_EPOCHS,
        samples_per_epoch=facts["samplesPerEpoch"],
        worker_demand=Resources(job["worker"][0], job["worker"][1]),
        ps_demand=Resources(job["ps"][0], job["ps"][1]),
        requested=Allocation(*job["requested"]),
        max_workers=job["max"][0],
        max_ps=job["max"][1],
        kind=JobKind(job["kind"]),
        min_workers=job["min"][0],
        min_ps=job["min"][1],
        work_known=job["epochs"] is not None,
    )


def _sentences(answer: dict[str, Any]) -> str:
    from cluster_agent.jobs.forecast import time_in_words  # noqa: PLC0415

    start, end = answer["start"], answer["end"]
    version = f" v{answer['version']}" if answer["version"] else ""
    there = counted(answer["jobsPresent"], "job")
    lines = [f"starts in {time_in_words(start)}", f"ends in {time_in_words(end)}"]
    how = f"simulated {answer['runs']} times under {answer['policy']}{version}, beside {there}"
    if start["guess"]:
        return "\n".join([*answer["notes"], *lines, how])
    how += "; 8 of 10 runs lie within the bounds"
    return "\n".join([*answer["notes"], *lines, how] if end["guess"] else [*lines, how, *answer["notes"]])
