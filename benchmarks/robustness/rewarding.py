"""A cluster that learns from rewards, like an agent in lockstep: it decides, sees the outcome, computes a gradient."""

from __future__ import annotations

from benchmarks.robustness.worlds import ARRIVAL_SCALE, MIXES, environment, source
from policy_net.exchange.policy_file import PolicyFile
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.offline import Episode, OfflineSettings, SimulatedLearner, endless_episodes
from policy_net.laboratory.workloads.source_options import WorkloadOptions
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.learning.settings import ActorCriticSettings

EXPLORATION = 0.1


def rewarded_cluster(name: str, start: PolicyFile, seed: int) -> SimulatedLearner:
    """A cluster of one mix, whose `next_gradient` lives through one decision."""
    options = WorkloadOptions(speeds=default_speeds(), arrival_scale=ARRIVAL_SCALE)

    def load(of_episode: str, _round: int) -> Episode:
        return load_workload(of_episode, options), environment()

    return SimulatedLearner(
        start.network_spec,
        endless_episodes([source(MIXES[name], seed)], load),
        default_speeds(),
        ActorCriticSettings(),
        OfflineSettings(epsilon=EXPLORATION, seed=seed),
    )
