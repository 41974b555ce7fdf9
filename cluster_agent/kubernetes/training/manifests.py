"""Objects that a TrainingJob consists of: a Service, a Secret, and a pod for its coordinator and for each task.

Pure. Names follow from the job's and the task's, so that nothing is ever made twice; each object belongs to its job,
and goes with it. Pods are the author's templates: what is added is how a task finds its job, and what it mounts.
"""

from __future__ import annotations

import base64
import copy
import hashlib
from collections.abc import Mapping
from typing import Final

from cluster_agent.kubernetes.resources import PODS, Json, Resource
from cluster_agent.kubernetes.training.credentials import ServingPair
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, Placing, RoleSpec, TrainingJob
from policy_net.domain import Allocation

SERVICES: Final = Resource("", "v1", "services", "Service")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
COORDINATOR: Final = "coordinator"
FIRST_RANK: Final = "worker-0"
JOB_LABEL: Final = "fedl2.io/training-job"
TASK_LABEL: Final = "fedl2.io/task"
ROLE_LABEL: Final = "fedl2.io/role"
WORLD_LABEL: Final = "fedl2.io/world-size"
GANG_LABEL: Final = "fedl2.io/gang"
KEY_ANNOTATION: Final = "fedl2.io/training-key"
"""Of a job's Service: which of the agent's keys its token follows from."""
PORT: Final = 7770
METRICS_PORT: Final = 7771
_SECRET_FOLDER = "/fedl2/secret"  # noqa: S105 — a folder's name
_CHECKPOINT_FOLDER = "/fedl2/checkpoints"
_JOURNAL_FOLDER = "/fedl2/journal"
_END_FILE = "/dev/termination-log"
"""What is in it stands in the pod's status after its end."""
_START_SECONDS = 86400
_GRACE_SECONDS = 30
"""Kubernetes' own, of a template that says none."""
_LEAVE_SECONDS = 5
"""A member ends by itself so long before it would be ended."""
_STOP_SECONDS = 120
"""In which a rank is to stop after a common step, and the first one to write the checkpoint."""
_NEVER_SECONDS = 10**9
_FIRST_PORT, _PORTS = 20000, 10000
"""Of rendezvous: below those that are given to callers."""


def pod_name(job: TrainingJob, task: str) -> str:
    """Of a task's pod, or of the coordinator's."""
    return f"{job.name}-{task}"


def role_of(task: str) -> str:
    """Such as `worker` of `worker-0`; the coordinator is its own."""
    return task.rpartition("-")[0] or task


def leader(job: TrainingJob) -> str:
    """The task that answers for the job, and has its Service: the coordinator, or the first rank."""
    return FIRST_RANK if job.is_all_reduce else COORDINATOR


def rendezvous_port(job: TrainingJob) -> int:
    """Where ranks find each other; another one for each job, as pods may have their host's network."""
    return _FIRST_PORT + int.from_bytes(hashlib.sha256(job.uid.encode()).digest()[:4], "big") % _PORTS


def labels(job: TrainingJob, task: str) -> dict[str, str]:
    """By which a job's objects are found."""
    return {
        JOB_LABEL: job.name,
        TASK_LABEL: task,
        ROLE_LABEL: role_of(task),
        "app.kubernetes.io/managed-by": "fedl2",
    }


def service(job: TrainingJob, key: str = "") -> Json:
    """The address of who answers for the job, which stays while pods come and go, with the name of its key if any."""
    task, ports = leader(job), [{"name": "control", "port": PORT, "targetPort": PORT}]
    if job.is_all_reduce:
        ports.append({"name": "rendezvous", "port": rendezvous_port(job), "targetPort": rendezvous_port(job)})
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": _metadata(job, pod_name(job, task), task) | ({"annotations": {KEY_ANNOTATION: key}} if key else {}),
        "spec": {
            "selector": {JOB_LABEL: job.name, TASK_LABEL: task},
            "ports": ports,
            # Members register before it is said to be ready.
            "publishNotReadyAddresses": True,
        },
    }


