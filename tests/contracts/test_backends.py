import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from backend_suite import BackendSuite, one_pair_each
from kube_agents import Agent, wait_for
from kube_cluster import kube_cluster
from local_world import LocalWorld
from places_suite import PlacesSuite

from cluster_agent.backend_settings import SimulatedBackendSettings
from cluster_agent.backends.base import Backend
from cluster_agent.backends.simulated.backend import SimulatedBackend
from cluster_agent.backends.simulated.episodes import load_episodes
from policy_net.domain import Allocation, ClusterState, Decision


class SimulatedSuite(BackendSuite):
    decide_on = "slot"
    episodes = 1

    def make_backend(self, folder: Path) -> Backend:
        settings = SimulatedBackendSettings.model_validate(
            {
                "workloads": [{"source": "dl2:jobs=6,arrivals=google,sizes=varied,seed=3"}],
                "episodes": self.episodes,
                "environment": {"nodes": 12, "decide_on": self.decide_on},
            }
        )
        episodes = load_episodes(settings)
        return SimulatedBackend(episodes, folder, lambda _: False)


class TestSimulatedSlots(SimulatedSuite):
    pass


class TestSimulatedEvents(SimulatedSuite):
    decide_on = "event"


class TestSimulatedEpisodes(SimulatedSuite):
    episodes = 2


class TestLocal(BackendSuite):
    """This machine's backend, over processes that are simulated."""

    def make_backend(self, folder: Path) -> Backend:
        world = LocalWorld(folder, cpu_milli=9000)
        for number in range(6):
            world.submit(f"job-{number}", epochs=2.0 + number)
        return world.backend


class SimulatedPlaces(PlacesSuite):
    options: dict[str, object] = {}  # noqa: RUF012  (of one test class)

    def make_backend(self, folder: Path) -> Backend:
        settings = SimulatedBackendSettings.model_validate(
            {
                "workloads": [{"source": "dl2:jobs=6,arrivals=google,sizes=varied,seed=3"}],
                "environment": {"nodes": 12, **self.options},
            }
        )
        return SimulatedBackend(load_episodes(settings), folder, lambda _: False)

    def decision(self, state: ClusterState) -> Decision:
        return one_pair_each(state)


class TestSimulatedWherePlacesMatter(SimulatedPlaces):
    options = {"locality": True}  # noqa: RUF012


class TestSimulatedWhereTheyDoNot(SimulatedPlaces):
    says_places = False


class TestLocalPlaces(PlacesSuite):
    """One machine: all tasks lie on it, which says nothing."""

    says_places = False

    def make_backend(self, folder: Path) -> Backend:
        world = LocalWorld(folder, cpu_milli=9000)
        for number in range(3):
            world.submit(f"job-{number}", epochs=5.0)
        return world.backend

    def decision(self, state: ClusterState) -> Decision:
        return one_pair_each(state)


class KubernetesPlaces(PlacesSuite):
    """A job of two workers on two nodes, which counts its samples in an annotation."""

    products = ("", "")

    @pytest.fixture(autouse=True)
    def _cluster(self) -> Iterator[None]:
        with kube_cluster() as self.cluster:
            for name, product in zip("ab", self.products, strict=True):
                self.cluster.node(name, product=product)
            yield

    def make_backend(self, folder: Path) -> Backend:
        self.cluster.job("train", workers=2, on="a")
        self.cluster.remove_pod("train-1")
        self.cluster.follow("train", on="b")
        self.cluster.target("train", modelType="vgg-16", progressFrom={"annotations": {"samples": "done"}})
        self.samples = itertools.count(1)
        self.agent = Agent(self.cluster, folder)
        wait_for(lambda: "team/train" in self.agent.backend.poll().members)
        return self.agent.backend

    def decision(self, state: ClusterState) -> Decision:
        return Decision({job.job_id: Allocation(2, 0) for job in state.jobs})

    def before_apply(self) -> None:
        done = str(100 * next(self.samples))
        self.cluster.annotate("train", done=done)

        def is_seen() -> bool:
            member = self.agent.backend.poll().members.get("team/train")
            return member is not None and member.samples == float(done)

        wait_for(is_seen)


class TestKubernetesOfTwoTypes(KubernetesPlaces):
    products = ("NVIDIA-A100-SXM4-80GB", "Tesla-T4")


class TestKubernetesOfOneType(KubernetesPlaces):
    products = ("Tesla-T4", "Tesla-T4")


class TestKubernetesWithoutLabels(KubernetesPlaces):
    says_places = False


class TestKubernetesWithOneNodeThatSaysItsType(KubernetesPlaces):
    products = ("Tesla-T4", "")
    says_places = False
