"""Replays in the compiled twin: a case that it covers, run to its end."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from policy_net.domain import PlacementEffect, SpeedModel
from policy_net.laboratory.simulation.admission import check_jobs_can_run
from policy_net.laboratory.simulation.case import Case, CompiledRun
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.kept import kept_for_the_latest
from policy_net.laboratory.workloads.workload import Workload
from policy_net.policy import SchedulerPolicy
from policy_net.set_policy.policy import SetPolicy
from policy_net.twin.library import library
from policy_net.twin.memory import Standing

_CHUNK = 256
"""Decisions between two looks at the outside: an interrupt, or a progress bar."""
_OUT_OF_MEMORY = 3


def run_compiled(
    workload: Workload,
    environment: Environment,
    policy: SchedulerPolicy,
    speeds: SpeedModel,
    effect: PlacementEffect | None = None,
    on_progress: Callable[[float], None] | None = None,
    *,
    keep_beliefs: bool = True,
) -> CompiledRun:
    """Run a case that is not `uncovered` to its end; the policy then believes what it has found out, if it is to.

    Raises:
        BadInput: a job of the workload can never run in this environment.
        MemoryError: there is too little of it.
    """
    _check(workload, environment, speeds)
    case = Case(workload, environment, policy, speeds, effect)
    standing = Standing()
    twin = library().twin_open(ctypes.byref(case.memory), ctypes.byref(standing))
    if not twin:
        raise MemoryError("no memory for a simulation")
    try:
        while standing.status == 0:
            library().twin_advance(twin, _CHUNK)
            if on_progress is not None:
                on_progress(standing.ended_jobs / len(workload.jobs))
    finally:
        library().twin_close(twin)
    if standing.status == _OUT_OF_MEMORY:
        raise case.failure()
    if keep_beliefs:
        if isinstance(policy, SetPolicy):
            policy.decision_index += standing.decisions
        case.keep_beliefs()
    return case.result(standing)


@kept_for_the_latest
def _check(workload: Workload, environment: Environment, speeds: SpeedModel) -> None:
    grids = {name: speeds.grid(name).tolist() for name in {spec.job_type for spec in workload.jobs}}
    check_jobs_can_run(workload, environment, grids)