def hosts(job: TrainingJob, cluster_ip: str) -> list[str]:
    """Names and addresses under which who answers for the job is asked."""
    name = f"{pod_name(job, leader(job))}.{job.namespace}.svc"
    return [cluster_ip, name, f"{name}.cluster.local"]


def secret_name(job: TrainingJob) -> str:
    """Of its Secret: that of an earlier job of this name is another."""
    return f"{job.runtime_name}-{leader(job)}"


def secret(job: TrainingJob, token: str, pair: ServingPair) -> Json:
    """What the job's pods know, and nobody else."""
    data = {"token": token, "tls.crt": pair.certificate, "tls.key": pair.key}
    return {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": _metadata(job, secret_name(job), leader(job)),
        "type": "Opaque",
        "immutable": True,
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in data.items()},
    }


def template_of(job: TrainingJob, role: str) -> Json:
    """From which the pods of a role are made; empty of a job that cannot be used."""
    if role == "worker" or not job.worker.template:
        return job.worker.template
    if role == COORDINATOR:
        return job.coordinator or _bare(job, COORDINATOR)
    return job.ps.template or _bare(job, "ps", job.ps)


def checkpoints_place(job: TrainingJob) -> str:
    """The job's own folder on its volume, or in its store; a job made anew under its name has another."""
    return f"{job.checkpoints_store or _CHECKPOINT_FOLDER}/{job.runtime_name}"


def coordinator_pod(job: TrainingJob, size: Allocation, *, relaunched: bool) -> Json:
    """The pod that leads the job from this size on; a relaunched one finds none of the tasks of before."""
    command = [
        "python",
        "-m",
        "elastic_runtime.coordinator",
        f"--job={job.runtime_name}",
        f"--folder={_JOURNAL_FOLDER}/{job.runtime_name}",
        f"--checkpoints={checkpoints_place(job)}",
        "--address-file=/tmp/fedl2-coordinator.json",
        f"--token-file={_SECRET_FOLDER}/token",
        f"--certificate={_SECRET_FOLDER}/tls.crt",
        f"--key={_SECRET_FOLDER}/tls.key",
        "--bind=$(FEDL2_POD_IP)",
        f"--port={PORT}",
        f"--metrics-port={METRICS_PORT}",
        f"--servers={size.ps}",
        f"--workers={size.workers}",
        f"--minimum-servers={job.ps.least}",
        f"--minimum-workers={job.worker.least}",
        f"--end-file={_END_FILE}",
        # Whether a job's first tasks come is looked after by the agent.
        f"--start-seconds={_START_SECONDS}",
        # A job whose journal is lost goes on from its checkpoints; where there are none it begins.
        "--restore=if-there",
        *(["--relaunched"] if relaunched else []),
    ]
    pod = _pod(job, COORDINATOR, template_of(job, COORDINATOR), command)
    pod["spec"]["containers"][0]["terminationMessagePath"] = _END_FILE
    pod["spec"]["containers"][0].setdefault("ports", [{"name": "metrics", "containerPort": METRICS_PORT}])
    _mount(pod["spec"], "fedl2-journal", _JOURNAL_FOLDER, _volume(job.journal_claim))
    return pod


def task_pod(job: TrainingJob, task: str, address: str, node: str = "") -> Json:
    """The pod of a worker or parameter server: where its coordinator is, and on which node a policy wants it."""
    name = role_of(task)
    is_worker, role = name == "worker", job.worker if name == "worker" else job.ps
    command = [] if is_worker else ["python", "-m", "elastic_runtime.server", f"--task={task}"]
    pod = _pod(job, task, template_of(job, name), command)
    spec = pod["spec"]
    stated = spec.get("terminationGracePeriodSeconds")
    grace = _GRACE_SECONDS if stated is None else int(stated)
    _set_environment(
        spec,
        {
            "ELASTIC_COORDINATOR": address,
            "ELASTIC_JOB": job.runtime_name,
            "ELASTIC_TASK": task,
            "ELASTIC_TOKEN_FILE": f"{_SECRET_FOLDER}/token",
            "ELASTIC_CA_FILE": f"{_SECRET_FOLDER}/tls.crt",
            "ELASTIC_CHECKPOINTS": checkpoints_place(job),
            "ELASTIC_BIND": "$(FEDL2_POD_IP)",
            "ELASTIC_GRACE_SECONDS": str(max(1, grace - _LEAVE_SECONDS)),
            "OMP_NUM_THREADS": str(_threads(role)) if is_worker else "1",
        },
    )
    _place(job, spec, node)
    return pod


