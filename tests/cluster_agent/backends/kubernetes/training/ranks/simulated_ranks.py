"""A cluster that only pretends, with one all-reduce TrainingJob: its ranks, what they have trained, and how they end.

The controller is the real one. Ranks train only together, and only when all are there; SIGTERM in one has all stop
after a common step, with a checkpoint of the first; one whose peer is lost ends badly.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from simulated_training import World
from training_objects import job_object

from cluster_agent.backends.kubernetes.training.coordinators import CoordinatorConnection
from cluster_agent.backends.kubernetes.training.step import CoordinatorReport
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.protocol.plan import JobPhase

Json = dict[str, Any]
PATH = "/api/v1/namespaces/team/pods/digits-"
TOTAL_STEPS = 100_000
LOST = "ElasticError: process 1 lost the others, or they did not come in 300 s"


def ring_object(**more: Any) -> Json:
    found = job_object(communication="AllReduce", **more)
    for name in ("ps", "coordinator"):
        found["spec"].pop(name, None)
    return found


class RanksWorld(World):
    """One all-reduce job on a cluster.

    Attributes:
        steps: that are trained; `saved`: that are in the checkpoint.
        obeys: whether ranks stop at SIGTERM, and do not only go when they are killed.
        stays: whether what was deleted stays all the same, as on a node that nobody can reach.
        joined: uids of the ranks that found each other, as a run.
    """

    def __init__(self, job: Json | None = None) -> None:
        self.steps = self.saved = 0
        self.obeys, self.stays = True, False
        self.joined: frozenset[str] = frozenset()
        super().__init__(job or ring_object())

    # What the controller asks for.

    def follow(self, lines: Mapping[str, CoordinatorConnection]) -> None:
        self.told_seen = self.told_seen if lines else None
        if lines and self.answers and self.joined and self.alive("worker-0"):
            size, done = Size(0, len(self.joined)), (self.steps, TOTAL_STEPS, self.steps / 10, TOTAL_STEPS / 10)
            status = JobStatus("digits", JobPhase.RUNNING, int(self.now), *done, size=size, target=size)
            self.told_seen = CoordinatorReport(status, self.now)

    def _check_pod(self, pod: Json) -> None:
        labels = pod["metadata"]["labels"]
        world = labels["fedl2.io/world-size"]
        rank = int(labels["fedl2.io/task"].rpartition("-")[2])
        assert rank < int(world)
        for other in self.ranks():
            stated = self.task(other)["metadata"]["labels"]
            assert stated["fedl2.io/world-size"] == world, "ranks of two sizes at once"
            assert stated["fedl2.io/gang"] == labels["fedl2.io/gang"], "ranks of two gangs at once"
        assert not self.joined & {self.task(other)["metadata"]["uid"] for other in self.ranks()}, (
            "a rank joins others late"
        )
        assert not any("deletionTimestamp" in self.task(other)["metadata"] for other in self.ranks())
        super()._check_pod(pod)

    # What its ranks do.

    def ranks(self) -> list[str]:
        return [name for name in self.tasks() if name.startswith("worker-")]

    def end(self, name: str, code: int, words: str = "") -> None:
        pod = copy.deepcopy(self.task(name))
        ended = {"exitCode": code, "message": words, "finishedAt": f"t{self.now:015.3f}"}
        pod["status"] = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "main", "state": {"terminated": ended}}],
        }
        self.put(pod)

    def live(self) -> None:
        """Let time do its work: pods start, ranks join, train, stop and end, and what was deleted goes."""
        for name in self.ranks():
            pod = self.task(name)
            if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"] and self.images(name):
                self.put({**pod, "status": {"phase": "Running"}})
        self._train()
        for name in self.ranks():
            if "deletionTimestamp" in self.task(name)["metadata"] and not self.stays:
                self.vanish(name)

    def _train(self) -> None:
        """What the processes that run do together."""
        pods = {name: self.task(name) for name in self.ranks()}
        running = {name: pod for name, pod in pods.items() if pod["status"]["phase"] == "Running"}
        uids = frozenset(pod["metadata"]["uid"] for pod in running.values())
        world = max((int(pod["metadata"]["labels"]["fedl2.io/world-size"]) for pod in pods.values()), default=0)
        job_report = any("deletionTimestamp" in pod["metadata"] for pod in running.values())
        if self.joined and self.joined != uids & self.joined:
            # A peer was lost: whoever is left of this run fails.
            for name, pod in running.items():
                if pod["metadata"]["uid"] in self.joined:
                    self.end(name, 1, LOST)
            self.joined = frozenset()
        elif self.joined:
            self.steps = min(TOTAL_STEPS, self.steps + 1)
            if self.steps == TOTAL_STEPS or (job_report and self.obeys):
                word = "finished" if self.steps == TOTAL_STEPS else "stopped"
                self.saved, self.joined = self.steps, frozenset()
                for name in running:
                    self.end(name, 0, f"{word}: {self.steps / 10:g} epochs, {self.steps} samples")
        elif len(running) == world > 0 and not job_report:
            self.joined, self.steps = uids, self.saved if "checkpoints" in self.job["spec"] else 0
