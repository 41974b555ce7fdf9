import json
import threading
from pathlib import Path

import pytest
from agent_fakes import PAIRS, FixedPolicy, make_state

from cluster_agent.active_policy import ActivePolicy, Candidate, CandidateFactory, DeadlineAsker, PolicyIdentity
from cluster_agent.errors import StateDamaged
from cluster_agent.recording.memory import MEMORY, AgentMemory
from cluster_agent.settings import PolicySettings
from policy_net.domain import Allocation, ClusterState, Decision, Progress, Trigger
from policy_net.exchange.policy_file import PolicyFile, digest_of
from policy_net.exchange.shipped import SHIPPED_FILES
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.policy import DEFAULT_SET_FILE, SetPolicy, default_set_file
from policy_net.throughput.fleet_priors import merge_fleet
from policy_net.throughput.parametric import OnlineFit

SEEN = [Progress("job", "vgg-16", Allocation(2, 3), 600.0, 6000.0, 60.0, 100.0)]


def candidate() -> Candidate:
    return CandidateFactory(PolicySettings()).from_name_or_file("set")


def seen_by(one: Candidate) -> frozenset[Allocation]:
    assert one.beliefs is not None
    return one.beliefs.allocations_seen("vgg-16")


def test_what_the_acting_policy_learned_outlives_the_agent(tmp_path: Path) -> None:
    first = candidate()
    memory = AgentMemory(tmp_path, OnlineFit(), ActivePolicy(first))
    first.policy.observe(SEEN)
    memory.save(1, {})
    again = candidate()
    assert seen_by(again) == frozenset()
    AgentMemory(tmp_path, OnlineFit(), ActivePolicy(again))
    assert seen_by(again) == {Allocation(2, 3)}


def test_beliefs_that_cannot_be_read_now_are_kept_as_they_were(tmp_path: Path) -> None:
    first = candidate()
    asker = DeadlineAsker(60.0)
    memory = AgentMemory(tmp_path, OnlineFit(), ActivePolicy(first, askers=(asker, asker)))
    first.policy.observe(SEEN)
    memory.save(1, {})
    may_end = threading.Event()

    class Hanging(FixedPolicy):
        def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
            assert may_end.wait(100.0)
            return PAIRS

    answer = asker.begin(Hanging(PAIRS), make_state(), Trigger.SLOT)
    memory.save(2, {})
    may_end.set()
    answer(60.0)
    again = candidate()
    assert AgentMemory(tmp_path, OnlineFit(), ActivePolicy(again)).decisions == 2
    assert seen_by(again) == {Allocation(2, 3)}


def test_damaged_beliefs_are_said_in_one_line(tmp_path: Path) -> None:
    first = candidate()
    memory = AgentMemory(tmp_path, OnlineFit(), ActivePolicy(first))
    first.policy.observe(SEEN)
    memory.save(1, {})
    file = tmp_path / MEMORY
    file.write_text(file.read_text().replace('"kind": "ps"', '"kind": "ring"'))
    with pytest.raises(StateDamaged, match="remove it"):
        AgentMemory(tmp_path, OnlineFit(), ActivePolicy(candidate()))


def test_a_new_version_goes_on_from_what_this_cluster_has_seen() -> None:
    first = candidate()
    active = ActivePolicy(first)
    first.policy.observe(SEEN)
    shipped = default_set_file()
    data = PolicyFile(shipped.spec, shipped.weights * 0.5, {}, shipped.priors).to_bytes()
    successor = CandidateFactory(PolicySettings()).from_bytes(data, PolicyIdentity("v2", version=2))
    active.propose(successor)
    turn = active.begin_turn(3, make_state(), Trigger.SLOT)
    assert turn.activated
    assert turn.acting.candidate is successor
    assert seen_by(turn.acting.candidate) == {Allocation(2, 3)}


def test_a_set_file_acts_and_is_known_by_its_digest() -> None:
    acting = CandidateFactory(PolicySettings()).from_name_or_file(str(DEFAULT_SET_FILE))
    assert isinstance(acting.policy, SetPolicy)
    assert len(acting.identity.digest) == 64
    assert acting.spec == default_set_file().spec
    assert acting.spec_to_register == acting.spec.digest
    assert candidate().spec_to_register == "", "what was chosen by name goes with any learner"


def test_the_taught_policy_that_ships_acts_by_its_name_with_prices_of_its_own() -> None:
    acting = CandidateFactory(PolicySettings()).from_name_or_file("set-taught")
    assert isinstance(acting.policy, SetPolicy)
    assert acting.policy.name == acting.identity.name == "set-taught"
    assert not acting.policy.price_terms.usual
    assert acting.policy.session_terms is not None
    assert acting.spec_to_register == ""
    assert acting.identity.digest == digest_of(SHIPPED_FILES["set-taught"].read_bytes())