def rank_pod(job: TrainingJob, task: str, gang: tuple[int, int], host: str, node: str = "") -> Json:
    """The pod of one rank of an all-reduce job, with the variables that torchrun sets.

    Args:
        gang: its number, and how many ranks it has.
        host: of the job's Service.
    """
    number, world = gang
    rank = task.rpartition("-")[2]
    pod = _pod(job, task, job.worker.template, [])
    pod["metadata"]["labels"] |= {GANG_LABEL: str(number), WORLD_LABEL: str(world)}
    spec = pod["spec"]
    spec.setdefault("terminationGracePeriodSeconds", _STOP_SECONDS)
    spec["containers"][0]["terminationMessagePath"] = _END_FILE
    _set_environment(
        spec,
        {
            "RANK": rank,
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": "1",
            # The first one listens there itself: not every network lets a pod reach itself by its Service.
            "MASTER_ADDR": "$(FEDL2_POD_IP)" if task == FIRST_RANK else host,
            "MASTER_PORT": str(rendezvous_port(job)),
            "ELASTIC_RANKS_BIND": f"$(FEDL2_POD_IP):{PORT}",
            "ELASTIC_RANKS_FOLDER": f"{_CHECKPOINT_FOLDER}/{job.runtime_name}",
            "ELASTIC_JOB": job.runtime_name,
            "ELASTIC_TOKEN_FILE": f"{_SECRET_FOLDER}/token",
            "ELASTIC_CERTIFICATE_FILE": f"{_SECRET_FOLDER}/tls.crt",
            "ELASTIC_KEY_FILE": f"{_SECRET_FOLDER}/tls.key",
            "ELASTIC_END_FILE": _END_FILE,
            "OMP_NUM_THREADS": str(_threads(job.worker)),
            # Nobody would ever read one that goes with its pod.
            **({"ELASTIC_RANKS_CHECKPOINTS": checkpoints_place(job)} if job.checkpoints_store else {}),
            **({} if job.keeps_checkpoints else {"ELASTIC_CHECKPOINT_SECONDS": str(_NEVER_SECONDS)}),
        },
    )
    _place(job, spec, node)
    return pod


def _threads(role: RoleSpec) -> int:
    return max(1, role.requests.get("cpu", 0) // 1000)


def owner_reference(job: TrainingJob) -> Json:
    """By which an object belongs to a job, and goes with it."""
    return {
        "apiVersion": TRAINING_JOBS.api_version,
        "kind": TRAINING_JOBS.kind,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _metadata(job: TrainingJob, name: str, task: str) -> Json:
    owners = [owner_reference(job)]
    return {"name": name, "namespace": job.namespace, "labels": labels(job, task), "ownerReferences": owners}


def _bare(job: TrainingJob, name: str, role: RoleSpec | None = None) -> Json:
    """A template in the workers' image; a namespace that admits the workers' pods admits this one."""
    worker = job.worker.template["spec"]
    image = {
        key: worker["containers"][0][key] for key in ("image", "imagePullPolicy") if key in worker["containers"][0]
    }
    requests = {"cpu": "100m", "memory": "256Mi"}
    if role is not None:
        requests = {"cpu": f"{role.requests.get('cpu', 0)}m", "memory": str(role.requests.get("memory", 0))}
    kept = ("imagePullSecrets", "serviceAccountName", "securityContext", "tolerations", "nodeSelector")
    return {
        "spec": {
            **{key: copy.deepcopy(worker[key]) for key in kept if key in worker},
            "containers": [
                {"name": name, **image, "resources": {"requests": requests}, "securityContext": _confined(worker)}
            ],
        }
    }


def _confined(worker: Json) -> Json:
    """What a container may do that needs next to nothing: as Pod Security's level `restricted` has it.

    It is the user that the worker is. An image whose user is not known may be root's, and root keeps its right to write
    to volumes that belong to others, as a worker has it.
    """
    pod, container = (
        found if isinstance(found := each.get("securityContext"), dict) else {}
        for each in (worker, worker["containers"][0])
    )
    same = {name: container[name] for name in _WHO_IT_IS if name in container}
    both = {**pod, **same}
    user = both.get("runAsUser")
    is_other = isinstance(user, int) and user > 0
    if is_other:
        same["runAsNonRoot"] = True
    may_be_root = not is_other and both.get("runAsNonRoot") is not True
    return {
        **same,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], **({"add": ["DAC_OVERRIDE"]} if may_be_root else {})},
        **({} if "seccompProfile" in both else {"seccompProfile": {"type": "RuntimeDefault"}}),
    }


