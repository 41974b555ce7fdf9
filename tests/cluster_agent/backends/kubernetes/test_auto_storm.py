"""Sizes that are set while everything moves: decisions, late pods, other people's pods, faults and restarts, drawn from
a seed. Whatever comes, no room is given twice, nobody leaves its bounds, and in the end all is as decided.
"""

import random
from pathlib import Path

import pytest
from apiserver.serving import Asked, Fault
from kube_agents import Agent, wait_for
from kube_cluster import PODS, KubeCluster, kube_cluster

GPUS = 8
JOBS = {"one": (1, 4), "two": (2, 6), "three": (1, 8), "four": (2, 2)}
FAULTS = (Fault(code=500), Fault(cut=True), Fault(code=409), Fault(code=403), Fault(code=429, retry_after=1))


class Storm:
    """A cluster of eight GPUs in which things happen."""

    def __init__(self, cluster: KubeCluster, seed: int) -> None:
        self.cluster, self.random = cluster, random.Random(seed)
        self.foreign = 0
        self.is_over = False
        cluster.node("a", gpus=GPUS)
        cluster.opt_in()
        for number, (name, (least, most)) in enumerate(JOBS.items()):
            cluster.job(name, least, on="a", suspend=number > 1)
            cluster.target(name, updateMode="Auto", min=least, max=most)
        cluster.server.faults = self.fault

    def fault(self, asked: Asked) -> Fault | None:
        if self.is_over or not (asked.user == "auto" and asked.writes) or self.random.random() < 0.7:
            return None
        return self.random.choice(FAULTS)

    def taken(self) -> int:
        """GPUs that pods have, that jobs may still make pods for, and that pods on their way out have."""
        found = self.cluster.server.call(lambda: list(self.cluster.server.store.all(PODS, "team")))
        leaving = [pod for pod in found if "deletionTimestamp" in pod["metadata"]]
        taken = len(leaving)
        for name in (*JOBS, "foreign"):
            live = sum(pod["metadata"]["name"].startswith(f"{name}-") for pod in found if pod not in leaving)
            taken += live if name == "foreign" else max(live, self.cluster.size(name))
        return taken

    def move(self) -> None:
        """Let some pods come and go, and some annotation change."""
        for name in JOBS:
            if self.random.random() < 0.6:
                self.cluster.follow(name, leaving=self.random.random() < 0.3)
            if self.random.random() < 0.3:
                self.cluster.annotate(name, done=str(self.random.random()))
        if self.random.random() < 0.3 and self.taken() < GPUS:
            self.foreign += 1
            self.cluster.foreign_pod(f"foreign-{self.foreign}")
        elif self.foreign and self.random.random() < 0.3:
            self.cluster.remove_pod(f"foreign-{self.foreign}")
            self.foreign -= 1

    def unseen_by(self, agent: Agent) -> list[str]:
        """The pods of which an agent does not know how they are: what others took just now nobody can know."""
        found = self.cluster.server.call(lambda: list(self.cluster.server.store.all(PODS, "team")))
        there = {(pod["metadata"]["name"], pod["metadata"]["resourceVersion"]) for pod in found}
        seen = {(name, entry.version) for (_, name), entry in agent.backend.watch.pods.entries().items()}
        unseen = [f"{name} of {version} is not seen" for name, version in there - seen]
        return unseen + [f"{name} of {version} is not there" for name, version in seen - there]

    def decision(self) -> dict[str, int]:
        """Sizes that fit eight GPUs, as the guard would have them."""
        left, sizes = GPUS, {}
        for name in self.random.sample(list(JOBS), len(JOBS)):
            least, most = JOBS[name]
            size = self.random.choice([0, *range(least, most + 1)])
            sizes[name] = size if size <= left else 0
            left -= sizes[name]
        return sizes


@pytest.mark.heavy
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_room_is_given_twice_whatever_comes_and_in_the_end_all_is_as_decided(tmp_path: Path, seed: int) -> None:
    with kube_cluster() as cluster:
        storm = Storm(cluster, seed)
        agent = Agent(cluster, tmp_path, "auto", slot_seconds=0.1, limits={"changes_per_hour": 3600})
        for _ in range(25):
            wait_for(lambda: not storm.unseen_by(agent), lambda: storm.unseen_by(agent))  # noqa: B023 — asked at once
            agent.decide(**storm.decision())
            assert storm.taken() <= GPUS
            storm.move()
            assert storm.taken() <= GPUS
            for name, (least, most) in JOBS.items():
                assert cluster.size(name) == 0 or least <= cluster.size(name) <= most
            if storm.random.random() < 0.15:
                agent.close()
                agent = Agent(cluster, tmp_path, "auto", slot_seconds=0.1, limits={"changes_per_hour": 3600})
        agent.close()  # what was refused too often is left alone for a while; a new life begins anew
        storm.is_over = True
        for number in range(storm.foreign):
            cluster.remove_pod(f"foreign-{number + 1}")
        agent = Agent(cluster, tmp_path, "auto", slot_seconds=0.1, limits={"changes_per_hour": 3600})
        wanted = {"one": 2, "two": 2, "three": 2, "four": 2}

        def is_as_decided() -> bool:
            agent.decide(**wanted)
            for name in JOBS:
                cluster.follow(name)
            return {name: cluster.size(name) for name in JOBS} == wanted

        wait_for(is_as_decided)
        agent.close()
