"""An agent through a rollout and back: shadow, alternating, candidate, incumbent; killed, cut off, lied to."""

import json
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import Clock
from assignment_worlds import (
    BLOCK_SECONDS,
    CLUSTER,
    EXPIRES,
    RolloutLearner,
    SimulatedAgent,
    alternating,
    shadow,
)
from log_worlds import replayed

from cluster_agent.recording.log_reading import CURRENT, read_log
from cluster_agent.rollout.assignment_state import ROLLOUT
from policy_net.exchange.rollout_assignment import candidate_acts


class World:
    def __init__(self, folder: Path) -> None:
        self.folder, self.learner, self.clock = folder / "agent", RolloutLearner(), Clock()
        self.agent = self.started()

    def started(self, **options: Any) -> SimulatedAgent:
        """Another life over the same folder; the one before is left as a kill leaves it."""
        self.agent = SimulatedAgent(self.folder, self.learner, self.clock, **options)
        return self.agent

    def lines(self) -> list[dict[str, Any]]:
        return list(read_log(self.folder / CURRENT))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def acted_as_coined(lines: list[dict[str, Any]]) -> None:
    """Every line's acting version is the one that the coin of its block says."""
    for line in lines:
        turn = line.get("rollout")
        if turn is not None and turn["role"] == "alternating":
            is_candidate = candidate_acts(5, CLUSTER, turn["block"])
            assert (line["version"], turn["acted"]) == ((2, "candidate") if is_candidate else (1, "incumbent"))


@pytest.mark.heavy
def test_from_shadow_to_alternating_to_candidate_and_back(world: World) -> None:
    agent, learner = world.agent, world.learner
    assert set(agent.live(3)) == {1}
    learner.rollout_assignment = shadow()
    assert set(agent.live(10)) == {1}, "a shadow never acts"
    world.clock.now += 31.0
    agent.beat()
    status = agent.beat()
    assert (status.rollout, status.rollout_role, status.beside_version) == (1, "shadow", 2)
    assert learner.shadows, "its sums are told"
    sums = learner.shadows[-1]
    assert (sums.failed, sums.candidate_interventions) == (0, 0)  # type: ignore[attr-defined]
    assert 8 <= sums.decisions <= 10  # type: ignore[attr-defined]
    assert sums.compared == sums.decisions  # type: ignore[attr-defined]
    learner.rollout_assignment = alternating()
    acted = agent.live(70)
    assert set(acted) == {1, 2}
    assert agent.beat().rollout_role == "alternating"
    learner.rollout_assignment, learner.assigned = None, 2
    assert set(agent.live(3)) == {2}
    learner.assigned = 1
    assert set(agent.live(3)) == {1}
    status = agent.beat()
    assert (status.rollout, status.rollout_role, status.beside_version) == (0, "", 0)
    agent.loop.close()
    lines = world.lines()
    acted_as_coined(lines)
    blocks = learner.blocks
    assert len(blocks) >= 4
    assert sorted(blocks) == list(range(len(blocks)))
    for number, block in blocks.items():
        assert block.candidate == candidate_acts(5, CLUSTER, number)  # type: ignore[attr-defined]
        assert block.end_seconds - block.begin_seconds == pytest.approx(BLOCK_SECONDS)  # type: ignore[attr-defined]
    made = replayed(world.folder)
    assert (made.different, made.unknown, made.missing) == (0, 0, 0)
    assert made.challenger_decisions == sum("beside" in line for line in lines) >= 75
    assert (made.challenger_different, made.challenger_unknown) == (0, 0)


def test_decisions_under_a_shadow_are_those_without_one(tmp_path: Path) -> None:
    alone, shadowed = World(tmp_path / "alone"), World(tmp_path / "shadowed")
    for world in (alone, shadowed):
        world.learner.assigned = 1
        world.agent.live(2)
    shadowed.learner.rollout_assignment = shadow()
    for world in (alone, shadowed):
        world.agent.live(30)
    first, second = alone.lines(), shadowed.lines()
    assert [line["allocation"] for line in first] == [line["allocation"] for line in second]
    assert [line["beliefs_digest"] for line in first] == [line["beliefs_digest"] for line in second]
    assert sum("beside" in line for line in second) > 20


