"""The demonstration on Kubernetes, `make demo-kube`: a cluster, kubectl, a learner, and an agent that is killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from deploy.demonstration.configs import REAL_JOBS, learner_content, real_agent
from deploy.demonstration.frame import (
    DemoLearner,
    Demonstration,
    LearnerWatch,
    ProgressDeadline,
    demonstration,
    shipped_start,
)
from deploy.demonstration.processes import DemoFailed
from deploy.kube.cluster import DEFINITIONS, Kubectl, start_cluster
from deploy.kube.jobs import NAMESPACE, PLAIN_JOBS, TRAINING_JOBS, Json, arrivals, volumes
from foundation.command_line import run, with_option_groups
from foundation.program_life import end

CLUSTER = "kubernetes"
_POLL_SECONDS = 1.0
_STILL_SECONDS = 300.0
"""How long no job may get on: at a fifth of a core the processes of some of them take minutes to start."""
app = typer.Typer(add_completion=False)


@dataclass(frozen=True)  # without slots, so that the command line finds the defaults
class KubeOptions:
    """What a user may choose."""

    training_jobs: Annotated[
        int, typer.Option("--training-jobs", min=1, max=TRAINING_JOBS, help="So many TrainingJobs.")
    ] = TRAINING_JOBS
    plain_jobs: Annotated[
        int, typer.Option("--plain-jobs", min=0, max=PLAIN_JOBS, help="So many Jobs of batch/v1.")
    ] = PLAIN_JOBS
    seconds: Annotated[
        float, typer.Option("--seconds", min=30.0, help="What is not complete then, and gets on no more, is a failure.")
    ] = 280.0
    run_folder: Annotated[Path, typer.Option("--run-folder", help="Configurations, logs, state.")] = Path("run-kube")
    report_folder: Annotated[Path, typer.Option("--report-folder", help="What kubectl showed, and a summary.")] = Path(
        "report"
    )


@app.command()
@with_option_groups
def demo_kube(options: KubeOptions) -> None:
    """Apply jobs with kubectl to a test cluster whose pods are real processes, and watch them train and be resized."""
    Kubectl(Path("unused"))  # or it is found out after a minute
    with demonstration(options.run_folder, options.report_folder) as demo:
        summary, *shown = _run(options, shipped_start(demo), demo)
    complete, plain = len(summary["trainingJobs"]), len(summary["jobs"])
    demo.leave(
        options.report_folder,
        {"kube-summary.json": json.dumps(summary, indent=2) + "\n"},
        *shown,
        f"{complete} of {complete} TrainingJobs, {plain} Jobs complete in {summary['seconds']:.0f} s, "
        f"resized {summary['resizes']} times while they ran; the agent was killed after "
        f"{summary['agentKilledSeconds']:.0f} s, and the next one decided {summary['decidedAgainAfterSeconds']:.0f} s "
        f"later; {summary['learnerUpdates']} updates went to the learner",
    )


def _run(options: KubeOptions, policy: Path, demo: Demonstration) -> tuple[Json, str, str]:
    """The summary, and what kubectl shows at the end: all jobs, and the one that was resized most."""
    demo.display.phase("starting a cluster, a learner, and an agent")
    ours, agents = start_cluster(demo)
    kubectl = Kubectl(ours)
    kubectl("apply", *(f"--filename={path}" for path in DEFINITIONS))
    kubectl("label", "namespace", NAMESPACE, "fedl2.io/update-mode=Auto", "--overwrite")
    kubectl.apply(volumes())
    learner = DemoLearner(demo, demo.folder)
    backend = {
        "kind": "kubernetes",
        "kubeconfig": agents.name,
        "debounce_seconds": 2.0,
        "lease_namespace": "fedl2",
        # Jobs of a minute: sizes change more often than an operator's would.
        "limits": {"changes_per_hour": 120},
        "training": {},
    }

    def start_agent() -> None:
        learner.start_agent("agent", real_agent(CLUSTER, learner, backend))

    with learner.running(learner_content(policy, learner, REAL_JOBS)) as watch:
        learner.enroll([CLUSTER], watch)
        start_agent()
        demo.display.phase(f"to look in: kubectl --kubeconfig {ours} get trainingjobs -w, or http://{learner.page}/")
        summary, most_resized = _watch(
            arrivals(options.training_jobs, options.plain_jobs), options, kubectl, start_agent, watch, demo
        )
        demo.processes.stop(["agent"])
    return summary, kubectl("get", "trainingjobs,jobs"), kubectl("describe", "trainingjob", most_resized)


def _watch(
    planned: Sequence[tuple[float, tuple[Json, ...]]],
    options: KubeOptions,
    kubectl: Kubectl,
    start_agent: Callable[[], None],
    watch: LearnerWatch,
    demo: Demonstration,
) -> tuple[Json, str]:
    """Apply the jobs as their time comes, kill the agent half-way, and look on until all are complete; the summary, and
    the name of the TrainingJob that was resized most."""
    deadline = ProgressDeadline(_STILL_SECONDS)
    killed, decided, waiting = 0.0, 0.0, list(planned)
    known: set[str] = set()
    for elapsed in demo.polls(_POLL_SECONDS):
        while waiting and waiting[0][0] <= elapsed:
            kubectl.apply(waiting.pop(0)[1])
        jobs, plain = kubectl.objects("trainingjobs"), kubectl.objects("jobs")
        decisions = {_decision(job) for job in jobs} - {""}
        if not killed and sum(map(_is_complete, jobs)) >= len(planned) // 4:
            demo.display.phase(f"{elapsed:4.0f} s  the agent is killed, and another one started")
            demo.processes.kill("agent")
            start_agent()
            killed, known = elapsed, decisions
        elif killed and not decided and decisions - known:
            decided = elapsed
        late = [job for job in (*jobs, *plain) if not _is_complete(job)]
        if demo.display.is_due(elapsed):
            done = len(jobs) + len(plain) - len(late)
            demo.display.phase(f"{elapsed:4.0f} s  {done} of {len(planned)} complete | {_sizes(jobs)}", elapsed)
        demo.display.progress(elapsed / options.seconds)
        if not waiting and not late:
            break
        if deadline.passed(progress_of([*jobs, *plain])) and elapsed > options.seconds and late:
            name = late[0]["metadata"]["name"]
            raise DemoFailed(f"{name} is not complete after {elapsed:.0f} s: {_state(late[0])}")
    now = watch.now()
    resizes = resizes_of([*jobs, *plain], kubectl.objects("events"))
    summary = {
        "seconds": round(elapsed, 1),
        "agentKilledSeconds": round(killed, 1),
        "decidedAgainAfterSeconds": round(max(0.0, decided - killed), 1),
        "resizes": sum(resizes.values()),
        "learnerUpdates": 0 if now is None else now.head_step,
        "trainingJobs": {job["metadata"]["name"]: job.get("status") for job in jobs},
        "jobs": {job["metadata"]["name"]: job.get("status") for job in plain},
    }
    return summary, max(jobs, key=lambda job: resizes[job["metadata"]["uid"]])["metadata"]["name"]


def resizes_of(jobs: Sequence[Json], events: Sequence[Json]) -> Counter[str]:
    """How often the size of each job was changed while it ran, by its uid: an earlier job of its name had a life of its
    own, of which Events tell for an hour after its end."""
    uids = {job["metadata"]["uid"] for job in jobs}
    found: Counter[str] = Counter()
    for event in events:
        about = event.get("involvedObject") or {}
        if event.get("reason") == "Resized" and about.get("uid") in uids:
            found[about["uid"]] += int(event.get("count") or 1)
    return found


def progress_of(jobs: Sequence[Json]) -> tuple[str, ...]:
    """How far jobs are, in words that are others as soon as one of them gets on: what it has, what it is doing, and how
    much of it is done; nothing that changes only because time goes on."""
    found = []
    for job in jobs:
        status = job.get("status") or {}
        tasks = [status.get(name) for name in ("phase", "workers", "ps", "active", "ready", "succeeded")]
        epoch = (status.get("progress") or {}).get("epoch")
        found.append(f"{job['metadata']['name']} {tasks} {epoch} {_is_complete(job)}")
    return tuple(sorted(found))


def _is_complete(found: Json) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Complete" and each.get("status") == "True" for each in conditions)


def _decision(job: Json) -> str:
    return str(((job.get("status") or {}).get("allocation") or {}).get("decisionId") or "")


def _sizes(jobs: Sequence[Json]) -> str:
    words = []
    for job in jobs:
        status = job.get("status") or {}
        if status.get("workers"):
            words.append(f"{job['metadata']['name']} {status['workers']}+{status.get('ps', 0)}")
    return "workers+PSs: " + (", ".join(words) or "none")


def _state(job: Json) -> str:
    if job.get("kind") != "TrainingJob":
        return "a Job of batch/v1"
    status = job.get("status") or {}
    progress = status.get("progress") or {}
    words = [str(status.get("phase") or "not seen by the agent yet"), str(status.get("message") or "")]
    far = f"{progress['epoch']} of {progress.get('totalEpochs', '?')} epochs" if "epoch" in progress else ""
    return ", ".join(word for word in (*words, far) if word)


if __name__ == "__main__":
    end(run(app, "demo-kube"))
