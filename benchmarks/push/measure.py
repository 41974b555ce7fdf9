"""Rounds of load: the learner over mutual TLS and in plain text, a bare echo over mutual TLS, by number of clusters.

The echo is measured twice: with clusters that send the same bytes again and again, and with clusters that do for each
call what they do for a push. All of them share the processors with the server, so the second says more of the server.

All are measured in turn within a round, so that whatever else the machine does hits all of them; figures are medians
over the rounds, ratios are taken within a round.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.processes import CommandedModule, percentile
from benchmarks.push.load import Figures
from benchmarks.push.policies import gradient, policy
from benchmarks.push.servers import LOAD_MODULE, load_server, metrics, start_echo, start_learner
from deploy.demonstration.processes import Processes
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


_PERIOD_SECONDS = 0.05


def folder_bytes(folder: Path) -> int:
    """Blocks taken by all files below, in bytes; what is removed meanwhile does not count."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += 512 * (Path(path) / name).stat().st_blocks
            except FileNotFoundError:
                continue
    return total


class HighWaterMark:
    """The most that a folder took within the context, looked at twenty times a second."""

    def __init__(self, folder: Path) -> None:
        self.bytes = 0
        self._folder = folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="disk", daemon=True)

    def __enter__(self) -> HighWaterMark:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_PERIOD_SECONDS):
            self.bytes = max(self.bytes, folder_bytes(self._folder))


APPLY_SECONDS = 0.5
_OF_MESSAGES = " of messages"

OnStep = Callable[[str], None]


def measure(folder: Path, clusters: Sequence[int], rounds: int, seconds: float, on_step: OnStep) -> dict[str, Any]:
    """All figures, as the command prints them."""
    first = policy()
    names = [f"cluster{number}" for number in range(max(clusters))]
    on_step("application alone")
    apply_rate, apply_cpu_rate = apply_per_second(first, APPLY_SECONDS, rounds)
    with Processes(folder) as processes, CommandedModule(LOAD_MODULE, first.spec.to_json()) as load:
        on_step("starting learners, enrolling clusters")
        learner = start_learner(processes, folder, "learner", first, names)
        plain = start_learner(processes, folder, "plain", first, ())
        echo = start_echo(processes, folder, "echo", learner)
        figures: dict[tuple[str, int], list[Figures]] = {}
        with HighWaterMark(learner.state_dir) as disk:
            for number in range(rounds):
                for count in clusters:
                    for server, messages in ((learner, False), (plain, False), (echo, False), (echo, True)):
                        name = f"{server.name}{_OF_MESSAGES if messages else ''}"
                        on_step(f"round {number + 1} of {rounds}: {name}, {count} clusters")
                        done = load_server(load, server, names[:count], seconds, echo=server is echo, messages=messages)
                        figures.setdefault((name, count), []).append(done)
                        processes.check()
        reported = metrics(learner)
    measured = ("learner", "plain", "echo", f"echo{_OF_MESSAGES}")
    runs = [_run(count, *(figures[name, count] for name in measured)) for count in clusters]
    updates = reported["fedl2_learner_group_updates_sum"]
    return {
        "runs": runs,
        "apply_per_second": round(apply_rate, 1),
        "apply_per_cpu_second": round(apply_cpu_rate, 1),
        "update_bytes": 4 * first.spec.parameter_count,
        "log_bytes_per_update": round(reported["fedl2_learner_log_written_bytes_total"] / updates),
        "updates_per_fsync": round(updates / reported["fedl2_learner_group_updates_count"], 2),
        "disk_high_water_bytes": disk.bytes,
        "log_limit_bytes": round(reported["fedl2_learner_log_limit_bytes"]),
        "snapshots": round(reported["fedl2_learner_snapshot_seconds_count"]),
        "rounds": rounds,
        "seconds": seconds,
    }


def _run(
    count: int,
    learner: Sequence[Figures],
    plain: Sequence[Figures],
    echo: Sequence[Figures],
    message_echo: Sequence[Figures],
) -> dict[str, Any]:
    """One line of the result; `cpu` is the server's, `load_cpu` that of the clusters beside it."""

    def median_of(rounds: Sequence[Figures], figure: Callable[[Figures], float], digits: int) -> float:
        return round(statistics.median(figure(done) for done in rounds), digits)

    def over(others: Sequence[Figures]) -> float:
        return round(statistics.median(_rate(a) / _rate(b) for a, b in zip(learner, others, strict=True)), 3)

    def over_by_cpu(others: Sequence[Figures]) -> float:
        """What `over` would be if both used all processors all the time: steadier where other programs use them too."""
        return round(
            statistics.median(_all_cpu_ms(b) / _all_cpu_ms(a) for a, b in zip(learner, others, strict=True)), 3
        )

    return {
        "clusters": count,
        "updates_per_second": median_of(learner, _rate, 1),
        "p50_ms": median_of(learner, _p50_ms, 2),
        "p99_ms": median_of(learner, _p99_ms, 2),
        "cpu_ms_per_update": median_of(learner, _server_cpu_ms, 3),
        "load_cpu_ms_per_update": median_of(learner, _load_cpu_ms, 3),
        "plain_updates_per_second": median_of(plain, _rate, 1),
        "plain_cpu_ms_per_update": median_of(plain, _server_cpu_ms, 3),
        "echo_updates_per_second": median_of(echo, _rate, 1),
        "echo_p50_ms": median_of(echo, _p50_ms, 2),
        "echo_cpu_ms_per_update": median_of(echo, _server_cpu_ms, 3),
        "echo_load_cpu_ms": median_of(echo, _load_cpu_ms, 3),
        "message_echo_per_second": median_of(message_echo, _rate, 1),
        "message_echo_load_cpu_ms": median_of(message_echo, _load_cpu_ms, 3),
        "over_plain": over(plain),
        "over_echo": over(echo),
        "over_message_echo": over(message_echo),
        "over_echo_by_cpu": over_by_cpu(echo),
        "over_message_echo_by_cpu": over_by_cpu(message_echo),
    }


def _rate(done: Figures) -> float:
    return done.updates / done.seconds


def _p50_ms(done: Figures) -> float:
    return percentile(done.latencies_ms, 0.5)


def _p99_ms(done: Figures) -> float:
    return percentile(done.latencies_ms, 0.99)


def _server_cpu_ms(done: Figures) -> float:
    return 1000.0 * done.server_cpu_seconds / done.updates


def _load_cpu_ms(done: Figures) -> float:
    return 1000.0 * done.load_cpu_seconds / done.updates


def _all_cpu_ms(done: Figures) -> float:
    """Never 0, as a short load may be in hundredths of a second."""
    return max(_server_cpu_ms(done) + _load_cpu_ms(done), 1e-3)