@pytest.mark.heavy
@pytest.mark.parametrize("lives", [1, 3, 7])
def test_an_agent_that_is_killed_goes_on_in_its_block_with_both_versions_while_the_learner_is_away(
    tmp_path: Path, lives: int
) -> None:
    def lived(folder: Path, killed_after: int) -> World:
        world = World(folder)
        world.agent.live(2)
        world.learner.rollout_assignment = alternating()
        world.agent.live(2)
        world.learner.away = 10**6
        for number in range(60):
            if number % killed_after == killed_after - 1:
                world.started()
            world.agent.decide()
        world.learner.away = 0
        world.started()
        world.agent.live(2)
        return world

    killed, unharmed = lived(tmp_path / "killed", lives), lived(tmp_path / "unharmed", 10**6)
    acted_as_coined(killed.lines())
    assert {line["version"] for line in killed.lines()[5:]} == {1, 2}
    blocks, others = killed.learner.blocks, unharmed.learner.blocks
    assert sorted(blocks) == sorted(others)
    assert len(blocks) >= 4
    for number, block in blocks.items():
        assert (block.candidate, block.arrivals, block.begin_seconds) == (
            others[number].candidate, others[number].arrivals, others[number].begin_seconds
        )  # fmt: skip
    # What was seen is counted once by each of the two, however often they were started; a kill costs an interval.
    seen = []
    for world in (killed, unharmed):
        current, challenger = world.agent.active.assigned.beliefs, world.agent.active.challenger
        assert current is not None
        assert challenger is not None
        assert challenger.beliefs is not None
        assert challenger.beliefs is not current
        assert current.statistics() == challenger.beliefs.statistics()
        seen.append(sum(entry.count for entry in current.statistics()))
    assert 0 < seen[0] <= seen[1]
    made = replayed(killed.folder)
    assert (made.different, made.challenger_different) == (0, 0)


@pytest.mark.heavy
@pytest.mark.parametrize("damage", ["", "[]", "lost", "sealed anew"])
def test_lost_or_damaged_state_goes_on_behind_what_the_learner_holds_at_an_even_number(
    world: World, damage: str
) -> None:
    world.agent.live(2)
    world.learner.rollout_assignment = alternating()
    world.agent.live(40)
    held = world.learner.next_block
    assert held >= 2
    file = world.folder / ROLLOUT
    if damage == "lost":
        file.unlink()
    elif damage == "sealed anew":
        file.write_text(json.dumps(json.loads(file.read_text()) | {"rollout": 9}))
    else:
        file.write_text(damage)
    agent = world.started()
    agent.live(40)
    turns = [line["rollout"]["block"] for line in world.lines()[-30:]]
    assert min(turns) >= held
    assert world.learner.next_block > held
    begun = min(number for number in world.learner.blocks if number >= held)
    assert begun % 2 == 0
    acted_as_coined(world.lines())


def test_an_answer_that_is_lost_is_given_again_and_counts_once(world: World) -> None:
    world.agent.live(2)
    world.learner.rollout_assignment = alternating()
    world.learner.lose_evidence = 5
    world.agent.live(60)
    assert world.learner.lose_evidence == 0
    assert sorted(world.learner.blocks) == list(range(world.learner.next_block))
    assert world.agent.rollout_part.blocks_waiting == 0


def test_a_learner_that_is_away_ends_the_duty_with_its_timestamp_and_the_assigned_version_acts(world: World) -> None:
    world.agent.live(2)
    world.learner.rollout_assignment = alternating()
    world.agent.live(2)
    world.learner.away = 10**6
    world.clock.now = EXPIRES - 1.0
    acted = {world.agent.decide().identity.version for _ in range(30)}
    assert acted == {1, 2}, "until then it goes on with what it was told"
    world.clock.now = EXPIRES + 1.0
    assert {world.agent.decide().identity.version for _ in range(30)} == {1}
    agent = world.started()
    assert {agent.decide().identity.version for _ in range(2)} == {1}
    before = len(world.lines())
    world.learner.away, world.learner.expires = 0, 2 * EXPIRES
    agent.live(40)
    lines = world.lines()
    acted_as_coined(lines)
    assert {line["version"] for line in lines[before:]} == {1, 2}
    assert lines[before + 2]["rollout"]["block"] % 2 == 0


