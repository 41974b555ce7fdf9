"""What an agent learns from a `set` policy: beliefs from every decision, the network from its own picks only."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from agent_fakes import make_state
from test_loop import World

from cluster_agent.active_policy import ActivePolicy, Candidate, PolicyIdentity
from cluster_agent.learning.experience import BelievedReward
from policy_net.domain import Allocation, ClusterState, Decision, Progress, RewardKind, Trigger
from policy_net.exchange.spec import SetSpec
from policy_net.set_policy.planner import SetSamples
from policy_net.set_policy.policy import SetPolicy
from policy_net.set_policy.residual import initial_residual
from policy_net.throughput.parametric import OnlineFit

SPEC = SetSpec()


class Greedy(SetPolicy):
    """A `set` policy that at its second decision asks for what no cluster has, and at its third fails."""

    def decide_recorded(self, state: ClusterState, trigger: Trigger) -> tuple[Decision, SetSamples]:
        decision, samples = super().decide_recorded(state, trigger)
        if self.decision_index == 2:
            return Decision({job.job_id: Allocation(16, 16) for job in state.jobs}), samples
        if self.decision_index == 3:
            raise FloatingPointError("a broken network")
        return decision, samples


def test_what_the_guard_changed_teaches_beliefs_and_never_the_network(tmp_path: Path) -> None:
    world = World(tmp_path, Greedy(SPEC, initial_residual(SPEC, 0), greedy=False, seed=1), decisions=5)  # type: ignore[arg-type]
    seen: list[Sequence[Progress]] = []
    policy = world.active.assigned.policy
    observe = policy.observe
    policy.observe = lambda progress: (seen.append(progress), observe(progress))[1]  # type: ignore[method-assign, func-returns-value]
    world.run()
    assert dict(world.loop.interventions) == {"over-capacity": 1, "nan": 1}
    assert len(seen) == 5, "all intervals teach beliefs"
    assert [entry.began_seconds for entry in world.learned] == [0.0, 3600.0, 4800.0]
    assert all(isinstance(entry.samples, SetSamples) for entry in world.learned)


def test_a_gap_of_the_guards_making_ends_a_run(tmp_path: Path) -> None:
    world = World(tmp_path, Greedy(SPEC, initial_residual(SPEC, 0), greedy=False, seed=1), decisions=5)  # type: ignore[arg-type]
    world.run()
    first, second, third = world.learned
    assert not second.directly_follows(first)
    assert third.directly_follows(second)


def test_the_reward_is_over_the_policys_own_beliefs_and_compared_with_its_own_plan(tmp_path: Path) -> None:
    world = World(tmp_path, SetPolicy(SPEC, initial_residual(SPEC, 0), greedy=False), decisions=1)  # type: ignore[arg-type]
    world.run()
    (entry,) = world.learned
    assert entry.utility is not None
    assert entry.utility.planned is not None
    assert entry.utility.planned.max() > 0.0
    samples = entry.samples
    assert isinstance(samples, SetSamples)
    # Had the policy believed in speeds four times as high, the same interval would have earned it 4^-0.25 as much.
    state, trigger = world.backend.observe() or pytest.fail("no state")
    del trigger
    progress = [Progress("job-0", "vgg-16", Allocation(1, 1), 1200.0, 13800.0, 120.0, 40.5)]
    reward = BelievedReward(RewardKind.SLOT_UTILITY, OnlineFit())
    usual, _ = reward.learn_from(state, progress, 1200.0, samples)
    hopeful, _ = reward.learn_from(state, progress, 1200.0, replace(samples, believed_J2=4 * samples.believed_J2))
    assert hopeful == pytest.approx(usual * 4**-0.25)
    # Another exponent is another reward.
    other, _ = BelievedReward(RewardKind.SLOT_UTILITY, OnlineFit(), 0.5).learn_from(state, progress, 1200.0, samples)
    assert other != pytest.approx(usual)


def test_a_version_takes_over_what_its_predecessor_has_seen() -> None:
    first = Candidate(SetPolicy(SPEC, initial_residual(SPEC, 0)), PolicyIdentity("v1", version=1))
    second = Candidate(SetPolicy(SPEC, initial_residual(SPEC, 0)), PolicyIdentity("v2", version=2))
    first.policy.observe([Progress("job", "vgg-16", Allocation(2, 3), 600.0, 6000.0, 60.0, 100.0)])
    active = ActivePolicy(first)
    active.propose(second)
    holder = active.begin_turn(7, make_state(), Trigger.SLOT).acting.candidate
    assert holder.policy is second.policy
    assert isinstance(holder.policy, SetPolicy)
    assert holder.policy.decision_index == 7
    assert holder.beliefs is not None
    assert holder.beliefs.allocations_seen("vgg-16") == {Allocation(2, 3)}
