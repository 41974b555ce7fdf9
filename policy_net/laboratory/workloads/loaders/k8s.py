"""A Kubernetes job history: what `kubectl get pods -A -o json` prints, pods grouped to jobs.

Source: the Kubernetes API reference (Pod, ownerReferences, well-known labels); the labels of Kubeflow's operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from foundation.figures import counted
from policy_net.accelerators import MOST_ON_A_NODE, Counted, counted_as, is_counted, not_counted, too_many
from policy_net.errors import BadInput, MalformedRow
from policy_net.laboratory.csv_rows import MOST_GPUS, shown
from policy_net.laboratory.workloads.loaders.record import (
    INCOMPLETE,
    NEVER_STARTED,
    NO_GPU,
    UNFINISHED,
    AllocatedGpus,
    Intake,
    LeftOut,
    NodeShare,
    RecordedJob,
    Recording,
    as_one_request,
)
from policy_net.laboratory.workloads.loaders.values import Item, item, moment_if_any, read_json, span

EXPECTED = "give what `kubectl get pods -A -o json` prints"
UNIT = "pod"

CLAIMS = "a resource claim"
"""Of devices, by which a pod may ask for GPUs without a number: the list of pods does not show how many."""

SHARE_ANNOTATIONS = ("gpu-fraction", "gpu-memory")
"""Of pods that ask Run:ai's scheduler, or KAI, for a share of a device, and no device by number.

Source: NVIDIA/KAI-Scheduler, docs/gpu-sharing.
"""

GROUP_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
)
"""Of jobs whose pods have several owners, such as an MPIJob's launcher and workers."""

JOB_LABELS = ("batch.kubernetes.io/job-name", "job-name")
"""Of pods whose owner is not recorded."""

JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"

TIMES_LOST = "ran, and nobody recorded until when"
"""Of a job with a pod that was evicted, or lost its node, where no condition says when either."""

ENDED_PHASES = ("Succeeded", "Failed")
_Key = tuple[str, str]
"""A job's namespace and name, and its uid; empty where that is not known."""
PHASES = (*ENDED_PHASES, "Running", "Pending", "Unknown")


@dataclass(slots=True)
class _Job:
    first_pod: int
    created_seconds: float
    pieces: list[AllocatedGpus] = field(default_factory=list)
    shares: list[NodeShare] = field(default_factory=list)
    gpus: float = 0.0
    parts: bool = False
    uncounted: set[str] = field(default_factory=set)
    too_many: str = ""
    unfinished: bool = False
    incomplete: bool = False
    times_lost: bool = False


class _TimesLost(Exception):
    """A container ran, and nothing says until when."""


def read_k8s(path: Path, strict: bool = False) -> Recording:
    """Read a list of pods.

    Raises:
        BadInput: the file cannot be used; in strict reading, a pod is malformed.
    """
    content = read_json(path, EXPECTED)
    pods = content.get("items") if isinstance(content, dict) else None
    if not isinstance(pods, list):
        raise BadInput(f"{path}: holds no list of pods under 'items'; {EXPECTED}")
    intake = Intake(path, strict, "job", UNIT)
    jobs: dict[_Key, _Job] = {}
    for number, value in enumerate(pods, start=1):
        pod: Item | None = None
        try:
            pod = item(path, number, UNIT, value)
            if pod.fields.get("kind", "Pod") != "Pod":
                intake.leave_out("no pod, but another kind of object: use `kubectl get pods -A -o json`")
                continue
            _add(pod, jobs)
        except MalformedRow as error:
            intake.on_malformed(error)
            _spoil(pod, jobs)
    times: Counter[str] = Counter()
    in_parts = 0
    for (job_id, _), job in jobs.items():
        times[job_id] += 1
        with intake.one():
            intake.keep(_record(job_id if times[job_id] == 1 else f"{job_id} ({times[job_id]})", job))
            in_parts += job.parts
    parts = [f"{counted(in_parts, 'job')} asked for parts of devices, and count one for each"] if in_parts else []
    return intake.recording(
        *parts,
        "pods of one namespace and job name are one job, submitted when its first pod was created",
        "GPUs: the most that a job's pods held at one time; duration: their GPU-seconds over that",
        "pods that were deleted before the list was made are not in it",
    )


