from pathlib import Path

import pytest

from cluster_agent.acting import Candidate, CandidateFactory, Identity, Office
from cluster_agent.errors import StateDamaged
from cluster_agent.memory import MEMORY, AgentMemory
from cluster_agent.settings import PolicySettings
from policy_net.domain import Allocation, Progress
from policy_net.exchange.policy_file import PolicyFile
from policy_net.set_policy import SetPolicy
from policy_net.set_policy.default import DEFAULT_SET_FILE, default_set_file
from policy_net.throughput.parametric import OnlineFit

SEEN = [Progress("job", "vgg-16", Allocation(2, 3), 600.0, 6000.0, 60.0, 100.0)]


def candidate() -> Candidate:
    return CandidateFactory(PolicySettings()).from_name_or_file("set")


def seen_by(one: Candidate) -> frozenset[Allocation]:
    assert one.beliefs is not None
    return one.beliefs.allocations_seen("vgg-16")


def test_what_the_acting_policy_learned_outlives_the_agent(tmp_path: Path) -> None:
    first = candidate()
    memory = AgentMemory(tmp_path, OnlineFit(), lambda: first.beliefs)
    first.policy.observe(SEEN)
    memory.save(1, {})
    again = candidate()
    assert seen_by(again) == frozenset()
    AgentMemory(tmp_path, OnlineFit(), lambda: again.beliefs)
    assert seen_by(again) == {Allocation(2, 3)}


def test_beliefs_that_cannot_be_read_now_are_kept_as_they_were(tmp_path: Path) -> None:
    first = candidate()
    available = [True]
    memory = AgentMemory(tmp_path, OnlineFit(), lambda: first.beliefs if available else None)
    first.policy.observe(SEEN)
    memory.save(1, {})
    available.clear()
    memory.save(2, {})
    again = candidate()
    assert AgentMemory(tmp_path, OnlineFit(), lambda: again.beliefs).decisions == 2
    assert seen_by(again) == {Allocation(2, 3)}


def test_damaged_beliefs_are_said_in_one_line(tmp_path: Path) -> None:
    first = candidate()
    memory = AgentMemory(tmp_path, OnlineFit(), lambda: first.beliefs)
    first.policy.observe(SEEN)
    memory.save(1, {})
    file = tmp_path / MEMORY
    file.write_text(file.read_text().replace('"kind": "ps"', '"kind": "ring"'))
    with pytest.raises(StateDamaged, match="remove it"):
        AgentMemory(tmp_path, OnlineFit(), lambda: candidate().beliefs)


def test_a_new_version_goes_on_from_what_this_cluster_has_seen() -> None:
    first = candidate()
    office = Office(first)
    first.policy.observe(SEEN)
    shipped = default_set_file()
    data = PolicyFile(shipped.spec, shipped.weights * 0.5, {}, shipped.priors).to_bytes()
    successor = CandidateFactory(PolicySettings()).from_bytes(data, Identity("v2", version=2))
    office.propose(successor)
    holder, changed = office.begin_decision(3)
    assert changed
    assert holder is successor
    assert seen_by(holder) == {Allocation(2, 3)}


def test_a_set_file_acts_and_is_known_by_its_digest() -> None:
    acting = CandidateFactory(PolicySettings()).from_name_or_file(str(DEFAULT_SET_FILE))
    assert isinstance(acting.policy, SetPolicy)
    assert len(acting.identity.digest) == 64
    assert acting.spec == default_set_file().spec
    assert acting.spec_to_register == acting.spec.digest
    assert candidate().spec_to_register == "", "what was chosen by name goes with any learner"