_WHO_IT_IS: Final = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "seLinuxOptions", "appArmorProfile")
"""Of a securityContext, what holds for another process of the same image as well."""


def _pod(job: TrainingJob, task: str, template: Json, command: list[str]) -> Json:
    template = copy.deepcopy(template)
    metadata = _metadata(job, pod_name(job, task), task)
    stated = template.get("metadata") or {}
    metadata["labels"] = {**(stated.get("labels") or {}), **metadata["labels"]}
    if stated.get("annotations"):
        metadata["annotations"] = stated["annotations"]
    spec = template["spec"]
    spec["restartPolicy"] = "Never"  # the agent tells the coordinator of each end before another begins
    spec.setdefault("automountServiceAccountToken", False)
    container = spec["containers"][0]
    if command and not container.get("command"):
        container["command"] = command
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")  # what a script said last is told
    _set_environment(spec, {"PYTHONUNBUFFERED": "1"}, {"FEDL2_POD_IP": "status.podIP"})
    _mount(spec, "fedl2-secret", _SECRET_FOLDER, {"secret": {"secretName": secret_name(job)}}, read_only=True)
    _mount(spec, "fedl2-checkpoints", _CHECKPOINT_FOLDER, _volume(job.checkpoints_claim))
    if job.store_secret:
        container["envFrom"] = [*(container.get("envFrom") or ()), {"secretRef": {"name": job.store_secret}}]
    return {"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": metadata, "spec": spec}


def _volume(claim: str) -> Json:
    return {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}


def _mount(spec: Json, name: str, folder: str, source: Json, *, read_only: bool = False) -> None:
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, **source}]
    container = spec["containers"][0]
    mount = {"name": name, "mountPath": folder, **({"readOnly": True} if read_only else {})}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]


def _set_environment(spec: Json, values: Mapping[str, str], fields: Mapping[str, str] | None = None) -> None:
    """Ours hold; what refers to another variable comes after it."""
    container = spec["containers"][0]
    ours = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in (fields or {}).items()]
    ours += [{"name": name, "value": value} for name, value in values.items()]
    names = {each["name"] for each in ours}
    container["env"] = [*(each for each in container.get("env") or () if each.get("name") not in names), *ours]


def _place(job: TrainingJob, spec: Json, node: str) -> None:
    if not node or job.placing is Placing.SCHEDULER:
        return
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    spec["affinity"] = spec.get("affinity") or {}
    affinity = spec["affinity"]["nodeAffinity"] = spec["affinity"].get("nodeAffinity") or {}
    if job.placing is Placing.REQUIRE:
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = required
        # Terms are alternatives: the node has to be in each of them.
        terms = required.get("nodeSelectorTerms") or [{}]
        required["nodeSelectorTerms"] = [
            {**each, "matchFields": [*(each.get("matchFields") or ()), *term["matchFields"]]} for each in terms
        ]
    else:
        preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [*preferred, {"weight": 100, "preference": term}]
