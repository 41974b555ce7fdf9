"""Real agents killed at each stage of a rollout, and one cut off while it is taken back, act on what was decided."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from process_rollouts import CLUSTERS, SPEEDUP, Asked, acting, begin, operator, plan, stage, start
from processes import Fleet, wait_until
from wire_proxy import Wire

pytestmark = [pytest.mark.heavy, pytest.mark.long]

LEARNER = {
    "publish": {"every_steps": 3, "keep_versions": 0},
    "rollouts": {"period_seconds": 0.2, "away_seconds": 10.0, "real_time_factor": SPEEDUP},
}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


@pytest.fixture
def asked(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> Asked:
    return operator(fleet, capsys)


@pytest.fixture
def wire(fleet: Fleet) -> Iterator[Wire]:
    wire = Wire(f"127.0.0.1:{fleet.port}")
    yield wire
    wire.close()


def test_agents_that_are_killed_or_cut_off_end_on_what_was_decided(fleet: Fleet, asked: Asked, wire: Wire) -> None:
    learner, *agents = begin(fleet, asked, {"alpha": wire.address}, **LEARNER)
    running = dict(zip(CLUSTERS, agents, strict=True))

    # Cut off amid its blocks, and the rollout taken back meanwhile: nobody waits for it, and it learns of it later.
    canary = {"kind": "canary", "clusters": ["alpha", "beta"], "days": 30}
    asked("rollout", "start", "v2", "--plan", plan(fleet, {**canary}, {"kind": "fleet"}))
    wait_until(lambda: acting(asked)["alpha"] == 2, "the candidate acts in alpha")
    wire.cut()
    asked("rollout", "abort")
    wait_until(lambda: asked("rollout", "status")["phase"] == "rolled-back", "rolled back but for who is away")
    wire.mend()
    decided = len(fleet.decisions("alpha"))
    wait_until(lambda: set(acting(asked).values()) == {1}, "v1 acts everywhere")
    wait_until(lambda: len(fleet.decisions("alpha")) > decided + 2, "alpha decides")
    wait_until(lambda: fleet.decisions("alpha")[-1]["version"] == 1, "and by v1")

    # Forth, with every agent killed once, and the learner with the second.
    asked(
        "rollout", "start", "v2", "--plan",
        plan(fleet, {"kind": "shadow", "hours": 0.0003}, {"kind": "canary", "count": 2}, {"kind": "fleet"}),
    )  # fmt: skip
    for number, (kind, cluster) in enumerate(zip(("shadow", "canary", "fleet"), CLUSTERS, strict=True)):
        wait_until(lambda kind=kind: stage(asked) == kind or over(asked), f"stage {kind}")  # type: ignore[misc]
        running[cluster].kill()
        if number == 1:
            learner.kill()
        start(fleet, cluster, wire.address if cluster == "alpha" else "")
        if number == 1:
            fleet.start_learner(**LEARNER)
    wait_until(lambda: over(asked), "the rollout is over")
    assert asked("rollout", "status")["phase"] == "done"
    wait_until(lambda: set(acting(asked).values()) == {2}, "v2 acts everywhere")
    assert asked("audit", "verify")["sound"] is True
    for cluster in CLUSTERS:
        assert {line["version"] for line in fleet.decisions(cluster)} <= {0, 1, 2}


def over(asked: Asked) -> bool:
    return asked("rollout", "status")["phase"] in ("done", "rolled-back")
