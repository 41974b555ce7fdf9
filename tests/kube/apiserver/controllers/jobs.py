"""A stand-in for the Job controller of kube-controller-manager: makes and deletes pods of batch/v1 Jobs.

As the real one: Indexed Jobs have one pod an index; when parallelism and completions move together, the highest indices
leave first; pods that fail, or that others delete, are made again after a back-off, and count against `backoffLimit`;
a suspended Job has no pods. Not there: the tracking finalizer of pods, `podFailurePolicy`, `backoffLimitPerIndex`,
`successPolicy`, time to live.
"""

from __future__ import annotations

import random
from calendar import timegm
from dataclasses import dataclass, field
from time import strptime
from typing import Any

from apiserver.controllers.events import record
from apiserver.controllers.stepping import Due, Pair, controller_of, has_ended, is_true, pair_of, with_condition
from apiserver.store import Change, Refused, Store, copied

Json = dict[str, Any]
JOBS = "jobs.batch"
_INDEX = "batch.kubernetes.io/job-completion-index"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(slots=True)
class _Tally:
    """What a Job's pods have come to; also of those that are no longer there."""

    succeeded: set[str] = field(default_factory=set)  # uids
    failed: set[str] = field(default_factory=set)
    indices: set[int] = field(default_factory=set)  # that succeeded
    dismissed: set[str] = field(default_factory=set)  # deleted by this controller: no failures
    failed_in_a_row: int = 0
    failed_at: float = 0.0


