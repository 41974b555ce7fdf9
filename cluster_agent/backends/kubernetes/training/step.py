"""Step of a TrainingJob: what a plan says that is to be done about it now, and where it stands; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cluster_agent.backends.kubernetes.training.asks import Ask
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.training.manifests import COORDINATOR
from policy_net.domain import SUSPENDED, Allocation


class Standing(StrEnum):
    """Where a job is, for people."""

    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RESIZING = "Resizing"
    RECOVERING = "Recovering"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"
    INVALID = "Invalid"


@dataclass(frozen=True, slots=True)
class Ended:
    """A task's end that the coordinator has to hear of.

    Attributes:
        uid: of its pod; empty where nobody has seen one.
    """

    task: str
    exit_code: int
    last_words: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done about a job now.

    Attributes:
        create: tasks whose pods are missing; all of them, or nothing, of a gang.
        relaunched: the coordinator goes on with a job that ran before.
        begin: the size with which a new coordinator begins.
        report: ends, before anything else.
        delete: pods that are to go.
        line: what people are told.
        outcome: Complete or Failed, once it is over.
        grace_seconds: of deletions, where it is not the pods' own.
        admission: a condition of the job's: what Kueue says of it.
        forbidden: why its namespace takes no pod like one of its, in a line.
    """

    standing: Standing
    line: str = ""
    create: tuple[str, ...] = ()
    relaunched: bool = False
    begin: Allocation = SUSPENDED
    report: tuple[Ended, ...] = ()
    delete: tuple[TaskPod, ...] = ()
    ask: Ask | None = None
    outcome: str = ""
    grace_seconds: int | None = None
    admission: tuple[str, bool, str, str] | None = None
    forbidden: str = ""

    @property
    def is_gang(self) -> bool:
        """Whether its pods are made together, or not at all; a coordinator alone joins tasks that wait for it."""
        return COORDINATOR in self.create and self.standing is Standing.STARTING

    @property
    def needs(self) -> tuple[str, ...]:
        """Of a gang: the tasks that there has to be room for before any is made."""
        return (COORDINATOR, *first_tasks(self.begin))


def first_tasks(size: Allocation) -> tuple[str, ...]:
    """The names that a new coordinator gives its first tasks."""
    return (*(f"ps-{number}" for number in range(size.ps)), *(f"worker-{number}" for number in range(size.workers)))
