"""Coordinators that pretend, of pods on the test cluster: they hear what the agent says, and say what a test wants."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace

from apiserver.cluster import Cluster
from simulated_training import Brain
from training_cluster import pods_of

from cluster_agent.backends.kubernetes.training.coordinators import CoordinatorConnection
from cluster_agent.backends.kubernetes.training.step import Ask, Request
from elastic_runtime.control.messages import JobStatus, RequestOutcome, Size
from elastic_runtime.errors import CoordinatorUnproven, CoordinatorUnreachable


class Pretended:
    """The coordinators of a cluster's jobs: each thinks whenever it is asked, and knows which pods run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.lock = threading.Lock()
        self.brains: dict[str, Brain] = {}
        self.token = ""
        self.token_of: Callable[[str], str] = lambda name: self.token
        """Of a job by its name; empty: any is right."""
        self.says: Callable[[JobStatus], JobStatus] = lambda status: status
        self.says_of: Callable[[Brain, JobStatus], JobStatus] = lambda brain, status: status
        self.ended: list[str] = []
        self.refuses = ""
        """Why it gives up what it is asked for."""

    def __call__(self, line: CoordinatorConnection) -> Calls:
        return Calls(self, line)


class Calls:
    def __init__(self, world: Pretended, line: CoordinatorConnection) -> None:
        self.world, self.line = world, line
        self.name = line.job.rpartition("-")[0]

    def think(self) -> Brain:
        pods = pods_of(self.world.cluster, self.name)
        leader = pods.get("coordinator")
        if leader is None or leader["status"].get("phase") != "Running":
            raise CoordinatorUnreachable("nobody there")
        if (right := self.world.token_of(self.name)) and self.line.token != right:
            raise CoordinatorUnproven("it does not have the job's token")
        words = [each.partition("=") for each in leader["spec"]["containers"][0]["command"]]
        stated = {name: value for name, _, value in words}
        size = Size(int(stated["--servers"]), int(stated["--workers"]))
        brain = self.world.brains.setdefault(leader["metadata"]["uid"], Brain(size))
        for task, state in list(brain.tasks.items()):
            pod = pods.get(task)
            if state == "leaving" and pod is not None and pod["status"].get("phase") == "Running":
                uid = pod["metadata"]["uid"]
                with contextlib.suppress(KeyError):  # it has ended since
                    self.world.cluster.server.call(lambda uid=uid: self.world.cluster.pretending.end(uid))
        brain.think({task for task, pod in pods.items() if pod["status"].get("phase") == "Running"})
        return brain

    def status(self) -> JobStatus:
        with self.world.lock:
            brain = self.think()
            job_report = replace(brain.status(), job=self.name)
            return self.world.says(self.world.says_of(brain, job_report))

    def resize(self, request_id: str, target: Size) -> tuple[RequestOutcome, str]:
        with self.world.lock:
            return self.think().ask(Ask(Request.RESIZE, request_id, target))

    def suspend(self, request_id: str) -> tuple[RequestOutcome, str]:
        with self.world.lock:
            if self.world.refuses:
                return RequestOutcome.ABORTED, self.world.refuses
            return self.think().ask(Ask(Request.SUSPEND, request_id, Size(0, 0)))

    def resume(self, request_id: str, target: Size) -> tuple[RequestOutcome, str]:
        with self.world.lock:
            return self.think().ask(Ask(Request.RESUME, request_id, target))

    def task_ended(self, task: str, exit_code: int, last_line: str = "") -> None:
        del exit_code, last_line
        with self.world.lock:
            self.world.ended.append(task)
            self.think().on_task_ended(task)

    def close(self) -> None:
        pass
