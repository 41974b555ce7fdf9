"""Application alone: judging an update and stepping the head, in this process, without network, disk or event loop."""

from __future__ import annotations

import statistics
import time

from benchmarks.push.policies import gradient
from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.settings import IngestSettings
from global_learner.storage.snapshot import AdamState
from global_learner.updates.head import Head
from global_learner.updates.ingest import Ingest
from global_learner.updates.ledger import Ledger
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.wire import GradientUpdate

CLUSTERS = 16


def apply_per_second(policy: PolicyFile, seconds: float, rounds: int) -> tuple[float, float]:
    """Updates per second of wall time and per second of processor time, medians of the rounds."""
    spec = policy.network_spec
    optimizer, aggregation = OptimizerSettings(), AggregationSettings()
    head = Head(AdamState.start(policy.weights), Ledger(256), build_aggregator(aggregation, optimizer, spec))
    ingest = Ingest(spec, IngestSettings(), optimizer, aggregation)
    slopes = [gradient(spec, seed) for seed in range(CLUSTERS)]
    rates = []
    for _ in range(rounds):
        done, began, cpu_began = 0, time.perf_counter(), time.process_time()
        while not done or time.perf_counter() - began < seconds:
            step = head.step
            cluster = f"cluster{step % CLUSTERS}"
            base = max(0, step - CLUSTERS + 1)
            slope = slopes[step % CLUSTERS]
            update = GradientUpdate(cluster, 1, step // CLUSTERS + 1, base, spec.digest, slope, 256, 200.0)
            if head.ledger.holds(update):
                raise RuntimeError(f"update {step + 1} is taken for a duplicate")
            head.apply(ingest.judge(update, head))
            done += 1
        rates.append((done / (time.perf_counter() - began), done / (time.process_time() - cpu_began)))
    return statistics.median(wall for wall, _ in rates), statistics.median(cpu for _, cpu in rates)
