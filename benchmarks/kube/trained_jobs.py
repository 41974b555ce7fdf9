"""TrainingJobs of a large cluster: their pods run, and their coordinators answer from a process of their own."""

from __future__ import annotations

import base64
import contextlib
import json
import queue
import threading
from collections.abc import Iterator
from functools import partial
from typing import IO, Any, ClassVar

from benchmarks.kube.jobs import metadata, template, type_of
from benchmarks.kube.large_cluster import NAMESPACE, LargeCluster
from benchmarks.processes import CommandedModule
from cluster_agent.kubernetes.training.manifests import COORDINATOR, JOB_LABEL, PORT, TASK_LABEL

Json = dict[str, Any]
_TABLE = "trainingjobs.fedl2.io"
_ELASTIC = 10
"""One of so many may have another size; what it is said to gain by that is made up, and measured within seconds."""


class TrainedJobs:
    """TrainingJobs with parameter servers; their coordinators are in a process of their own."""

    backend: ClassVar[Json] = {"training": {}}

    def __init__(self, cluster: LargeCluster, to: IO[str], out_of: IO[str]) -> None:
        self._cluster, self._made = cluster, 0
        self._to, self._out_of = to, out_of
        self._commands: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.sizes_set = 0
        self._leaders: dict[str, str] = {}
        """By the job's name to its coordinator: its own."""
        cluster.give_addresses()
        self._kubelets = cluster.run_pods(self._begins)
        for run in (self._pass_on, self._listen):
            threading.Thread(target=run, daemon=True).start()

    def add(self) -> str:
        """See `Work`."""
        name, number = f"job-{self._made}", self._made
        self._made += 1
        spec = {
            "modelType": type_of(number),
            "worker": {
                "min": 2 if number % _ELASTIC else 1,
                "max": 2,
                "template": template({"cpu": "1", "memory": "2Gi"}),
            },
            "ps": {"min": 1, "max": 1},
            "checkpoints": {"claimName": "checkpoints"},
            "coordinator": {"journal": {"claimName": f"{name}-journal"}},
        }
        self._cluster.make(_TABLE, {"metadata": metadata(name), "spec": spec})
        return name

    def end(self, name: str) -> None:
        """See `Work`."""
        self._cluster.delete(_TABLE, name)
        for runtime in [runtime for runtime, job in self._leaders.items() if job == name]:
            del self._leaders[runtime]
            self._say(do="end", job=runtime)

    def is_done(self, name: str) -> bool:
        """See `Work`: it trains, and its status says so."""
        return (self._cluster.find(_TABLE, name).get("status") or {}).get("phase") == "Running"

    def _begins(self, pod: Json) -> bool:
        """A pod of a job is on its node; a coordinator's runs once it answers."""
        labels = pod["metadata"].get("labels") or {}
        if JOB_LABEL not in labels:
            return True
        container = pod["spec"]["containers"][0]
        if labels[TASK_LABEL] != COORDINATOR:
            job = next(each["value"] for each in container["env"] if each["name"] == "ELASTIC_JOB")
            self._say(do="runs", job=job, task=labels[TASK_LABEL])
            return True
        said = dict(each.lstrip("-").split("=", 1) for each in container["command"] if "=" in each)
        secret = next(each["secret"]["secretName"] for each in pod["spec"]["volumes"] if "secret" in each)
        secret_data = self._cluster.find("secrets", secret)["data"].items()
        data = {name: base64.b64decode(text).decode() for name, text in secret_data}
        address = self._cluster.find("services", pod["metadata"]["name"])["spec"]["clusterIP"]
        self._leaders[said["job"]] = labels[JOB_LABEL]
        self._say(
            do="serve",
            job=said["job"],
            address=f"{address}:{PORT}",
            certificate=data["tls.crt"],
            key=data["tls.key"],
            token=data["token"],
            servers=int(said["servers"]),
            workers=int(said["workers"]),
        )
        return False

    def _say(self, **command: Any) -> None:
        self._commands.put(json.dumps(command))

    def _pass_on(self) -> None:
        """Pass commands on: who says them waits for nobody."""
        with contextlib.suppress(OSError, ValueError):  # it has ended
            while True:
                self._to.write(f"{self._commands.get()}\n")
                self._to.flush()

    def _listen(self) -> None:
        """Have pods do what the coordinators say."""
        for line in self._out_of:
            said = json.loads(line)
            job = self._leaders.get(said.get("serves") or said.get("job"), "")
            if "resized" in said:
                self.sizes_set += 1
            elif "serves" in said:
                pod = (NAMESPACE, f"{job}-{COORDINATOR}")
                self._cluster.call(partial(self._kubelets.run, pod))
            else:
                pod = (NAMESPACE, f"{job}-{said['left']}")
                self._cluster.call(partial(self._kubelets.end, pod))


@contextlib.contextmanager
def trained_jobs(cluster: LargeCluster) -> Iterator[TrainedJobs]:
    """None yet, with a process for their coordinators."""
    with CommandedModule("benchmarks.kube.coordinators") as process:
        yield TrainedJobs(cluster, process.to, process.out_of)
