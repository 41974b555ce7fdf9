"""Two real agents that call themselves by one name: both say so and schedule on, and the learner says so too."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from processes import ENDLESS, Fleet, Program, wait_until

from global_learner.policyctl.views import fleet_facts

pytestmark = pytest.mark.heavy


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


def says(program: Program, event: str) -> int:
    return program.output.read_text().count(event)


def test_two_agents_of_one_name_say_so_and_schedule_on(fleet: Fleet) -> None:
    learner = fleet.start_learner()
    agent = fleet.start_agent("north", episodes=ENDLESS, **fleet.learning())
    watch = fleet.watch()

    def north() -> dict[str, object]:
        (found,) = fleet_facts(watch.fleet())["clusters"] or [{"reported": False}]
        return dict(found)

    wait_until(lambda: north()["reported"] is True, "the first agent is heard")
    # From a copy of the first one's configuration, in which the state directory alone is another.
    copied = yaml.safe_load((fleet.folder / "north.yaml").read_text()) | {"state_dir": "copy"}
    config = fleet.folder / "copy.yaml"
    config.write_text(yaml.safe_dump(copied))
    fleet.programs.append(Program("cluster_agent.cli", "run", config, forked=True))
    copy = fleet.programs[-1]

    wait_until(lambda: north()["contested"] is True, "the learner notices")
    for program in (agent, copy):
        wait_until(lambda program=program: says(program, "name-contested") > 0, "both say so")
        assert says(program, "another agent calls itself north") >= 1
    assert says(learner, "cluster-name-contested") == 1
    incarnation = north()["incarnation"]
    decided = [len(fleet.decisions(name)) for name in ("north", "copy")]
    wait_until(
        lambda: all(
            len(fleet.decisions(name)) >= before + 50 for name, before in zip(("north", "copy"), decided, strict=True)
        ),
        "both schedule on",
    )
    assert isinstance(incarnation, int)
    assert north()["incarnation"] in range(incarnation, incarnation + 9), "and leave the name alone for a while"
    assert (agent.stop(), copy.stop()) == (0, 0)
