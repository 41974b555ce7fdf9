"""Controller of TrainingJobs: looks at each, plans, and does what was planned; one thread, the only one that writes.

It holds nothing that could not be seen again: pods have the names of their tasks, requests have ids, sizes stand in the
status. A write whose answer was lost is looked for before it is made again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from cluster_agent.backends.kubernetes.training.asks import Ask
from cluster_agent.backends.kubernetes.training.coordinators import Coordinators, Line
from cluster_agent.backends.kubernetes.training.memory import Memory, Told
from cluster_agent.backends.kubernetes.training.objects import JobObjects, Refused, ServiceFacts
from cluster_agent.backends.kubernetes.training.plan import plan
from cluster_agent.backends.kubernetes.training.ranks.plan import GangStep, plan_ranks
from cluster_agent.backends.kubernetes.training.room import Room
from cluster_agent.backends.kubernetes.training.statuses import PROGRESS_SECONDS, Granted, says_more, status_of
from cluster_agent.backends.kubernetes.training.step import Ended, Standing, Step
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.api_server import ApiServer, ContentType, Json
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.capacity import Amounts
from cluster_agent.kubernetes.errors import ApiError, ApiRefused, ApiUnanswered, Conflict, NotActing, NotFound
from cluster_agent.kubernetes.events import About, EventRecorder, EventType
from cluster_agent.kubernetes.training import manifests
from cluster_agent.kubernetes.training.manifests import COORDINATOR, leader
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, TrainingJob, UpdateMode
from elastic_runtime.protocol.plan import Phase
from foundation.text import plain_line
from policy_net.domain import SUSPENDED, Allocation

_log = structlog.get_logger()

COORDINATOR_ASKS: Amounts = {"cpu": 100, "memory": 256 << 20, "pods": 1}
"""Of a coordinator without a template."""
_TRAINED = frozenset({Phase.RUNNING, Phase.RESIZING, Phase.SUSPENDING, Phase.FINISHED})
"""Phases of a coordinator under which its job trains, or has trained."""


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
        self._advised: dict[str, Allocation] = {}
        self._nodes: dict[str, tuple[str, ...]] = {}
        self._memories: dict[str, Memory] = {}
        self._steps: dict[str, Step] = {}
        self._said_at: dict[str, float] = {}
        self._objects = JobObjects(hands.api, sight.pods, sight.services, hands.agent_key, hands.may_write)

    def grant(self, uid: str, granted: Granted, nodes: Sequence[str] = ()) -> None:
        """Have a job get what was decided, from the next step on.

        Args:
            nodes: where its tasks should be; as often as that many may be there.
        """
        with self._lock:
            self._granted[uid] = granted
            self._nodes[uid] = tuple(nodes)

    def advise(self, uid: str, size: Allocation) -> None:
        """Say of a job whose size is not set what it would be."""
        with self._lock:
            self._advised[uid] = size

    def wanted(self, job: TrainingJob) -> Allocation:
        """What a job is to have: as decided last, by this agent or by the one before it."""
        if job.suspend or job.outcome or job.deleting:
            return SUSPENDED
        granted = self._current(job)
        return job.within(job.granted if granted is None else granted.size)

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
        if not self._hands.may_write():
            with self._lock:
                self._granted.clear()  # what is decided from now on, another one decides
            return
        room: list[Room] = []

        def room_now() -> Room:
            if not room:
                room.append(self._sight.room())
            return room[0]

        for job in [job for job in jobs if not job.deleting]:
            try:
                self._look_after(job, pods.get((job.namespace, job.name), []), room_now)
            except NotActing:
                return
            except ApiError as error:
                # One job's trouble is no other's; what may have happened all the same is seen at the next look.
                _log.warning("training-job-step", job=job.job_id, error=plain_line(str(error)))
                self._tell(job, "ApiTrouble", str(error), EventType.WARNING)
            except Exception as error:
                # A fault of ours that one job brought out: the others are looked after all the same.
                _log.exception("training-job-step", job=job.job_id)
                self._tell(job, "AgentFault", repr(error), EventType.WARNING)

    def _look_after(self, job: TrainingJob, pods: list[TaskPod], room: Callable[[], Room]) -> None:
        memory = self._memories.setdefault(job.uid, Memory())
        told = self._hands.coordinators.told(job.uid)
        memory.trouble = self._hands.coordinators.trouble(job.uid)
        step = self._planned(job, pods, told, memory, room)
        reported = [self._report(job, ended, memory) for ended in step.report]
        if not all(reported):
            step = replace(step, create=())  # an end is known before another task takes its place
        for pod in step.delete:
            self._objects.delete(pod, step.grace_seconds)
        if step.create:
            step = self._create(job, step, memory, room)
        if step.ask is not None:
            step = self._ask(job, step, step.ask, memory, room)
        with self._lock:
            before, self._steps[job.uid] = self._steps.get(job.uid), step
        self._say(job, step)
        if told is not None and told.lie:
            self._tell(job, "NotBelieved", told.lie, EventType.WARNING)
        if (before is None or before.standing is not step.standing) and job.status.get("phase") != step.standing.value:
            kind = EventType.WARNING if step.standing in (Standing.FAILED, Standing.INVALID) else EventType.NORMAL
            self._tell(job, step.standing.value, step.line or step.standing.value.lower(), kind)

    def _planned(
        self, job: TrainingJob, pods: list[TaskPod], told: Told | None, memory: Memory, room: Callable[[], Room]
    ) -> Step:
        """What is to be done; of a gang whose ranks go, what has to be written before is written."""
        wanted, now = self.wanted(job), self._clock()
        if not job.is_all_reduce:
            return plan(job, wanted, self._decision(job), pods, told, memory, now)
        step = plan_ranks(job, wanted, pods, told, memory, now, self._unix_clock())
        if step.grows and not room().take([job.worker.asks] * step.grows, self._tolerations(job)):
            return replace(step, standing=step.meanwhile, line="waits for room to grow", delete=())
        if step.delete:
            self._note(job)
        if step.delete and step.notes:
            # A failure is counted once, whoever deletes what is left.
            self._write_status(job, {"ranks": step.notes})
            self._tell(job, "RankFailed", step.line, EventType.WARNING)
        return step

    def _report(self, job: TrainingJob, ended: Ended, memory: Memory) -> bool:
        """Whether the coordinator knows of an end now."""
        if not ended.uid and self._objects.is_there(job, ended.task):
            return True
        known = self._hands.coordinators.report(job.uid, ended)
        if known and ended.uid:
            memory.reported.add(ended.uid)
        return known

    def _ask(self, job: TrainingJob, step: Step, ask: Ask, memory: Memory, room: Callable[[], Room]) -> Step:
        """Ask the coordinator for something; the step as it is to be told."""
        if not self._has_room_to_grow(job, ask, room):
            return replace(step, line="waits for room to grow", ask=None)
        self._note(job)
        self._objects.check_acting()
        given_up = self._hands.coordinators.ask(job.uid, ask)
        if given_up is not None:
            memory.on_asked(ask.request_id, given_up, self._clock())
        if given_up:
            self._tell(job, "ResizeRefused", given_up, EventType.WARNING)
        return step

    # What is made.

    def _create(self, job: TrainingJob, step: Step, memory: Memory, room: Callable[[], Room]) -> Step:
        """Make the pods that are missing; the step as it is to be told."""
        if step.is_gang:
            asks = [self._asks(job, task) for task in step.needs]
            if not room().take(asks, self._tolerations(job)):
                return Step(Standing.QUEUED, "waits for room for its first pods")
        elif self._clock() < memory.made_again_at:
            return replace(step, line=step.line or "a pod was refused; it is tried again")
        nodes = self._free_nodes(job)
        made: list[str] = []
        line = ""
        try:
            opens = step.is_gang or COORDINATOR in step.create
            address = self._objects.open_address(job) if opens else self._objects.address(job)
            if step.is_gang:
                self._begin(job, step)
            for task in step.create:
                self._objects.make_pod(job, task, step, address, nodes)
                made.append(task)
        except Refused as refused:
            line = str(refused)
        except ApiRefused as refused:
            line = f"pod {manifests.pod_name(job, step.create[len(made)])} was refused: {refused}"
            self._tell(job, "PodRefused", line, EventType.WARNING)
        except ApiUnanswered as error:
            # Such as a webhook that is down.
            self._tell(job, "ApiTrouble", str(error), EventType.WARNING)
            if made:
                return replace(step, line=str(error))  # what is missing is made at the next look
            line = str(error)
        if not line:
            return step
        if not step.is_gang:
            memory.on_pod_refused(self._clock())
            return replace(step, line=line)
        memory.on_gang_failed(f"{plain_line(line)}; it is tried again", self._clock())
        self._objects.take_back(job, made)
        return Step(Standing.QUEUED, memory.refused)

    def _begin(self, job: TrainingJob, step: Step) -> None:
        """A job that has begun says so before its first pod: whoever follows knows that there may be any."""
        if job.has_started:
            self._note(job)
        elif not self._write_status(job, status_of(job, step, None, self._current(job), self._unix_clock())):
            raise Refused("it was deleted")
        if isinstance(step, GangStep) and step.notes and not self._write_status(job, {"ranks": step.notes}):
            raise Refused("it was deleted")

    def _note(self, job: TrainingJob) -> None:
        """What was decided stands in the status before it is asked for: whoever follows asks for the same."""
        granted = self._current(job)
        if granted is not None and granted.decision != (job.status.get("allocation") or {}).get("decisionId"):
            self._write_status(job, {"allocation": granted.content()})

    def _lines(self, jobs: Sequence[TrainingJob], pods: Mapping[tuple[str, str], Sequence[TaskPod]]) -> dict[str, Line]:
        """The ways to the coordinators that run."""
        lines = {}
        for job in jobs:
            ours = [pod for pod in pods.get((job.namespace, job.name), ()) if pod.owner == job.uid]
            answers = (pod for pod in ours if pod.task == leader(job) and pod.phase == "Running")
            # A rank that ends goes on to say how far it is, and not what comes then.
            running = next((pod for pod in answers if not (job.is_all_reduce and pod.deleting)), None)
            if running is not None and not job.outcome and self._objects.service(job) is not None:
                token = self._objects.token(job)
                certificate = self._objects.pair(job).certificate
                lines[job.uid] = Line(self._objects.address(job), job.runtime_name, token, certificate, running.uid)
        return lines

    # Where there is room.

    def _has_room_to_grow(self, job: TrainingJob, ask: Ask, room: Callable[[], Room]) -> bool:
        told = self._hands.coordinators.told(job.uid)
        if told is None:
            return False
        size, now = ask.size, told.status.size
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
        for pod in [entry.kept for entry in self._sight.pods.entries().values()]:
            if pod.owner == job.uid and pod.node in nodes and not pod.ended and pod.task != COORDINATOR:
                nodes.remove(pod.node)
        return nodes

    # What is said.

    def _current(self, job: TrainingJob) -> Granted | None:
        """What this agent decided; none where one that leads since has decided."""
        with self._lock:
            granted = self._granted.get(job.uid)
        epoch = (job.status.get("allocation") or {}).get("leaseEpoch")
        return None if granted is None or (isinstance(epoch, int) and epoch > granted.lease_epoch) else granted

    def _decision(self, job: TrainingJob) -> str:
        granted = self._current(job)
        stated = (job.status.get("allocation") or {}).get("decisionId")
        return granted.decision if granted is not None else str(stated or "unknown")

    def _say(self, job: TrainingJob, step: Step) -> None:
        entry = self._sight.jobs.get((job.namespace, job.name))
        if entry is not None and entry.uid == job.uid:
            job = entry.kept  # with what was written in this step
        told = self._hands.coordinators.told(job.uid)
        with self._lock:
            advised = self._advised.get(job.uid) if job.mode is UpdateMode.OFF else None
        status = status_of(job, step, told, self._current(job), self._unix_clock(), advised)
        if told is not None and told.status.phase in _TRAINED:
            pod = self._sight.pods.get((job.namespace, manifests.pod_name(job, leader(job))))
            if pod is not None and pod.kept.owner == job.uid:
                status["coordinator"] = pod.kept.uid
        waited = self._clock() - self._said_at.get(job.uid, -float("inf"))
        news = "progress" in status and status["progress"] != job.status.get("progress")
        if says_more(job, status) or (news and waited >= PROGRESS_SECONDS):
            self._write_status(job, status)

    def _write_status(self, job: TrainingJob, status: Json) -> bool:
        """Whether there is still such a job."""
        self._objects.check_acting()
        body = {"metadata": {"uid": job.uid}, "status": status}
        path = TRAINING_JOBS.path(job.namespace, job.name, "status")
        try:
            self._sight.jobs.put_answer(self._hands.api.patch(path, body, ContentType.MERGE_PATCH))
        except (NotFound, Conflict):  # it is gone, or another has its name
            return False
        self._said_at[job.uid] = self._clock()
        return True

    def _tell(self, job: TrainingJob, reason: str, line: str, kind: EventType = EventType.NORMAL) -> None:
        about = About(TRAINING_JOBS.api_version, TRAINING_JOBS.kind, job.namespace, job.name, job.uid)
        self._hands.events.tell(about, reason, line, kind)

    def _forget(self, uids: set[str]) -> None:
        with self._lock:
            for kept in (self._granted, self._advised, self._nodes, self._memories, self._steps, self._said_at):
                for uid in [uid for uid in kept if uid not in uids]:
                    del kept[uid]
        self._objects.forget(uids)
