"""The whole measurement: clusters enrolled, connected, let loose, the learner killed, its log counted."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.fleet.load import Done, Opened, Pace
from benchmarks.processes import CommandedModule, cpu_seconds, percentile, polled, resident_bytes
from benchmarks.push.policies import policy
from benchmarks.push.servers import LOAD_MODULE, Server, enroll, load_server, metrics, start_echo, start_learner
from deploy.demonstration.processes import Processes
from global_learner.storage.receipts import Receipt, read_receipts
from policy_net.exchange.policy_file import PolicyFile

_PERIOD_SECONDS = 1.0
_WINDOW = 0.1
"""Share of the time over which the memory at a moment is a median: versions and snapshots come and go meanwhile."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A moment: seconds since the first, resident bytes, processor seconds since the process began."""

    seconds: float
    resident_bytes: int
    cpu_seconds: float


@contextlib.contextmanager
def watched(pid: int, period_seconds: float = _PERIOD_SECONDS) -> Iterator[list[Sample]]:
    """Samples of a process: at the begin and the end of the context, and once a period between."""
    samples: list[Sample] = []
    began = time.perf_counter()

    def sample() -> None:
        samples.append(Sample(time.perf_counter() - began, resident_bytes(pid), cpu_seconds(pid)))

    sample()
    with polled(sample, period_seconds):
        yield samples
    sample()


def growth_percent(samples: Sequence[Sample], from_seconds: float) -> float:
    """How much more memory a process has at the end than at a moment, in percent of what it had then.

    Both are medians over a tenth of the time between.

    Raises:
        ValueError: nothing was sampled from that moment on.
    """
    late = [sample for sample in samples if sample.seconds >= from_seconds]
    if not late:
        raise ValueError(f"no sample of {from_seconds:.0f} s or later")
    window = max(1, round(_WINDOW * len(late)))
    begin = statistics.median(sample.resident_bytes for sample in late[:window])
    end = statistics.median(sample.resident_bytes for sample in late[-window:])
    return 100.0 * (end - begin) / begin


@dataclass(frozen=True, slots=True)
class Counted:
    """The log beside the clusters' word.

    Attributes:
        logged: updates in the log, resets apart.
        lost: acknowledged and not in the log.
        twice: in the log more often than once, each further time.
        unasked: in the log and not acknowledged: 0 where every update was answered.
        gaps: steps that are missing from the log, or out of order.
    """

    logged: int
    lost: int
    twice: int
    unasked: int
    gaps: int


def count(receipts: Iterable[Receipt], acknowledged: Mapping[str, tuple[int, list[int]]]) -> Counted:
    """Compare a log with what clusters were told: by cluster, its incarnation and the numbers of its updates."""
    logged: Counter[tuple[str, int, int]] = Counter()
    gaps, step = 0, 0
    for receipt in receipts:
        gaps += receipt.step != step + 1
        step = receipt.step
        if receipt.kind == "update":
            logged[receipt.cluster, receipt.incarnation, receipt.sequence] += 1
    reported = {
        (cluster, incarnation, number) for cluster, (incarnation, numbers) in acknowledged.items() for number in numbers
    }
    return Counted(
        logged=logged.total(),
        lost=len(reported - logged.keys()),
        twice=sum(times - 1 for times in logged.values()),
        unasked=len(logged.keys() - reported),
        gaps=gaps,
    )


def count_in(state_dir: Path, spec_digest: str, acknowledged: Mapping[str, tuple[int, list[int]]]) -> Counted:
    """The same of the state directory of a learner that has ended, however it did.

    Raises:
        StateUnusable: its log or its receipts are damaged.
    """
    return count(read_receipts(state_dir, spec_digest), acknowledged)


class LoadProcesses:
    """So many processes, over which the clusters are dealt; use within `load_processes`."""

    def __init__(self, running: list[CommandedModule]) -> None:
        self._running = running

    def open(self, address: str, identities: dict[str, str]) -> None:
        """Connect and register every cluster."""
        dealt: list[dict[str, str]] = [{} for _ in self._running]
        for number, (cluster, path) in enumerate(identities.items()):
            dealt[number % len(dealt)][cluster] = path
        self._all([asdict(Opened(address, share)) for share in dealt])

    def run(self, pace: Pace) -> Done:
        """Let the clusters push; what all of them met, together."""
        done = Done()
        for answer in self._all([asdict(pace)] * len(self._running)):
            done.add(answer)
        return done

    def _all(self, commands: list[dict[str, Any]]) -> list[Any]:
        with ThreadPoolExecutor(len(self._running)) as pool:
            return list(pool.map(CommandedModule.ask, self._running, commands))


@contextlib.contextmanager
def load_processes(spec_json: str, count: int) -> Iterator[LoadProcesses]:
    """Start the processes; they end with the context."""
    with contextlib.ExitStack() as stack:
        running = (CommandedModule("benchmarks.fleet.load", spec_json) for _ in range(count))
        yield LoadProcesses([stack.enter_context(process) for process in running])


