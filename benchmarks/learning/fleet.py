"""One training run: a learner and four agents as processes of their own, until the head has taken enough steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.learning.worlds import ARRIVAL_SCALE, NODES, PUSHING, SILENT, source
from deploy.demonstration.frame import LearnerWatch
from deploy.demonstration.processes import Processes
from global_learner.storage.receipts import audit, read_receipts
from policy_net.exchange.policy_file import PolicyFile, read_policy_file

DEADLINE_SECONDS = 300.0
"""A run that takes longer has failed."""

POLL_SECONDS = 0.25
EPISODES = 60
"""Workloads a cluster could live through, each with a seed of its own; a run ends after a handful of them."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What distinguishes one run from another.

    Attributes:
        updates: head steps after which the run ends.
        permute_rewards: the control: rewards are dealt out anew among the decisions of a segment.
    """

    seed: int
    updates: int
    learning_rate: float
    permute_rewards: bool = False


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run left: the last published version, and the updates counted in the learner's log."""

    final: PolicyFile
    updates: int
    seconds: float


def run_fleet(folder: Path, v1: Path, settings: RunSettings, on_step: Callable[[int], None]) -> RunResult:
    """Train from `v1` in `folder`, which must be empty.

    Raises:
        DemoFailed: a process ended with an error.
        TimeoutError: the head did not take the steps in time.
    """
    folder.mkdir(parents=True)
    began = time.monotonic()
    with Processes(folder) as processes:
        address = f"127.0.0.1:{processes.port()}"
        _write_learner(folder, v1, address, settings)
        processes.start("learner", "global_learner.cli", ["serve", "--config", str(folder / "learner.yaml")])
        for number, (name, mix) in enumerate({**PUSHING, **SILENT}.items()):
            config = _write_agent(folder, name, mix, address, settings, number)
            processes.start(name, "benchmarks.with_constants", ["cluster_agent.cli", "run", "--config", str(config)])
        watch = LearnerWatch(address)
        try:
            _wait_for_steps(watch, processes, settings.updates, on_step)
            processes.stop([*PUSHING, *SILENT])
            last = watch.versions()[-1]
            final = watch.policy(last.version)
        finally:
            watch.close()
    spec_digest = read_policy_file(v1).spec.digest
    counted = audit(read_receipts(folder / "state", spec_digest))
    if any(cluster in SILENT for cluster, _ in counted):
        raise RuntimeError("the silent cluster has pushed: it was to take part without")
    return RunResult(final, sum(counted.values()), time.monotonic() - began)


def _wait_for_steps(watch: LearnerWatch, processes: Processes, steps: int, on_step: Callable[[int], None]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    head = 0
    while head < steps:
        processes.check()
        now = watch.now()
        if now is not None:
            head = now.head_step
            on_step(min(head, steps))
        if time.monotonic() > deadline:
            raise TimeoutError(f"{head} of {steps} updates in {DEADLINE_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def _write_learner(folder: Path, v1: Path, address: str, settings: RunSettings) -> None:
    content = {
        "state_dir": "state",
        "initial_policy": str(v1.resolve()),
        "listen": address,
        "optimizer": {"units": "weights", "learning_rate": settings.learning_rate},
        "publish": {"every_steps": 20, "average_decay": 0.99, "auto_assign": True, "keep_versions": 4},
        "scores": {"enabled": False},
        "telemetry": {"http_listen": None, "log_level": "warning"},
    }
    (folder / "learner.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def _write_agent(folder: Path, name: str, mix: str, address: str, settings: RunSettings, number: int) -> Path:
    seed = 100_000 * (settings.seed + 11) + 10_000 * number
    content = {
        "cluster": name,
        "state_dir": name,
        "learner": {"address": address, "heartbeat_seconds": 0.5},
        "backend": {
            "kind": "simulated",
            "workloads": [{"source": source(mix), "seed": seed, "arrival_scale": ARRIVAL_SCALE}],
            "episodes": EPISODES,
            "environment": {"nodes": NODES},
            # A cluster that does not learn would otherwise run through its jobs at full speed, on the others' cores.
            "pace": {"kind": "lockstep"} if name in PUSHING else {"kind": "scaled", "speedup": 1200.0 * 20},
            "baseline": False,
        },
        "policy": {"mode": "sample", "exploration": 0.1, "seed": seed},
        "learning": {
            "enabled": name in PUSHING,
            "source": "live",
            "seed": seed,
            "permute_rewards": settings.permute_rewards,
        },
        "decision_log": {"enabled": False},
        "telemetry": {"log_level": "warning"},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path
