import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from policy_net.dl2.action import GRANT_KINDS, Grant
from policy_net.dl2.network import ActingNetwork, initial_weights
from policy_net.dl2.policy import LearnedPolicy
from policy_net.domain import Allocation, CapacityMode
from policy_net.errors import BadInput
from policy_net.exchange.spec import OTHER_TYPE, PolicySpec
from policy_net.gym import ENVIRONMENT_ID
from policy_net.gym.environment import ClusterSchedulingEnv
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.simulation.environment import DecideOn, Environment, PlacementStrategy
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadOptions

SMALL = {"workload": "dl2:jobs=5,mix=dssm+wlm", "nodes": 4}


def play(env: gymnasium.Env, seed: int, actions_seed: int = 0, **reset_options: object):
    """An episode of random admissible actions: observations, rewards and infos in turn."""
    rng = np.random.default_rng(actions_seed)
    observation, info = env.reset(seed=seed, **reset_options)
    trace = [(observation, 0.0, info)]
    ended = False
    while not ended:
        observation, reward, terminated, truncated, info = env.step(rng.choice(np.flatnonzero(info["action_mask"])))
        trace.append((observation, reward, info))
        ended = terminated or truncated
    return trace


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("world", [{}, {"reward": "slot-utility"}, {"decide_on": "event", "capacity": "pooled"}])
def test_it_passes_gymnasiums_check(world: dict[str, object]) -> None:
    check_env(gymnasium.make(ENVIRONMENT_ID, **SMALL, **world).unwrapped)


def test_it_passes_the_check_of_stable_baselines() -> None:
    from stable_baselines3.common.env_checker import check_env as check

    check(ClusterSchedulingEnv(**SMALL))


def test_the_same_seed_plays_the_same_episodes_and_another_does_not() -> None:
    env = ClusterSchedulingEnv(**SMALL)
    first, second, other = play(env, 3), play(ClusterSchedulingEnv(**SMALL), 3), play(env, 4)
    assert len(first) == len(second)
    for (seen, paid, info), (seen_again, paid_again, info_again) in zip(first, second, strict=True):
        np.testing.assert_array_equal(seen, seen_again)
        np.testing.assert_array_equal(info.pop("action_mask"), info_again.pop("action_mask"))
        assert (paid, info) == (paid_again, info_again)
    assert [paid for _, paid, _ in first] != [paid for _, paid, _ in other]


def test_a_workload_without_a_seed_is_drawn_anew_and_one_can_be_named() -> None:
    env = ClusterSchedulingEnv(**SMALL)
    env.reset(seed=1)
    ends = [play(env, None)[-1][2]["avg_jct_seconds"] for _ in range(2)]
    assert ends[0] != ends[1]
    named = [play(env, seed, options={"world_seed": 7})[-1][2]["avg_jct_seconds"] for seed in (1, 2)]
    assert named[0] == named[1]


def test_observations_stay_within_their_bounds_and_masks_offer_something() -> None:
    env = ClusterSchedulingEnv(**SMALL, jobs_per_batch=3)
    for observation, _, info in play(env, 0):
        assert env.observation_space.contains(observation)
        assert info["action_mask"].any()
        assert info["action_mask"].shape == (env.action_space.n,)


@pytest.mark.parametrize("world", [{}, {"resize_seconds": 300.0, "resume_seconds": 600.0}, {"decide_on": "event"}])
def test_the_rewards_of_a_drained_workload_add_up_to_the_completion_times(world: dict[str, object]) -> None:
    env = ClusterSchedulingEnv(**SMALL, **world)
    trace = play(env, 5)
    slots = trace[-1][2]["avg_jct_seconds"] * trace[-1][2]["completed"] / 1200.0
    assert trace[-1][2]["completed"] == 5
    assert -sum(paid for _, paid, _ in trace) == pytest.approx(slots)


@pytest.mark.parametrize("capacity", list(CapacityMode))
@pytest.mark.parametrize("jobs_per_batch", [2, 8])
def test_a_network_in_the_environment_does_what_the_policy_does_in_a_replay(
    capacity: CapacityMode, jobs_per_batch: int
) -> None:
    spec = PolicySpec(jobs_per_batch=jobs_per_batch, job_types=(OTHER_TYPE, *MODEL_NAMES))
    weights = 3.0 * initial_weights(spec, 1)
    source = "dl2:jobs=8,mix=dssm+resnet-50+wlm,seed=3"
    env = ClusterSchedulingEnv(source, nodes=4, capacity=capacity, jobs_per_batch=jobs_per_batch)
    network = ActingNetwork(spec, weights)
    observation, info = env.reset(seed=0, options={"world_seed": 0})
    ended = False
    while not ended:
        network.start(observation)
        action = np.where(env.action_masks(), network.logits(), -np.inf).argmax()
        observation, _, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
    environment = Environment(nodes=4, capacity_mode=capacity)
    result = replay(
        load_workload(source, WorkloadOptions()), environment, LearnedPolicy(spec, weights), default_speeds()
    )
    assert info["avg_jct_seconds"] == result.to_json()["avg_jct_seconds"]
    assert info["decisions"] == result.counters.decisions


