"""TrainingJobs of a cluster, as its backend sees them: what to decide about, and what becomes of a decision."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import structlog

from cluster_agent.backends.kubernetes.places import GpuTypes, JobPlacement
from cluster_agent.backends.kubernetes.training.controller import Hands, TrainingController, WatchedObjects
from cluster_agent.backends.kubernetes.training.coordinators import (
    POLL_SECONDS,
    CoordinatorConnection,
    Coordinators,
    open_connection,
)
from cluster_agent.backends.kubernetes.training.free_capacity import ClusterCapacity, choices_of
from cluster_agent.backends.kubernetes.training.kueue import Kueue, WorkloadWatch
from cluster_agent.backends.kubernetes.training.measured import (
    Demand,
    MeasuredJob,
    current_of,
    progress_of,
    scheduled_jobs,
    unended,
    usual_of,
)
from cluster_agent.backends.kubernetes.training.objects import service_facts
from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod, placement_of_tasks, task_pod_facts
from cluster_agent.backends.kubernetes.training.templates import Templates
from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.capacity import NodeChoice
from cluster_agent.kubernetes.events import EventRecorder
from cluster_agent.kubernetes.list_watch import Following, unread_in
from cluster_agent.kubernetes.resources import PODS
from cluster_agent.kubernetes.training.credentials import JobKeys
from cluster_agent.kubernetes.training.manifests import JOB_LABEL, SERVICES
from cluster_agent.kubernetes.training.pod_rights import NO_RIGHTS, Rights
from cluster_agent.kubernetes.training.training_job import TRAINING_JOBS, JobUpdateMode, TrainingJob, training_job
from elastic_runtime.control.client import ControlClient
from elastic_runtime.protocol.plan import JobPhase
from foundation.clocks import Clock, UnixClock
from policy_net.domain import SUSPENDED, Allocation, Decision, Job, Progress, Share

_log = structlog.get_logger()

_END_SECONDS = 5.0
_TOGETHER_SECONDS = 50e-6
"""For each job there is: twice as long as it takes to see that nothing about it is new."""
_ASK_SECONDS = 0.1
"""Between two looks whose coordinators are to be asked."""


class TrainingJobs:
    """All TrainingJobs of a cluster, or of some namespaces.

    Args:
        namespaces: whose, each followed by itself; an empty name stands for all there are.
        keys: from which jobs' tokens follow.
        may_write: whether this agent acts.
        lease_epoch: of its lease; 0 without one.
        on_news: called where something has changed that a decision could be about; must not block.
        last_checkpoint_seconds: longest wait for the last checkpoint of a deleted job.
        on_reported: called with the kind and the reason of each event.
        poll_seconds: between two polls of all jobs where nothing is new, and of a coordinator.
        on_unread: called again and again with why namespaces cannot be read, by their names.
        rights: what templates may ask for beyond an ordinary pod.
    """

    def __init__(
        self,
        api: ApiServer,
        namespaces: Sequence[str],
        free_capacity: Callable[[], ClusterCapacity],
        keys: JobKeys,
        may_write: Callable[[], bool],
        lease_epoch: Callable[[], int],
        on_news: Callable[[], None],
        clock: Clock,
        unix_clock: UnixClock,
        connect: Callable[[CoordinatorConnection, Callable[[], int]], ControlClient] = open_connection,
        last_checkpoint_seconds: float = 300.0,
        on_reported: Callable[[str, str], None] = lambda *_: None,
        poll_seconds: float = POLL_SECONDS,
        on_unread: Callable[[Mapping[str, str]], None] = lambda _: None,
        rights: Rights = NO_RIGHTS,
    ) -> None:
        self._clock, self._unix_clock, self._lease_epoch = clock, unix_clock, lease_epoch
        self._poll_seconds = poll_seconds
        self._news = threading.Event()
        self._stopping = threading.Event()

        def wake() -> None:
            self._news.set()
            on_news()

        ours, news = {"labelSelector": JOB_LABEL}, self._news.set

        def judged(found: dict[str, Any]) -> TrainingJob:
            return rights.judged(training_job(found))

        jobs = Following(api, TRAINING_JOBS, judged, clock, wake, namespaces)
        pods = Following(api, PODS, task_pod_facts, clock, news, namespaces, ours)
        services = Following(api, SERVICES, service_facts, clock, news, namespaces, ours)
        self._on_unread = on_unread
        self._followed: tuple[Following[Any], ...] = (jobs, pods, services)
        self.jobs: Cache[TrainingJob] = jobs.cache
        self._pods: Cache[TaskPod] = pods.cache
        self._gpu_types: GpuTypes = {}
        self._coordinators = Coordinators(clock, wake, lambda to: connect(to, lease_epoch), poll_seconds)
        self._events = EventRecorder(api, socket.gethostname(), clock, unix_clock, on_reported=on_reported)
        self._workloads = WorkloadWatch(api, namespaces, clock, self._news.set)
        kueue = Kueue(api, self._workloads, may_write, clock, unix_clock)
        self._templates = Templates(api, clock)
        hands = Hands(
            api,
            self._coordinators,
            self._events,
            keys,
            may_write,
            kueue,
            last_checkpoint_seconds,
            self._templates.tried,
        )
        watch = WatchedObjects(self.jobs, pods.cache, services.cache, free_capacity, self._unread)
        self._controller = TrainingController(watch, hands, clock, unix_clock)
        self._measured: dict[str, MeasuredJob] = {}
        self._observed: dict[str, tuple[TrainingJob, Job]] = {}
        self._done: dict[str, float] = {}
        self._decided_seconds = clock()
        self._polled_seconds = -math.inf
        self._threads = [thread for each in self._followed for thread in each.threads(self._stopping.wait)]
        self._threads += [
            threading.Thread(target=self._control, name="training-jobs", daemon=True),
            threading.Thread(target=self._events.run, args=(self._stopping.is_set,), name="events", daemon=True),
        ]

    def start(self) -> None:
        """Begin to follow them, and to look after them."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Look after them no longer; they go on."""
        self._stopping.set()
        self._news.set()
        for following in self._followed:
            following.stop()
        self._workloads.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_END_SECONDS)
        self._coordinators.close()

    @property
    def is_known(self) -> bool:
        """Whether all that can be read were read once; without their CRD they never are."""
        return all(following.has_read for following in self._followed)

    @property
    def trouble(self) -> str:
        """Why they cannot be read, in a line."""
        return next((following.trouble for following in self._followed if following.trouble), "")

    def choices(self) -> dict[str, tuple[str, dict[str, NodeChoice]]]:
        """See `OwnJobs`: what the pods of these take is what is being decided."""
        return {job.uid: (job.job_id, choices_of(job)) for job in self._unended()}

    def observe(self, demand: Demand) -> list[Job]:
        """The jobs that a decision is about."""
        self._take()
        types = {entry.uid: entry.kept.model_type for entry in self.jobs.entries().values()}
        usual = usual_of((types[uid], measured) for uid, measured in self._measured.items() if uid in types)
        self._observed = scheduled_jobs(
            self._unended(),
            demand,
            lambda job: self._measured.setdefault(job.uid, MeasuredJob()),
            self._coordinators.job_report,
            self._templates.problem,
            usual,
        )
        return [seen for _, seen in self._observed.values()]

    def job_placements(self) -> dict[str, JobPlacement]:
        """Where the tasks of each lie, by its id."""
        found = self._job_placements()
        return {job.job_id: found[job.uid] for job in self._unended() if job.uid in found}

    def _job_placements(self) -> dict[str, JobPlacement]:
        return placement_of_tasks(entry.kept for entry in self._pods.entries().values())

    def poll(self) -> None:
        """Note what the coordinators have counted by now, unless that was done just now."""
        if self._clock() - self._polled_seconds >= self._poll_seconds:
            self._take()

    def _take(self) -> None:
        self._polled_seconds = self._clock()
        entries = self.jobs.entries().values()
        self._templates.forget({entry.uid for entry in entries})
        known = {entry.uid for entry in entries} | {job.uid for job, _ in self._observed.values()}
        self._measured = {uid: measured for uid, measured in self._measured.items() if uid in known}
        job_placements = self._job_placements() if self._gpu_types else {}
        for entry in entries:
            job_report = self._coordinators.job_report(entry.uid)
            if job_report is not None:
                workers = job_placements[entry.uid].workers if entry.uid in job_placements else {}
                self._measured.setdefault(entry.uid, MeasuredJob()).poll(job_report, workers)

    def apply(self, decision: Decision, unix_seconds: float, gpu_types: GpuTypes = MappingProxyType({})) -> None:
        """Give the jobs what was decided.

        Args:
            unix_seconds: when what it is about was observed; no two decisions have the same.
            gpu_types: of all nodes then; empty where places make no difference.
        """
        self._gpu_types = gpu_types
        # Numbers begin anew with an agent's state, and coordinators remember what they were asked for.
        number = f"{decision.origin.number}-{int(unix_seconds * 1000):x}"
        self._decided_seconds = self._clock()
        placement = decision.placement or {}
        for job_id, (job, seen) in self._observed.items():
            self._measured.setdefault(job.uid, MeasuredJob()).begin_interval()
            desired, reason = self._desired(job, seen, decision.of(job_id))
            if job.mode is JobUpdateMode.OFF:
                self._controller.reporter.advise(job.uid, decision.of(job_id))
            if desired != self._controller.desired(job):
                granted = Granted(
                    desired, number, decision.origin.policy, reason, self._lease_epoch(), self._unix_clock()
                )
                self._controller.grant(job.uid, granted, _nodes(placement.get(job_id, ())))
        self._news.set()

    def progress(self, gpu_types: GpuTypes = MappingProxyType({})) -> list[Progress]:
        """What the jobs of the last decision did since; `gpu_types` are of all nodes now."""
        self._take()
        whole = self._clock() - self._decided_seconds
        found = []
        for job, seen in self._observed.values():
            entry = self.jobs.get((job.namespace, job.name))
            now = entry.kept if entry is not None and entry.uid == job.uid else None
            finished = now is not None and now.outcome == "Complete"
            if finished:
                self._done[job.uid] = self._unix_clock() - seen.submit_time_seconds
            current = SUSPENDED if now is None else current_of(now, self._coordinators.job_report(job.uid))
            measured = self._measured[job.uid]
            entry_of_it = progress_of(seen, measured, current, whole, finished)
            found.append(replace(entry_of_it, places=measured.places(self._gpu_types, gpu_types)))
        return found

    @property
    def job_types(self) -> list[str]:
        """Those of the jobs that there are."""
        return list(dict.fromkeys(job.model_type for job in self._all() if not job.problem))

    @property
    def shape(self) -> frozenset[object]:
        """What a decision would be about, without how far jobs are."""
        return frozenset(
            (job.uid, job.generation, job.outcome, job.problem or self._templates.problem(job)) for job in self._all()
        )

    def counts(self) -> tuple[int, int, list[float]]:
        """Jobs that run, and that wait; and the completion times of those that this agent saw complete."""
        unended = [job for job in self._all() if not job.outcome]
        running = sum(current_of(job, self._coordinators.job_report(job.uid)) != SUSPENDED for job in unended)
        return running, len(unended) - running, list(self._done.values())

    def _desired(self, job: TrainingJob, seen: Job, decided: Allocation) -> tuple[Allocation, str]:
        """What a job is to have, and why it is not what was decided, where it is not."""
        if job.mode is JobUpdateMode.OFF:
            return (job.least if decided != SUSPENDED else decided), "updateMode is Off: its least size"
        if decided == SUSPENDED and seen.current != SUSPENDED and not job.suspend:
            if not job.keeps_checkpoints:
                return seen.current, "kept: without checkpoints it would begin anew"
            # Taken back before it has trained, again and again, it would cost its start each time and never get on.
            job_report = self._coordinators.job_report(job.uid)
            if job_report is None or job_report.status.phase is JobPhase.STARTING:
                return self._controller.desired(job), "kept: it has only just been started"
        if not job.is_resizable and SUSPENDED not in (decided, seen.current):
            return seen.current, "kept: without checkpoints it cannot be resized"
        return decided, "decided by the policy"

    def _all(self) -> list[TrainingJob]:
        unread = self._unread()
        jobs = [entry.kept for (namespace, _), entry in self.jobs.entries().items() if namespace not in unread]
        return sorted(jobs, key=lambda job: (job.created, job.job_id))

    def _unread(self) -> Mapping[str, str]:
        """Namespaces of several in which something cannot be read: their jobs go on as they are."""
        unread = unread_in(self._followed)
        self._on_unread(unread)
        return unread

    def _unended(self) -> Iterable[TrainingJob]:
        return unended(self._all())

    def _control(self) -> None:
        while not self.is_known:
            if self._stopping.wait(0.05):
                return
        stepped_seconds = -math.inf
        while not self._stopping.is_set():
            is_news = self._news.wait(min(_ASK_SECONDS, self._poll_seconds))
            if not is_news and self._clock() - stepped_seconds < self._poll_seconds:
                self._coordinators.ask_due()
                continue
            self._news.clear()
            stepped_seconds = self._clock()
            try:
                if self._controller.step():
                    self._news.set()
            except Exception:
                # One look that fails is no reason to look after nothing any more; it is told, and made again.
                _log.exception("training-jobs-step")
                self._stopping.wait(self._poll_seconds)
            # Of very many jobs, news come faster than they can be looked through: some are taken together.
            self._stopping.wait(min(len(self.jobs.entries()) * _TOGETHER_SECONDS, _ASK_SECONDS))


def _nodes(shares: Sequence[Share]) -> list[tuple[str, str]]:
    return [
        (role, share.node_id)
        for share in shares
        for role, count in (("worker", share.allocation.workers), ("ps", share.allocation.ps))
        for _ in range(count)
    ]
