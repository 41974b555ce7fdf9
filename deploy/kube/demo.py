"""The demonstration on Kubernetes, `make demo-kube`: a cluster, kubectl, a learner, and an agent that is killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

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
from deploy.kube.cluster import CHECKOUT, Kubectl, start_cluster
from deploy.kube.jobs import NAMESPACE, PLAIN_JOBS, TRAINING_JOBS, Arrival, arrivals, volumes
from foundation.command_line import run, with_option_groups
from foundation.program_life import end

Json = dict[str, Any]

CLUSTER = "kubernetes"
SETTINGS = replace(REAL_JOBS, exploration=0.05)
_NODES = 2
_POLL_SECONDS = 1.0
_STILL_SECONDS = 300.0
"""How long no job may get on: at a fifth of a core the processes of some of them take minutes to start."""
_DEPLOY = CHECKOUT / "deploy"
_DEFINITIONS = tuple(_DEPLOY / "crds" / name for name in ("elastictargets.yaml", "trainingjobs.yaml"))
_KUSTOMIZE = _DEPLOY / "kustomize"
_ROLES = (
    _KUSTOMIZE / "base" / "advice-role.yaml",
    _KUSTOMIZE / "overlays" / "auto" / "auto-role.yaml",
    _KUSTOMIZE / "overlays" / "training" / "training-role.yaml",
)

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


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended: seconds from the first job on, and what kubectl shows."""

    seconds: float
    killed_seconds: float
    first_decision_after_seconds: float
    jobs: tuple[Json, ...]
    plain: tuple[Json, ...]
    resizes: int
    updates: int
    table: str
    description: str


@app.command()
@with_option_groups
def demo_kube(options: KubeOptions) -> None:
    """Apply jobs with kubectl to a test cluster whose pods are real processes, and watch them train and be resized."""
    run_on_kubernetes(options)


def run_on_kubernetes(options: KubeOptions) -> None:
    """Run everything, in its order: the cluster, the agent, the jobs, a kill, and the story; prints as it goes.

    Raises:
        BadInput: kubectl is missing, or a folder cannot be used; nothing has been started then.
        DemoFailed: a process failed, or a job was not complete in time.
    """
    Kubectl(Path("unused"))  # or it is found out after a minute
    with demonstration(options.run_folder, options.report_folder) as demo:
        ending = _run(options, shipped_start(demo), demo)
    complete = sum(map(_is_complete, ending.jobs))
    demo.leave(
        options.report_folder,
        _files(ending, demo.folder / "trainingjobs.log"),
        ending.table,
        ending.description,
        f"{complete} of {len(ending.jobs)} TrainingJobs, {len(ending.plain)} Jobs complete in {ending.seconds:.0f} s, "
        f"resized {ending.resizes} times while they ran; the agent was killed after {ending.killed_seconds:.0f} s, and "
        f"the next one decided {ending.first_decision_after_seconds:.0f} s later; {ending.updates} updates went to the "
        "learner",
    )


def _run(options: KubeOptions, policy: Path, demo: Demonstration) -> Ending:
    demo.display.phase("starting a cluster, a learner, and an agent")
    ours, agents = start_cluster(demo, _ROLES, _NODES)
    kubectl = Kubectl(ours)
    for path in _DEFINITIONS:
        kubectl("apply", "-f", str(path))
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
        learner.start_agent("agent", real_agent(CLUSTER, learner, SETTINGS, backend))

    with (
        kubectl.watch(demo.folder / "trainingjobs.log", "get", "trainingjobs", "-n", NAMESPACE, "-w"),
        learner.running(learner_content(policy, learner, SETTINGS)) as watch,
    ):
        learner.enroll([CLUSTER])
        start_agent()
        demo.display.phase(f"to look in: kubectl --kubeconfig {ours} get trainingjobs -w, or http://{learner.page}/")
        planned = arrivals(options.training_jobs, options.plain_jobs)
        ending = _watch(planned, options, kubectl, start_agent, watch, demo)
        demo.processes.stop(["agent"])
    return ending


