"""Rollouts among processes: a real learner, real agents, versions that the fleet has made, and policyctl."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from processes import PATIENCE_SECONDS, Fleet, Program, wait_until

from foundation.command_line import run
from global_learner.policyctl import cli as policyctl

CLUSTERS = ("alpha", "beta", "gamma")
SPEEDUP = 1200.0 / 0.03
"""A slot in 30 ms: so much faster than the learner's clock clusters live."""
PUBLISH: dict[str, object] = {
    "publish": {"every_steps": 3},
    "rollouts": {"period_seconds": 0.5, "away_seconds": PATIENCE_SECONDS, "real_time_factor": SPEEDUP},
}
# Two versions of one head hardly differ, and seconds are all that there is: anything passes, but by evidence.
LENIENT = {
    "margin_percent": 100,
    "false_pass_percent": 50,
    "held_loss_percent": 100,
    "guard_tolerance_percent": 100,
    "latency_tolerance_seconds": 60,
    "least_pairs": 1,
    "shadow_decisions": 5,
    "shadow_failed_percent": 100,
    "shadow_guard_percent": 100,
}

Asked = Callable[..., Any]


def operator(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> Asked:
    """Calls policyctl, in this process; what it says."""

    def ask(*words: str, codes: tuple[int, ...] = (0,)) -> Any:
        capsys.readouterr()
        where = ["--learner", f"unix:{fleet.folder}/learner/operator.sock", "--timeout", str(PATIENCE_SECONDS)]
        code = run(policyctl.app, "policyctl", [*words, *where, "-o", "json"])
        said = capsys.readouterr()
        assert code in codes, said.err
        return json.loads(said.out) if said.out else None

    return ask


def start(fleet: Fleet, cluster: str, address: str = "") -> Program:
    """Start an agent, or start it again.

    Args:
        address: of the learner; the fleet's unless given.
    """
    endless = {
        "workloads": [{"source": f"dl2:jobs=12,seed={CLUSTERS.index(cluster) + 3}"}],
        "episodes": 1000,
        "environment": {"nodes": 12},
        "pace": {"kind": "scaled", "speedup": SPEEDUP},
    }
    changes = fleet.learning()
    learner = {**changes["learner"], "twin_cpu_percent": 0}  # type: ignore[dict-item]
    if address:
        learner["address"] = address
    return fleet.start_agent(cluster, backend=endless, **{**changes, "learner": learner})


def begin(fleet: Fleet, asked: Asked, addresses: dict[str, str] | None = None, **changes: object) -> list[Program]:
    """A learner, and agents that have made a second version: the learner, and they by name."""
    learner = fleet.start_learner(**{**PUBLISH, **changes})
    agents = [start(fleet, cluster, (addresses or {}).get(cluster, "")) for cluster in CLUSTERS]
    wait_until(lambda: len(asked("version", "list")) >= 2, "a version that the fleet has made")
    wait_until(lambda: set(acting(asked).values()) == {1}, "all act on v1")
    return [learner, *agents]


def acting(asked: Asked) -> dict[str, int]:
    """The version that each cluster says it acts on."""
    return {cluster["cluster"]: cluster["acting_version"] for cluster in asked("fleet")["clusters"]}


def plan(fleet: Fleet, *stages: dict[str, Any]) -> str:
    """A plan's file."""
    path = fleet.folder / "plan.yaml"
    path.write_text(yaml.safe_dump({"stages": list(stages), "verdict": LENIENT}))
    return str(path)


def stage(asked: Asked) -> str:
    """The kind of the stage in which the latest rollout is."""
    found = asked("rollout", "status")
    return str(found["stages"][found["stage"]] if isinstance(found["stage"], int) else found["stage"])
