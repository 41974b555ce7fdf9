"""A fourth cluster joins a fleet of `set` clusters, and starts with what the three have seen: real processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE_SECONDS, Fleet, made_again, wait_until

from cluster_agent.recording.log_reading import CURRENT
from deploy.demonstration.frame import LearnerWatch
from policy_net.exchange.policy_file import PolicyFile, write_policy_file
from policy_net.exchange.statistics import statistics_digest
from policy_net.set_policy.policy import default_set_file

CLUSTERS = ("north", "south", "east")
ENOUGH_OBSERVATIONS = 100


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    shipped = default_set_file()
    write_policy_file(made.policy, PolicyFile(shipped.spec, shipped.weights, {}, ()))
    yield made
    made.close()


def start(fleet: Fleet, name: str, seed: int) -> None:
    """An agent that goes on until it is told to stop."""
    backend = {
        "workloads": [{"source": f"dl2:jobs=20,arrivals=google,sizes=varied,seed={seed}"}],
        "episodes": 1000,
        "environment": {"nodes": 8},
        "pace": {"kind": "lockstep", "patience_seconds": 0.5},
        "baseline": False,
    }
    changes: dict[str, Any] = fleet.learning() | {
        "backend": backend,
        "policy": {"mode": "sample", "exploration": 0.1},
        "learning": {"source": "live", "residual": {"segment_decisions": 5, "minimum_effective_samples": 4}},
        "sharing": {"every_seconds": 0.1},
    }
    fleet.start_agent(name, **changes)


class Newest:
    """The newest version, fetched once: a caller gets so many a minute."""

    def __init__(self, watch: LearnerWatch) -> None:
        self._watch = watch
        self._fetched: tuple[int, PolicyFile] | None = None

    def __call__(self) -> tuple[int, PolicyFile]:
        now = self._watch.now()
        version = 1 if now is None else now.latest_version
        if self._fetched is None or self._fetched[0] != version:
            self._fetched = version, self._watch.policy(version)
        return self._fetched


@pytest.mark.heavy
def test_a_fourth_cluster_starts_with_what_three_have_seen(fleet: Fleet) -> None:
    fleet.start_learner(publish={"every_steps": 4, "auto_assign": True}, optimizer={"units": "weights"})
    for seed, name in enumerate(CLUSTERS):
        start(fleet, name, seed)
    watch = fleet.watch()
    newest = Newest(watch)
    try:

        def informed() -> bool:
            priors = newest()[1].card.get("priors", {})
            return priors.get("clusters") == len(CLUSTERS) and priors["observations"] >= ENOUGH_OBSERVATIONS

        wait_until(informed, "a version with the priors of three clusters", PATIENCE_SECONDS)
        version, file = newest()
        start(fleet, "west", 9)
        wait_until(lambda: len(fleet.decisions("west")) >= 5, "decisions of the fourth", PATIENCE_SECONDS)
    finally:
        watch.close()
    assert file.card["priors"]["digest"] == statistics_digest(file.priors)
    first = fleet.decisions("west")[0]
    assert first["version"] >= version, "its very first decision is by a version with priors"
    fleet.programs[-1].kill()  # kill -9 amid its work, and again
    start(fleet, "west", 9)
    before = len(fleet.decisions("west"))
    wait_until(lambda: len(fleet.decisions("west")) >= before + 3, "decisions after the kill", PATIENCE_SECONDS)
    learner, *agents = fleet.programs
    for program in agents:
        if program.process.poll() is None:
            assert program.stop() == 0, program.output.read_text()[-2000:]
    assert learner.stop() == 0
    for name in ("north", "west"):
        replayed = made_again(fleet.folder / name / CURRENT)
        assert replayed["decisions"] > 0
        assert replayed["different"] == 0, "what was believed, priors less one's own part included, is made again"
