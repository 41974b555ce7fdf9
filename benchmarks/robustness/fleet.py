"""Five simulated clusters and the learner's own core, in one process and in turn: exactly repeatable.

The clusters decide, live through it and compute gradients as agents do; their updates go through the learner's checks,
its aggregator and its head. Only the network and the disk are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.learning.worlds import ARRIVAL_SCALE, PUSHING, SILENT, environment, source
from benchmarks.robustness.attacks import Attack
from global_learner.aggregation.choice import build_aggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.errors import UpdateRejected
from global_learner.head import Head
from global_learner.ingest import Ingest
from global_learner.ledger import Ledger
from global_learner.optimizer import AdamState
from global_learner.settings import IngestSettings
from global_learner.step_length import learning_rate
from global_learner.update_log import AppliedUpdate
from policy_net.exchange.messages import GradientUpdate
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.learned import ActingMode, LearnedPolicy
from policy_net.learning.actor_critic import GradientComputer
from policy_net.learning.episodes import source_of_episode
from policy_net.learning.exploration import JobAwareExploration
from policy_net.learning.gradient import GradientResult, NotEnoughSamples
from policy_net.learning.replay import Experience, ExperienceReplay
from policy_net.learning.settings import ActorCriticSettings
from policy_net.reward import slot_utility
from policy_net.simulation.engine import Simulation
from policy_net.simulation.source_options import WorkloadOptions
from policy_net.simulation.sources import load_workload
from policy_net.simulation.speed import default_speeds
from policy_net.throughput.parametric import OnlineFit

MIXES = {**PUSHING, **SILENT, "east": "resnext-110+seq2seq*2+wlm+cnn-text"}
"""Five clusters; the last one is the bad one where there is one."""
BAD = "east"
EXPLORATION = 0.1
AVERAGE_DECAY = 0.99
"""As the fleet publishes: the average of the head's last hundred steps."""
LEARNING_RATE = 3e-4


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run ended with."""

    weights: Weights
    updates: int
    rejected: int


class Cluster:
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


def run_fleet(
    start: PolicyFile,
    aggregation: AggregationSettings,
    attack: Attack,
    seed: int,
    rounds: int,
    on_round: Callable[[int], None] = lambda _round: None,
) -> RunResult:
    """Let every cluster push `rounds` times, in turn; a gradient's base is the head that it was computed at."""
    optimizer = OptimizerSettings(learning_rate=LEARNING_RATE)
    aggregator = build_aggregator(aggregation, optimizer, start.network_spec)
    head = Head(AdamState.start(start.weights), Ledger(256), aggregator, AVERAGE_DECAY)
    ingest = Ingest(start.network_spec, IngestSettings())
    clusters = {
        name: Cluster(name, start, 100_000 * (seed + 31) + 10_000 * number) for number, name in enumerate(MIXES)
    }
    rejected = 0
    for number in range(1, rounds + 1):
        for name, cluster in clusters.items():
            result = cluster.next_gradient(head.weights)
            if result is None:
                continue
            gradient = attack(result.gradient) if name == BAD else result.gradient
            update = _update(name, number, head.step, start.network_spec, gradient, result)
            try:
                judgement = ingest.judge(update, head)
            except UpdateRejected:
                rejected += 1
                continue
            kind = aggregator.kind_of_next(name)
            rate = learning_rate(optimizer, aggregation, head, judgement, update, kind)
            head.apply(AppliedUpdate(head.step + 1, rate, judgement.active_clusters, 0.0, update, kind))
        on_round(number)
    return RunResult(head.publishable.copy(), head.step, rejected)


def _update(
    cluster: str, sequence: int, step: int, spec: PolicySpec, gradient: Weights, result: GradientResult
) -> GradientUpdate:
    return GradientUpdate(
        cluster,
        1,
        sequence,
        step,
        spec.digest,
        np.ascontiguousarray(gradient, np.float32),
        result.samples,
        result.effective_samples,
    )