def _watch(
    planned: Sequence[Arrival],
    options: KubeOptions,
    kubectl: Kubectl,
    start_agent: Callable[[], None],
    watch: LearnerWatch,
    demo: Demonstration,
) -> Ending:
    """Apply the jobs as their time comes, kill the agent half-way, and look on until all are complete."""
    deadline = ProgressDeadline(_STILL_SECONDS)
    killed, decided, waiting = 0.0, 0.0, list(planned)
    known: set[str] = set()
    for elapsed in demo.polls(_POLL_SECONDS):
        while waiting and waiting[0].after_seconds <= elapsed:
            kubectl.apply(waiting.pop(0).objects)
        jobs, plain = kubectl.objects("trainingjobs", "-n", NAMESPACE), kubectl.objects("jobs", "-n", NAMESPACE)
        decisions = {_decision(job) for job in jobs} - {""}
        if not killed and sum(map(_is_complete, jobs)) >= len(planned) // 4:
            demo.display.phase(f"{elapsed:4.0f} s  the agent is killed, and another one started")
            demo.processes.kill("agent")
            start_agent()
            killed, known = elapsed, decisions
        elif killed and not decided and decisions - known:
            decided = elapsed
        over = [*map(_is_complete, jobs), *map(_is_complete, plain)]
        if demo.display.is_due(elapsed):
            demo.display.phase(f"{elapsed:4.0f} s  {sum(over)} of {len(planned)} complete | {_sizes(jobs)}", elapsed)
        demo.display.progress(elapsed / options.seconds)
        if not waiting and all(over):
            break
        if deadline.passed(progress_of([*jobs, *plain])) and elapsed > options.seconds:
            late = next(each["metadata"]["name"] for each in [*jobs, *plain] if not _is_complete(each))
            raise DemoFailed(f"{late} is not complete after {elapsed:.0f} s: {_story(kubectl, late)}")
    now = watch.now()
    resizes = resizes_of([*jobs, *plain], kubectl.objects("events", "-n", NAMESPACE))
    most_resized = max(jobs, key=lambda job: resizes[job["metadata"]["uid"]])["metadata"]["name"]
    return Ending(
        seconds=elapsed,
        killed_seconds=killed,
        first_decision_after_seconds=max(0.0, decided - killed),
        jobs=tuple(jobs),
        plain=tuple(plain),
        resizes=sum(resizes.values()),
        updates=0 if now is None else now.head_step,
        table=kubectl("get", "trainingjobs,jobs", "-n", NAMESPACE),
        description=kubectl("describe", "trainingjob", most_resized, "-n", NAMESPACE),
    )


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


def _story(kubectl: Kubectl, name: str) -> str:
    found = [job for job in kubectl.objects("trainingjobs", "-n", NAMESPACE) if job["metadata"]["name"] == name]
    if not found:
        return "a Job of batch/v1"
    status = found[0].get("status") or {}
    progress = status.get("progress") or {}
    words = [str(status.get("phase") or "not seen by the agent yet"), str(status.get("message") or "")]
    far = f"{progress['epoch']} of {progress.get('totalEpochs', '?')} epochs" if "epoch" in progress else ""
    return ", ".join(word for word in (*words, far) if word)


def _files(ending: Ending, log: Path) -> dict[str, str]:
    summary = {
        "seconds": round(ending.seconds, 1),
        "agentKilledSeconds": round(ending.killed_seconds, 1),
        "decidedAgainAfterSeconds": round(ending.first_decision_after_seconds, 1),
        "resizes": ending.resizes,
        "learnerUpdates": ending.updates,
        "trainingJobs": {job["metadata"]["name"]: job.get("status") for job in ending.jobs},
        "jobs": {job["metadata"]["name"]: job.get("status") for job in ending.plain},
    }
    return {
        "kube-summary.json": json.dumps(summary, indent=2) + "\n",
        "kube-story.txt": f"{ending.table}\n{ending.description}",
        "kube-watch.txt": log.read_text(encoding="utf-8", errors="replace"),
    }


def main() -> None:
    """Entry point of `python -m deploy.kube`."""
    end(run(app, "demo-kube"))
