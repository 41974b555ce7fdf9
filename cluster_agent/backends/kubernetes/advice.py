"""Advice: what a decision gives each target, written into its status; and where sizes are set, what came of that.

A status is written only where it says something new, so that a calm cluster costs no calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from cluster_agent.backends.kubernetes.limits import Reason, pod_waits
from cluster_agent.backends.kubernetes.observation import Observed, ObservedTarget
from cluster_agent.kubernetes.api_server import ContentType, Json, Query, whole_time
from cluster_agent.kubernetes.errors import ApiError, NotFound
from cluster_agent.kubernetes.targets.elastic_target import ELASTIC_TARGETS, ElasticTarget
from cluster_agent.kubernetes.targets.target_kind import ResizeHold
from foundation.text import plain_line
from policy_net.domain import Decision

_log = structlog.get_logger()

READY, RESIZED, LIMITED = "Ready", "Resized", "Limited"
_OURS = (READY, RESIZED, LIMITED)


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    """What came of a decision for a target whose sizes are set, or would be.

    Attributes:
        workers: that its job has now.
        limited: why its job keeps its size, or has another than was decided; None where nothing limits it.
        resized: of the condition; None where its size is not set at all.
        is_resized: whether the job has the size that it is to have.
        allocation: the last change that was made; None where none was in this process's life.
    """

    workers: int
    limited: ResizeHold | None = None
    resized: ResizeHold | None = None
    is_resized: bool = False
    allocation: Json | None = None


class StatusStore(Protocol):
    """The request that advice takes; `ApiServer` is one."""

    def patch(self, path: str, body: Json, content_type: ContentType, query: Query | None = None) -> Json:
        """Change parts of an object."""
        ...


class Adviser:
    """Writes recommendations.

    Args:
        wall_clock: Unix seconds.
        may_write: asked before each write; whoever has lost its lease leaves the rest to another.
        on_unusable: is told of a target that cannot be used, and why, where its status does not say so yet.
    """

    def __init__(
        self,
        store: StatusStore,
        wall_clock: Callable[[], float],
        may_write: Callable[[], bool] = lambda: True,
        on_unusable: Callable[[ElasticTarget, str], None] = lambda *_: None,
    ) -> None:
        self._store, self._may_write, self._on_unusable = store, may_write, on_unusable
        self._wall_clock = wall_clock
        self._written: dict[str, tuple[str, int, Json]] = {}

    def advise(
        self,
        observed: Observed,
        decision: Decision,
        targets: Mapping[str, ElasticTarget],
        outcomes: Mapping[str, TargetOutcome] | None = None,
    ) -> list[str]:
        """Write what changed; the targets whose status could not be written, which is tried again next time.

        Args:
            outcomes: of those that ask for their sizes to be set.
        """
        failed = []
        self._written = {job_id: seen for job_id, seen in self._written.items() if job_id in targets}
        for job_id, target in targets.items():
            member, problem = observed.members.get(job_id), observed.left_out.get(job_id, "")
            if problem:
                said = self._refusal(problem)
            elif member is not None:
                said = _said(member, decision.of(job_id).workers, (outcomes or {}).get(job_id))
            else:
                continue  # it came after the decision
            if self._written.get(job_id) == (target.uid, target.generation, said):
                continue
            if not self._may_write():
                failed.append(job_id)
                continue
            try:
                self._write(target, said)
            except NotFound:  # deleted meanwhile
                continue
            except ApiError as error:
                failed.append(job_id)
                _log.warning("advice-not-written", target=job_id, error=plain_line(str(error)))
            else:
                self._written[job_id] = (target.uid, target.generation, said)
                if problem and job_id not in observed.over and not _stands(target, problem):
                    self._on_unusable(target, problem)
        return failed

    @staticmethod
    def _refusal(line: str) -> Json:
        return {"recommendation": None, "conditions": [_condition(READY, False, ResizeHold(Reason.NOT_USABLE, line))]}

    def _write(self, target: ElasticTarget, said: Json) -> None:
        now = whole_time(self._wall_clock())
        conditions = [each for each in conditions_of(target) if each.get("type") not in _OURS]
        for each in said["conditions"]:
            before = next((old for old in conditions_of(target) if old.get("type") == each["type"]), {})
            since = before.get("lastTransitionTime", now) if before.get("status") == each["status"] else now
            conditions.append({**each, "observedGeneration": target.generation, "lastTransitionTime": since})
        status: dict[str, Any] = {
            "observedGeneration": target.generation,
            "recommendation": said["recommendation"] and {**said["recommendation"], "time": now},
            "conditions": conditions,
        }
        if said.get("allocation"):
            status["allocation"] = said["allocation"]
        # With the uid, a target that was made anew under this name is not written to.
        body = {"metadata": {"uid": target.uid}, "status": status}
        path = ELASTIC_TARGETS.path(target.namespace, target.name, "status")
        self._store.patch(path, body, ContentType.MERGE_PATCH)


def conditions_of(target: ElasticTarget) -> list[Json]:
    """Conditions that stand in a target's status."""
    found = target.status.get("conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _stands(target: ElasticTarget, problem: str) -> bool:
    """Whether a target's status says already why it cannot be used."""
    ready = next((each for each in conditions_of(target) if each.get("type") == READY), {})
    return (ready.get("reason"), ready.get("message")) == (Reason.NOT_USABLE, problem)


def advice(now: int, workers: int) -> str:
    """What a job is advised to do, for people."""
    if workers == now:
        return "as it is"
    if not workers:
        return f"wait: others get more done with what its {now} workers have" if now else "wait"
    if not now:
        return f"start with {workers}"
    return f"{'more' if workers > now else 'fewer'}: {workers} rather than {now}"


def _said(member: ObservedTarget, workers: int, outcome: TargetOutcome | None) -> Json:
    now = member.facts.workers if outcome is None else outcome.workers
    recommendation = {"workers": workers, "current": now, "message": advice(now, workers)}
    trouble = f"; progress: {member.reading.problem}" if member.reading is not None and member.reading.problem else ""
    ready = ResizeHold(Reason.ADVISED, f"sizes are recommended, and not set{trouble}")
    if outcome is None:
        waits = pod_waits(member)
        limits = [_condition(LIMITED, True, waits)] if waits is not None else []
        return {"recommendation": recommendation, "conditions": [*limits, _condition(READY, True, ready)]}
    limited = outcome.limited or ResizeHold(Reason.WITHIN_LIMITS, "no limit is in the way")
    conditions = [_condition(LIMITED, outcome.limited is not None, limited)]
    if outcome.resized is not None:
        ready = ResizeHold(Reason.SET, f"sizes are set{trouble}")
        conditions.append(_condition(RESIZED, outcome.is_resized, outcome.resized))
    conditions.append(_condition(READY, True, ready))
    return {"recommendation": recommendation, "conditions": conditions, "allocation": outcome.allocation}


def _condition(kind: str, is_so: bool, why: ResizeHold) -> Json:
    return {"type": kind, "status": "True" if is_so else "False", "reason": str(why.reason), "message": why.line}
