import pytest
from agent_fakes import make_samples, make_state

from cluster_agent.learning.experience import BelievedReward
from policy_net.domain import Allocation, Progress, RewardKind
from policy_net.throughput.parametric import OnlineFit

PROGRESS = [Progress("job-1", "vgg-16", Allocation(1, 1), 1200.0, 575.0, 5.0, 40.5)]
"""Five epochs of a hundred, of the second of two jobs."""


@pytest.mark.parametrize("kind", [RewardKind.PAPER, RewardKind.OWN_JOB])
def test_the_paper_s_reward_and_that_of_single_jobs_have_the_same_sum(kind: RewardKind) -> None:
    reward = BelievedReward(kind, OnlineFit())
    total, experience = reward.learn_from(make_state(nodes=4), list(PROGRESS), 1200.0, make_samples())
    assert total == pytest.approx(0.05)
    assert experience is not None
    if kind is RewardKind.OWN_JOB:
        assert experience.utility is not None
        assert experience.utility.efficiency.tolist() == [0.0, pytest.approx(0.05)]
    else:
        assert experience.utility is None
