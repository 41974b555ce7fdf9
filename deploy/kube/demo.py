"""Run of the demonstration on Kubernetes, in its order: the cluster, the agent, the jobs, a kill, and the story."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from deploy.kube.cluster import CHECKOUT, Kubectl, start_cluster
from deploy.kube.configs import CLUSTER, write_configs
from deploy.kube.jobs import NAMESPACE, Arrival, arrivals, volumes
from deploy.local.configs import administrator_file
from deploy.local.demo import interrupt, own_folder
from deploy.local.display import Display
from deploy.local.first_version import shipped_start
from deploy.local.fleet import enroll, wait_until
from deploy.local.processes import DemoFailed, Processes
from deploy.local.waiting import ProgressDeadline
from deploy.local.watch import LearnerWatch
from policy_net.laboratory.report import check_folder, prepare_folder

Json = dict[str, Any]

_NODES = 2
_LOOK_SECONDS = 1.0
_SAY_SECONDS = 10.0
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


@dataclass(frozen=True, slots=True)
class KubeOptions:
    """What a user may choose.

    Attributes:
        seconds: after so many, what is not complete and gets on no more is a failure.
    """

    training_jobs: int
    plain_jobs: int
    seconds: float
    run_folder: Path
    report_folder: Path


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


def run_on_kubernetes(options: KubeOptions) -> Ending:
    """Run everything; prints as it goes.

    Raises:
        BadInput: kubectl is missing, or a folder cannot be used; nothing has been started then.
        DemoFailed: a process failed, or a job was not complete in time.
    """
    console = Console() if sys.stdout.isatty() else Console(width=120)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupt)
    Kubectl(Path("unused"))  # or it is found out after a minute
    check_folder(options.report_folder, 1)
    with own_folder(options.run_folder) as folder:
        with Processes(folder) as processes, Display(1.0, console) as display:
            policy = shipped_start(folder, display)
            ending = _run(options, folder, policy, processes, display)
        prepare_folder(options.report_folder, 1)
        files = _write(ending, options.report_folder, folder / "trainingjobs.log")
    console.print(ending.table, highlight=False, soft_wrap=True)
    console.print(ending.description, highlight=False, soft_wrap=True)
    complete = sum(_is_complete(job) for job in ending.jobs)
    console.print(
        f"{complete} of {len(ending.jobs)} TrainingJobs, {len(ending.plain)} Jobs complete in {ending.seconds:.0f} s, "
        f"resized {ending.resizes} times while they ran; the agent was killed after {ending.killed_seconds:.0f} s, and "
        f"the next one decided {ending.first_decision_after_seconds:.0f} s later; {ending.updates} updates went to the "
        "learner",
        soft_wrap=True,
        highlight=False,
    )
    console.print("written: " + ", ".join(str(path) for path in files), soft_wrap=True)
    return ending


def _run(options: KubeOptions, folder: Path, policy: Path, processes: Processes, display: Display) -> Ending:
    display.phase("starting a cluster, a learner, and an agent")
    ours, agents = start_cluster(folder, processes, _ROLES, _NODES)
    kubectl = Kubectl(ours)
    for path in _DEFINITIONS:
        kubectl("apply", "-f", str(path))
    kubectl("label", "namespace", NAMESPACE, "fedl2.io/update-mode=Auto", "--overwrite")
    kubectl.apply(volumes())
    address, page = f"127.0.0.1:{processes.port()}", f"127.0.0.1:{processes.port()}"
    learner, agent = write_configs(folder, policy, address, processes.port(), page, agents)
    processes.start("learner", "global_learner.cli", ["serve", "--config", str(learner)])
    administrator = administrator_file(folder)
    wait_until(administrator.exists, processes)
    watch = LearnerWatch(address, administrator)
    showing = kubectl.watch(folder / "trainingjobs.log", "get", "trainingjobs", "-n", NAMESPACE, "-w")
    try:
        wait_until(lambda: watch.now() is not None, processes)
        enroll([CLUSTER], folder, address, administrator, processes)
        processes.start("agent", "cluster_agent.cli", ["run", "--config", str(agent)])
        display.phase(f"to look in: kubectl --kubeconfig {ours} get trainingjobs -w, or http://{page}/")
        planned = arrivals(options.training_jobs, options.plain_jobs)
        ending = _watch(planned, options, kubectl, agent, watch, processes, display)
    finally:
        showing.terminate()
        showing.wait()
        watch.close()
    processes.stop(["agent"])
    processes.stop(["learner"])
    return ending


def _watch(
    planned: Sequence[Arrival],
    options: KubeOptions,
    kubectl: Kubectl,
    agent: Path,
    watch: LearnerWatch,
    processes: Processes,
    display: Display,
) -> Ending:
    """Apply the jobs as their time comes, kill the agent half-way, and look on until all are complete."""
    deadline = ProgressDeadline(_STILL_SECONDS)
    began, said, killed, decided = time.monotonic(), -_SAY_SECONDS, 0.0, 0.0
    waiting = list(planned)
    known: set[str] = set()
    while True:
        processes.check()
        elapsed = time.monotonic() - began
        while waiting and waiting[0].after_seconds <= elapsed:
            kubectl.apply(waiting.pop(0).objects)
        jobs, plain = kubectl.objects("trainingjobs", "-n", NAMESPACE), kubectl.objects("jobs", "-n", NAMESPACE)
        decisions = {_decision(job) for job in jobs} - {""}
        if not killed and sum(map(_is_complete, jobs)) >= len(planned) // 4:
            display.phase(f"{elapsed:4.0f} s  the agent is killed, and another one started")
            processes.kill("agent")
            processes.start("agent", "cluster_agent.cli", ["run", "--config", str(agent)])
            killed, known = elapsed, decisions
        elif killed and not decided and decisions - known:
            decided = elapsed
        over = [*map(_is_complete, jobs), *map(_is_complete, plain)]
        if elapsed - said >= _SAY_SECONDS:
            said = elapsed
            display.phase(f"{elapsed:4.0f} s  {sum(over)} of {len(planned)} complete | {_sizes(jobs)}")
        display.progress(elapsed / options.seconds)
        if not waiting and all(over):
            break
        if deadline.passed(progress_of([*jobs, *plain])) and elapsed > options.seconds:
            late = next(each["metadata"]["name"] for each in [*jobs, *plain] if not _is_complete(each))
            raise DemoFailed(f"{late} is not complete after {elapsed:.0f} s: {_story(kubectl, late)}")
        time.sleep(_LOOK_SECONDS)
    now = watch.now()
    resizes = resizes_of([*jobs, *plain], kubectl.objects("events", "-n", NAMESPACE))
    told = max(jobs, key=lambda job: resizes[job["metadata"]["uid"]])["metadata"]["name"]
    return Ending(
        seconds=time.monotonic() - began,
        killed_seconds=killed,
        first_decision_after_seconds=max(0.0, decided - killed),
        jobs=tuple(jobs),
        plain=tuple(plain),
        resizes=sum(resizes.values()),
        updates=0 if now is None else now.head_step,
        table=kubectl("get", "trainingjobs,jobs", "-n", NAMESPACE),
        description=kubectl("describe", "trainingjob", told, "-n", NAMESPACE),
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


def _write(ending: Ending, folder: Path, log: Path) -> list[Path]:
    summary = {
        "seconds": round(ending.seconds, 1),
        "agentKilledSeconds": round(ending.killed_seconds, 1),
        "decidedAgainAfterSeconds": round(ending.first_decision_after_seconds, 1),
        "resizes": ending.resizes,
        "learnerUpdates": ending.updates,
        "trainingJobs": {job["metadata"]["name"]: job.get("status") for job in ending.jobs},
        "jobs": {job["metadata"]["name"]: job.get("status") for job in ending.plain},
    }
    files = {
        "kube-summary.json": json.dumps(summary, indent=2) + "\n",
        "kube-story.txt": f"{ending.table}\n{ending.description}",
        "kube-watch.txt": log.read_text(encoding="utf-8", errors="replace"),
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return [folder / name for name in files]
