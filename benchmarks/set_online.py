"""`python -m benchmarks.set_online`: does learning online make the `set` policy better, or worse?

Four simulated clusters act on the learner's head and push to the learner's own core, in one process and in turn, so
that a run is exactly repeatable; then the version that would be published meets workloads that nobody has trained or
tuned on, greedily, beside the policy that the fleet began with. Prints a JSON record; a negative change is better.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from cluster_agent.learning.experience import BelievedReward
from global_learner.aggregation.modes import ImmediateAggregator
from global_learner.aggregation.settings import OptimizerSettings
from global_learner.settings import IngestSettings, PublishSettings
from global_learner.storage.snapshot import AdamState
from global_learner.storage.update_records import AppliedUpdate, Kind
from global_learner.updates.head import Head
from global_learner.updates.ingest import Ingest
from global_learner.updates.ledger import Ledger
from policy_net.domain import CapacityMode, RewardKind
from policy_net.exchange.spec import SetSpec, Weights
from policy_net.exchange.wire import GradientUpdate
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.offline import Episode
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.learning.adam import AdamConstants, TrustRegion
from policy_net.learning.gradient import GradientResult, NotEnoughSamples
from policy_net.learning.replay import Experience, ExperienceReplay
from policy_net.learning.residual_gradient import ResidualGradient
from policy_net.learning.settings import ActorCriticSettings, ResidualSettings
from policy_net.policy_kinds import update_schedule_for
from policy_net.set_policy.policy import SetPolicy, default_set_file
from policy_net.throughput.parametric import OnlineFit

NODES = (16, 16, 24, 24)
JUDGED_NODES = (16, 24)
FIRST_JUDGED_SEED = 9_600_000
"""Beyond all seeds that train or validate anything; see `policy_net.laboratory.training.set_training`."""
NOISE = 0.273
SPEC = SetSpec()


def episode(seed: int, nodes: int) -> Episode:
    """A workload of sixty jobs that keeps so many nodes busy."""
    workload = load_workload(f"dl2:jobs=60,arrivals=google,sizes=varied,seed={seed}")
    return workload, Environment(nodes=nodes, capacity_mode=CapacityMode.POOLED, speed_noise=NOISE, seed=seed % 1000)


class Cluster:
    """Decides and learns as an agent does that acts on the head."""

    def __init__(self, number: int, nodes: int, head: Weights, settings: ResidualSettings, seed: int) -> None:
        self.name = f"cluster-{number}"
        self._first_seed = 1_000_000 * (seed + 1) + 100_000 * number
        self._nodes = nodes
        priors = default_set_file().priors
        self._policy = SetPolicy(SPEC, head, priors, greedy=False, exploration=0.05, seed=self._first_seed)
        self._reward = BelievedReward(RewardKind.SLOT_UTILITY, OnlineFit(), settings.utility_exponent)
        self._gradients = ResidualGradient(SPEC, settings)
        self._lesson = update_schedule_for(SPEC, ActorCriticSettings(), settings)
        self._replay = ExperienceReplay()
        self._lives = self._live()

    def next_gradient(self, head: Weights) -> GradientResult | None:
        """Live through as many decisions as an update takes, on this head; None if they do not suffice for one."""
        self._policy.load_weights(head)
        for _ in range(self._lesson.every):
            self._replay.add(next(self._lives))
        try:
            return self._gradients.gradient(head, self._lesson.draw(self._replay))
        except NotEnoughSamples:
            return None

    def _live(self) -> Iterator[Experience]:
        seed = self._first_seed
        while True:
            workload, environment = episode(seed, self._nodes)
            seed += 1
            simulation = Simulation(workload, environment, default_speeds())
            while not simulation.finished:
                state, trigger = simulation.observe()
                decision, samples = self._policy.decide_recorded(state, trigger)
                progress = simulation.apply(decision)
                seconds = simulation.time_seconds - state.time_seconds
                _, experience = self._reward.learn_from(state, progress, seconds, samples)
                self._policy.observe(progress)
                if experience is not None:
                    yield experience


def train(start: Weights, optimizer: OptimizerSettings, settings: ResidualSettings, updates: int, seed: int) -> Weights:
    """What the fleet would publish after so many updates."""
    region = TrustRegion.around(start, optimizer.radius_for(SPEC))
    decay = PublishSettings().decay_for(SPEC)
    head = Head(AdamState.start(start), Ledger(256), ImmediateAggregator(AdamConstants()), decay, region)
    ingest = Ingest(SPEC, IngestSettings())
    clusters = [Cluster(number, nodes, start, settings, seed) for number, nodes in enumerate(NODES)]
    sequence = 0
    while head.step < updates:
        for cluster in clusters:
            result = cluster.next_gradient(head.weights)
            if result is None:
                continue
            sequence += 1
            update = GradientUpdate(
                cluster.name, 1, sequence, head.step, SPEC.digest, result.gradient, result.samples,
                result.effective_samples,
            )  # fmt: skip
            judgement = ingest.judge(update, head)
            rate = optimizer.rate_at(head.step) * judgement.scale
            applied = AppliedUpdate(head.step + 1, rate, judgement.active_clusters, 0.0, judgement.update, Kind.STEP)
            head.apply(applied, judgement.applied_norm)
    return head.publishable.copy()


def log_jcts(weights: Weights, nodes: int, seeds: Sequence[int]) -> np.ndarray:
    """Logarithms of the average JCTs, greedy, each workload from the shipped priors."""
    found = []
    for seed in seeds:
        workload, environment = episode(seed, nodes)
        policy = SetPolicy(SPEC, weights, default_set_file().priors)
        found.append(math.log(replay(workload, environment, policy, default_speeds()).to_json()["avg_jct_seconds"]))
    return np.array(found)


def main() -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.set_online", description=__doc__)
    parser.add_argument("--start", choices=("shipped", "zero"), default="shipped")
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=OptimizerSettings().learning_rate)
    parser.add_argument("--trust-radius", type=float, default=None, help="0: none; the default unless set")
    parser.add_argument("--utility-exponent", type=float, default=ResidualSettings().utility_exponent)
    parser.add_argument("--seeds", type=int, default=3, help="training seeds")
    parser.add_argument("--workloads", type=int, default=24, help="to judge on, per number of nodes")
    options = parser.parse_args()
    shipped = default_set_file().weights
    start = shipped if options.start == "shipped" else np.zeros_like(shipped)
    optimizer = OptimizerSettings(learning_rate=options.learning_rate, trust_radius=options.trust_radius)
    settings = ResidualSettings(utility_exponent=options.utility_exponent)
    judged = range(FIRST_JUDGED_SEED, FIRST_JUDGED_SEED + options.workloads)
    before = {nodes: log_jcts(start, nodes, judged) for nodes in JUDGED_NODES}
    runs = []
    for seed in range(options.seeds):
        began = time.process_time()
        weights = train(start, optimizer, settings, options.updates, seed)
        run = {"seed": seed, "train_cpu_seconds": round(time.process_time() - began, 1)}
        run["largest_move"] = round(float(np.abs(weights - start).max()), 4)
        for nodes in JUDGED_NODES:
            change = log_jcts(weights, nodes, judged) - before[nodes]
            error = float(change.std(ddof=1) / math.sqrt(len(change)))
            run[f"change_{nodes}_nodes"] = round(float(change.mean()), 5)
            run[f"standard_error_{nodes}_nodes"] = round(error, 5)
        runs.append(run)
        print(json.dumps(run), file=sys.stderr)
    print(json.dumps({"options": vars(options), "judged_seeds": [judged[0], judged[-1]], "runs": runs}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
