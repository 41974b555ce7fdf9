"""Parts of the controller of TrainingJobs: what it sees, and what it does things with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cluster_agent.backends.kubernetes.training.coordinators import Coordinators
from cluster_agent.backends.kubernetes.training.free_capacity import ClusterCapacity
from cluster_agent.backends.kubernetes.training.kueue import Kueue
from cluster_agent.backends.kubernetes.training.objects import ServiceFacts
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.events import EventRecorder
from cluster_agent.kubernetes.training.credentials import JobKeys
from cluster_agent.kubernetes.training.training_job import TrainingJob


@dataclass(frozen=True, slots=True)
class WatchedObjects:
    """What the controller sees; each cache is followed by somebody else.

    Attributes:
        free_capacity: what the cluster has left now.
        unread: why namespaces cannot be read, by their names: their jobs go on as they are.
    """

    jobs: Cache[TrainingJob]
    pods: Cache[TaskPod]
    services: Cache[ServiceFacts]
    free_capacity: Callable[[], ClusterCapacity]
    unread: Callable[[], Mapping[str, str]] = dict


@dataclass(frozen=True, slots=True)
class Hands:
    """What it does things with.

    Attributes:
        keys: from which jobs' tokens follow.
        may_write: whether this agent acts; asked before each write.
        kueue: for jobs that it admits.
        last_checkpoint_seconds: how long a deleted job may take for its last checkpoint.
        tried: a job with what is wrong with its templates.
    """

    api: ApiServer
    coordinators: Coordinators
    events: EventRecorder
    keys: JobKeys
    may_write: Callable[[], bool]
    kueue: Kueue
    last_checkpoint_seconds: float = 300.0
    tried: Callable[[TrainingJob], TrainingJob] = lambda job: job