def _add(pod: Item, jobs: dict[_Key, _Job]) -> None:
    pod = replace(pod, name=pod.part("metadata").text("name"))
    meta = pod.part("metadata")
    seconds = meta.stated_moment("creationTimestamp")
    spec = pod.part("spec")
    requested = _gpus(spec)
    gpus = sum(requested.values())
    status = pod.part("status")
    phase = status.text("phase")
    if phase not in PHASES:
        raise status.bad("phase", f"is {shown(phase)}", f"use one of {', '.join(PHASES)}")
    lost = False
    try:
        times = _times(status, ended=phase in ENDED_PHASES)
    except _TimesLost:
        times, lost = None, True
    job = jobs.setdefault(_job_id(meta), _Job(pod.number, seconds))
    job.created_seconds = min(job.created_seconds, seconds)
    job.gpus += gpus
    job.parts |= any(counted_as(name) is Counted.PARTS for name in requested)
    job.uncounted |= _uncounted(meta, spec)
    job.too_many = next((name for name, number in requested.items() if number > MOST_ON_A_NODE), job.too_many)
    if gpus and phase not in ENDED_PHASES:
        job.unfinished = True
    elif gpus and lost:
        job.times_lost = True
    elif gpus and times is not None:
        job.pieces.append(AllocatedGpus(*times, gpus))
        node = spec.word("nodeName")
        if node:
            job.shares.append(NodeShare(node, gpus, *times))


def _spoil(pod: Item | None, jobs: dict[_Key, _Job]) -> None:
    """A job with a malformed pod is left out as a whole, where it can be told which one it is."""
    if pod is None:
        return
    try:
        jobs.setdefault(_job_id(pod.part("metadata")), _Job(pod.number, 0.0)).incomplete = True
    except MalformedRow:
        return  # it was counted already


def _record(job_id: str, job: _Job) -> RecordedJob:
    if job.incomplete:
        raise LeftOut(INCOMPLETE)
    if not job.gpus:
        raise LeftOut(not_counted(job.uncounted) if job.uncounted else NO_GPU)
    if job.too_many:
        raise LeftOut(too_many(job.too_many))
    if job.unfinished:
        raise LeftOut(UNFINISHED)
    if job.times_lost:
        raise LeftOut(TIMES_LOST)
    if not job.pieces:
        raise LeftOut(NEVER_STARTED)
    whole = as_one_request(job.pieces)
    return RecordedJob(
        job.first_pod,
        job_id,
        job.created_seconds,
        whole.seconds,
        round(whole.gpus),
        start_seconds=min(piece.start_seconds for piece in job.pieces),
        end_seconds=max(piece.end_seconds for piece in job.pieces),
        account=job_id.partition("/")[0],
        shares=tuple(job.shares),
    )


def _job_id(meta: Item) -> _Key:
    """Namespace and name of the job that a pod belongs to: by group label, owner, job label, or the pod alone.

    And its uid as far as that is known: a job that was deleted and made again has another one.
    """
    namespace = meta.text_or_none("namespace") or "default"
    labels = meta.part("labels", needed=False)
    for label in GROUP_LABELS:
        if labels.fields.get(label):
            return f"{namespace}/{labels.text(label)}", labels.word(JOBSET_UID)
    owners = meta.parts("ownerReferences", needed=False)
    for owner in sorted(owners, key=lambda owner: owner.fields.get("controller") is not True):
        return f"{namespace}/{owner.text('name')}", owner.word("uid")
    for label in JOB_LABELS:
        if labels.fields.get(label):
            return f"{namespace}/{labels.text(label)}", ""
    return f"{namespace}/{meta.text('name')}", meta.word("uid")


def _gpus(spec: Item) -> Mapping[str, int]:
    """Requests of a pod by kind: all its containers together or, if that is more, one init container.

    Source: Kubernetes' rule for init containers; those that are always restarted run beside the containers.
    """
    together: Counter[str] = Counter()
    before: Counter[str] = Counter()
    for _, requested in _requested(spec.parts("containers")):
        together.update(requested)
    for container, requested in _requested(spec.parts("initContainers", needed=False)):
        if container.fields.get("restartPolicy") == "Always":
            together.update(requested)
        before |= Counter(requested)  # the most of each
    return together | before


