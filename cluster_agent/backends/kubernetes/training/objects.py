"""Objects of TrainingJobs on an API server: each made once, under its own name, and deleted by its uid.

A write whose answer was lost is looked for before it is made again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from cluster_agent.backends.kubernetes.training.coordinators import CoordinatorConnection
from cluster_agent.backends.kubernetes.training.plan import GIVEN_BACK_GRACE_SECONDS
from cluster_agent.backends.kubernetes.training.ranks import GangStep
from cluster_agent.backends.kubernetes.training.step import JobStep
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.api_server import ApiServer, ContentType
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.errors import AlreadyExists, ApiError, Conflict, NotActing, NotFound
from cluster_agent.kubernetes.resources import PODS, Json, controller_of
from cluster_agent.kubernetes.training import manifests
from cluster_agent.kubernetes.training.credentials import JobKeys, ServingPair, name_of_key, serving_pair, token_of
from cluster_agent.kubernetes.training.manifests import (
    COORDINATOR,
    GANG_LABEL,
    KEY_ANNOTATION,
    PORT,
    SECRETS,
    SERVICES,
    leader,
)
from cluster_agent.kubernetes.training.training_job import LAST_CHECKPOINT, TRAINING_JOBS, TrainingJob
from foundation.text import plain_line

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """What is kept of a coordinator's Service."""

    owner: str
    cluster_ip: str
    key: str = ""
    """Name of the agent's key from which the job's token follows."""

    @property
    def address(self) -> str:
        """Where the coordinator answers."""
        return f"{f'[{self.cluster_ip}]' if ':' in self.cluster_ip else self.cluster_ip}:{PORT}"


def service_facts(found: Json) -> ServiceFacts:
    """What is kept of a Service as the API gives it."""
    return ServiceFacts(
        str(controller_of(found["metadata"]).get("uid") or ""),
        str((found.get("spec") or {}).get("clusterIP") or ""),
        str((found["metadata"].get("annotations") or {}).get(KEY_ANNOTATION) or ""),
    )


class ObjectRefused(Exception):
    """Something could not be made; the line is for people."""


