"""Logs for tests of imitation: a scheduler that is watched, and the lines that its operator would write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import policy_net.baselines  # noqa: F401  (registers the schedulers)
from policy_net.domain import PolicyContext
from policy_net.laboratory.logged import LoggedDecision
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.imitation import watch
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadOptions
from policy_net.policy import build_policy

NODES = 10


@cache
def watched(name: str, seeds: tuple[int, ...] = (1,), jobs: int = 40) -> tuple[LoggedDecision, ...]:
    """A scheduler's decisions on generated workloads, one after another."""
    speeds = default_speeds()
    teacher = build_policy(name, PolicyContext())
    seen: list[LoggedDecision] = []
    for seed in seeds:
        source = f"dl2:jobs={jobs},mix=resnet-50+wlm+dssm+inception-bn,sizes=varied,seed={seed}"
        workload = load_workload(source, WorkloadOptions(speeds=speeds))
        seen += watch(teacher, workload, Environment(nodes=NODES, speed_noise=0.1), speeds)
    return tuple(seen)


def plain_line(decision: LoggedDecision, *, first: bool) -> dict[str, object]:
    """What an operator's script would write of one decision; jobs count work in samples."""
    jobs = [
        {
            "id": job.job_id,
            "type": job.job_type,
            "kind": job.kind.value,
            "workers": decision.of(job.job_id).workers,
            "ps": decision.of(job.job_id).ps,
            "remaining": job.remaining_epochs * job.samples_per_epoch,
            "total": job.total_epochs * job.samples_per_epoch,
            "submit_s": job.submit_time_seconds,
            "requested_workers": job.requested.workers,
            "requested_ps": job.requested.ps,
            "worker": {"cpus": job.worker_demand.cpu_milli / 1000, "gpus": job.worker_demand.gpu},
            "server": {"cpus": job.ps_demand.cpu_milli / 1000},
        }
        for job in decision.state.jobs
    ]
    nodes = {"nodes": [{"count": NODES, "cpus": 8, "gpus": 2}]} if first else {}
    return {"time_s": decision.state.time_seconds, **nodes, "jobs": jobs}


def write_plain(path: Path, decisions: Sequence[LoggedDecision]) -> Path:
    """A plain log."""
    lines = [json.dumps(plain_line(decision, first=number == 0)) for number, decision in enumerate(decisions)]
    path.write_text("\n".join(lines) + "\n")
    return path
