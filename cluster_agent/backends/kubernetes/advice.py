"""Advice: what a decision would have given each target, written into its status, and nothing else.

A status is written only where it says something new, so that a calm cluster costs no calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import structlog

from cluster_agent.backends.kubernetes.observation import Member, Observed
from cluster_agent.kubernetes.api_server import ContentType, Json, Query, whole_time
from cluster_agent.kubernetes.errors import ApiError, NotFound
from cluster_agent.kubernetes.targets.elastic_target import ELASTIC_TARGETS, ElasticTarget
from foundation.text import plain_line
from policy_net.domain import Decision

_log = structlog.get_logger()

_READY = "Ready"


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
    """

    def __init__(
        self, store: StatusStore, wall_clock: Callable[[], float], may_write: Callable[[], bool] = lambda: True
    ) -> None:
        self._store, self._may_write = store, may_write
        self._wall_clock = wall_clock
        self._written: dict[str, tuple[str, int, Json]] = {}

    def advise(self, observed: Observed, decision: Decision, targets: Mapping[str, ElasticTarget]) -> list[str]:
        """Write what changed; the targets whose status could not be written, which is tried again next time."""
        failed = []
        self._written = {job_id: seen for job_id, seen in self._written.items() if job_id in targets}
        for job_id, target in targets.items():
            member, problem = observed.members.get(job_id), observed.left_out.get(job_id, "")
            if problem:
                said = self._refusal(problem)
            elif member is not None:
                said = _recommendation(member, decision.of(job_id).workers)
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
        return failed

    @staticmethod
    def _refusal(line: str) -> Json:
        return {"recommendation": None, "condition": {"status": "False", "reason": "NotUsable", "message": line}}

    def _write(self, target: ElasticTarget, said: Json) -> None:
        now = whole_time(self._wall_clock())
        condition: Json = {"type": _READY, "observedGeneration": target.generation, **said["condition"]}
        before = next((each for each in _conditions(target) if each.get("type") == _READY), {})
        same = before.get("status") == condition["status"]
        condition["lastTransitionTime"] = before.get("lastTransitionTime", now) if same else now
        others = [each for each in _conditions(target) if each.get("type") != _READY]
        status: dict[str, Any] = {
            "observedGeneration": target.generation,
            "recommendation": said["recommendation"] and {**said["recommendation"], "time": now},
            "conditions": [*others, condition],
        }
        # With the uid, a target that was made anew under this name is not written to.
        body = {"metadata": {"uid": target.uid}, "status": status}
        path = ELASTIC_TARGETS.path(target.namespace, target.name, "status")
        self._store.patch(path, body, ContentType.MERGE_PATCH)


def _conditions(target: ElasticTarget) -> list[Json]:
    found = target.status.get("conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _recommendation(member: Member, workers: int) -> Json:
    now = member.facts.workers
    if workers == now:
        line = "as it is"
    elif not workers:
        line = f"wait: others get more done with what its {now} workers have" if now else "wait"
    elif not now:
        line = f"start with {workers}"
    else:
        line = f"{'more' if workers > now else 'fewer'}: {workers} rather than {now}"
    recommendation = {"workers": workers, "current": now, "message": line}
    message = "sizes are recommended, and not set"
    if member.reading is not None and member.reading.problem:
        message += f"; progress: {member.reading.problem}"
    condition = {"status": "True", "reason": "Advised", "message": message}
    return {"recommendation": recommendation, "condition": condition}