_ENROLLED_AT_ONCE = 8
_RATIO_CLUSTERS = 16
OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    Attributes:
        clusters: how many there are.
        processes: over which they are dealt.
        settle_share: part of the time after which memory should be flat.
        ratio_rounds: turns of the learner and of the echo for `push_over_echo`; 0 leaves it out.
        ratio_seconds: of each turn.
    """

    clusters: int
    processes: int
    pace: Pace
    settle_share: float = 0.2
    ratio_rounds: int = 7
    ratio_seconds: float = 2.0


def measure(folder: Path, plan: Plan, on_step: OnStep) -> dict[str, Any]:
    """All figures, as the command prints them."""
    first = policy()
    names = [f"cluster{number:04d}" for number in range(plan.clusters)]
    with Processes(folder) as processes:
        on_step("starting the learner")
        learner = start_learner(processes, folder, "learner", first, (), identity={"enroll_port": 0})
        alone_bytes = resident_bytes(learner.pid)
        on_step(f"enrolling {len(names)} clusters")
        began = time.perf_counter()
        identities = enroll(folder / "learner", learner.address, names, _ENROLLED_AT_ONCE)
        enrolled_seconds = time.perf_counter() - began
        with load_processes(first.spec.to_json(), plan.processes) as load:
            on_step(f"connecting {len(names)} clusters")
            began = time.perf_counter()
            load.open(learner.address, identities)
            connected_seconds = time.perf_counter() - began
            connected_bytes = resident_bytes(learner.pid)
            on_step(f"{len(names)} clusters, {plan.pace.seconds:.0f} s")
            load_before = os.getloadavg()
            with watched(learner.pid) as samples:
                done = load.run(plan.pace)
            load_after = os.getloadavg()
            processes.check()
            reported = metrics(learner)
            on_step("counting what the log holds")
            processes.kill("learner")
        counted = count_in(learner.state_dir, first.spec.digest, done.acknowledged)
        on_step(f"{_RATIO_CLUSTERS} clusters, the learner and the echo in turns")
        ratio = _over_echo(processes, folder, first, plan)
    return {
        "lost": counted.lost,
        "p99_ms": percentile(done.push_ms, 0.99),
        "memory_growth_percent": round(growth_percent(samples, plan.settle_share * plan.pace.seconds), 2),
        **ratio,
        "clusters": plan.clusters,
        "seconds": plan.pace.seconds,
        "period_seconds": plan.pace.period_seconds,
        "heartbeat_seconds": plan.pace.heartbeat_seconds,
        "acknowledged": sum(len(numbers) for _, numbers in done.acknowledged.values()),
        **asdict(counted),
        "refused": dict(done.refused),
        "failures": dict(done.failures),
        **_times(done),
        **_usage(samples, done, plan.clusters, alone_bytes, connected_bytes),
        "updates_per_fsync": round(
            reported["fedl2_learner_group_updates_sum"] / reported["fedl2_learner_group_updates_count"], 2
        ),
        "enroll_seconds": round(enrolled_seconds, 1),
        "connect_seconds": round(connected_seconds, 1),
        "load_average": [round(load_before[0], 2), round(load_after[1], 2)],
        "processors": os.cpu_count(),
    }


def _times(done: Done) -> dict[str, float]:
    """Milliseconds, as the clusters saw them; `late` is how much too late their own timers came."""
    return {
        "p50_ms": percentile(done.push_ms, 0.5),
        "max_ms": percentile(done.push_ms, 1.0),
        "pull_p99_ms": percentile(done.pull_ms, 0.99),
        "heartbeat_p99_ms": percentile(done.heartbeat_ms, 0.99),
        "late_p99_ms": percentile(done.late_ms, 0.99),
    }


def _usage(
    samples: Sequence[Sample], done: Done, clusters: int, alone_bytes: int, connected_bytes: int
) -> dict[str, float]:
    """What the learner took: of the processor, all calls together, and of memory."""
    cpu = samples[-1].cpu_seconds - samples[0].cpu_seconds
    seconds = samples[-1].seconds - samples[0].seconds
    return {
        "learner_cpu_share": round(cpu / seconds, 3),
        "learner_cpu_ms_per_update": round(1000.0 * cpu / max(1, len(done.push_ms)), 3),
        "heartbeats": len(done.heartbeat_ms),
        "memory_mb": round(samples[-1].resident_bytes / 1e6, 1),
        "memory_most_mb": round(max(sample.resident_bytes for sample in samples) / 1e6, 1),
        "memory_alone_mb": round(alone_bytes / 1e6, 1),
        "memory_kb_per_connection": round((connected_bytes - alone_bytes) / 1e3 / clusters, 1),
    }


def _over_echo(processes: Processes, folder: Path, first: PolicyFile, plan: Plan) -> dict[str, float]:
    """Pushes a second over calls of the bare echo, turn by turn, and what one costs the processor there and here.

    With clusters that send the echo the same bytes, and with such as build and read messages as they do for a push.
    """
    if not plan.ratio_rounds:
        return {}
    names = [f"cluster{number}" for number in range(_RATIO_CLUSTERS)]
    learner = start_learner(processes, folder, "beside-echo", first, names)
    echo = start_echo(processes, folder, "echo", learner)
    ratios, message_ratios, rates, cpu, echo_cpu = [], [], [], [], []
    with CommandedModule(LOAD_MODULE, first.spec.to_json()) as load:

        def turn(server: Server, messages: bool = False) -> tuple[float, float]:
            done = load_server(load, server, names, plan.ratio_seconds, echo=server is echo, messages=messages)
            processes.check()
            return done.updates / done.seconds, 1000.0 * done.server_cpu_seconds / done.updates

        for _ in range(plan.ratio_rounds):
            (rate, cost), (echo_rate, echo_cost) = turn(learner), turn(echo)
            message_rate, _ = turn(echo, messages=True)
            ratios.append(rate / echo_rate)
            message_ratios.append(rate / message_rate)
            rates.append(rate)
            cpu.append(cost)
            echo_cpu.append(echo_cost)
    return {
        "push_over_echo": round(statistics.median(ratios), 3),
        "push_over_message_echo": round(statistics.median(message_ratios), 3),
        "pushes_per_second": round(statistics.median(rates), 1),
        "push_cpu_ms": round(statistics.median(cpu), 3),
        "echo_cpu_ms": round(statistics.median(echo_cpu), 3),
    }
