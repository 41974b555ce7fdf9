"""Advice: what a decision gives each target, and what came of it where sizes are set, written into its status.

A status is written only where it says something new, so that a calm cluster costs no calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from cluster_agent.backends.kubernetes.limits import Reason, pod_waits
from cluster_agent.backends.kubernetes.observation import Observed, ObservedTarget
from cluster_agent.kubernetes.api_server import ApiServer, ContentType, whole_time
from cluster_agent.kubernetes.errors import ApiError, NotFound
from cluster_agent.kubernetes.resources import Json, condition, condition_of, dicts_in
from cluster_agent.kubernetes.targets import ELASTIC_TARGETS, ElasticTarget, StatedReason
from foundation.clocks import UnixClock
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
        allocation: the last change that was made; None where none was in this process's life.
    """

    workers: int
    limited: StatedReason | None = None
    resized: StatedReason | None = None
    is_resized: bool = False
    allocation: Json | None = None


class Adviser:
    """Writes recommendations.

    Args:
        may_write: asked before each write; whoever has lost its lease leaves the rest to another.
        on_unusable: is called with a target that cannot be used, and why, where its status does not say so yet.
    """

    def __init__(
        self,
        store: ApiServer,
        wall_clock: UnixClock,
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
        """Write what changed; returns the targets whose status could not be written, for the next time."""
        failed = []
        self._written = {job_id: seen for job_id, seen in self._written.items() if job_id in targets}
        for job_id, target in targets.items():
            member, problem = observed.members.get(job_id), observed.left_out.get(job_id, "")
            if problem:
                unusable = _condition(READY, False, StatedReason(Reason.NOT_USABLE, problem))
                content = {"recommendation": None, "conditions": [unusable]}
            elif member is not None:
                content = _content_of(member, decision.of(job_id).workers, (outcomes or {}).get(job_id))
            else:
                continue  # it came after the decision
            if self._written.get(job_id) == (target.uid, target.generation, content):
                continue
            if not self._may_write():
                failed.append(job_id)
                continue
            try:
                self._write(target, content)
            except NotFound:  # deleted meanwhile
                continue
            except ApiError as error:
                failed.append(job_id)
                _log.warning("advice-not-written", target=job_id, error=plain_line(str(error)))
            else:
                self._written[job_id] = (target.uid, target.generation, content)
                if problem and job_id not in observed.over and not _stands(target, problem):
                    self._on_unusable(target, problem)
        return failed

    def _write(self, target: ElasticTarget, content: Json) -> None:
        now = whole_time(self._wall_clock())
        others = [each for each in dicts_in(target.status.get("conditions")) if each.get("type") not in _OURS]
        status: Json = {
            "observedGeneration": target.generation,
            "recommendation": content["recommendation"] and {**content["recommendation"], "time": now},
            "conditions": [
                *others,
                *(condition(target.status, each, now, target.generation) for each in content["conditions"]),
            ],
        }
        if content.get("allocation"):
            status["allocation"] = content["allocation"]
        # With the uid, a target that was made anew under this name is not written to.
        body = {"metadata": {"uid": target.uid}, "status": status}
        path = ELASTIC_TARGETS.path(target.namespace, target.name, "status")
        self._store.patch(path, body, ContentType.MERGE_PATCH)


def _stands(target: ElasticTarget, problem: str) -> bool:
    ready = condition_of(target.status, READY)
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


def _content_of(member: ObservedTarget, workers: int, outcome: TargetOutcome | None) -> Json:
    now = member.facts.workers if outcome is None else outcome.workers
    recommendation = {"workers": workers, "current": now, "message": advice(now, workers)}
    trouble = f"; progress: {member.reading.problem}" if member.reading is not None and member.reading.problem else ""
    ready = StatedReason(Reason.ADVISED, f"sizes are recommended, and not set{trouble}")
    if outcome is None:
        waits = pod_waits(member)
        limits = [_condition(LIMITED, True, waits)] if waits is not None else []
        return {"recommendation": recommendation, "conditions": [*limits, _condition(READY, True, ready)]}
    limited = outcome.limited or StatedReason(Reason.WITHIN_LIMITS, "no limit is in the way")
    conditions = [_condition(LIMITED, outcome.limited is not None, limited)]
    if outcome.resized is not None:
        ready = StatedReason(Reason.SET, f"sizes are set{trouble}")
        conditions.append(_condition(RESIZED, outcome.is_resized, outcome.resized))
    conditions.append(_condition(READY, True, ready))
    return {"recommendation": recommendation, "conditions": conditions, "allocation": outcome.allocation}


def _condition(kind: str, is_so: bool, why: StatedReason) -> tuple[str, bool, str, str]:
    return kind, is_so, str(why.reason), why.line
