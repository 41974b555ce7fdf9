"""Real agents tell a real learner what they see of speeds; either may be killed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import Fleet, Program, wait_until

from cluster_agent.recording.memory import MEMORY
from global_learner.beliefs.belief_store import BeliefStore
from global_learner.section_settings import BeliefSettings
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.throughput.parametric import OnlineFit

pytestmark = pytest.mark.heavy

SLOWLY_SECONDS = 0.12
VERY_SLOWLY_SECONDS = 0.4
"""A slot where programs are killed meanwhile: jobs must not be done before, even on a busy machine."""
JOBS = 12


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


def start(fleet: Fleet, cluster: str, **changes: object) -> Program:
    settings: dict[str, Any] = {**fleet.learning(), "sharing": {"every_seconds": 0.05}, **changes}
    settings["policy"] = {"initial": "drf", "acting": "local"}
    return fleet.start_agent(cluster, **{"slot_wall_seconds": SLOWLY_SECONDS, **settings})


def reported(fleet: Fleet) -> dict[str, tuple[SpeedStatistic, ...]]:
    folder = fleet.folder / "learner"
    if not (folder / "beliefs.sqlite").exists():
        return {}
    book = BeliefStore(folder, BeliefSettings())
    try:
        return book.reports(lambda cluster, at: True)
    finally:
        book.close()


def observations(fleet: Fleet, cluster: str) -> int:
    return sum(entry.count for entry in reported(fleet).get(cluster, ()))


def on_disk(fleet: Fleet, cluster: str) -> int:
    """Observations that the agent keeps."""
    beliefs = OnlineFit()
    beliefs.restore(json.loads((fleet.folder / cluster / MEMORY).read_text())["beliefs"])
    return sum(entry.count for entry in beliefs.statistics())


def test_whoever_is_killed_every_observation_is_told_once(fleet: Fleet) -> None:
    learner = fleet.start_learner()
    undisturbed = start(fleet, "beta", slot_wall_seconds=0.0001)
    assert undisturbed.ended() == 0
    agent = start(fleet, "alpha", slot_wall_seconds=VERY_SLOWLY_SECONDS)
    wait_until(lambda: observations(fleet, "alpha") >= 20, "observations told")
    agent.kill()
    kept = on_disk(fleet, "alpha")
    agent = start(fleet, "alpha", slot_wall_seconds=VERY_SLOWLY_SECONDS)
    wait_until(lambda: observations(fleet, "alpha") >= kept + 5, "more of them")
    learner.kill()
    assert observations(fleet, "alpha") >= kept + 5, "what was acknowledged is on disk"
    kept = on_disk(fleet, "alpha")
    wait_until(lambda: on_disk(fleet, "alpha") > kept, "it sees more while nobody hears it")
    agent.kill()
    fleet.start_learner()
    assert start(fleet, "alpha", slot_wall_seconds=0.0001).ended() == 0  # nobody has to be in time for this life
    # None twice; and each kill cost at most the interval that was under way, of at most all jobs.
    everything = observations(fleet, "beta")
    assert everything - 2 * JOBS <= observations(fleet, "alpha") <= everything


def test_what_was_told_is_taken_back_when_sharing_is_turned_off(fleet: Fleet) -> None:
    fleet.start_learner()
    agent = start(fleet, "alpha")
    wait_until(lambda: observations(fleet, "alpha") >= 5, "observations told")
    assert agent.stop() == 0
    agent = start(fleet, "alpha", sharing={"enabled": False})
    wait_until(lambda: reported(fleet) == {"alpha": ()}, "the report taken back")
    assert agent.stop() == 0
    assert on_disk(fleet, "alpha") >= 5, "the agent still knows"
