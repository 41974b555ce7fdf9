"""The backend interface: all that an agent needs of a cluster, and how the configured kind of backend is opened.

The loop knows nothing else of a cluster. Every implementation passes the suite in `tests/contracts`. A kind's module is
imported when a configuration names it and not before: an agent of a live cluster never loads the simulator.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, cast

from cluster_agent.backend_settings import BackendSettings
from policy_net.domain import ClusterState, Decision, Progress, Trigger

if TYPE_CHECKING:
    from cluster_agent.recording.load_history import LoadCurve
    from cluster_agent.telemetry import AgentTelemetry

Wait = Callable[[float], bool]
"""Waits up to so many seconds; True at once when the agent is to stop."""

_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "kubernetes": "cluster_agent.backends.kubernetes.backend",
        "local": "cluster_agent.backends.local.backend",
        "simulated": "cluster_agent.backends.simulated.backend",
    }
)
"""Where each kind of backend is; its module implements `BackendModule`."""


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """How a cluster's jobs stand.

    Attributes:
        jobs_total: 0 where it is not known.
        avg_jct_seconds: of the jobs done so far; 0 before the first.
        baseline_jct_seconds: the fallback's, on the same jobs; 0 where it is not known.
        load: over the cluster's own time, as it ran and under other schedulers; empty where the backend keeps none.
        baselines: scheduler to the average JCT of the jobs done so far, where it is known; the fallback is among them.
    """

    time_seconds: float
    jobs_running: int
    jobs_waiting: int
    jobs_done: int
    jobs_total: int
    avg_jct_seconds: float
    baseline_jct_seconds: float = 0.0
    simulated: bool = False
    load: tuple[LoadCurve, ...] = ()
    baselines: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


class Backend(Protocol):
    """A cluster: says how things stand when a decision is due, and carries decisions out."""

    @property
    def finished(self) -> bool:
        """Whether no decision will ever be due again; a live cluster never finishes."""
        ...

    @property
    def time_seconds(self) -> float:
        """The cluster's clock, in the same time as the states' `time_seconds`."""
        ...

    @property
    def baseline_policy(self) -> str:
        """The policy whose average JCT the status has as `baseline_jct_seconds`; empty where there is none."""
        return ""

    @property
    def job_types(self) -> Sequence[str]:
        """The job types seen so far, in order of appearance."""
        ...

    @property
    def not_ready(self) -> str:
        """Why no decision could be taken now, in a line; empty where one could. May be asked from any thread."""
        return ""

    def start(self) -> None:
        """Begin what runs beside the decisions, if anything; called once, before the first is asked for."""
        ...

    def observe(self) -> tuple[ClusterState, Trigger] | None:
        """Wait until a decision is due and say for what; None when the agent is to stop, or nothing is due any more.

        Asked twice without `apply` in between, it answers the same.

        Raises:
            BackendUnavailable: the cluster does not answer.
        """
        ...

    def apply(self, decision: Decision) -> list[Progress]:
        """Place and carry out; returns once the next decision is due (or nothing is), with what every job did.

        Raises:
            InvalidAllocation: the decision does not fit what was observed; nothing has changed.
            BackendUnavailable: the cluster does not answer.
        """
        ...

    def status(self) -> BackendStatus:
        """How the jobs stand now; may be called from any thread."""
        ...

    def close(self) -> None:
        """Let go of what is held; the jobs stay as they are."""
        ...


class Backlog(Protocol):
    """The experience that waits for the trainer; a simulated clock may wait for it in turn."""

    @property
    def waiting(self) -> int:
        """Decisions that have not been learned from yet."""
        ...

    @property
    def worked_off(self) -> int:
        """Decisions that have; only ever rises."""
        ...


def _new_telemetry() -> AgentTelemetry:
    # Loaded here: a configuration that names a backend is checked without what counts and logs.
    from cluster_agent.telemetry import AgentTelemetry  # noqa: PLC0415

    return AgentTelemetry()


@dataclass(frozen=True, slots=True)
class AgentParts:
    """Parts of an agent that a backend may use.

    Attributes:
        state_dir: where it may keep files of its own.
        fallback: the name of the scheduler that decides in a faulty policy's place.
        backlog: None where nothing is learned.
        wait: for the thread of decisions alone, which is known by it to go on.
        twin_waiting: how many questions the twin has not answered yet; None without a twin.
    """

    state_dir: Path
    fallback: str
    backlog: Backlog | None
    wait: Wait
    clock: Callable[[], float]
    telemetry: AgentTelemetry = field(default_factory=_new_telemetry)
    twin_waiting: Callable[[], int] | None = None


class BackendModule(Protocol):
    """The module of one kind of backend."""

    def resolve_paths(self, settings: BackendSettings, folder: Path) -> BackendSettings:
        """The settings with relative paths taken from the folder."""
        ...

    def open_backend(self, settings: BackendSettings, parts: AgentParts) -> Backend:
        """Open the backend; nothing runs yet.

        Raises:
            BadConfig, BadInput, StateDamaged: something that it needs cannot be used.
        """
        ...


def backend_module(kind: str) -> BackendModule:
    """The module of a kind, imported now."""
    return cast(BackendModule, importlib.import_module(_MODULES[kind]))
