"""Every fault of a write, at every write of the loop that sets the sizes of Jobs, with and without a restart there.

The API, its answers and its watches are real HTTP; pods pretend. One job gives two GPUs, which another one gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from apiserver.serving import Asked, Fault
from apiserver.store import Change
from fault_table import STRIKES, Strike
from kube_agents import Agent, wait_for
from kube_clients import api_of
from kube_cluster import JOBS, PODS, TARGETS, KubeCluster, kube_cluster

from cluster_agent.kubernetes.events import About, EventRecorder

GPUS = 4
TICK_SECONDS = 300.0
"""The default of `slot_seconds`."""
TICKS = 3
"""After the end of a fault: two, and one in which pods have to leave before others come."""
WRITES: Mapping[str, Callable[[Asked], bool]] = MappingProxyType(
    {
        "size that falls": lambda asked: (asked.verb, asked.resource, asked.name) == ("patch", JOBS, "gives"),
        "size that rises": lambda asked: (asked.verb, asked.resource, asked.name) == ("patch", JOBS, "gets"),
        "status": lambda asked: (asked.verb, asked.resource, asked.part) == ("patch", TARGETS, "status"),
        "event": lambda asked: (asked.verb, asked.resource) == ("create", "events"),
    }
)
VERBS = {"size that falls": "patch", "size that rises": "patch", "status": "patch", "event": "create"}
USERS = ("auto", "next")


class Site:
    """Two jobs on a node with four GPUs, and one agent after another."""

    def __init__(self, cluster: KubeCluster, folder: Path) -> None:
        self.cluster, self.folder, self.dead = cluster, folder, set[str]()
        self.most_taken, self.ticks = 0, 0
        cluster.server.tokens |= {"next": "next"}
        may = cluster.server.may
        cluster.server.may = lambda asked: may(replace(asked, user="auto"))
        cluster.node("a", gpus=GPUS)
        cluster.opt_in()
        for name, workers in (("gives", 3), ("gets", 1)):
            cluster.job(name, workers, on="a")
            cluster.target(name, updateMode="Auto", max=4)
        cluster.server.call(lambda: cluster.server.store.on_change.append(self.count))
        self.agent = self.start("auto")

    def start(self, user: str) -> Agent:
        self.user = user
        return Agent(self.cluster, self.folder, user, slot_seconds=0.1, limits={"changes_per_hour": 3600})

    def count(self, change: Change) -> None:
        """Note how many GPUs are taken or promised after each change."""
        del change
        objects = self.cluster.server.store.objects
        pods = [pod["metadata"]["name"] for pod in objects.get(PODS, {}).values()]
        taken = 0
        for (_, name), job in objects.get(JOBS, {}).items():
            live = sum(pod.startswith(f"{name}-") for pod in pods)
            taken += max(live, 0 if job["spec"].get("suspend") else job["spec"]["parallelism"])
        self.most_taken = max(self.most_taken, taken)

    def tick(self) -> None:
        """One decision, and what controllers and kubelets do after it."""
        self.agent.decide(gives=1, gets=3)
        for name in ("gives", "gets"):
            self.cluster.follow(name)
        self.agent.skipped_seconds += TICK_SECONDS
        sight = self.agent.backend.watch
        wait_for(lambda: sight.is_fresh and not sight.namespaces()[1])
        wait_for(self.sees_all)

    def decide_again(self) -> None:
        """Some decisions shortly one after another, as where many jobs come."""
        for _ in range(3):
            self.agent.decide(gives=1, gets=3)

    def sees_all(self) -> bool:
        """Whether the agent has seen how pods and jobs are now: a tick is minutes, and a watch is not."""
        sight = self.agent.backend.watch
        caches = {PODS: sight.pods, JOBS: sight.jobs}
        for plural, cache in caches.items():
            found = self.cluster.server.call(lambda plural=plural: list(self.cluster.server.store.all(plural, "team")))  # type: ignore[misc]
            there = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}
            if there != {name: entry.version for (_, name), entry in cache.entries().items()}:
                return False
        return True

    def crash(self) -> None:
        """The process is gone, with all that it knew and had not sent yet; another one begins."""
        self.dead.add(self.user)
        self.agent.close()
        self.agent = self.start("next")

    def stands(self) -> bool:
        for name, size in (("gives", 1), ("gets", 3)):
            status = self.cluster.status_of(name)
            conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
            said = status.get("allocation", {}).get("workers")
            if self.cluster.size(name) != size or conditions.get("Resized") != "True" or said != size:
                return False
        return True


@contextmanager
def site_of(folder: Path) -> Iterator[Site]:
    with kube_cluster() as cluster:
        site = Site(cluster, folder)
        try:
            yield site
        finally:
            cluster.server.faults = lambda asked: None
            site.agent.close()


def play(folder: Path, strike: Strike, write: str, *, restart: bool, lasts_ticks: int = 1) -> None:
    """Two jobs change their sizes while a write is hit; in the end both have them.

    Args:
        lasts_ticks: of a fault that is the server's.
    """
    struck: list[Asked] = []
    with site_of(folder) as site:
        is_over = False

        def faults(asked: Asked) -> Fault | None:
            if asked.user in site.dead:
                return Fault(503)
            if asked.user not in USERS or not asked.writes:
                return None
            lasts = struck and not strike.ends_alone and not is_over and asked.verb in strike.verbs
            if lasts or (not struck and WRITES[write](asked)):
                struck.append(asked)
                return strike.fault
            return None

        site.cluster.server.faults = faults
        for _ in range(3):
            site.tick()
            if write == "event":
                wait_for(lambda: bool(struck))
            if struck:
                break
        assert struck, f"{write} is not written"
        if restart:
            site.crash()
        for _ in range(0 if strike.ends_alone else lasts_ticks):
            site.decide_again()
            site.tick()
        is_over = True
        for _ in range(TICKS):
            if site.stands():
                break
            site.tick()
        stands = [(site.cluster.size(name), site.cluster.status_of(name)) for name in ("gives", "gets")]
        assert site.stands(), f"{write}, restart {restart}: {stands}"
        assert site.most_taken <= GPUS, f"{write}, restart {restart}: {site.most_taken} GPUs"


@pytest.mark.heavy
@pytest.mark.parametrize("name", STRIKES)
def test_a_fault_at_any_write_of_sizes_is_survived(tmp_path: Path, name: str) -> None:
    order = list(STRIKES).index(name)
    strike = STRIKES[name]
    # Each write once, every other one with a restart; they only wait, so they do it beside each other.
    cases = [(write, bool((order + number) % 2)) for number, write in enumerate(WRITES) if VERBS[write] in strike.verbs]
    _all(tmp_path, strike, cases)


@pytest.mark.heavy
@pytest.mark.parametrize("name", [name for name, strike in STRIKES.items() if not strike.ends_alone])
def test_an_outage_of_many_decisions_is_over_soon_after_its_end(tmp_path: Path, name: str) -> None:
    play(tmp_path, STRIKES[name], "size that falls", restart=False, lasts_ticks=3)


@pytest.mark.long
@pytest.mark.parametrize("name", STRIKES)
def test_a_fault_at_any_write_of_sizes_is_survived_with_a_restart_and_without(tmp_path: Path, name: str) -> None:
    strike = STRIKES[name]
    _all(
        tmp_path,
        strike,
        [(write, again) for write in WRITES for again in (False, True) if VERBS[write] in strike.verbs],
    )


def _all(folder: Path, strike: Strike, cases: list[tuple[str, bool]]) -> None:
    folders = [folder / str(number) for number in range(len(cases))]
    for each in folders:
        each.mkdir()
    with ThreadPoolExecutor(4) as pool:
        found = [
            pool.submit(play, folder, strike, write, restart=restart)
            for folder, (write, restart) in zip(folders, cases, strict=True)
        ]
    for each in found:
        each.result()


def test_the_writes_that_are_hit_are_all_that_there_are(tmp_path: Path) -> None:
    with site_of(tmp_path) as site:
        for _ in range(TICKS):
            site.tick()
        wait_for(lambda: len(site.cluster.events()) >= 4)
        assert site.stands()
        asked = [each for each in site.cluster.server.asked if each.user in USERS and each.writes]
        assert [each for each in asked if not any(is_it(each) for is_it in WRITES.values())] == []
        assert all(any(is_it(each) for each in asked) for is_it in WRITES.values())


@pytest.mark.parametrize("name", STRIKES)
def test_a_fault_of_an_event_costs_that_event_and_nothing_else(name: str) -> None:
    """Made and counted up: both are writes of events."""
    with kube_cluster() as cluster:
        reported = EventRecorder(api_of(cluster.server, "root"), "agent", lambda: 0.0, lambda: 1.8e9)
        cluster.server.tokens, cluster.server.may = {}, lambda asked: True
        job = About("batch/v1", "Job", "team", "train", "1")
        for faulty in (True, False, True, False):
            strike = STRIKES[name]

            def faults(asked: Asked, faulty: bool = faulty, strike: Strike = strike) -> Fault | None:
                return strike.fault if faulty and asked.resource == "events" and asked.verb in strike.verbs else None

            cluster.server.faults = faults
            reported.record(job, "Resized", "from 1 to 2")
            while reported.step(0.0):
                pass
        (event, *more) = cluster.server.call(lambda: list(cluster.server.store.all("events")))
        assert 1 <= event["count"] <= 4
        assert len(more) <= 2, "an event whose answer was lost may be there twice, and no more"
