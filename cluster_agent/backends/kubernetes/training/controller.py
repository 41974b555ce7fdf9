"""Controller of TrainingJobs: polls each, plans, and does what was planned; one thread, the only one that writes.

It holds nothing that could not be seen again: pods have the names of their tasks, requests have ids, sizes stand in the
status. A write whose answer was lost is looked for before it is made again.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from cluster_agent.backends.kubernetes.training.coordinators import CoordinatorConnection, Coordinators
from cluster_agent.backends.kubernetes.training.free_capacity import (
    ChosenNodes,
    ClusterCapacity,
    choices_of,
    needs_of,
    promised,
    reserve,
    task_requests,
)
from cluster_agent.backends.kubernetes.training.kueue import Kueue
from cluster_agent.backends.kubernetes.training.objects import JobObjects, ObjectRefused, ServiceFacts
from cluster_agent.backends.kubernetes.training.pace import JobPace
from cluster_agent.backends.kubernetes.training.plan import plan
from cluster_agent.backends.kubernetes.training.ranks import plan_ranks
from cluster_agent.backends.kubernetes.training.step import (
    Ask,
    CoordinatorReport,
    Ended,
    JobMemory,
    JobStanding,
    JobStep,
    Parting,
    SeenJob,
    parting,
)
from cluster_agent.backends.kubernetes.training.story.reporter import Reporter
from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.backends.kubernetes.training.templates import breaks_rule, refusal_text
from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.capacity import NodeChoice
from cluster_agent.kubernetes.errors import ApiError, ApiRefused, ApiUnanswered, NotActing
from cluster_agent.kubernetes.events import EventRecorder, EventType
from cluster_agent.kubernetes.training import manifests
from cluster_agent.kubernetes.training.credentials import JobKeys
from cluster_agent.kubernetes.training.manifests import COORDINATOR, leader, role_of
from cluster_agent.kubernetes.training.training_job import LAST_CHECKPOINT, TrainingJob
from elastic_runtime.control.messages import Size
from elastic_runtime.protocol.plan import JobPhase
from foundation.clocks import AwakeClock
from foundation.text import plain_line
from policy_net.domain import SUSPENDED, Allocation

_log = structlog.get_logger()
Wishes = list[tuple[str, str]]
Clock = Callable[[], float]
_NO_LAST_CHECKPOINT = "NoLastCheckpoint", EventType.WARNING
_GAP_SECONDS = 60.0
"""Between two looks more is a time in which this process was stopped: a look at many jobs takes seconds."""
_RENEWED_SECONDS = 600.0
_NODES_SECONDS = 10.0
"""Between two looks for a node that would be large enough for a job that waits."""


@dataclass(frozen=True, slots=True)
class WatchedObjects:
    """What the controller sees, followed by somebody else. Jobs of unread namespaces go on as they are."""

    jobs: Cache[TrainingJob]
    pods: Cache[TaskPod]
    services: Cache[ServiceFacts]
    free_capacity: Callable[[], ClusterCapacity]
    unread: Callable[[], Mapping[str, str]] = dict


@dataclass(frozen=True, slots=True)
class Hands:
    """What the controller does things with; `tried` finds what is wrong with the templates of a job."""

    api: ApiServer
    coordinators: Coordinators
    events: EventRecorder
    keys: JobKeys
    may_write: Callable[[], bool]
    kueue: Kueue
    last_checkpoint_seconds: float = 300.0
    tried: Callable[[TrainingJob], TrainingJob] = lambda job: job


class TrainingController:
    """Looks after all TrainingJobs; `step` is called by one thread, everything else by any."""

    def __init__(
        self, watch: WatchedObjects, hands: Hands, clock: Clock, unix_clock: Clock, pace: JobPace | None = None
    ) -> None:
        self._watch, self._hands = watch, hands
        self._clock, self._unix_clock = clock, unix_clock
        self._lock = threading.Lock()
        self._chosen, self._pace = ChosenNodes(), pace or JobPace(clock)
        self._memories: dict[str, JobMemory] = {}
        self._awake = AwakeClock(_GAP_SECONDS, clock)
        self._missed_seconds, self._renewed_seconds = 0.0, -math.inf
        self._steps: dict[str, JobStep] = {}
        self._free_capacity = watch.free_capacity
        """Of this step, less what was promised and given in it."""
        self._objects = JobObjects(hands.api, watch.pods, watch.services, hands.keys, hands.may_write)
        self.reporter = Reporter(
            hands.api, watch.jobs, watch.pods, hands.events, self._objects.check_acting, clock, unix_clock
        )

    def grant(self, uid: str, granted: Granted, nodes: Sequence[tuple[str, str]] = ()) -> None:
        """Give a job what was decided, from the next step on, on nodes for its tasks, each with a role."""
        self.reporter.grant(uid, granted)
        self._chosen.choose(uid, nodes)

    def desired(self, job: TrainingJob) -> Allocation:
        """What a job is to have: as decided last, by this agent or by the one before it."""
        if job.suspend or job.outcome or job.deleting:
            return SUSPENDED
        granted = self.reporter.granted(job)
        return job.within(job.granted if granted is None else granted.size)

    def latest(self, uid: str) -> JobStep | None:
        """What was planned last for a job."""
        with self._lock:
            return self._steps.get(uid)

    def _see_to_gaps(self) -> None:
        """Give whoever is waited for the whole time again after a while in which this process was stopped.

        Not again and again: where each step takes so long, who does not come is given up all the same.
        """
        now, missed_seconds = self._awake(), self._awake.missed_seconds
        gap_seconds, self._missed_seconds = missed_seconds - self._missed_seconds, missed_seconds
        if gap_seconds and now - self._renewed_seconds > _RENEWED_SECONDS:
            self._renewed_seconds = now
            _log.warning("agent-was-stopped", seconds=round(gap_seconds, 1), waits="count anew")
            for memory in self._memories.values():
                memory.on_gap(self._clock())

    def step(self) -> bool:
        """Poll the jobs, and do what is to be done; whether some are left for a step right after this one."""
        self._see_to_gaps()
        unread, seen = self._watch.unread(), self._watch.jobs.entries()
        jobs = self._pace.begin([entry.kept for key, entry in seen.items() if key[0] not in unread])
        pods: dict[tuple[str, str], list[TaskPod]] = {}
        for entry in self._watch.pods.entries().values():
            pods.setdefault((entry.kept.namespace, entry.kept.job), []).append(entry.kept)
        self._hands.coordinators.follow(self._connections(jobs, pods))
        self._forget({job.uid for job in jobs})
        if not self._hands.may_write():
            self.reporter.take_back()
            return False
        self._free_capacity = functools.cache(functools.partial(self._unpromised, jobs, pods))
        for number, job in enumerate(jobs):
            ours = pods.get((job.namespace, job.name), [])
            if (job.deleting and LAST_CHECKPOINT not in job.finalizers) or self._rests(job, ours):
                continue
            if self._pace.is_over(jobs[number:]):
                return True
            try:
                do = self._part if job.deleting else self._run_step
                do(job, ours)
            except NotActing:
                return False
            except ApiError as error:
                # One job's trouble is no other's; what may have happened all the same is seen at the next look.
                _log.warning("training-job-step", job=job.job_id, error=plain_line(str(error)))
                self.reporter.warn(job, self._known(job)[0], "ApiTrouble", str(error))
            except Exception as error:
                # A fault of ours that one job brought out: the others are looked after all the same.
                _log.exception("training-job-step", job=job.job_id)
                self.reporter.warn(job, self._known(job)[0], "AgentFault", repr(error))
        return False

    def _unpromised(
        self, jobs: Sequence[TrainingJob], pods: Mapping[tuple[str, str], Sequence[TaskPod]]
    ) -> ClusterCapacity:
        """What the cluster has left now, less what jobs were promised."""
        free_capacity = self._watch.free_capacity()
        for job in jobs:
            memory, job_report = self._known(job)
            ours = pods.get((job.namespace, job.name), ())
            reserve(free_capacity, job, ours, job_report, memory, self._clock(), self._known_choices(job))
        return free_capacity

    def _run_step(self, job: TrainingJob, pods: list[TaskPod]) -> None:
        job = self._hands.tried(job)
        is_kept = LAST_CHECKPOINT in job.finalizers
        if is_kept if job.outcome else (job.last_on_delete and not is_kept):
            self._objects.set_finalizer(job, present=not is_kept)
        seen = self._seen(job, self.desired(job), pods, self.reporter.decision(job))
        memory, job_report = seen.memory, seen.job_report
        quota = self._hands.kueue.poll(job, seen.desired, pods, job_report) if job.queue else None
        if quota is not None:
            seen = replace(seen, desired=quota.allowed, now=self._clock())
        step = self._planned(seen)
        step = step if quota is None else quota.limit(step, pods)
        if step.standing is JobStanding.QUEUED and self.desired(job) == SUSPENDED:
            step = self._explained(seen, step)
        reported = [self._report(seen, ended) for ended in step.report]
        if not all(reported):
            step = replace(step, create=())  # an end is known before another task takes its place
        is_saved = job_report is not None and job_report.status.phase is JobPhase.SUSPENDED
        if job.last_on_delete and step.delete and is_saved:
            self.reporter.say(job, step, job_report)  # once its pods are gone nothing else says that it is saved
        for pod in step.delete:
            self._objects.delete(pod, step.grace_seconds)
        if step.create:
            if (created := self._create(seen, step)) is None:
                return  # it is not as it was seen any more: at the next look
            step = created
        if step.ask is not None:
            step = self._ask(seen, step, step.ask)
        step = replace(step, forbidden=memory.forbids(self._clock()))
        if quota is not None:
            step = replace(step, admission=quota.condition)
            if quota.is_reported and job.condition("Admitted").get("reason") != quota.reason:
                kind = EventType.WARNING if quota.is_trouble else EventType.NORMAL
                self.reporter.report(job, quota.reason, quota.line, kind)
        with self._lock:
            before, self._steps[job.uid] = self._steps.get(job.uid), step
        self.reporter.say(job, step, self._hands.coordinators.job_report(job.uid))
        self._warn(seen)
        self.reporter.report_step(job, before, step, job_report)
        self._pace.note(job, pods, job_report, self.reporter.granted(job), step, seen.desired)

    def _warn(self, seen: SeenJob) -> None:
        job, memory, job_report = seen.job, seen.memory, seen.job_report
        if job_report is not None and job_report.doubt:
            self.reporter.warn(job, memory, "NotBelieved", job_report.falsehood or job_report.doubt, job_report.doubt)
        for pod in [each for each in seen.pods if each.owner == job.uid and each.trouble]:
            # For ErrImagePull, ImagePullBackOff, ...
            self.reporter.warn(job, memory, "PodWaits", f"{pod.task}: {pod.trouble}", pod.uid)

    def _rests(self, job: TrainingJob, pods: Iterable[TaskPod]) -> bool:
        job_report = self._hands.coordinators.job_report(job.uid)
        return self._pace.is_at_rest(job, pods, job_report, self.reporter.granted(job))

    def _seen(self, job: TrainingJob, desired: Allocation, pods: Iterable[TaskPod], decision: str) -> SeenJob:
        memory, job_report = self._known(job)
        return SeenJob(job, desired, tuple(pods), job_report, memory, self._clock(), self._unix_clock(), decision)

    def _planned(self, seen: SeenJob) -> JobStep:
        """What is to be done; of a gang whose ranks go, what has to be written before is written."""
        job = seen.job
        if not job.is_all_reduce:
            return plan(seen)
        step = plan_ranks(seen)
        if step.grows and not self._take(job, ["worker"] * step.grows):
            return replace(step, standing=step.meanwhile, line="waits for room to grow", delete=())
        if step.delete and not self.reporter.note(job):
            return replace(step, delete=())
        if step.delete and step.notes:
            # A failure is counted once, whoever deletes what is left.
            if not self.reporter.write(job, {"ranks": step.notes}):
                return replace(step, delete=())
            self.reporter.report(job, "RankFailed", step.line, EventType.WARNING)
        return step

    def _explained(self, seen: SeenJob, step: JobStep) -> JobStep:
        """A step that waits for resources; where it would wait for ever, with the reason."""
        job, memory = seen.job, seen.memory
        line, polled_at = memory.too_large
        if self._clock() - polled_at >= _NODES_SECONDS:
            choices = self._known_choices(job).items()
            found = (
                self._free_capacity().too_large(role, task_requests(job, role), choice) for role, choice in choices
            )
            line = next(filter(None, found), "")
            memory.too_large = line, self._clock()
        if not line:
            return step
        self.reporter.warn(job, memory, "TooLarge", line)
        return replace(step, line=f"{step.line}: {line}")

    def _part(self, job: TrainingJob, pods: list[TaskPod]) -> None:
        """Have a deleted job write its last checkpoint, and let it go."""
        seen = self._seen(job, SUSPENDED, pods, f"deleted-{job.uid[:8]}")
        memory, job_report = seen.memory, seen.job_report
        if not memory.may_go:  # what is found once stays: its pods go as soon as it does, before anybody sees it go
            found = parting(seen, self._hands.last_checkpoint_seconds)
            if found is not None and found.line:
                job = self._note_parting(job, found)
                reason, kind = ("LastCheckpoint", EventType.NORMAL) if found.is_written else _NO_LAST_CHECKPOINT
                self.reporter.report(job, reason, found.line, kind)
            memory.may_go = found is not None
        if memory.may_go:
            self._objects.set_finalizer(job, present=False)
            return
        step = plan(seen)
        self.reporter.resizes.poll(job, step, job_report)  # what was resized before it was deleted is told
        for ended in step.report:
            self._report(seen, ended)
        for pod in step.delete if job_report is not None else ():  # who was told to leave, and has not
            self._objects.delete(pod)
        if step.ask is not None:
            self._ask(seen, step, step.ask)

    def _note_parting(self, job: TrainingJob, found: Parting) -> TrainingJob:
        """Have whoever follows know of a last checkpoint too, though all pods may be gone; the job as it is then."""
        phase = {"phase": JobStanding.SUSPENDED.value} if found.is_written else {}
        try:
            self.reporter.write(job, {**phase, "message": plain_line(found.line)})
        except ApiRefused as error:  # no reason to hold it up
            _log.warning("training-job-parting", job=job.job_id, error=plain_line(str(error)))
        entry = self._watch.jobs.get((job.namespace, job.name))
        return entry.kept if entry is not None and entry.uid == job.uid else job

    def _known(self, job: TrainingJob) -> tuple[JobMemory, CoordinatorReport | None]:
        memory = self._memories.setdefault(job.uid, JobMemory())
        memory.trouble = self._hands.coordinators.trouble(job.uid)
        return memory, self._hands.coordinators.job_report(job.uid)

    def _report(self, seen: SeenJob, ended: Ended) -> bool:
        job, memory = seen.job, seen.memory
        if not ended.uid and self._objects.is_there(job, ended.task):
            return True
        known = self._hands.coordinators.report(job.uid, ended)
        if known and ended.uid:
            memory.reported.add(ended.uid)
        job_report = self._hands.coordinators.job_report(job.uid)
        if known and ended.exit_code and job_report is not None and ended.task not in job_report.status.leaving:
            words = ended.last_words or f"code {ended.exit_code}"
            self.reporter.warn(job, memory, "TaskLost", f"{ended.task}: {words}", ended.uid or ended.task)
        return known

    def _ask(self, seen: SeenJob, step: JobStep, ask: Ask) -> JobStep:
        """Ask the coordinator for something; the step as it is to be told."""
        job, memory = seen.job, seen.memory
        if not self._has_capacity_to_grow(job, ask, memory):
            return replace(step, line="waits for room to grow", ask=None)
        if not self.reporter.note(job):
            return replace(step, ask=None)  # nobody would know: at the next look
        self._objects.check_acting()
        memory.requested = ask.size, self._clock()
        given_up = self._hands.coordinators.ask(job.uid, ask)
        if given_up is not None:
            memory.on_requested(ask.request_id, given_up, self._clock())
        if given_up:
            self.reporter.report(job, "ResizeRefused", given_up, EventType.WARNING)
        return step

    def _create(self, seen: SeenJob, step: JobStep) -> JobStep | None:
        """Make the pods that are missing; the step as it is to be told, None where the job has changed meanwhile."""
        job, memory = seen.job, seen.memory
        if step.is_gang:
            if not self._take(job, step.needs):
                return JobStep(JobStanding.QUEUED, "waits for room for its first pods")
            memory.requested = Size(step.begin.ps, step.begin.workers), self._clock()
        elif self._clock() < memory.made_again_at:
            return replace(step, line=step.line or "a pod was refused; it is tried again")
        here = [pod for pod in seen.pods if pod.owner == job.uid and not pod.ended]
        taken = ((role_of(pod.task), pod.node) for pod in here if pod.task != COORDINATOR)
        nodes, made = self._chosen.left(job.uid, taken), list[str]()
        memory.forbidden = ""
        try:
            return self._make(seen, step, nodes, made)
        except ObjectRefused as refused:
            line = str(refused)
            self.reporter.warn(job, memory, "PodRefused", line)
        except ApiRefused as refused:
            is_rule = breaks_rule(refused)
            words = refusal_text(refused) if is_rule else str(refused)
            line = f"pod {manifests.pod_name(job, step.create[len(made)])} was refused: {words}"
            memory.forbidden = line if is_rule else ""
            self.reporter.warn(job, memory, "PodRefused", line)
        except ApiUnanswered as error:  # such as a webhook that is down
            self.reporter.warn(job, memory, "ApiTrouble", str(error))
            if made:
                return replace(step, line=str(error))  # what is missing is made at the next look
            line = str(error)
        # A gang of which an earlier life of the agent, or an earlier look, has made a part is one as well.
        if not step.is_gang and not (step.standing is JobStanding.STARTING and not job.trained_under):
            memory.on_pod_refused(self._clock())
            return replace(step, line=line)
        memory.on_gang_failed(f"{plain_line(line)}; it is tried again", self._clock())
        self._objects.take_back(job, list({pod.task for pod in here}.union(made)))
        return JobStep(JobStanding.QUEUED, memory.refused)

    def _make(self, seen: SeenJob, step: JobStep, nodes: Wishes, made: list[str]) -> JobStep | None:
        job = seen.job
        opens = step.is_gang or COORDINATOR in step.create
        address = self._objects.open_address(job) if opens else self._objects.address(job)
        if opens and not self.reporter.begin(job, step):
            return None
        for task in step.create:
            fit = functools.partial(self._hands.kueue.fit, job, task)
            is_new = self._objects.make_pod(job, task, step, address, self._node_for(job, task, nodes), fit)
            made.append(task)
            seen.memory.seen.add(task)
            if task == COORDINATOR and not is_new:  # it was not seen: it says what else is to be made
                return replace(step, create=())
        return step

    def _connections(
        self, jobs: Sequence[TrainingJob], pods: Mapping[tuple[str, str], Sequence[TaskPod]]
    ) -> dict[str, CoordinatorConnection]:
        found = {}
        for job in jobs:
            ours = [pod for pod in pods.get((job.namespace, job.name), ()) if pod.owner == job.uid]
            answers = (pod for pod in ours if pod.task == leader(job) and pod.phase == "Running")
            # A rank that ends goes on to say how far it is, and not what comes then.
            running = next((pod for pod in answers if not (job.is_all_reduce and pod.deleting)), None)
            if running is None or job.outcome:
                continue
            if (connection := self._objects.connection(job, running.uid)) is not None:
                found[job.uid] = connection
        return found

    def _take(self, job: TrainingJob, tasks: Iterable[str]) -> bool:
        return self._free_capacity().take(needs_of(job, tasks, self._choices(job)))

    def _has_capacity_to_grow(self, job: TrainingJob, ask: Ask, memory: JobMemory) -> bool:
        job_report = self._hands.coordinators.job_report(job.uid)
        if job_report is None:
            return False
        # What it was promised before is taken already.
        size, now = ask.size, promised(job, job_report, memory, self._clock())
        more = ["worker"] * (size.workers - now.workers) + ["ps"] * (size.servers - now.servers)
        return not more or self._take(job, more)

    def _choices(self, job: TrainingJob) -> dict[str, NodeChoice]:
        """By role, the nodes that its pods may come to.

        Raises:
            ApiError: what Kueue's admission says cannot be read.
        """
        return choices_of(job, functools.partial(self._hands.kueue.fit, job))

    def _known_choices(self, job: TrainingJob) -> dict[str, NodeChoice]:
        """The same, by its templates alone where no more can be read, as its own step reports that."""
        try:
            return self._choices(job)
        except ApiError:
            return choices_of(job)

    def _node_for(self, job: TrainingJob, task: str, nodes: Wishes) -> str:
        """Where a task should be, which is taken off; a policy knows nothing of what its pods may use."""
        if not nodes or task == COORDINATOR:
            return ""
        role = role_of(task)
        choice, free_capacity = self._choices(job)[role], self._free_capacity()
        found = next((each for each in nodes if each[0] == role and free_capacity.allows(each[1], choice)), None)
        if found is None:
            return ""
        nodes.remove(found)
        return found[1]

    def _forget(self, uids: set[str]) -> None:
        with self._lock:
            for kept in (self._memories, self._steps):
                for uid in [uid for uid in kept if uid not in uids]:
                    del kept[uid]
        self._chosen.forget(uids)
        self._objects.forget(uids)
        self.reporter.forget(uids)
        self._hands.kueue.forget(uids)