class JobController:
    """Works on all Jobs of a store.

    Args:
        seed: of the names of pods.
        backoff_seconds: after the first failure; it doubles with each in a row, to at most 600.
    """

    def __init__(self, store: Store, seed: int = 0, backoff_seconds: float = 10.0) -> None:
        self._store, self._random, self._backoff_seconds = store, random.Random(seed), backoff_seconds
        self._due = Due(store.seconds)
        self._jobs: dict[str, Pair] = {}
        self._pods: dict[str, dict[Pair, None]] = {}  # by the uid of their Job
        self._tallies: dict[str, _Tally] = {}
        for table in (JOBS, "pods"):
            for found in store.all(table):
                self.note(Change(store.version, table, None, found))

    def note(self, change: Change) -> None:
        if change.plural == JOBS:
            job = change.seen
            if change.after is None:
                self._jobs.pop(job["metadata"]["uid"], None)
                self._tallies.pop(job["metadata"]["uid"], None)
            else:
                self._jobs[job["metadata"]["uid"]] = pair_of(job)
                self._due.add(pair_of(job))
        elif change.plural == "pods":
            self._note_pod(change)

    def step(self) -> float | None:
        for name in self._due.take():
            job = self._store.objects.get(JOBS, {}).get(name)
            if job is not None and "deletionTimestamp" not in job["metadata"]:
                self._work_on(job)
        return self._due.next_at()

    def _note_pod(self, change: Change) -> None:
        pod, owner = change.seen, controller_of(change.seen)
        if not owner:
            return
        of_owner = self._pods.setdefault(owner, {})
        if change.after is None:
            of_owner.pop(pair_of(pod), None)
            if not of_owner:
                del self._pods[owner]
        else:
            of_owner[pair_of(pod)] = None
        tally, uid = self._tallies.setdefault(owner, _Tally()), pod["metadata"]["uid"]
        if (pod.get("status") or {}).get("phase") == "Succeeded":
            if uid not in tally.succeeded:
                tally.succeeded.add(uid)
                tally.failed_in_a_row = 0
                tally.indices.add(_index_of(pod))
        elif (has_ended(pod) or change.after is None) and uid not in tally.failed | tally.dismissed:
            tally.failed.add(uid)
            tally.failed_in_a_row += 1
            tally.failed_at = self._store.seconds()
        if owner in self._jobs:
            self._due.add(self._jobs[owner])
        elif change.after is None and owner not in self._pods:
            self._tallies.pop(owner, None)

    def _work_on(self, job: Json) -> None:
        if is_true(job, "Complete") or is_true(job, "Failed"):
            return
        spec, uid = job["spec"], job["metadata"]["uid"]
        tally = self._tallies.setdefault(uid, _Tally())
        table = self._store.objects.get("pods", {})
        pods = [table[name] for name in self._pods.get(uid, ()) if name in table]
        active = [pod for pod in pods if not has_ended(pod) and "deletionTimestamp" not in pod["metadata"]]
        going = [pod for pod in pods if not has_ended(pod) and "deletionTimestamp" in pod["metadata"]]
        conditions, started = self._suspension(job)
        done = _done(spec, tally, len(active) + len(going))
        failed = self._failure(job, tally, started)
        if done or failed or spec.get("suspend"):
            self._dismiss(tally, active)
            active = []
        else:
            # By default a pod that is on its way out is replaced at once.
            waits = going if spec.get("podReplacementPolicy") == "Failed" else []
            active = self._with_right_number(job, tally, active, waits)
        now = self._store.now()
        if done:
            text = "Reached expected number of succeeded pods"
            conditions = with_condition(conditions, now, "SuccessCriteriaMet", "True", "CompletionsReached", text)
        elif failed:
            conditions = with_condition(conditions, now, "FailureTarget", "True", *failed)
        status: Json = {
            **{name: value for name, value in (job.get("status") or {}).items() if name not in _COUNTS},
            **_counts(spec, tally, active, going),
        }
        status.pop("startTime", None)
        if started:
            status["startTime"] = started
        if not active and not self._left(uid) and (done or failed):
            if done:
                status["completionTime"] = now
                conditions = with_condition(conditions, now, "Complete", "True", "CompletionsReached", text)
                record(self._store, job, "Job", "Completed", "Job completed", "job-controller")
            elif failed:
                conditions = with_condition(conditions, now, "Failed", "True", *failed)
                record(self._store, job, "Job", *failed, "job-controller", warns=True)
        if conditions:
            status["conditions"] = conditions
        if status != job.get("status"):
            namespace, name = pair_of(job)
            self._store.replace(JOBS, namespace, name, {**job, "status": status}, "status")

    def _left(self, uid: str) -> bool:
        table = self._store.objects.get("pods", {})
        return any(not has_ended(table[name]) for name in self._pods.get(uid, ()) if name in table)

    def _suspension(self, job: Json) -> tuple[list[Json], str]:
        """The conditions with the one of suspension, and when the Job started; empty while it is suspended."""
        status, now = job.get("status") or {}, self._store.now()
        conditions = status.get("conditions") or []
        if job["spec"].get("suspend"):
            if not is_true(job, "Suspended"):
                conditions = with_condition(conditions, now, "Suspended", "True", "JobSuspended", "Job suspended")
                record(self._store, job, "Job", "Suspended", "Job suspended", "job-controller")
            return conditions, ""
        if is_true(job, "Suspended"):
            conditions = with_condition(conditions, now, "Suspended", "False", "JobResumed", "Job resumed")
            record(self._store, job, "Job", "Resumed", "Job resumed", "job-controller")
            return conditions, now
        return conditions, status.get("startTime") or now

    def _failure(self, job: Json, tally: _Tally, started: str) -> tuple[str, str] | None:
        spec = job["spec"]
        if is_true(job, "FailureTarget"):
            found = next(each for each in job["status"]["conditions"] if each["type"] == "FailureTarget")
            return found["reason"], found["message"]
        if len(tally.failed) > int(spec.get("backoffLimit", 6)):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        limit = spec.get("activeDeadlineSeconds")
        if limit is not None and started:
            ends_at = timegm(strptime(started, "%Y-%m-%dT%H:%M:%SZ")) + int(limit)
            if self._store.seconds() >= ends_at:
                return "DeadlineExceeded", "Job was active longer than specified deadline"
            self._due.add(pair_of(job), ends_at)
        return None

    def _with_right_number(self, job: Json, tally: _Tally, active: list[Json], going: list[Json]) -> list[Json]:
        """Make or delete pods; the active ones after it."""
        spec = job["spec"]
        parallelism = int(spec.get("parallelism", 1))
        indexed = spec.get("completionMode") == "Indexed"
        completions = spec.get("completions")
        if indexed:
            assert completions is not None, "the API server takes no Indexed Job without completions"
            kept: dict[int, Json] = {}
            for pod in sorted(active, key=lambda pod: (_index_of(pod), pod["metadata"]["creationTimestamp"])):
                index = _index_of(pod)
                if index not in kept and 0 <= index < completions and index not in tally.indices:
                    kept[index] = pod
            wanted = sorted(kept)[:parallelism]
            keep = [kept[index] for index in wanted]
            busy = {_index_of(pod) for pod in going} | set(wanted)
            free = [index for index in range(completions) if index not in tally.indices and index not in busy]
            missing: list[int | None] = [*free[: max(0, parallelism - len(keep))]]
        else:
            left = parallelism
            if completions is not None:
                left = min(parallelism, int(completions) - len(tally.succeeded))
            elif tally.succeeded:
                left = min(parallelism, len(active))  # a work queue: once one is done, no more are made
            keep = sorted(active, key=_rank)[: max(0, left)]
            missing = [None] * max(0, left - len(keep) - len(going))
        kept_uids = {pod["metadata"]["uid"] for pod in keep}
        self._dismiss(tally, [pod for pod in active if pod["metadata"]["uid"] not in kept_uids])
        if missing and tally.failed_in_a_row:
            wait = min(600.0, self._backoff_seconds * 2.0 ** (tally.failed_in_a_row - 1))
            if self._store.seconds() < tally.failed_at + wait:
                self._due.add(pair_of(job), tally.failed_at + wait)
                return keep
        for number in missing:
            try:
                keep.append(self._make(job, number))
            except Refused as refused:
                text = f"Error creating: {refused.status['message']}"
                record(self._store, job, "Job", "FailedCreate", text, "job-controller", warns=True)
                self._due.add(pair_of(job), self._store.seconds() + self._backoff_seconds)
                break
        return keep

    def _make(self, job: Json, index: int | None) -> Json:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        template = copied(job["spec"]["template"])
        metadata, spec = template.get("metadata") or {}, template["spec"]
        labels = {
            **(metadata.get("labels") or {}),
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        annotations = dict(metadata.get("annotations") or {})
        middle = ""
        if index is not None:
            middle = f"{index}-"
            labels[_INDEX] = annotations[_INDEX] = str(index)
            spec.setdefault("hostname", f"{name}-{index}")
            source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{_INDEX}']"}}
            for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
                container["env"] = [
                    *(container.get("env") or ()),
                    {"name": "JOB_COMPLETION_INDEX", "valueFrom": source},
                ]
        pod = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "name": f"{name}-{middle}{''.join(self._random.choices(_LETTERS, k=5))}",
                "generateName": f"{name}-{middle}",
                "namespace": job["metadata"]["namespace"],
                "labels": labels,
                **({"annotations": annotations} if annotations else {}),
                "finalizers": list(metadata.get("finalizers") or ()),
                "ownerReferences": [
                    {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "name": name,
                        "uid": uid,
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "spec": spec,
            "status": {"phase": "Pending"},
        }
        made = self._store.create("pods", pod)
        text = f"Created pod: {made['metadata']['name']}"
        record(self._store, job, "Job", "SuccessfulCreate", text, "job-controller")
        return made

    def _dismiss(self, tally: _Tally, pods: list[Json]) -> None:
        for pod in sorted(pods, key=_index_of, reverse=True):
            tally.dismissed.add(pod["metadata"]["uid"])
            self._store.delete("pods", *pair_of(pod), {})


_COUNTS = ("active", "ready", "terminating", "succeeded", "failed", "completedIndexes", "uncountedTerminatedPods")


def _counts(spec: Json, tally: _Tally, active: list[Json], going: list[Json]) -> Json:
    indexed = spec.get("completionMode") == "Indexed"
    indices = sorted(each for each in tally.indices if each < int(spec.get("completions") or 0))
    found: Json = {
        "active": len(active),
        "succeeded": len(indices) if indexed else len(tally.succeeded),
        "failed": len(tally.failed),
    }
    found = {name: count for name, count in found.items() if count}
    found |= {"ready": sum(1 for pod in active if is_true(pod, "Ready")), "terminating": len(going)}
    found["uncountedTerminatedPods"] = {}
    if indexed and indices:
        found["completedIndexes"] = _ranges(indices)
    return found


def _done(spec: Json, tally: _Tally, running: int) -> bool:
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed":
        return all(index in tally.indices for index in range(int(completions or 0)))
    if completions is not None:
        return len(tally.succeeded) >= int(completions)
    return bool(tally.succeeded) and not running


def _index_of(pod: Json) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(_INDEX, -1))


def _rank(pod: Json) -> Any:
    """Those that run first, then the older ones: the others leave before them."""
    running = (pod.get("status") or {}).get("phase") == "Running"
    return not running, pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def _ranges(numbers: list[int]) -> str:
    """Numbers as a Job's status has them: 0-2,4."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(str(each) for each in part) for part in parts)
