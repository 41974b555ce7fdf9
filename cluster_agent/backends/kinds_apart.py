"""Renaming of a type that jobs of both kinds have, so that their speeds do not mix; all else is the backend's own.

The kind that a type has first keeps its name; what this agent has measured says it also after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from cluster_agent.backends.base import Backend, BackendStatus
from policy_net.domain import ClusterState, Decision, Job, JobKind, Progress, Trigger
from policy_net.throughput.kinds_apart import measured_kinds, type_of_kind
from policy_net.throughput.parametric import OnlineFit

_log = structlog.get_logger()


class KindsApart(Backend):
    """A backend that gives jobs of one type but of two kinds two types; see `policy_net.throughput.kinds_apart`.

    Args:
        backend: what it is about.
        beliefs: of the agent: of what was measured they know the kind.
    """

    def __init__(self, backend: Backend, beliefs: OnlineFit) -> None:
        self._backend = backend
        self._measured = measured_kinds(beliefs)
        self._kinds: dict[str, JobKind] = {}
        self._renamed: dict[str, str] = {}
        self._reported: set[str] = set()

    @property
    def finished(self) -> bool:
        """See `Backend`."""
        return self._backend.finished

    @property
    def time_seconds(self) -> float:
        """See `Backend`."""
        return self._backend.time_seconds

    @property
    def baseline_policy(self) -> str:
        """See `Backend`."""
        return self._backend.baseline_policy

    @property
    def job_types(self) -> Sequence[str]:
        """Those of the backend, and those that it does not know of."""
        return list(dict.fromkeys([*self._backend.job_types, *self._reported]))

    @property
    def not_ready(self) -> str:
        """See `Backend`."""
        return self._backend.not_ready

    def start(self) -> None:
        """See `Backend`."""
        self._backend.start()

    def observe(self) -> tuple[ClusterState, Trigger] | None:
        """See `Backend`."""
        observed = self._backend.observe()
        if observed is None:
            return None
        state, trigger = observed
        self._renamed = {job.job_id: name for job in state.jobs if (name := self._name(job, state)) != job.job_type}
        if self._renamed:
            jobs = tuple(replace(job, job_type=self._renamed.get(job.job_id, job.job_type)) for job in state.jobs)
            state = replace(state, jobs=jobs)
        return state, trigger

    def apply(self, decision: Decision) -> list[Progress]:
        """See `Backend`."""
        progress = self._backend.apply(decision)
        if not self._renamed:
            return progress
        return [replace(entry, job_type=self._renamed.get(entry.job_id, entry.job_type)) for entry in progress]

    def status(self) -> BackendStatus:
        """See `Backend`."""
        return self._backend.status()

    def close(self) -> None:
        """See `Backend`."""
        self._backend.close()

    def _name(self, job: Job, state: ClusterState) -> str:
        def given() -> set[str]:
            return {*self._backend.job_types, *(each.job_type for each in state.jobs)}

        name = type_of_kind(job.job_type, job.kind, self._kind_of, given)
        self._kinds.setdefault(name, job.kind)
        if name != job.job_type and name not in self._reported:
            self._reported.add(name)
            _log.info("kinds-apart", type=job.job_type, kind=job.kind.value, known_as=name)
        return name

    def _kind_of(self, job_type: str) -> JobKind | None:
        return self._measured(job_type) or self._kinds.get(job_type)
