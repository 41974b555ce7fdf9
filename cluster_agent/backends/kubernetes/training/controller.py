"""Controller of TrainingJobs: looks at each, plans, and does what was planned; one thread, the only one that writes.

It holds nothing that could not be seen again: pods have the names of their tasks, requests have ids, sizes stand in the
status. A write whose answer was lost is looked for before it is made again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from cluster_agent.backends.kubernetes.training.coordinators import Coordinators, Line
from cluster_agent.backends.kubernetes.training.plan import Memory, Standing, Step, plan
from cluster_agent.backends.kubernetes.training.room import Room
from cluster_agent.backends.kubernetes.training.statuses import PROGRESS_SECONDS, Granted, says_more, status_of
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.api_server import ApiServer, ContentType, Json
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.capacity import Amounts
from cluster_agent.kubernetes.errors import AlreadyExists, ApiError, ApiRefused, Conflict, NotFound
from cluster_agent.kubernetes.events import About, EventRecorder, EventType
from cluster_agent.kubernetes.resources import PODS
from cluster_agent.kubernetes.training import manifests
from cluster_agent.kubernetes.training.credentials import serving_pair, token_of
from cluster_agent.kubernetes.training.manifests import COORDINATOR, PORT, SECRETS, SERVICES
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, TrainingJob
from elastic_runtime.protocol.plan import Phase
from foundation.text import plain_line
from policy_net.domain import SUSPENDED, Allocation

_log = structlog.get_logger()

COORDINATOR_ASKS: Amounts = {"cpu": 100, "memory": 256 << 20, "pods": 1}
"""Of a coordinator without a template."""


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """What is kept of a coordinator's Service."""

    owner: str
    cluster_ip: str


def service_facts(found: Json) -> ServiceFacts:
    """What is kept of a Service as the API gives it."""
    owner: Json = next((each for each in found["metadata"].get("ownerReferences") or () if each.get("controller")), {})
    return ServiceFacts(str(owner.get("uid") or ""), str((found.get("spec") or {}).get("clusterIP") or ""))


@dataclass(frozen=True, slots=True)
class Sight:
    """What the controller sees; each cache is followed by somebody else.

    Attributes:
        room: what the cluster has left now.
    """

    jobs: Cache[TrainingJob]
    pods: Cache[TaskPod]
    services: Cache[ServiceFacts]
    room: Callable[[], Room]


@dataclass(frozen=True, slots=True)
class Hands:
    """What it does things with.

    Attributes:
        agent_key: from which jobs' tokens follow.
        may_write: whether this agent acts; asked before each write.
    """

    api: ApiServer
    coordinators: Coordinators
    events: EventRecorder
    agent_key: bytes
    may_write: Callable[[], bool]


class Refused(Exception):
    """Something could not be made; the line is for people."""