def successor_on(priors: tuple[SpeedStatistic, ...], version: int = 2) -> Candidate:
    shipped = default_set_file()
    data = PolicyFile(shipped.spec, shipped.weights, {}, priors).to_bytes()
    return CandidateFactory(PolicySettings()).from_bytes(data, PolicyIdentity(f"v{version}", version=version))


def grid_of(one: Candidate) -> list[list[float]]:
    assert one.beliefs is not None
    return one.beliefs.grid("vgg-16").tolist()


def test_ones_own_share_in_a_versions_priors_is_not_counted_again() -> None:
    first = successor_on(())
    first.policy.observe(SEEN * 4)
    assert first.beliefs is not None
    alone = grid_of(first)
    active = ActivePolicy(first)
    fleet_of_one = merge_fleet({"me": first.beliefs.statistics()}).statistics
    active.propose(successor_on(fleet_of_one))
    holder = active.begin_turn(0, make_state(), Trigger.SLOT).acting.candidate
    assert grid_of(holder) == alone
    assert holder.beliefs is not None
    assert holder.beliefs.prior_size == 0


def test_a_cluster_that_shares_nothing_takes_a_versions_priors_whole() -> None:
    first = successor_on(())
    first.policy.observe(SEEN * 4)
    assert first.beliefs is not None
    priors = merge_fleet({"other": first.beliefs.statistics()}).statistics
    active = ActivePolicy(first, shares=lambda _: False)
    active.propose(successor_on(priors))
    holder = active.begin_turn(0, make_state(), Trigger.SLOT).acting.candidate
    assert holder.beliefs is not None
    assert holder.beliefs.prior_size == len(priors) == 1


def test_the_first_policy_with_beliefs_goes_on_from_all_that_the_cluster_has_seen() -> None:
    seen = OnlineFit()
    seen.observe(SEEN)
    active = ActivePolicy(CandidateFactory(PolicySettings()).from_name_or_file("drf"), seen)
    active.propose(successor_on(()))
    holder = active.begin_turn(0, make_state(), Trigger.SLOT).acting.candidate
    assert seen_by(holder) == {Allocation(2, 3)}


def test_beliefs_and_what_was_left_out_of_the_priors_outlive_the_agent(tmp_path: Path) -> None:
    other = OnlineFit()
    other.observe([*SEEN * 3, Progress("job", "vgg-16", Allocation(4, 4), 600.0, 9000.0, 60.0, 100.0)])
    seen = OnlineFit()
    seen.observe(SEEN * 2)
    priors = merge_fleet({"me": seen.statistics(), "other": other.statistics()}).statistics
    active = ActivePolicy(successor_on((), 1), seen)
    memory = AgentMemory(tmp_path, OnlineFit(), active)
    active.assigned.policy.observe(SEEN * 2)
    active.propose(successor_on(priors))
    holder = active.begin_turn(0, make_state(), Trigger.SLOT).acting.candidate
    holder.policy.observe(SEEN)
    believed = grid_of(holder)
    memory.save(1, {})

    def started_again(acting: Candidate) -> list[list[float]]:
        AgentMemory(tmp_path, OnlineFit(), ActivePolicy(acting))
        return grid_of(acting)

    assert started_again(successor_on(priors)) == believed
    # A version that was fetched but not yet in active when the agent died: its priors may hold what was seen since.
    assert started_again(successor_on(priors[:1], 3)) != believed


def test_an_agent_that_starts_with_beliefs_for_the_first_time_begins_from_what_it_has_seen(tmp_path: Path) -> None:
    seen = OnlineFit()
    memory = AgentMemory(tmp_path, seen)
    seen.observe(SEEN)
    memory.save(1, {})
    acting = successor_on(())
    AgentMemory(tmp_path, OnlineFit(), ActivePolicy(acting))
    assert seen_by(acting) == {Allocation(2, 3)}


def test_a_file_that_was_changed_or_is_of_another_format_is_refused(tmp_path: Path) -> None:
    AgentMemory(tmp_path, OnlineFit()).save(7, {})
    file = tmp_path / MEMORY
    whole = json.loads(file.read_text())
    file.write_text(json.dumps(whole | {"decisions": 8}))
    with pytest.raises(StateDamaged, match="digest is another"):
        AgentMemory(tmp_path, OnlineFit())
    file.write_text(json.dumps(whole | {"format": "fedl2-agent-9"}))
    with pytest.raises(StateDamaged, match="fedl2-agent-9"):
        AgentMemory(tmp_path, OnlineFit())
    old = {key: value for key, value in whole.items() if key not in ("format", "digest", "acting_digest")}
    file.write_text(json.dumps(old))
    assert AgentMemory(tmp_path, OnlineFit()).decisions == 7