class JobObjects:
    """Makes and deletes; used by one thread.

    Args:
        keys: from which jobs' tokens follow.
        may_write: whether this agent acts; asked before each write.

    Raises:
        NotActing: of every write: it does not act any more.
        ApiError: of every request.
    """

    def __init__(
        self,
        api: ApiServer,
        pods: Cache[TaskPod],
        services: Cache[ServiceFacts],
        keys: JobKeys,
        may_write: Callable[[], bool],
    ) -> None:
        self._api, self._pods, self._services = api, pods, services
        self._keys, self._may_write = keys, may_write
        self._without_key: set[str] = set()
        self._pairs: dict[str, tuple[list[str], ServingPair]] = {}
        self._connections: dict[str, CoordinatorConnection] = {}

    def check_acting(self) -> None:
        """Before a write.

        Raises:
            NotActing: another agent may act by now.
        """
        if not self._may_write():
            raise NotActing("another agent may act by now")

    def is_there(self, job: TrainingJob, task: str) -> bool:
        """Look for a pod that was not seen: the agent before may have made it just now."""
        with contextlib.suppress(NotFound):
            self._pods.put_answer(self._api.get(PODS.path(job.namespace, manifests.pod_name(job, task))))
        entry = self._pods.get((job.namespace, manifests.pod_name(job, task)))
        return entry is not None and entry.kept.owner == job.uid

    def make_pod(
        self, job: TrainingJob, task: str, step: JobStep, address: str, node: str, fit: Callable[[Json], None]
    ) -> bool:
        """Make a task's pod, or find the one that an earlier try has made; whether it was made now.

        Args:
            node: where it should be; empty: anywhere.
            fit: changes a pod before it is made.

        Raises:
            ObjectRefused: its template is none, or another's pod has the name.
        """
        try:
            if task == COORDINATOR:
                pod = manifests.coordinator_pod(job, step.begin, relaunched=step.relaunched)
            elif isinstance(step, GangStep):
                host = address.rpartition(":")[0].strip("[]")
                pod = manifests.rank_pod(job, task, (step.gang, step.world), host, node)
            else:
                pod = manifests.task_pod(job, task, address, node)
            fit(pod)
        except (TypeError, AttributeError, ValueError, KeyError) as error:  # templates keep whatever was written
            raise ObjectRefused(f"the template of {task} is no pod's: {error}") from error
        path = PODS.path(job.namespace)
        self.check_acting()
        try:
            self._pods.put_answer(self._api.create(path, pod, {"fieldValidation": "Strict"}))
        except AlreadyExists as error:
            try:
                found = self._api.get(PODS.path(job.namespace, manifests.pod_name(job, task)))
            except NotFound:
                raise ObjectRefused(f"{error}; it goes just now") from error
            owners = [each.get("uid") for each in found["metadata"].get("ownerReferences") or ()]
            if job.uid not in owners:
                raise ObjectRefused(f"{error}; it is not this job's") from error
            if _gang_label(found) != _gang_label(pod):
                raise ObjectRefused(f"{error}; it is of another gang") from error
            self._pods.put_answer(found)
            return False
        return True

    def take_back(self, job: TrainingJob, tasks: Sequence[str]) -> None:
        """Delete a part of a gang, as fast as may be: it has not trained, and holds what others could use."""
        for task in tasks:
            entry = self._pods.get((job.namespace, manifests.pod_name(job, task)))
            if entry is not None and entry.kept.owner == job.uid:
                try:
                    self.delete(entry.kept, GIVEN_BACK_GRACE_SECONDS)
                except NotActing:
                    raise
                except ApiError as error:  # seen, and tried again, at the next look
                    _log.warning("training-job-take-back", job=job.job_id, error=plain_line(str(error)))

    def delete(self, pod: TaskPod, grace_seconds: int | None = None) -> None:
        """Delete a pod, and none that has its name by now; without a grace, with the pod's own."""
        self.check_acting()
        options: Json = {"preconditions": {"uid": pod.uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        # The watch says what became of it: an answer may come after the pod is gone, and would bring it back.
        with contextlib.suppress(NotFound, Conflict):  # it is gone, or another has its name
            self._api.delete(PODS.path(pod.namespace, pod.name), options)

    def set_finalizer(self, job: TrainingJob, *, present: bool) -> None:
        """Have the job kept until its last checkpoint, or let it go; nothing where it has changed meanwhile."""
        others = [each for each in job.finalizers if each != LAST_CHECKPOINT]
        finalizers = [*others, LAST_CHECKPOINT] if present else others
        metadata = {"uid": job.uid, "resourceVersion": job.version, "finalizers": finalizers or None}
        self.check_acting()
        with contextlib.suppress(NotFound, Conflict):  # seen, and tried again, at the next look
            self._api.patch(
                TRAINING_JOBS.path(job.namespace, job.name), {"metadata": metadata}, ContentType.MERGE_PATCH
            )

    def open_address(self, job: TrainingJob) -> str:
        """The coordinator's address, and what it needs to serve there."""
        self.check_acting()
        try:
            made = manifests.service(job, name_of_key(self._keys.newest))
            self._services.put_answer(self._api.create(SERVICES.path(job.namespace), made))
        except AlreadyExists:
            path = SERVICES.path(job.namespace, manifests.pod_name(job, leader(job)))
            self._services.put_answer(self._api.get(path))
        service = self._own_service(job)
        key = self._keys.named(service.key)
        if key is None:
            raise ObjectRefused(f"{_missing_key(service)}; name it in the agent's backend.training.earlier_key_files")
        token, pair = token_of(key, job.uid), self._pair(job, service, key)
        self.check_acting()
        with contextlib.suppress(AlreadyExists):  # it was made like this
            self._api.create(SECRETS.path(job.namespace), manifests.secret(job, token, pair))
        return service.address

    def address(self, job: TrainingJob) -> str:
        """Where the coordinator answers.

        Raises:
            ObjectRefused: there is no Service of its own with an address.
        """
        return self._own_service(job).address

    def connection(self, job: TrainingJob, pod: str) -> CoordinatorConnection | None:
        """The connection to the coordinator in a pod with this uid; None before there is an address."""
        service = self._service(job)
        if service is None:
            return None
        known = self._connections.get(job.uid)
        if known is None or (known.address, known.pod) != (service.address, pod):
            key = self._keys.named(service.key)
            if key is None:
                self._report_missing_key(job, service)
                key = self._keys.newest  # its coordinator then says that this is not the job's token
            certificate = self._pair(job, service, key).certificate
            known = CoordinatorConnection(service.address, job.runtime_name, token_of(key, job.uid), certificate, pod)
            self._connections[job.uid] = known
        return known

    def _service(self, job: TrainingJob) -> ServiceFacts | None:
        """The coordinator's Service; None before it has an address."""
        entry = self._services.get((job.namespace, manifests.pod_name(job, leader(job))))
        if entry is None or entry.kept.owner != job.uid or entry.kept.cluster_ip in ("", "None"):
            return None
        return entry.kept

    def _own_service(self, job: TrainingJob) -> ServiceFacts:
        service = self._service(job)
        if service is None:
            raise ObjectRefused(f"service {manifests.pod_name(job, leader(job))} is another's, or has no address yet")
        return service

    def _pair(self, job: TrainingJob, service: ServiceFacts, key: bytes) -> ServingPair:
        """The coordinator's; kept, as a signature takes as long as many polls."""
        hosts = manifests.hosts(job, service.cluster_ip)
        made_for, pair = self._pairs.get(job.uid, ([], None))
        if pair is None or made_for != hosts:
            pair = serving_pair(key, job.uid, hosts, _created(job))
            self._pairs[job.uid] = hosts, pair
        return pair

    def _report_missing_key(self, job: TrainingJob, service: ServiceFacts) -> None:
        if job.uid in self._without_key:
            return
        self._without_key.add(job.uid)
        _log.error(
            "training-key-missing",
            job=f"{job.namespace}/{job.name}",
            reason=_missing_key(service),
            advice="name its file in backend.training.earlier_key_files; the job trains on meanwhile, as it is",
        )

    def forget(self, uids: set[str]) -> None:
        """Forget all jobs but these."""
        self._pairs = {uid: pair for uid, pair in self._pairs.items() if uid in uids}
        self._without_key &= uids
        self._connections = {uid: known for uid, known in self._connections.items() if uid in uids}


def _missing_key(service: ServiceFacts) -> str:
    return f"the job began with another key, {service.key}, which this agent does not have"


def _gang_label(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(GANG_LABEL, ""))


def _created(job: TrainingJob) -> datetime:
    """When the job was made; the same for all who ask."""
    try:
        return datetime.fromisoformat(job.created).astimezone(UTC)
    except ValueError:
        return datetime(2000, 1, 1, tzinfo=UTC)
