"""Jobs of batch/v1 on a large cluster, with targets that ask for advice or have their sizes set; work of any kind."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from benchmarks.kube.large_cluster import NAMESPACE, LargeCluster
from cluster_agent.backends.kubernetes.limits import OPT_IN

Json = dict[str, Any]
_JOBS, _TARGETS = "jobs.batch", "elastictargets.fedl2.io"
_TYPES, _MOST = 8, 4


class Work(Protocol):
    """Jobs that come and go.

    Attributes:
        backend: settings of the agent's backend that this takes.
        sizes_set: how many sizes of jobs that run the agent has set so far.
    """

    backend: ClassVar[Json]

    @property
    def sizes_set(self) -> int:
        """See above."""
        ...

    def add(self) -> str:
        """A job comes; its name."""
        ...

    def end(self, name: str) -> None:
        """A job is deleted."""
        ...

    def is_done(self, name: str) -> bool:
        """Whether the agent has done what there is to do for a job that has come."""
        ...


class AdvisedJobs:
    """Jobs that wait, with targets that ask for advice."""

    backend: ClassVar[Json] = {}
    _mode = "Off"

    def __init__(self, cluster: LargeCluster) -> None:
        self._cluster, self._made = cluster, 0

    @property
    def sizes_set(self) -> int:
        """See `Work`: none."""
        return 0

    def add(self) -> str:
        """See `Work`."""
        name, number = f"job-{self._made}", self._made
        self._made += 1
        pods = template({"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"})
        pods["spec"]["restartPolicy"] = "Never"
        spec = {"completionMode": "Indexed", "parallelism": 1, "completions": 1, "suspend": True, "template": pods}
        self._cluster.make(_JOBS, {"metadata": metadata(name), "spec": spec, "status": {}})
        ref = {"apiVersion": "batch/v1", "kind": "Job", "name": name}
        target = {
            "targetRef": ref,
            "min": 1,
            "max": self._most(number),
            "updateMode": self._mode,
            "modelType": type_of(number),
        }
        self._cluster.make(_TARGETS, {"metadata": metadata(name), "spec": target})
        return name

    def _most(self, number: int) -> int:
        """Workers of a job at most."""
        del number
        return _MOST

    def end(self, name: str) -> None:
        """See `Work`."""
        self._cluster.delete(_TARGETS, name)
        self._cluster.delete(_JOBS, name)

    def is_done(self, name: str) -> bool:
        """See `Work`: it has its advice."""
        return bool((self._cluster.find(_TARGETS, name).get("status") or {}).get("recommendation"))


class SetJobs(AdvisedJobs):
    """Jobs whose sizes the agent sets, with pods that run."""

    _mode = "Auto"

    def __init__(self, cluster: LargeCluster) -> None:
        super().__init__(cluster)
        cluster.run_pods()
        cluster.change("namespaces", NAMESPACE, _opted_in, namespace="")

    def _most(self, number: int) -> int:
        """Not the same of all: whoever comes takes another room than whoever went, and others change with it."""
        return 1 + number % _MOST

    @property
    def sizes_set(self) -> int:
        """See `Work`; each job was started by such a change, too."""
        return self._cluster.writes_to(_JOBS) - self._made

    def is_done(self, name: str) -> bool:
        """See `Work`: it was started, and its target says with how many workers."""
        spec = self._cluster.find(_JOBS, name).get("spec") or {}
        said = (self._cluster.find(_TARGETS, name).get("status") or {}).get("allocation") or {}
        return not spec.get("suspend", True) and said.get("workers") == spec.get("parallelism")


def metadata(name: str) -> Json:
    """Of an object of the work."""
    return {"name": name, "namespace": NAMESPACE}


def type_of(number: int) -> str:
    """The type of model of the job with this number."""
    return f"type-{number % _TYPES}"


def template(requests: Json) -> Json:
    """Of pods that ask for so much."""
    container = {"name": "main", "image": "example.com/team/train:1", "resources": {"requests": requests}}
    return {"spec": {"containers": [container]}}


def _opted_in(found: Json) -> Json:
    labels = {**(found["metadata"].get("labels") or {}), OPT_IN: "Auto"}
    return {**found, "metadata": {**found["metadata"], "labels": labels}}
