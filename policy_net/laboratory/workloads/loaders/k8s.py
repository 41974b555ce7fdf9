"""A Kubernetes job history: what `kubectl get pods -A -o json` prints, pods grouped to jobs.

Source: the Kubernetes API reference (Pod, ownerReferences, well-known labels); the labels of Kubeflow's operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foundation.figures import counted
from policy_net.accelerators import MOST_ON_A_NODE, Counted, counted_as, is_counted, not_counted, too_many
from policy_net.errors import BadInput, MalformedRow
from policy_net.laboratory.csv_rows import MOST_GPUS, shown
from policy_net.laboratory.workloads.loaders.intake import (
    INCOMPLETE,
    NEVER_STARTED,
    NO_GPU,
    UNFINISHED,
    Intake,
    LeftOut,
)
from policy_net.laboratory.workloads.loaders.json_items import Item, item, read_json
from policy_net.laboratory.workloads.loaders.record import (
    HeldGpus,
    NodeShare,
    RecordedJob,
    Recording,
    as_one_request,
)
from policy_net.laboratory.workloads.loaders.times import moment, moment_if_any, span, stated_moment

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
    """What the pods of one job say."""

    first_pod: int
    created_seconds: float
    pieces: list[HeldGpus] = field(default_factory=list)
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
    """Enter one pod."""
    meta = pod.an_object(pod.fields.get("metadata"), "metadata")
    pod = Item(pod.path, pod.number, pod.unit, pod.fields, name=pod.a_text(meta.get("name"), "metadata.name"))
    created = "metadata.creationTimestamp"
    seconds = stated_moment(pod.text_or_none(meta.get("creationTimestamp"), created), created, pod)
    asked = _gpus(pod)
    gpus = sum(asked.values())
    status = pod.an_object(pod.fields.get("status"), "status")
    phase = pod.a_text(status.get("phase"), "status.phase")
    if phase not in PHASES:
        raise pod.bad("status.phase", f"is {shown(phase)}", f"use one of {', '.join(PHASES)}")
    lost = False
    try:
        times = _times(pod, status, ended=phase in ENDED_PHASES)
    except _TimesLost:
        times, lost = None, True
    job = jobs.setdefault(_job_id(pod, meta), _Job(pod.number, seconds))
    job.created_seconds = min(job.created_seconds, seconds)
    job.gpus += gpus
    job.parts |= any(counted_as(name) is Counted.PARTS for name in asked)
    job.uncounted |= _uncounted(pod)
    job.too_many = next((name for name, number in asked.items() if number > MOST_ON_A_NODE), job.too_many)
    if gpus and phase not in ENDED_PHASES:
        job.unfinished = True
    elif gpus and lost:
        job.times_lost = True
    elif gpus and times is not None:
        job.pieces.append(HeldGpus(*times, gpus))
        node = pod.text_if_any(pod.an_object(pod.fields.get("spec"), "spec").get("nodeName"))
        if node:
            job.shares.append(NodeShare(node, gpus, *times))


def _spoil(pod: Item | None, jobs: dict[_Key, _Job]) -> None:
    """A job with a malformed pod is left out as a whole, where it can be told which one it is."""
    if pod is None:
        return
    try:
        meta = pod.an_object(pod.fields.get("metadata"), "metadata")
        jobs.setdefault(_job_id(pod, meta), _Job(pod.number, 0.0)).incomplete = True
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
    held = as_one_request(job.pieces)
    return RecordedJob(
        job.first_pod,
        job_id,
        job.created_seconds,
        held.seconds,
        round(held.gpus),
        start_seconds=min(piece.start_seconds for piece in job.pieces),
        end_seconds=max(piece.end_seconds for piece in job.pieces),
        account=job_id.partition("/")[0],
        shares=tuple(job.shares),
    )


def _job_id(pod: Item, meta: Mapping[str, Any]) -> _Key:
    """Namespace and name of the job that a pod belongs to: by group label, owner, job label, or the pod alone.

    And its uid as far as that is known: a job that was deleted and made again has another one.
    """
    namespace = pod.text_or_none(meta.get("namespace"), "metadata.namespace") or "default"
    labels = pod.an_object(meta.get("labels") or {}, "metadata.labels")
    for label in GROUP_LABELS:
        if labels.get(label):
            uid = pod.text_if_any(labels.get(JOBSET_UID))
            return f"{namespace}/{pod.a_text(labels[label], f'metadata.labels.{label}')}", uid
    owners = pod.a_list(meta.get("ownerReferences") or [], "metadata.ownerReferences")
    references = [pod.an_object(owner, f"metadata.ownerReferences[{index}]") for index, owner in enumerate(owners)]
    for owner in sorted(references, key=lambda owner: owner.get("controller") is not True):
        name = pod.a_text(owner.get("name"), "metadata.ownerReferences.name")
        return f"{namespace}/{name}", pod.text_if_any(owner.get("uid"))
    for label in JOB_LABELS:
        if labels.get(label):
            return f"{namespace}/{pod.a_text(labels[label], f'metadata.labels.{label}')}", ""
    return f"{namespace}/{pod.a_text(meta.get('name'), 'metadata.name')}", pod.text_if_any(meta.get("uid"))


def _gpus(pod: Item) -> Mapping[str, int]:
    """Requests of a pod by kind: all its containers together or, if that is more, one init container.

    Source: Kubernetes' rule for init containers; those that are always restarted run beside the containers.
    """
    spec = pod.an_object(pod.fields.get("spec"), "spec")
    together: Counter[str] = Counter()
    before: Counter[str] = Counter()
    for _, asked in _asked(pod, "spec.containers", spec.get("containers")):
        together.update(asked)
    for value, asked in _asked(pod, "spec.initContainers", spec.get("initContainers") or []):
        if value.get("restartPolicy") == "Always":
            together.update(asked)
        before |= Counter(asked)  # the most of each
    return together | before


def _uncounted(pod: Item) -> set[str]:
    """Names of accelerators that a pod asks for and that are no number of devices."""
    spec = pod.an_object(pod.fields.get("spec"), "spec")
    meta = pod.an_object(pod.fields.get("metadata"), "metadata")
    annotations = pod.an_object(meta.get("annotations") or {}, "metadata.annotations")
    found = {name for name in SHARE_ANNOTATIONS if name in annotations}
    found |= {CLAIMS} if spec.get("resourceClaims") else set()
    for kind in ("containers", "initContainers"):
        for _, place, resources in _resources(pod, f"spec.{kind}", spec.get(kind) or []):
            found |= {name for name in _names(pod, place, resources) if counted_as(name) is Counted.NOT}
    return found


def _asked(pod: Item, name: str, containers: Any) -> Iterator[tuple[Mapping[str, Any], Mapping[str, int]]]:
    """Each container, and what it asks for of every kind that is counted."""
    for value, place, resources in _resources(pod, name, containers):
        named = [resource for resource in _names(pod, place, resources) if is_counted(resource)]
        yield value, {resource: _quantity(pod, place, resources, resource) for resource in named}


def _resources(pod: Item, name: str, containers: Any) -> Iterator[tuple[Mapping[str, Any], str, Mapping[str, Any]]]:
    for index, value in enumerate(pod.a_list(containers, name)):
        place = f"{name}[{index}].resources"
        container = pod.an_object(value, f"{name}[{index}]")
        yield container, place, pod.an_object(container.get("resources") or {}, place)


def _names(pod: Item, place: str, resources: Mapping[str, Any]) -> list[str]:
    """All that a container asks for."""
    kinds = ("requests", "limits")
    return list({name: None for kind in kinds for name in pod.an_object(resources.get(kind) or {}, f"{place}.{kind}")})


def _quantity(pod: Item, place: str, resources: Mapping[str, Any], resource: str) -> int:
    """The request or, as Kubernetes has it, the limit where no request is stated."""
    for kind in ("requests", "limits"):
        field_name = f"{place}.{kind}.{resource}"
        value = pod.an_object(resources.get(kind) or {}, f"{place}.{kind}").get(resource)
        if value is None:
            continue
        text = str(value) if isinstance(value, (str, int)) else ""
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_GPUS)) and int(text) <= MOST_GPUS):
            raise pod.bad(field_name, f"is {shown(value)}", f"use a whole number from 0 to {MOST_GPUS}")
        return int(text)
    return 0


def _times(pod: Item, status: Mapping[str, Any], *, ended: bool) -> tuple[float, float] | None:
    """From the first start of a container to the last end, restarts included; None if none ran.

    Only the last two runs of a container are recorded. One that ran more often has held its GPUs since the pod started.
    A pod that was evicted, or lost its node, may have ended without the times of its containers: it held its GPUs from
    its own start to the condition that says so (kubernetes/kubernetes#122160). Raises _TimesLost if no condition does.
    """
    starts: list[float] = []
    ends: list[float] = []
    untimed = restarted = False
    began = moment(pod.text_or_none(status.get("startTime"), "status.startTime"), "status.startTime", pod)
    values = pod.a_list(status.get("containerStatuses") or [], "status.containerStatuses")
    for index, value in enumerate(values):
        container = pod.an_object(value, f"status.containerStatuses[{index}]")
        restarts = container.get("restartCount")
        restarted = restarted or (isinstance(restarts, int) and restarts > 1)
        for kind in ("lastState", "state"):
            place = f"status.containerStatuses[{index}].{kind}"
            state = pod.an_object(container.get(kind) or {}, place)
            terminated = pod.an_object(state.get("terminated") or {}, f"{place}.terminated")
            names = f"{place}.terminated.startedAt", f"{place}.terminated.finishedAt"
            start = moment(pod.text_or_none(terminated.get("startedAt"), names[0]), names[0], pod)
            end = moment(pod.text_or_none(terminated.get("finishedAt"), names[1]), names[1], pod)
            if start is not None and end is not None:
                span(start, end, names, pod)
                starts.append(start)
                ends.append(end)
            elif terminated and kind == "lastState":
                restarted = True
            elif terminated or (ended and state.get("running")):
                untimed = True
    disrupted, unready = _ends_by_conditions(pod, status)
    if not values and ended and began is not None and disrupted is not None:
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


def _ends_by_conditions(pod: Item, status: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """When the pod was to be disrupted, and since when it is not ready; None where no condition says it."""
    disrupted: float | None = None
    unready: float | None = None
    for index, value in enumerate(pod.a_list(status.get("conditions") or [], "status.conditions")):
        place = f"status.conditions[{index}]"
        condition = pod.an_object(value, place)
        since = moment_if_any(pod.text_if_any(condition.get("lastTransitionTime")))
        if since is None:
            continue
        if (condition.get("type"), condition.get("status")) == ("DisruptionTarget", "True"):
            disrupted = since
        elif condition.get("type") in ("Ready", "ContainersReady") and condition.get("status") == "False":
            unready = since if unready is None else max(unready, since)
    return disrupted, unready