def test_an_agent_that_was_away_for_longer_than_a_decision_reports_nothing_of_that_pair(world: World) -> None:
    world.agent.live(2)
    world.learner.rollout_assignment = alternating()
    world.agent.live(4)
    file = world.folder / ROLLOUT
    world.agent.rollout_part.close()
    state = world.agent.rollout_part.state
    block = state.alternation.tally.number  # type: ignore[union-attr]
    state.presence.now -= 10_000.0  # type: ignore[operator]  # as if the cluster's clock had gone on meanwhile
    state.save(world.folder)
    assert file.exists()
    world.started().live(40)
    assert block not in world.learner.blocks
    assert block ^ 1 not in world.learner.blocks
    assert world.learner.blocks
    assert min(world.learner.blocks) == block - block % 2 + 2


def test_a_candidate_that_cannot_act_is_refused_and_the_incumbent_acts(world: World) -> None:
    world.agent.live(2)
    world.learner.damaged.add(2)
    world.learner.rollout_assignment = alternating()
    assert set(world.agent.live(12)) == {1}
    status = world.agent.beat()
    assert (status.refused_version, status.refused_reason) == (2, "bad-digest")
    assert (status.rollout, status.beside_version) == (0, 0)
    assert world.learner.fetches.count(2) == 1, "it is not fetched with every heartbeat"
    world.learner.rollout_assignment = alternating(challenger=3)
    assert set(world.agent.live(60)) == {1, 3}
    assert world.agent.beat().refused_version == 0


@pytest.mark.parametrize(("allowed", "acted", "refused"), [("off", {1}, 2), ("shadow-only", {1}, 2)])
def test_an_operator_may_want_no_rollouts(tmp_path: Path, allowed: Any, acted: set[int], refused: int) -> None:
    world = World(tmp_path)
    agent = world.started(allowed=allowed)
    agent.live(2)
    world.learner.rollout_assignment = alternating()
    assert set(agent.live(40)) == acted
    status = agent.beat()
    assert (status.refused_version, status.refused_reason) == (refused, "not-allowed")
    world.learner.rollout_assignment = shadow()
    agent.live(3)
    assert agent.beat().rollout == (0 if allowed == "off" else 1)
    world.learner.rollout_assignment, world.learner.assigned = None, 2
    assert set(agent.live(3)) == {2}, "what is assigned acts all the same"


@pytest.mark.parametrize("said", [None, alternating(challenger=3), shadow()])
def test_a_duty_that_the_signed_timestamp_does_not_say_changes_nothing(world: World, said: Any) -> None:
    world.agent.live(2)
    world.learner.rollout_assignment = alternating()
    world.agent.live(2)
    world.learner.said = said
    assert set(world.agent.live(40)) == {1, 2}, "what was believed goes on until it expires"
    world.clock.now = EXPIRES - 1.0
    world.learner.said = "as signed"
    world.learner.rollout_assignment = None
    assert set(world.agent.live(4)) == {1}
    world.learner.said = said or alternating()
    assert set(world.agent.live(20)) == {1}
    assert world.agent.beat().refused_reason == "other-assignment"


def test_evidence_of_a_rollout_that_is_over_is_let_go(world: World) -> None:
    world.agent.live(2)
    world.learner.rollout_assignment = alternating()
    world.learner.lose_evidence = 10**6
    world.agent.live(40)
    assert world.agent.rollout_part.blocks_waiting >= 2
    world.learner.rollout_assignment, world.learner.over = None, True
    world.agent.live(2)
    assert world.agent.rollout_part.blocks_waiting == 0


DAY_SECONDS = 86_400.0


def test_a_cluster_whose_clock_is_a_day_ahead_believes_no_duty_and_says_so(world: World) -> None:
    world.agent.live(2)
    world.clock.now += DAY_SECONDS
    world.learner.rollout_assignment = alternating()
    assert set(world.agent.live(12)) == {1}
    status = world.agent.beat()
    assert (status.refused_version, status.refused_reason) == (1, "expired")
    assert status.rollout == 0
    world.clock.now -= DAY_SECONDS
    assert set(world.agent.live(40)) == {1, 2}, "it does it as soon as its clock is right"


def test_a_cluster_whose_clock_is_a_day_behind_does_its_duty_and_ends_it_when_it_is_told(world: World) -> None:
    world.clock.now -= DAY_SECONDS
    world.agent.live(2)
    world.learner.rollout_assignment = alternating()
    assert set(world.agent.live(40)) == {1, 2}
    assert world.learner.blocks
    world.learner.rollout_assignment = None
    world.agent.beat()
    assert set(world.agent.live(3)) == {1}
