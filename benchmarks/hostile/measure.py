"""Measurement of an attack: an undisturbed phase and an attacked one, of the same clusters at the same learner."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.hostile.attackers import READY, Target
from benchmarks.hostile.honest import PACE_SECONDS, Phase
from benchmarks.processes import CommandedModule, percentile, polled, resident_bytes
from benchmarks.push.policies import policy
from benchmarks.push.servers import Server, start_learner
from deploy.demonstration.processes import Processes
from global_learner.aggregation.settings import AggregationMode
from global_learner.errors import LearnerError
from global_learner.operator_socket import OPERATOR_SOCKET, SCHEME
from global_learner.policyctl.client import AdminClient, TlsFiles
from policy_net.exchange.generated import fleet_pb2

HONEST = ("north", "south", "east", "west", "centre")
ATTACKER = "mallory"
OPERATOR_PATIENCE_SECONDS = 30.0
OPERATOR_PACE_SECONDS = 0.2
WARM_SECONDS = 5.0

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Watched:
    """One phase, and what the operator and the system saw of the learner meanwhile."""

    phase: Phase
    operator_max_seconds: float
    memory_bytes: int

    @property
    def p99_ms(self) -> float:
        """Of the answers' latencies."""
        return percentile(self.phase.latencies_ms, 0.99)

    @property
    def applied_share(self) -> float:
        """Of the updates that were sent."""
        return self.phase.applied / max(1, self.phase.sent)


def _honest(server: Server, seed: int) -> CommandedModule:
    """The honest clusters' process; a command is for how many seconds they push."""
    identities = json.dumps({name: server.identities[name] for name in HONEST})
    return CommandedModule("benchmarks.hostile.honest", server.address, identities, str(seed))


class _Operator:
    """Asks for the fleet, invites and revokes at the learner's socket, each time anew, as `policyctl` does."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._address = f"{SCHEME}{server.state_dir / OPERATOR_SOCKET}"
        self._asked = 0
        self._memory = 0
        self._slowest = 0.0

    def seen(self, phase: Phase) -> Watched:
        """The phase that was watched."""
        return Watched(phase, self._slowest, self._memory)

    def poll(self) -> None:
        """One of these calls after the other."""
        calls: tuple[Callable[[AdminClient], object], ...] = (
            lambda admin: admin.fleet(),
            lambda admin: admin.ask(fleet_pb2.EnrollClusterRequest(cluster="guest")),
            lambda admin: admin.ask(fleet_pb2.RevokeClusterRequest(cluster="guest")),
        )
        started = time.perf_counter()
        try:
            admin = AdminClient(self._address, TlsFiles(), OPERATOR_PATIENCE_SECONDS)
            calls[self._asked % len(calls)](admin)
            admin.close()
            self._asked += 1
            self._slowest = max(self._slowest, time.perf_counter() - started)
        except LearnerError:
            self._slowest = max(self._slowest, OPERATOR_PATIENCE_SECONDS)
        self._memory = max(self._memory, resident_bytes(self._server.pid))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured; `seconds` are a phase's."""

    attacks: Sequence[str]
    rounds: int
    seconds: float
    seed: int


def measure(folder: Path, plan: Plan, on_step: OnStep) -> dict[str, Any]:
    """All figures, as the command prints them."""
    results = []
    for attack in plan.attacks:
        pairs = []
        for number in range(plan.rounds):
            on_step(f"{attack}: round {number + 1} of {plan.rounds}")
            pairs.append(_round(folder / f"{attack}-{number}", attack, plan, plan.seed + number))
        results.append(_result(attack, pairs))
    return (
        {"honest_clusters": len(HONEST), "aggregation": AggregationMode.ROBUST.value}
        | asdict(plan)
        | {"attacks": results}
    )


def _round(folder: Path, attack: str, plan: Plan, seed: int) -> tuple[Watched, Watched]:
    folder.mkdir()
    pace = 2.0 / PACE_SECONDS
    sections = {
        "aggregation": {"mode": AggregationMode.ROBUST.value},
        "ingest": {"updates_per_second": pace, "burst_updates": round(pace)},
    }
    with Processes(folder) as processes:
        server = start_learner(processes, folder, "learner", policy(), (*HONEST, ATTACKER), **sections)
        with _honest(server, seed) as honest:
            honest.ask(WARM_SECONDS)
            calm = _watched(server, honest, plan.seconds)
            attacker = _start(attack, server, seed)
            try:
                return calm, _watched(server, honest, plan.seconds)
            finally:
                attacker.kill()
                attacker.wait()


def _watched(server: Server, honest: CommandedModule, seconds: float) -> Watched:
    operator = _Operator(server)
    with polled(operator.poll, OPERATOR_PACE_SECONDS):
        phase = Phase(**honest.ask(seconds))
    return operator.seen(phase)


def _start(attack: str, server: Server, seed: int) -> subprocess.Popen[str]:
    ports = json.loads((server.state_dir.parent / "ports.json").read_text())
    authority = server.state_dir / "identity" / "ca.pem"
    target = Target(ports["port"], ports["enroll_port"], ATTACKER, server.identities[ATTACKER], str(authority), seed)
    command = [sys.executable, "-m", "benchmarks.hostile.attackers", attack, json.dumps(asdict(target))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    said = process.stdout.readline() if process.stdout is not None else ""
    if said.strip() != READY:
        process.kill()
        process.wait()
        raise RuntimeError(f"the attacker {attack} failed; what went wrong stands on stderr")
    return process


def _result(attack: str, pairs: Sequence[tuple[Watched, Watched]]) -> dict[str, Any]:
    def median(figure: Callable[[Watched, Watched], float]) -> float:
        return round(statistics.median(figure(calm, attacked) for calm, attacked in pairs), 3)

    outcomes: dict[str, int] = {}
    for _, attacked in pairs:
        for outcome, count in attacked.phase.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    return {
        "name": attack,
        "applied_share": median(lambda calm, attacked: attacked.applied_share / calm.applied_share),
        "p99_ratio": median(lambda calm, attacked: attacked.p99_ms / calm.p99_ms),
        "operator_max_seconds": round(max(attacked.operator_max_seconds for _, attacked in pairs), 3),
        "memory_ratio": median(lambda calm, attacked: attacked.memory_bytes / calm.memory_bytes),
        "updates_ratio": median(lambda calm, attacked: _rate(attacked) / _rate(calm)),
        "learned_ratio": median(lambda calm, attacked: _learned(attacked) / _learned(calm)),
        "calm_p99_ms": median(lambda calm, _: calm.p99_ms),
        "calm_updates_per_second": median(lambda calm, _: _rate(calm)),
        "calm_operator_max_seconds": round(max(calm.operator_max_seconds for calm, _ in pairs), 3),
        "outcomes": outcomes,
    }


def _rate(watched: Watched) -> float:
    return watched.phase.applied / watched.phase.seconds


def _learned(watched: Watched) -> float:
    return watched.phase.learned / watched.phase.seconds
