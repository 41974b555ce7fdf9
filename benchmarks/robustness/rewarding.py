"""A cluster that learns from rewards, like an agent in lockstep: it decides, sees the outcome, computes a gradient."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.robustness.worlds import ARRIVAL_SCALE, MIXES, environment, source
from policy_net.dl2.policy import ActingMode, JobAwareExploration, LearnedPolicy
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import Weights
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.offline import source_of_episode
from policy_net.laboratory.workloads.source_options import WorkloadOptions
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.learning.actor_critic import GradientComputer
from policy_net.learning.gradient import GradientResult, NotEnoughSamples
from policy_net.learning.replay import Experience, ExperienceReplay
from policy_net.learning.reward import slot_utility
from policy_net.learning.settings import ActorCriticSettings
from policy_net.throughput.parametric import OnlineFit

EXPLORATION = 0.1


class RewardedCluster:
    """Decides and learns like an agent in lockstep; `next_gradient` lives through one decision."""

    def __init__(self, name: str, start: PolicyFile, seed: int) -> None:
        self._settings = ActorCriticSettings()
        self._policy = LearnedPolicy(
            start.network_spec,
            start.weights.copy(),
            seed=seed,
            mode=ActingMode.SAMPLE,
            explorer=JobAwareExploration(EXPLORATION),
        )
        self._gradients = GradientComputer(start.network_spec, self._settings, seed)
        self._replay = ExperienceReplay(seed=seed)
        self._beliefs = OnlineFit()
        self._lives = self._live(name, seed)

    def next_gradient(self, head: Weights) -> GradientResult | None:
        """Live through one decision, acting on the head; None while there is too little experience."""
        self._policy.load_weights(head)
        self._replay.add(next(self._lives))
        settings = self._settings
        try:
            return self._gradients.gradient(head, self._replay.segments(settings.segments, settings.segment_decisions))
        except NotEnoughSamples:
            return None

    def _live(self, name: str, seed: int) -> Iterator[Experience]:
        options = WorkloadOptions(speeds=default_speeds(), arrival_scale=ARRIVAL_SCALE)
        episode = 0
        while True:
            workload = load_workload(source_of_episode(source(MIXES[name], seed), episode), options)
            episode += 1
            simulation = Simulation(workload, environment(), default_speeds())
            while not simulation.finished:
                state, trigger = simulation.observe()
                decision, samples = self._policy.decide_recorded(state, trigger)
                progress = simulation.apply(decision)
                seconds = simulation.time_seconds - state.time_seconds
                self._beliefs.introduce(state.jobs)
                utility = slot_utility(state, progress, self._beliefs, seconds)
                self._beliefs.observe(progress)
                yield Experience(samples, utility.reward, seconds, utility=utility, began_seconds=state.time_seconds)
