from pathlib import Path

from backend_suite import BackendSuite
from local_world import LocalWorld

from cluster_agent.backend_settings import SimulatedBackendSettings
from cluster_agent.backends.base import Backend
from cluster_agent.backends.simulated.backend import SimulatedBackend
from cluster_agent.backends.simulated.episodes import load_episodes
from cluster_agent.backends.simulated.pace import FreePacer


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
        return SimulatedBackend(episodes, folder, FreePacer(lambda seconds: False))


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
