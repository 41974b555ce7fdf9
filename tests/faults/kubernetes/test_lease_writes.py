"""Every fault of a write, at the writes of a Lease: there is never a second holder, and soon there is one again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver.serving import Asked, Fault, KubeServer
from fault_table import CREATE, STRIKES, UPDATE
from kube_clients import api_of

from cluster_agent.kubernetes.elector import Elector, LeaseTimes

Json = dict[str, Any]
LEASES = "leases.coordination.k8s.io"
TIMES = LeaseTimes()
LASTS_SECONDS = 20.0
"""Of a fault that is the server's: longer than a Lease."""
TICK_SECONDS = 60.0
SIX_DIGITS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
WRITES = {"made": (CREATE, 0), "taken": (UPDATE, 0), "renewed": (UPDATE, 2), "given back": (UPDATE, 4)}
PAIRS = [
    (name, write) for name, strike in STRIKES.items() for write, (verb, _) in WRITES.items() if verb in strike.verbs
]


class Electors:
    """Two candidates on one clock, and the writes of the Lease."""

    def __init__(self, server: KubeServer) -> None:
        self.server, self.now, self.lives = server, 1000.0, 0
        self.ones: dict[str, Elector] = {}
        self.due: dict[str, float] = {}
        for name in ("one", "two"):
            self.start(name)

    def start(self, name: str) -> None:
        """A new process: another identity, and nothing is known."""
        self.lives += 1
        api = api_of(self.server, name)
        clock = lambda: self.now  # noqa: E731
        identity = f"{name}-{self.lives}"
        self.ones[name] = Elector(api, "fedl2", "fedl2-agent", identity, clock, lambda: 1.8e9 + self.now, TIMES)
        self.due[name] = self.now

    def step(self) -> list[str]:
        """Go on for a second; who may write then."""
        self.now += 1.0
        for name, elector in self.ones.items():
            if self.now >= self.due[name]:
                self.due[name] = self.now + elector.step()
        holders = [name for name, elector in self.ones.items() if elector.seconds_left > 0]
        assert len(holders) <= 1, "two may write"
        return holders


@pytest.fixture(scope="module")
def server() -> Iterator[KubeServer]:
    with KubeServer({"one": "one", "two": "two"}, namespaces=("team", "fedl2")).running() as running:
        yield running


@pytest.fixture(autouse=True)
def _clean(server: KubeServer) -> None:
    server.faults = lambda asked: None
    server.call(lambda: server.store.objects.get(LEASES, {}).clear())
    server.asked.clear()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("name", "write"), PAIRS, ids=[f"{name}, {write}" for name, write in PAIRS])
def test_a_fault_at_any_write_of_the_lease_is_survived(
    server: KubeServer, name: str, write: str, restart: bool
) -> None:
    strike, (verb, number) = STRIKES[name], WRITES[write]
    struck: list[tuple[str, float]] = []
    counts = {CREATE: 0, UPDATE: 0}
    made: list[Electors] = []

    def faults(asked: Asked) -> Fault | None:
        if not (asked.writes and asked.resource == LEASES and made):
            return None
        count = counts[asked.verb]
        counts[asked.verb] = count + 1
        is_first = (asked.verb, count) == (verb, number)
        lasts = struck and not strike.ends_alone and made[0].now < struck[0][1] + LASTS_SECONDS
        if not (is_first or (lasts and asked.verb in strike.verbs)):
            return None
        struck.append((asked.user, made[0].now))
        return strike.fault

    if verb == UPDATE and number == 0:
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0}
        lease = {"metadata": {"name": "fedl2-agent", "namespace": "fedl2"}, "spec": spec}
        server.call(lambda: server.store.create(LEASES, lease))
    server.faults = faults
    electors = Electors(server)
    made.append(electors)
    for second in range(40):
        holders = electors.step()
        if struck and restart:
            electors.start(struck[0][0])
            restart = False
        if write == "given back" and second == 12 and holders:
            electors.ones[holders[0]].release()
    assert struck
    is_over = struck[0][1] + (0.0 if strike.ends_alone else LASTS_SECONDS)
    while not electors.step():
        assert electors.now < is_over + 2 * TICK_SECONDS, "nobody acts"


def test_every_time_in_a_lease_has_six_digits(server: KubeServer) -> None:
    """A real server refuses one without a fraction: also where the clock stands at a whole second."""
    electors = Electors(server)
    for _ in range(10):
        electors.step()
    (lease,) = server.call(lambda: list(server.store.all(LEASES)))
    assert SIX_DIGITS.fullmatch(lease["spec"]["renewTime"])
    assert SIX_DIGITS.fullmatch(lease["spec"]["acquireTime"])
