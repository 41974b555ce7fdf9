"""Rounds of load: the learner over mutual TLS and in plain text, a bare echo over mutual TLS, by number of clusters.

The echo is measured twice: with clusters that send the same bytes again and again, and with clusters that do for each
call what they do for a push. All of them share the processors with the server, so the second says more of the server.

All are measured in turn within a round, so that whatever else the machine does hits all of them; figures are medians
over the rounds, ratios are taken within a round.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.processes import CommandedModule, percentile, polled
from benchmarks.push.load import Figures
from benchmarks.push.policies import gradient, policy
from benchmarks.push.servers import LOAD_MODULE, load_server, metrics, start_echo, start_learner
from deploy.demonstration.processes import Processes
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.updates.simulated_fleet import SimulatedHead
from policy_net.exchange.policy_file import PolicyFile
from policy_net.learning.gradient import GradientResult

CLUSTERS = 16


def apply_per_second(policy: PolicyFile, seconds: float, rounds: int) -> tuple[float, float]:
    """Updates per second of wall time and per second of processor time, medians of the rounds."""
    learner = SimulatedHead(policy, OptimizerSettings(), AggregationSettings())
    head = learner.head
    slopes = [GradientResult(gradient(policy.network_spec, seed), 256, 200.0, {}) for seed in range(CLUSTERS)]
    rates = []
    for _ in range(rounds):
        done, began, cpu_began = 0, time.perf_counter(), time.process_time()
        while not done or time.perf_counter() - began < seconds:
            place = head.step % CLUSTERS
            learner.offer(f"cluster{place}", max(0, head.step - CLUSTERS + 1), slopes[place])
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
    """The most that a folder took, of all the times that it was looked at."""

    def __init__(self, folder: Path) -> None:
        self.bytes = 0
        self._folder = folder

    def poll(self) -> None:
        """Look at it."""
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
        disk = HighWaterMark(learner.state_dir)
        with polled(disk.poll, _PERIOD_SECONDS):
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


Rounds = Sequence[Figures]


def _run(count: int, learner: Rounds, plain: Rounds, echo: Rounds, message_echo: Rounds) -> dict[str, Any]:
    """One line of the result; `cpu` is the server's, `load_cpu` that of the clusters beside it."""

    def median_of(rounds: Rounds, figure: Callable[[Figures], float], digits: int) -> float:
        return round(statistics.median(figure(done) for done in rounds), digits)

    def over(others: Rounds) -> float:
        return _median_ratio(learner, others, _rate)

    def over_by_cpu(others: Rounds) -> float:
        """What `over` would be if both used all processors all the time: steadier where other programs use them too."""
        return _median_ratio(others, learner, _all_cpu_ms)

    return {
        "clusters": count,
        "updates_per_second": median_of(learner, _rate, 1),
        "p50_ms": median_of(learner, lambda done: percentile(done.latencies_ms, 0.5), 2),
        "p99_ms": median_of(learner, lambda done: percentile(done.latencies_ms, 0.99), 2),
        "cpu_ms_per_update": median_of(learner, _server_cpu_ms, 3),
        "load_cpu_ms_per_update": median_of(learner, _load_cpu_ms, 3),
        "plain_updates_per_second": median_of(plain, _rate, 1),
        "plain_cpu_ms_per_update": median_of(plain, _server_cpu_ms, 3),
        "echo_updates_per_second": median_of(echo, _rate, 1),
        "echo_p50_ms": median_of(echo, lambda done: percentile(done.latencies_ms, 0.5), 2),
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


def _median_ratio(rounds: Rounds, others: Rounds, figure: Callable[[Figures], float]) -> float:
    return round(statistics.median(figure(a) / figure(b) for a, b in zip(rounds, others, strict=True)), 3)


def _rate(done: Figures) -> float:
    return done.updates / done.seconds


def _server_cpu_ms(done: Figures) -> float:
    return 1000.0 * done.server_cpu_seconds / done.updates


def _load_cpu_ms(done: Figures) -> float:
    return 1000.0 * done.load_cpu_seconds / done.updates


def _all_cpu_ms(done: Figures) -> float:
    """Never 0, as a short load may be in hundredths of a second."""
    return max(_server_cpu_ms(done) + _load_cpu_ms(done), 1e-3)
