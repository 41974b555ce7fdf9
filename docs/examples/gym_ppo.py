"""Train a stock agent, sb3-contrib's MaskablePPO, on a small cluster for a minute, and compare it with its own start.

`pip install 'fedl2[examples]'`, then `python docs/examples/gym_ppo.py`. Nothing here is tuned
beyond making a minute count. The agent is judged on workloads that it was not trained on, drawing its actions as it did
in training: acting greedily, an agent that has hardly begun to learn is several times worse.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

import gymnasium
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import policy_net.gym
from policy_net.baselines.drf import DrfPolicy
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadOptions

WORKLOAD = "dl2:jobs=10,arrivals=google,sizes=varied"
NODES = 8
DISCOUNT = 1.0
"""A discount counts micro-actions. Below 1 it pays the agent for spinning a decision out, as the cost of the time that
follows is then further away: at 0.99 it got better for half a minute and then worse than it began."""
SAY_SECONDS = 10.0
TEST_SEEDS = range(1_000_000, 1_000_008)
"""World seeds of the judgement; training draws from two thousand million."""


def make_env() -> gymnasium.Env[np.ndarray, np.int64]:
    """The cluster that is trained on and judged."""
    return gymnasium.make(policy_net.gym.ENVIRONMENT_ID, workload=WORKLOAD, nodes=NODES, jobs_per_batch=10)


def mean_jct_hours(model: MaskablePPO, seeds: Sequence[int] = TEST_SEEDS) -> float:
    """What jobs take on average under the agent; nan if an episode had to be cut short."""
    env = make_env()
    model.set_random_seed(0)  # of the draws
    hours = []
    for seed in seeds:
        observation, info = env.reset(options={"world_seed": seed})
        ended = False
        while not ended:
            action, _ = model.predict(observation, action_masks=info["action_mask"])
            observation, _, terminated, truncated, info = env.step(action)
            ended = terminated or truncated
        hours.append(np.nan if truncated else info["avg_jct_seconds"] / 3600)
    return float(np.mean(hours))


def drf_jct_hours(seeds: Sequence[int] = TEST_SEEDS) -> float:
    """The same under DRF."""
    hours = []
    for seed in seeds:
        workload = load_workload(WORKLOAD, WorkloadOptions(seed=seed))
        result = replay(workload, Environment(nodes=NODES, seed=seed), DrfPolicy(), default_speeds())
        hours.append(result.to_json()["avg_jct_seconds"] / 3600)
    return float(np.mean(hours))


class Progress(BaseCallback):
    """Stops after so many seconds of training, and every ten of them judges the agent as at the end.

    Judging takes no time from the training, and no random numbers.
    """

    def __init__(self, agent: MaskablePPO, seconds: float) -> None:
        super().__init__()
        self._agent = agent
        self._seconds = seconds
        self._until_said = SAY_SECONDS
        self._trained = 0.0
        self._since = time.monotonic()

    def _on_step(self) -> bool:
        now = time.monotonic()
        self._trained, self._since = self._trained + now - self._since, now
        if self._trained >= self._seconds:
            return False
        if self._trained >= self._until_said:
            self._until_said = self._trained + SAY_SECONDS
            states = random.getstate(), np.random.get_state(), torch.get_rng_state()
            print(f"  {self._trained:4.0f} s  {mean_jct_hours(self._agent):7.2f}", flush=True)
            random.setstate(states[0])
            np.random.set_state(states[1])
            torch.set_rng_state(states[2])
            self._since = time.monotonic()
        return True


def new_agent(seed: int) -> MaskablePPO:
    """The library's agent with its own network, before any training."""
    torch.set_num_threads(1)  # small networks: more threads only wait for each other
    envs = VecNormalize(make_vec_env(make_env, n_envs=8, seed=seed), norm_obs=False, gamma=DISCOUNT)
    return MaskablePPO(
        "MlpPolicy",
        envs,
        seed=seed,
        gamma=DISCOUNT,
        gae_lambda=0.99,
        n_steps=1024,
        batch_size=1024,
        learning_rate=3e-4,
        device="cpu",
    )


def train(model: MaskablePPO, seconds: float, steps: int) -> None:
    """Train for so long, at most so many steps (rounded up to a whole collection of experience)."""
    model.learn(steps, callback=Progress(model, seconds))


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = new_agent(options.seed)
    print(f"average JCT on {len(TEST_SEEDS)} workloads, hours:")
    print(f"  before  {mean_jct_hours(model):7.2f}", flush=True)
    train(model, options.seconds, options.steps)
    print(f"  after   {mean_jct_hours(model):7.2f}  ({model.num_timesteps} steps, {options.seconds:g} s)")
    print(f"  drf     {drf_jct_hours():7.2f}")


if __name__ == "__main__":
    main()
