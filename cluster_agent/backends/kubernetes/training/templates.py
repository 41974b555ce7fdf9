"""Templates of TrainingJobs, tried in a dry run, before there is capacity for any of their pods.

A pod's whole schema is too large for a CRD, so templates keep whatever was written. Who mistypes a field, or asks for
what the namespace refuses (its Pod Security level, a policy), hears of it as soon as the job is seen, and not hours
later, when its first pods are refused and those made before are taken back. A trial promises no more: quotas, rights
and names are of the moment in which pods are made.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.errors import ApiRefused, ApiUnanswered, Forbidden, Invalid
from cluster_agent.kubernetes.resources import PODS, Json
from cluster_agent.kubernetes.training import manifests
from cluster_agent.kubernetes.training.training_job import TrainingJob
from foundation.clocks import Clock
from foundation.text import plain_line

_MOST_A_SECOND: Final = 20
"""Jobs that are tried, of a thousand that come at once; the others wait for nothing, and have their turn."""
_AGAIN_SECONDS: Final = 10.0
"""After no answer."""
_REFUSED_AGAIN_SECONDS: Final = 600.0
"""An admission rule, too, may have refused it, and be changed."""
_ADDRESS: Final = "127.0.0.1:1"
_LONGEST_LINE: Final = 900
_RULES: Final = re.compile(
    r"violates PodSecurity|denied (the )?request|must specify|(max|min)imum \S+ usage per|max limit to request ratio"
)
"""What Forbidden says where the pod itself is against a rule: Pod Security, a webhook or an admission policy, a quota
of what no container states, a LimitRange. Source: k8s.io/pod-security-admission, k8s.io/apiserver."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """What became of some templates; tried again from `again_at` on, in monotonic seconds."""

    digest: str
    problem: str
    again_at: float


class Templates:
    """Tries templates, once each; `tried` is called by one thread, `problem` by any."""

    def __init__(self, api: ApiServer, clock: Clock) -> None:
        self._api, self._clock = api, clock
        self._lock = threading.Lock()
        self._trials: dict[str, _Trial] = {}
        self._second_began, self._in_second = -float("inf"), 0

    def problem(self, job: TrainingJob) -> str:
        """Why no pod can be made of a job's templates, in a line; empty where nothing is known against them."""
        with self._lock:
            trial = self._trials.get(job.uid)
        return trial.problem if trial is not None and trial.digest == job.digest and not job.has_started else ""

    def tried(self, job: TrainingJob) -> TrainingJob:
        """A job with what is wrong with its templates, which are tried if they have not been.

        Raises:
            NotActing: another agent may act by now.
        """
        if job.problem or job.has_started or job.outcome or job.deleting:
            return job
        with self._lock:
            trial = self._trials.get(job.uid)
        is_due = trial is None or trial.digest != job.digest or self._clock() >= trial.again_at
        if is_due and self._has_turn():
            trial = self._try(job)
            with self._lock:
                self._trials[job.uid] = trial
        problem = self.problem(job)
        return replace(job, problem=problem) if problem else job

    def forget(self, uids: set[str]) -> None:
        """Forget all jobs but these."""
        with self._lock:
            self._trials = {uid: trial for uid, trial in self._trials.items() if uid in uids}

    def _has_turn(self) -> bool:
        now = self._clock()
        if now - self._second_began >= 1.0:
            self._second_began, self._in_second = now, 0
        self._in_second += 1
        return self._in_second <= _MOST_A_SECOND

    def _try(self, job: TrainingJob) -> _Trial:
        for role, make in _pods(job):
            try:
                problem = self._refusal(job, make)
            except ApiUnanswered:  # counted like all failures of requests
                return _Trial(job.digest, "", self._clock() + _AGAIN_SECONDS)
            if problem:
                line = plain_line(f"spec.{role}.template makes no pod: {problem}", _LONGEST_LINE)
                return _Trial(job.digest, line, self._clock() + _REFUSED_AGAIN_SECONDS)
        return _Trial(job.digest, "", float("inf"))

    def _refusal(self, job: TrainingJob, make: Callable[[], Json]) -> str:
        """What is wrong with a pod; empty where nothing is, or it is none of its template's."""
        try:
            pod = make()
        except (TypeError, AttributeError, ValueError, KeyError) as error:  # templates keep whatever was written
            return f"it is no pod's: {error}"
        try:
            self._api.create(PODS.path(job.namespace), pod, {"fieldValidation": "Strict", "dryRun": "All"})
        except Invalid as error:
            return (
                "" if "does not support dry run" in str(error) else refusal_text(error)
            )  # such a webhook has no opinion
        except ApiRefused as error:
            again = f"is asked again every {_REFUSED_AGAIN_SECONDS / 60:g} minutes"
            return (
                f"namespace {job.namespace} refuses it, and {again}: {refusal_text(error)}"
                if breaks_rule(error)
                else ""
            )
        return ""


def _pods(job: TrainingJob) -> list[tuple[str, Callable[[], Json]]]:
    """A pod of each template that its author wrote; of roles without one the workers' image is taken."""
    if job.is_all_reduce:
        return [("worker", lambda: manifests.rank_pod(job, "worker-0", (1, job.worker.least), "127.0.0.1"))]
    found: list[tuple[str, Callable[[], Json]]] = [
        ("worker", lambda: manifests.task_pod(job, "worker-0", _ADDRESS)),
        ("ps", lambda: manifests.task_pod(job, "ps-0", _ADDRESS)),
        ("coordinator", lambda: manifests.coordinator_pod(job, job.least, relaunched=False)),
    ]
    written = {"worker": job.worker.template, "ps": job.ps.template, "coordinator": job.coordinator}
    return [(role, make) for role, make in found if written[role]]


def breaks_rule(error: ApiRefused) -> bool:
    """Whether a pod was refused for what it is, and would be again; not for a quota, a right or a name, which come."""
    return isinstance(error, Forbidden) and _RULES.search(str(error)) is not None


def refusal_text(error: ApiRefused) -> str:
    """The server's words, without the request."""
    strict = str(error).partition("strict decoding error: ")[2]
    listed = "; ".join(f"{field}: {message}" for field, message in error.causes)
    return strict or listed or str(error).partition(" is forbidden: ")[2] or str(error)