def _uncounted(meta: Item, spec: Item) -> set[str]:
    annotations = meta.part("annotations", needed=False).fields
    found = {name for name in SHARE_ANNOTATIONS if name in annotations}
    found |= {CLAIMS} if spec.fields.get("resourceClaims") else set()
    for kind in ("containers", "initContainers"):
        for container in spec.parts(kind, needed=False):
            names = _names(container.part("resources", needed=False))
            found |= {name for name in names if counted_as(name) is Counted.NOT}
    return found


def _requested(containers: Iterable[Item]) -> Iterator[tuple[Item, Mapping[str, int]]]:
    """Each container, and what it asks for of every kind that is counted."""
    for container in containers:
        resources = container.part("resources", needed=False)
        yield container, {name: _quantity(resources, name) for name in _names(resources) if is_counted(name)}


def _names(resources: Item) -> list[str]:
    return list({name: None for kind in ("requests", "limits") for name in resources.part(kind, needed=False).fields})


def _quantity(resources: Item, name: str) -> int:
    """The request or, as Kubernetes has it, the limit where no request is stated."""
    for kind in ("requests", "limits"):
        requested = resources.part(kind, needed=False)
        value = requested.fields.get(name)
        if value is None:
            continue
        text = str(value) if isinstance(value, (str, int)) else ""
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_GPUS)) and int(text) <= MOST_GPUS):
            raise requested.bad(name, f"is {shown(value)}", f"use a whole number from 0 to {MOST_GPUS}")
        return int(text)
    return 0


def _times(status: Item, *, ended: bool) -> tuple[float, float] | None:
    """From the first start of a container to the last end, restarts included; None if none ran.

    Only the last two runs of a container are recorded. One that ran more often has held its GPUs since the pod started.
    A pod that was evicted, or lost its node, may have ended without the times of its containers: it held its GPUs from
    its own start to the condition that says so (kubernetes/kubernetes#122160).

    Raises:
        _TimesLost: no condition says when the pod ended.
    """
    starts: list[float] = []
    ends: list[float] = []
    untimed = restarted = False
    began = status.moment("startTime")
    containers = status.parts("containerStatuses", needed=False)
    for container in containers:
        restarts = container.fields.get("restartCount")
        restarted = restarted or (isinstance(restarts, int) and restarts > 1)
        for kind in ("lastState", "state"):
            state = container.part(kind, needed=False)
            terminated = state.part("terminated", needed=False)
            start, end = terminated.moment("startedAt"), terminated.moment("finishedAt")
            if start is not None and end is not None:
                span(start, end, ("startedAt", "finishedAt"), terminated)
                starts.append(start)
                ends.append(end)
            elif terminated.fields and kind == "lastState":
                restarted = True
            elif terminated.fields or (ended and state.fields.get("running")):
                untimed = True
    disrupted, unready = _ends_by_conditions(status)
    if not containers and ended and began is not None and disrupted is not None:
        untimed = True  # kubelets of before 1.22 dropped the containers of a pod that they evicted
    if untimed and ended:
        end = disrupted if disrupted is not None else unready
        if began is None or end is None or end < began or (disrupted is None and end == began):
            raise _TimesLost
        starts.append(began)
        ends.append(end)
    if restarted and began is not None:
        starts.append(began)
    return (min(starts), max(ends)) if ends else None


def _ends_by_conditions(status: Item) -> tuple[float | None, float | None]:
    """When the pod was to be disrupted, and since when it is not ready; None where no condition says it."""
    disrupted: float | None = None
    unready: float | None = None
    for condition in status.parts("conditions", needed=False):
        since = moment_if_any(condition.word("lastTransitionTime"))
        if since is None:
            continue
        kind, value = condition.fields.get("type"), condition.fields.get("status")
        if (kind, value) == ("DisruptionTarget", "True"):
            disrupted = since
        elif kind in ("Ready", "ContainersReady") and value == "False":
            unready = since if unready is None else max(unready, since)
    return disrupted, unready
