"""One training run: a learner and nine agents as processes of their own, until the head has taken enough steps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import yaml

from benchmarks import with_constants
from benchmarks.learning.worlds import BAD, JOBS, NODES, PUSHING, SILENT, past
from cluster_agent.learning.twin_lesson import TwinAnswer
from deploy.demonstration.frame import LearnerWatch
from deploy.demonstration.processes import Processes
from global_learner.storage.receipts import audit, read_receipts
from policy_net.exchange.policy_file import PolicyFile, read_policy_file
from policy_net.exchange.spec import Weights, WeightSpec

LONGEST_SECONDS_PER_UPDATE, LONGEST_SECONDS = 20.0, 120.0
"""A run that takes longer than its updates and its beginning may has failed."""
POLL_SECONDS = 0.25
SPEEDUP = 60.0
"""The clusters decide meanwhile, a minute in a second: an agent teaches once it has decided something."""
ATTACKS = ("noise", "opposite")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What distinguishes one run from another.

    Attributes:
        updates: head steps after which the run ends.
        attack: what the bad cluster sends: noise of its gradient's norm, or its gradient's opposite.
        aggregation: the learner's mode.
        optimizer: what of the learner's optimizer is set; the rest is what ships.
        permute: the control: advantages are dealt out anew within a lesson.
    """

    seed: int
    updates: int
    attack: str | None = None
    aggregation: str = "async"
    optimizer: tuple[tuple[str, float], ...] = ()
    permute: bool = False


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run left: the last published version, and the updates that the learner's log has of each cluster."""

    final: PolicyFile
    updates: dict[str, int]
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
        watch = LearnerWatch(f"unix:{folder.resolve() / 'state' / 'operator.sock'}")
        try:
            _wait_for_steps(watch, processes, 0, on_step)
            for number, (name, mix) in enumerate({**PUSHING, **SILENT}.items()):
                config = _write_agent(folder, name, mix, address, settings, number)
                attack = settings.attack if name == BAD and settings.attack else "none"
                processes.start(name, "benchmarks.learning.fleet", [attack, "run", "--config", str(config)])
            _wait_for_steps(watch, processes, settings.updates, on_step)
            processes.stop([*PUSHING, *SILENT])
            final = watch.policy(watch.versions()[-1].version)
        finally:
            watch.close()
    counted = audit(read_receipts(folder / "state", read_policy_file(v1).spec.digest))
    updates: dict[str, int] = {}
    for (cluster, _), count in counted.items():
        updates[cluster] = updates.get(cluster, 0) + count
    if not SILENT.keys().isdisjoint(updates):
        raise RuntimeError("the silent cluster has pushed: it was to take part without")
    if settings.attack and BAD not in updates:
        raise RuntimeError(f"{BAD} has pushed nothing: it was to send {settings.attack}")
    return RunResult(final, updates, time.monotonic() - began)


def _wait_for_steps(watch: LearnerWatch, processes: Processes, steps: int, on_step: Callable[[int], None]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS + LONGEST_SECONDS_PER_UPDATE * steps
    head = 0
    while True:
        processes.check()
        now = watch.now()
        if now is not None:
            head = now.head_step
            on_step(min(head, steps))
            if head >= steps:
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{head} of {steps} updates in time")
        time.sleep(POLL_SECONDS)


def _write_learner(folder: Path, v1: Path, address: str, settings: RunSettings) -> None:
    content = {
        "state_dir": "state",
        "initial_policy": str(v1.resolve()),
        "listen": address,
        "optimizer": dict(settings.optimizer),
        "aggregation": {"mode": settings.aggregation},
        "publish": {"every_steps": max(1, settings.updates // 20), "auto_assign": True, "keep_versions": 4},
        "scores": {"enabled": False},
        "telemetry": {"http_listen": None, "log_level": "warning"},
    }
    (folder / "learner.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def _write_agent(folder: Path, name: str, mix: str, address: str, settings: RunSettings, number: int) -> Path:
    recordings = past(mix, 100_000 * (settings.seed + 11) + 10_000 * number)
    content = {
        "cluster": name,
        "state_dir": name,
        "learner": {"address": address, "heartbeat_seconds": 0.5},
        "backend": {
            "kind": "simulated",
            "workloads": [{"source": each} for each in recordings],
            "environment": {"nodes": NODES},
            "pace": {"kind": "scaled", "speedup": SPEEDUP},
            "baseline": False,
        },
        "learning": {
            "enabled": name in PUSHING,
            "source": "twin",
            "permute_rewards": settings.permute,
            "twin": {
                "history": recordings,
                "job_kind": "ps",
                "work_known": True,
                "window_jobs": JOBS,
                "cpu_percent": 100,
            },
        },
        "telemetry": {"log_level": "warning"},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def run_agent() -> None:
    """`python -m benchmarks.learning.fleet ATTACK ARGUMENTS…`: an agent that sends what the attack says.

    Its configuration may hold constants.
    """
    attack = sys.argv.pop(1)
    read, generator = TwinAnswer.from_line, np.random.default_rng(0)

    def bad(line: bytes, spec: WeightSpec) -> TwinAnswer:
        answer = read(line, spec)
        if answer.result is None:
            return answer
        return replace(
            answer, result=replace(answer.result, gradient=attacked(answer.result.gradient, attack, generator))
        )

    if attack in ATTACKS:
        TwinAnswer.from_line = bad  # type: ignore[method-assign]
    sys.argv.insert(1, "cluster_agent.cli")
    with_constants.main()


def attacked(gradient: Weights, attack: str, generator: np.random.Generator) -> Weights:
    """What a bad cluster sends in its gradient's place."""
    if attack == "opposite":
        return -gradient
    noise = generator.standard_normal(len(gradient), dtype=np.float32)
    return np.asarray(noise * np.float32(np.linalg.norm(gradient) / np.linalg.norm(noise)))


if __name__ == "__main__":
    run_agent()