def test_the_mask_is_what_fits_the_cluster() -> None:
    env = ClusterSchedulingEnv("dl2:jobs=1,mix=wlm,seed=0", nodes=1, jobs_per_batch=2)  # 8 CPU and 2 GPU
    _, info = env.reset(seed=0)
    assert np.flatnonzero(info["action_mask"]).tolist() == [Grant.BUNDLE]  # nothing else lets a job train
    for _ in range(2):
        _, _, _, _, info = env.step(np.int64(Grant.BUNDLE))
    # Two pairs fill the node: nothing can be given any more, so the decision was closed and the next one opened.
    assert info["decisions"] == 1
    assert env.action_masks().tolist() == info["action_mask"].astype(bool).tolist()


def test_an_invalid_action_is_taken_for_void_and_counted() -> None:
    env = ClusterSchedulingEnv(**SMALL, jobs_per_batch=4)
    _, info = env.reset(seed=0)
    absent_job = np.int64(GRANT_KINDS * 3)
    assert not info["action_mask"][absent_job]
    _, reward, terminated, _, info = env.step(absent_job)
    assert info["invalid_actions"] == 1
    assert info["decisions"] == 1
    assert reward < 0
    assert not terminated
    with pytest.raises(gymnasium.error.InvalidAction, match="99"):
        env.step(np.int64(99))


def test_an_agent_that_lets_nothing_run_is_truncated() -> None:
    env = ClusterSchedulingEnv(**SMALL, max_decisions=7)
    env.reset(seed=0)
    void = np.int64(env.action_space.n - 1)
    ends = []
    while not ends or not any(ends[-1]):
        observation, _, terminated, truncated, info = env.step(void)
        ends.append((terminated, truncated))
    assert ends[-1] == (False, True)
    assert len(ends) == 7
    assert info["decisions"] == 7
    assert info["avg_jct_seconds"] is None
    assert not observation.any()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(void)


def test_allreduce_jobs_are_offered_workers_alone() -> None:
    env = ClusterSchedulingEnv("dl2:jobs=3,mix=bert-64-allreduce,seed=0", nodes=4, jobs_per_batch=2)
    for _, _, info in play(env, 0):
        offered = np.flatnonzero(info["action_mask"][:-1])
        assert (offered % GRANT_KINDS == Grant.WORKER).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seed": 3}, "reset"),
        ({"reward": "money"}, "'money'"),
        ({"max_decisions": 0}, "max_decisions is 0"),
        ({"jobs_per_batch": 0}, "jobs_per_batch is 0"),
        ({"node": 3}, "node"),
        ({"capacity": "half"}, "capacity is 'half'"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        ClusterSchedulingEnv(**options)


def test_options_may_be_given_as_the_words_of_the_command_line() -> None:
    env = ClusterSchedulingEnv(**SMALL, capacity="pooled", decide_on="event", placement="pack", job_kind="allreduce")
    env.reset(seed=0)
    environment = env.simulation.environment
    assert environment.capacity_mode is CapacityMode.POOLED
    assert environment.decide_on is DecideOn.EVENT
    assert environment.placement is PlacementStrategy.PACK


def test_no_nodes_are_not_taken_for_the_suggested_number() -> None:
    with pytest.raises(BadInput, match="nodes is 0: use 1 or more"):
        ClusterSchedulingEnv("dl2:jobs=3", nodes=0).reset()


def test_a_source_that_cannot_be_read_is_named_at_reset() -> None:
    with pytest.raises(BadInput, match=r"nonesuch.*no such file"):
        ClusterSchedulingEnv("nonesuch").reset()
    with pytest.raises(BadInput, match="colour"):
        ClusterSchedulingEnv(**SMALL).reset(options={"colour": "red"})


def test_gymnasium_runs_several_side_by_side() -> None:
    envs = gymnasium.make_vec(ENVIRONMENT_ID, num_envs=3, vectorization_mode="sync", **SMALL)
    observations, infos = envs.reset(seed=1)
    singles = [ClusterSchedulingEnv(**SMALL) for _ in range(3)]
    alone = [env.reset(seed=1 + number) for number, env in enumerate(singles)]
    for _ in range(50):
        np.testing.assert_array_equal(observations, np.stack([observation for observation, _ in alone]))
        actions = np.array([np.flatnonzero(mask)[0] for mask in infos["action_mask"]])
        observations, _, _, _, infos = envs.step(actions)
        alone = [env.step(action)[::4] for env, action in zip(singles, actions, strict=True)]
    envs.close()


def test_the_allocation_of_a_decision_is_what_was_granted() -> None:
    env = ClusterSchedulingEnv("dl2:jobs=1,mix=wlm,seed=0", nodes=4, jobs_per_batch=2)
    env.reset(seed=0)
    env.step(np.int64(Grant.BUNDLE))
    env.step(np.int64(Grant.WORKER))
    env.step(np.int64(env.action_space.n - 1))
    assert env.simulation.observe()[0].jobs[0].current == Allocation(2, 1)