class TrainingController:
    """Looks after all TrainingJobs; `step` is called by one thread, everything else by any.

    Args:
        clock: monotonic seconds.
        unix_clock: the time of day in seconds.
    """

    def __init__(self, sight: Sight, hands: Hands, clock: Callable[[], float], unix_clock: Callable[[], float]) -> None:
        self._sight, self._hands = sight, hands
        self._clock, self._unix_clock = clock, unix_clock
        self._lock = threading.Lock()
        self._granted: dict[str, Granted] = {}
        self._nodes: dict[str, tuple[str, ...]] = {}
        self._memories: dict[str, Memory] = {}
        self._steps: dict[str, Step] = {}
        self._said_at: dict[str, float] = {}

    def grant(self, uid: str, granted: Granted, nodes: Sequence[str] = ()) -> None:
        """Have a job get what was decided, from the next step on.

        Args:
            nodes: where its tasks should be; as often as that many may be there.
        """
        with self._lock:
            self._granted[uid] = granted
            self._nodes[uid] = tuple(nodes)

    def wanted(self, job: TrainingJob) -> Allocation:
        """What a job is to have: as decided last, by this agent or by the one before it."""
        if job.suspend or job.outcome or job.deleting:
            return SUSPENDED
        with self._lock:
            granted = self._granted.get(job.uid)
        return job.granted if granted is None else granted.size

    def latest(self, uid: str) -> Step | None:
        """What was planned last for a job."""
        with self._lock:
            return self._steps.get(uid)

    def step(self) -> None:
        """Look at every job once, and do what is to be done."""
        jobs = [entry.kept for entry in self._sight.jobs.entries().values()]
        jobs.sort(key=lambda job: (job.created, job.namespace, job.name))
        pods: dict[tuple[str, str], list[TaskPod]] = {}
        for entry in self._sight.pods.entries().values():
            pods.setdefault((entry.kept.namespace, entry.kept.job), []).append(entry.kept)
        self._hands.coordinators.follow(self._lines(jobs, pods))
        self._forget({job.uid for job in jobs})
        room: list[Room] = []

        def room_now() -> Room:
            if not room:
                room.append(self._sight.room())
            return room[0]

        for job in jobs:
            if job.deleting:
                continue
            if not self._hands.may_write():
                return
            try:
                self._look_after(job, pods.get((job.namespace, job.name), []), room_now)
            except ApiError as error:
                # One job's trouble is no other's; what may have happened all the same is seen at the next look.
                _log.warning("training-job-step", job=job.job_id, error=plain_line(str(error)))

    def _look_after(self, job: TrainingJob, pods: list[TaskPod], room: Callable[[], Room]) -> None:
        memory = self._memories.setdefault(job.uid, Memory())
        told = self._hands.coordinators.told(job.uid)
        decision = self._decision(job)
        step = plan(job, self.wanted(job), decision, pods, told, memory, self._clock())
        for ended in step.report:
            if self._hands.coordinators.report(job.uid, ended) and ended.uid:
                memory.reported.add(ended.uid)
        for pod in step.delete:
            self._delete(pod)
        if step.create:
            step = self._create(job, step, memory, room)
        if step.ask is not None and self._has_room_to_grow(job, step, room):
            given_up = self._hands.coordinators.ask(job.uid, step.ask)
            if given_up is not None:
                memory.on_asked(step.ask.request_id, given_up, self._clock())
                if given_up:
                    self._tell(job, "ResizeRefused", given_up, EventType.WARNING)
        with self._lock:
            before, self._steps[job.uid] = self._steps.get(job.uid), step
        self._say(job, step)
        if (before is None or before.standing is not step.standing) and job.status.get("phase") != step.standing.value:
            kind = EventType.WARNING if step.standing in (Standing.FAILED, Standing.INVALID) else EventType.NORMAL
            self._tell(job, step.standing.value, step.line or step.standing.value.lower(), kind)

    # What is made.

    def _create(self, job: TrainingJob, step: Step, memory: Memory, room: Callable[[], Room]) -> Step:
        """Make the pods that are missing; the step as it is to be told."""
        asks = [self._asks(job, task) for task in step.create]
        if step.is_gang and not room().take(asks, self._tolerations(job)):
            return Step(Standing.QUEUED, "waits for room for its first pods")
        nodes = self._free_nodes(job)
        made: list[str] = []
        try:
            address = self._open_address(job) if step.is_gang else self._address(job)
            if step.is_gang and not job.has_started:
                # A job that has begun says so before its first pod: whoever follows knows that there may be any.
                self._write_status(job, {**status_of(job, step, None, self._current(job), self._unix_clock())})
            for task in step.create:
                self._make_pod(job, task, step, address, nodes)
                made.append(task)
        except Refused as refused:
            return Step(Standing.STARTING if job.has_started else Standing.QUEUED, str(refused))
        except ApiRefused as refused:
            line = f"pod {manifests.pod_name(job, step.create[len(made)])} was refused: {refused}"
            self._tell(job, "PodRefused", line, EventType.WARNING)
            if not step.is_gang:
                return Step(step.standing, line)
            memory.on_gang_failed(f"{plain_line(line)}; it is tried again", self._clock())
            self._take_back(job, made)
            return Step(Standing.QUEUED, memory.refused)
        return step

    def _make_pod(self, job: TrainingJob, task: str, step: Step, address: str, nodes: list[str]) -> None:
        if task == COORDINATOR:
            pod = manifests.coordinator_pod(job, step.begin, relaunched=step.relaunched)
        else:
            pod = manifests.task_pod(job, task, address, nodes.pop(0) if nodes else "")
        path = PODS.path(job.namespace)
        try:
            self._sight.pods.put(self._hands.api.create(path, pod, {"fieldValidation": "Strict"}))
        except AlreadyExists as error:
            found = self._hands.api.get(PODS.path(job.namespace, manifests.pod_name(job, task)))
            owners = [each.get("uid") for each in found["metadata"].get("ownerReferences") or ()]
            if job.uid not in owners:
                raise Refused(f"{error}; it is not this job's") from error
            self._sight.pods.put(found)

    def _take_back(self, job: TrainingJob, tasks: Sequence[str]) -> None:
        """A part of a gang holds what others could use."""
        for task in tasks:
            entry = self._sight.pods.get((job.namespace, manifests.pod_name(job, task)))
            if entry is not None and entry.kept.owner == job.uid:
                self._delete(entry.kept)

    def _delete(self, pod: TaskPod) -> None:
        options = {"preconditions": {"uid": pod.uid}}
        try:
            found = self._hands.api.delete(PODS.path(pod.namespace, pod.name), options)
        except (NotFound, Conflict):  # it is gone, or another has its name
            return
        if found.get("kind") == "Pod":
            self._sight.pods.put(found)

    def _open_address(self, job: TrainingJob) -> str:
        """The coordinator's address, and what it needs to serve there."""
        try:
            self._sight.services.put(self._hands.api.create(SERVICES.path(job.namespace), manifests.service(job)))
        except AlreadyExists:
            path = SERVICES.path(job.namespace, manifests.pod_name(job, COORDINATOR))
            self._sight.services.put(self._hands.api.get(path))
        address = self._address(job)
        token = token_of(self._hands.agent_key, job.uid)
        pair = serving_pair(self._hands.agent_key, job.uid, self._hosts(job), _created(job))
        with contextlib.suppress(AlreadyExists):  # it was made like this
            self._hands.api.create(SECRETS.path(job.namespace), manifests.secret(job, token, pair))
        return address

    def _address(self, job: TrainingJob) -> str:
        service = self._service(job)
        if service is None:
            raise Refused(f"service {manifests.pod_name(job, COORDINATOR)} is another's, or has no address yet")
        host = f"[{service.cluster_ip}]" if ":" in service.cluster_ip else service.cluster_ip
        return f"{host}:{PORT}"

    def _service(self, job: TrainingJob) -> ServiceFacts | None:
        entry = self._sight.services.get((job.namespace, manifests.pod_name(job, COORDINATOR)))
        if entry is None or entry.kept.owner != job.uid or entry.kept.cluster_ip in ("", "None"):
            return None
        return entry.kept

    def _hosts(self, job: TrainingJob) -> list[str]:
        service = self._service(job)
        return manifests.hosts(job, "" if service is None else service.cluster_ip)

    def _lines(self, jobs: Sequence[TrainingJob], pods: Mapping[tuple[str, str], Sequence[TaskPod]]) -> dict[str, Line]:
        """The ways to the coordinators that run."""
        lines = {}
        for job in jobs:
            ours = pods.get((job.namespace, job.name), ())
            running = any(pod.task == COORDINATOR and pod.owner == job.uid and pod.phase == "Running" for pod in ours)
            if running and not job.outcome and self._service(job) is not None:
                lines[job.uid] = self._line(job)
        return lines

    def _line(self, job: TrainingJob) -> Line:
        key = self._hands.agent_key
        pair = serving_pair(key, job.uid, self._hosts(job), _created(job))
        return Line(self._address(job), job.runtime_name, token_of(key, job.uid), pair.certificate)

    # Where there is room.

    def _has_room_to_grow(self, job: TrainingJob, step: Step, room: Callable[[], Room]) -> bool:
        told = self._hands.coordinators.told(job.uid)
        if step.ask is None or told is None:
            return False
        size, now = step.ask.size, told.status.size
        more = [job.worker.asks] * max(0, size.workers - now.workers) + [job.ps.asks] * max(
            0, size.servers - now.servers
        )
        return not more or room().take(more, self._tolerations(job))

    @staticmethod
    def _asks(job: TrainingJob, task: str) -> Amounts:
        if task == COORDINATOR:
            return COORDINATOR_ASKS
        return job.worker.asks if task.startswith("worker-") else job.ps.asks

    @staticmethod
    def _tolerations(job: TrainingJob) -> list[Json]:
        return list(job.worker.template.get("spec", {}).get("tolerations") or ())

    def _free_nodes(self, job: TrainingJob) -> list[str]:
        """The nodes that were chosen, less those where its pods are already."""
        with self._lock:
            nodes = list(self._nodes.get(job.uid, ()))
        for entry in self._sight.pods.entries().values():
            if entry.kept.owner == job.uid and entry.kept.node in nodes:
                nodes.remove(entry.kept.node)
        return nodes

    # What is said.

    def _current(self, job: TrainingJob) -> Granted | None:
        with self._lock:
            return self._granted.get(job.uid)

    def _decision(self, job: TrainingJob) -> str:
        granted = self._current(job)
        stated = (job.status.get("allocation") or {}).get("decisionId")
        return granted.decision if granted is not None else str(stated or "unknown")

    def _say(self, job: TrainingJob, step: Step) -> None:
        told = self._hands.coordinators.told(job.uid)
        status = status_of(job, step, told, self._current(job), self._unix_clock())
        if told is not None and told.status.phase not in (Phase.STARTING,):
            entry = self._sight.pods.get((job.namespace, manifests.pod_name(job, COORDINATOR)))
            if entry is not None and entry.kept.owner == job.uid:
                status["coordinator"] = entry.kept.uid
        waited = self._clock() - self._said_at.get(job.uid, -float("inf"))
        news = "progress" in status and status["progress"] != job.status.get("progress")
        if says_more(job, status) or (news and waited >= PROGRESS_SECONDS):
            self._write_status(job, status)

    def _write_status(self, job: TrainingJob, status: Json) -> None:
        body = {"metadata": {"uid": job.uid}, "status": status}
        path = TRAINING_JOBS.path(job.namespace, job.name, "status")
        try:
            self._sight.jobs.put(self._hands.api.patch(path, body, ContentType.MERGE_PATCH))
        except (NotFound, Conflict):  # it is gone, or another has its name
            return
        self._said_at[job.uid] = self._clock()

    def _tell(self, job: TrainingJob, reason: str, line: str, kind: EventType = EventType.NORMAL) -> None:
        about = About(TRAINING_JOBS.api_version, TRAINING_JOBS.kind, job.namespace, job.name, job.uid)
        self._hands.events.tell(about, reason, line, kind)

    def _forget(self, uids: set[str]) -> None:
        with self._lock:
            for kept in (self._granted, self._nodes, self._memories, self._steps, self._said_at):
                for uid in [uid for uid in kept if uid not in uids]:
                    del kept[uid]


def _created(job: TrainingJob) -> datetime:
    """When the job was made; the same for all who ask."""
    try:
        return datetime.fromisoformat(job.created).astimezone(UTC)
    except ValueError:
        return datetime(2000, 1, 1, tzinfo=UTC)
