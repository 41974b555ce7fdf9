"""Kueue's say in TrainingJobs with `spec.kueue`: their Workloads are followed, and written as `quota.py` plans.

Jobs without `spec.kueue` never come here, and until there is one with it nobody asks for Workloads: the rights to them
are needed where Kueue is used, and nowhere else.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence

from cluster_agent.backends.kubernetes.training.quota import (
    WAITS,
    Act,
    Quota,
    QuotaUse,
    Verb,
    plan_quota,
    refused,
    unread,
    use_of,
)
from cluster_agent.backends.kubernetes.training.step import CoordinatorReport
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.api_server import ApiServer, ContentType, whole_time
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.errors import AlreadyExists, ApiError, Conflict, NotActing, NotFound
from cluster_agent.kubernetes.list_watch import Following
from cluster_agent.kubernetes.resources import Json
from cluster_agent.kubernetes.training import workloads
from cluster_agent.kubernetes.training.manifests import JOB_LABEL, role_of
from cluster_agent.kubernetes.training.training_job import TrainingJob
from cluster_agent.kubernetes.training.workloads import FLAVORS, WORKLOADS, KueueWorkload, Placement
from foundation.clocks import Clock, UnixClock
from foundation.text import plain_line
from policy_net.domain import SUSPENDED, Allocation

PATIENT_SECONDS = 60.0
"""A job that has waited so long for what it was to have asks for its least size: any quota is better than none."""
AGAIN_SECONDS = 10.0
"""After a write that was refused."""
_FLAVOR_SECONDS = 60.0
"""For so long a flavor is what it was: those who make them do not change them under running jobs."""
_END_SECONDS = 5.0


class WorkloadWatch:
    """Workloads of TrainingJobs as the API server has them, by job; nobody asks before `begin`.

    Args:
        namespaces: whose, each followed by itself; an empty name stands for all there are.
        on_news: called where one has changed; must not block.
    """

    def __init__(self, api: ApiServer, namespaces: Sequence[str], clock: Clock, on_news: Callable[[], None]) -> None:
        self._on_news = on_news
        ours = {"labelSelector": JOB_LABEL}
        self._following = Following(api, WORKLOADS, workloads.workload_facts, clock, self._on_change, namespaces, ours)
        self.cache: Cache[KueueWorkload] = self._following.cache
        self._stopping = threading.Event()
        self._by_owner: dict[str, list[KueueWorkload]] | None = None
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        """Follow them from now on; again and again is once."""
        if not self._threads:
            self._threads = self._following.threads(self._stopping.wait)
            for thread in self._threads:
                thread.start()

    def close(self) -> None:
        """Follow them no longer."""
        self._stopping.set()
        self._following.stop()
        for thread in self._threads:
            thread.join(_END_SECONDS)

    @property
    def trouble(self) -> str:
        """Why they cannot be read, in a line."""
        return self._following.trouble

    def of(self, uid: str) -> list[KueueWorkload]:
        """Those of one job; asked by one thread."""
        found = self._by_owner
        if found is None:
            found = self._by_owner = {}  # before the look: what changes meanwhile is looked at once more
            for entry in self.cache.entries().values():
                found.setdefault(entry.kept.owner, []).append(entry.kept)
        return found.get(uid, [])

    def _on_change(self) -> None:
        self._by_owner = None
        self._on_news()


class Kueue:
    """Has jobs keep within what Kueue admits; used by one thread.

    Args:
        may_write: whether this agent acts; asked before each write.
        clock: monotonic seconds.
        unix_clock: the time of day in seconds.

    Raises:
        NotActing: of what writes: it does not act any more.
    """

    def __init__(
        self,
        api: ApiServer,
        watch: WorkloadWatch,
        may_write: Callable[[], bool],
        clock: Clock,
        unix_clock: UnixClock,
    ) -> None:
        self._api, self._watch, self._may_write = api, watch, may_write
        self._clock, self._unix_clock = clock, unix_clock
        self._waits_since: dict[str, float] = {}
        self._refused: dict[str, tuple[float, str]] = {}
        self._grounds: dict[str, KueueWorkload | None] = {}
        self._flavors: dict[str, tuple[float, Json]] = {}

    def poll(
        self, job: TrainingJob, desired: Allocation, pods: Iterable[TaskPod], job_report: CoordinatorReport | None
    ) -> Quota:
        """What a job may have now; what is to be written about that is."""
        self._watch.begin()
        in_use = use_of([pod for pod in pods if pod.owner == job.uid], job_report)
        if self._watch.cache.has_read(job.namespace):
            now = self._clock()
            patient = now - self._waits_since.get(job.uid, now) < PATIENT_SECONDS
            quota = self._carry_out(
                job, plan_quota(job, desired, in_use, self._watch.of(job.uid), patient), desired, in_use
            )
            if quota.reason == WAITS:
                self._waits_since.setdefault(job.uid, now)
            elif quota.ground is not None or desired == SUSPENDED:
                self._waits_since.pop(job.uid, None)
        else:
            quota = unread(desired, in_use, self._watch.trouble)
        self._grounds[job.uid] = quota.ground
        return quota

    def fit(self, job: TrainingJob, task: str, pod: Json) -> None:
        """Change a pod so that it goes where the quota is that it takes.

        Raises:
            ApiError: a flavor cannot be read.
            ValueError: its template says something else.
        """
        ground = self._grounds.get(job.uid) if job.queue else None
        if ground is not None:
            self._placement(ground, role_of(task)).put_into(pod)

    def forget(self, uids: set[str]) -> None:
        """Forget all jobs but these."""
        for kept in (self._waits_since, self._refused, self._grounds):
            for uid in [uid for uid in kept if uid not in uids]:
                del kept[uid]

    def _placement(self, ground: KueueWorkload, role: str) -> Placement:
        flavors = [self._flavor(name) for name in ground.flavors.get(role, ())]
        return workloads.placement(flavors, ground.updates.get(role, ()))

    def _flavor(self, name: str) -> Json:
        read_at, found = self._flavors.get(name, (-float("inf"), Json()))
        if self._clock() - read_at >= _FLAVOR_SECONDS:
            found = self._api.get(FLAVORS.path(name=name))
            self._flavors[name] = self._clock(), found
        return found

    def _carry_out(self, job: TrainingJob, quota: Quota, desired: Allocation, in_use: QuotaUse) -> Quota:
        """Write what the quota says; what was refused is tried again, but not at every poll."""
        until, line = self._refused.get(job.uid, (-float("inf"), ""))
        if not quota.acts or self._clock() < until:
            return refused(quota, desired, in_use, line) if quota.acts else quota
        try:
            for act in quota.acts:
                self._check_acting()
                self._do(job, act)
        except NotActing:
            raise
        except (ApiError, ValueError) as error:
            line = plain_line(str(error))
            self._refused[job.uid] = self._clock() + AGAIN_SECONDS, line
            return refused(quota, desired, in_use, line)
        self._refused.pop(job.uid, None)
        return quota

    def _check_acting(self) -> None:
        if not self._may_write():
            raise NotActing("another agent may act by now")

    def _do(self, job: TrainingJob, act: Act) -> None:
        workload = act.workload
        if act.verb is Verb.CREATE or workload is None:
            self._create(job, act)
            return
        path = WORKLOADS.path(workload.namespace, workload.name)
        try:
            if act.verb is Verb.DELETE:
                # One that was admitted since it was seen holds what its job may be running on.
                stated = {"uid": workload.uid, "resourceVersion": workload.version}
                self._on_deleted(workload, self._api.delete(path, {"preconditions": stated}))
            elif act.verb is Verb.COUNT:
                patch = workloads.counted(workload, act.size)
                self._watch.cache.put_answer(self._api.patch(path, patch, ContentType.JSON_PATCH))
            else:
                self._write_status(job, act, workload)
        except NotFound:
            self._forget_workload(workload)
        except Conflict:  # somebody was faster: it is planned anew with what they wrote
            with contextlib.suppress(NotFound):
                self._watch.cache.put_answer(self._api.get(path))

    def _on_deleted(self, workload: KueueWorkload, answer: Json) -> None:
        """One that is gone gives no quota any more, also before the watch says so; with finalizers it stays a while."""
        if "deletionTimestamp" in (answer.get("metadata") or {}):
            self._watch.cache.put_answer(answer)
        else:
            self._forget_workload(workload)

    def _forget_workload(self, workload: KueueWorkload) -> None:
        self._watch.cache.forget((workload.namespace, workload.name), workload.uid)

    def _create(self, job: TrainingJob, act: Act) -> None:
        try:
            body = workloads.workload_of(job, act.number, act.size, act.workload)
        except (TypeError, AttributeError, ValueError, KeyError) as error:  # templates keep whatever was written
            raise ValueError(f"a template is no pod's: {error}") from error
        try:
            self._watch.cache.put_answer(self._api.create(WORKLOADS.path(job.namespace), body))
        except AlreadyExists:  # the answer to an earlier try was lost
            found = self._api.get(WORKLOADS.path(job.namespace, body["metadata"]["name"]))
            if job.uid not in [each.get("uid") for each in found["metadata"].get("ownerReferences") or ()]:
                raise
            self._watch.cache.put_answer(found)

    def _write_status(self, job: TrainingJob, act: Act, workload: KueueWorkload) -> None:
        """Others write into it too: it is read before, and written only where it has not changed since."""
        found = self._api.get(WORKLOADS.path(workload.namespace, workload.name))
        seen = workloads.workload_facts(found)
        if seen is None or (seen.uid, seen.state) != (workload.uid, workload.state):
            self._watch.cache.put_answer(found)
            return
        status, generation = found.get("status") or {}, int(found["metadata"].get("generation") or 0)
        now = whole_time(self._unix_clock())
        if act.verb is Verb.FINISH:
            content = workloads.ended(status, job.outcome, now, generation)
        elif act.verb is Verb.READY:
            content = workloads.ready(status, now, generation)
        else:
            content = workloads.given_back(status, now, generation)
        body = {"metadata": {"uid": seen.uid, "resourceVersion": seen.version}, "status": content}
        path = WORKLOADS.path(workload.namespace, workload.name, "status")
        self._watch.cache.put_answer(self._api.patch(path, body, ContentType.MERGE_PATCH))
