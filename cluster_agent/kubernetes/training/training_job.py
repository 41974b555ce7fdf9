"""A TrainingJob: what its author wrote, and what the agent has noted in its status.

The API server has checked it by the CRD's schema and rules. It is checked here once more, as a CRD may be older than
this agent; and what a schema cannot say of pod templates is checked here only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from cluster_agent.kubernetes.capacity import Amounts, requests_of
from cluster_agent.kubernetes.resources import Json, Resource, as_dict, condition_of
from cluster_agent.kubernetes.spec_fields import (
    DEFAULT_BACKOFF_LIMIT,
    MOST_RANKS,
    MOST_TASKS,
    OTHER_TYPE,
    Wrong,
    backoff_limit,
    check_absent,
    check_name,
    check_no_last_checkpoint,
    check_suspend,
    checkpoint_place,
    claim_name,
    count,
    last_on_delete,
    one_of,
    pod_template,
    queue_name,
    word,
    work,
)
from policy_net.domain import SUSPENDED, Allocation

TRAINING_JOBS: Final = Resource("fedl2.io", "v1alpha1", "trainingjobs", "TrainingJob")
LAST_CHECKPOINT: Final = "fedl2.io/last-checkpoint"
"""The finalizer of a job that is to have one before it goes."""


class JobUpdateMode(StrEnum):
    """Who sets a job's size."""

    AUTO = "Auto"
    OFF = "Off"
    FROZEN = "Frozen"


class Communication(StrEnum):
    """How workers share what they learn."""

    PS = "PS"
    ALL_REDUCE = "AllReduce"


class Placing(StrEnum):
    """What becomes of the nodes that a policy chose."""

    PREFER = "Prefer"
    REQUIRE = "Require"
    SCHEDULER = "Scheduler"


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """The tasks of one role; the template of their pods is empty where there is none, `requests` is what one takes."""

    least: int
    most: int
    template: Json
    requests: Amounts


_NO_ROLE: Final = RoleSpec(1, 1, {}, {})
_NO_SERVERS: Final = RoleSpec(0, 0, {}, {})


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """What is kept of a TrainingJob.

    Attributes:
        created: RFC 3339.
        deleting: somebody has deleted it; its objects go with it.
        backoff_limit: of an all-reduce job: failures in a row, without progress in between, that others follow.
        epochs: how many there are to be, as `steps`; None where nobody said it.
        coordinator: a pod template; empty where there is none.
        journal_claim: a volume claim's name; empty without one, like `checkpoints_claim`.
        queue: of Kueue, which admits it; empty where nobody has to.
        checkpoints_store: URL of a place in an object store; empty without one.
        store_secret: name of a Secret with what the store's package reads; empty without one.
        last_on_delete: whether it is to write a checkpoint before it goes.
        finalizers: its own and others'.
        deleted: RFC 3339; empty before.
        digest: of all templates.
        problem: why it cannot be used, in a line; empty where it can.
        unlisted: what its templates ask for beyond the rights of its namespace, in a line; empty where nothing.
    """

    namespace: str
    name: str
    uid: str
    version: str
    generation: int
    created: str
    deleting: bool
    suspend: bool
    model_type: str = OTHER_TYPE
    mode: JobUpdateMode = JobUpdateMode.AUTO
    communication: Communication = Communication.PS
    worker: RoleSpec = _NO_ROLE
    ps: RoleSpec = _NO_ROLE
    placing: Placing = Placing.PREFER
    epochs: float | None = None
    steps: float | None = None
    coordinator: Json = field(default_factory=dict)
    journal_claim: str = ""
    checkpoints_claim: str = ""
    backoff_limit: int = DEFAULT_BACKOFF_LIMIT
    digest: str = ""
    status: Json = field(default_factory=dict)
    problem: str = ""
    unlisted: str = ""
    queue: str = ""
    checkpoints_store: str = ""
    store_secret: str = ""
    last_on_delete: bool = False
    finalizers: tuple[str, ...] = ()
    deleted: str = ""

    @property
    def job_id(self) -> str:
        """By which policies and logs know it; an ElasticTarget may have its name too."""
        return f"{self.namespace}/trainingjob/{self.name}"

    @property
    def runtime_name(self) -> str:
        """By which its coordinator and members know it: a job made anew under its name is another."""
        return f"{self.name}-{self.uid[:8]}"

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether what it has trained outlives its pods."""
        return bool(self.checkpoints_claim or self.checkpoints_store)

    @property
    def granted(self) -> Allocation:
        """What was decided last that it has; nothing before the first time."""
        found = as_dict(self.status.get("allocation"))
        workers, ps = found.get("workers"), found.get("ps")
        if not (isinstance(workers, int) and isinstance(ps, int)):
            return SUSPENDED
        if self.is_all_reduce:
            sound = 0 < workers <= MOST_RANKS and ps == 0
        else:
            sound = 0 < workers <= MOST_TASKS and 0 < ps <= MOST_TASKS
        return Allocation(workers, ps) if sound else SUSPENDED

    @property
    def is_all_reduce(self) -> bool:
        """Whether its workers exchange gradients directly: there is neither coordinator nor parameter server."""
        return self.communication is Communication.ALL_REDUCE

    @property
    def is_resizable(self) -> bool:
        """Whether it can be resized without losing what it has trained: by all-reduce that takes a checkpoint."""
        return not self.is_all_reduce or self.keeps_checkpoints

    @property
    def least(self) -> Allocation:
        """The smallest size with which it trains."""
        return Allocation(self.worker.least, self.ps.least)

    @property
    def most(self) -> Allocation:
        """The largest."""
        return Allocation(self.worker.most, self.ps.most)

    def within(self, size: Allocation) -> Allocation:
        """The size nearest to one that was decided, as bounds may have been changed since; nothing stays nothing."""
        if size == SUSPENDED or self.problem:
            return size
        least, most = self.least, self.most
        return Allocation(min(max(size.workers, least.workers), most.workers), min(max(size.ps, least.ps), most.ps))

    @property
    def has_started(self) -> bool:
        """Whether its coordinator was ever started."""
        return bool(self.status.get("startTime"))

    @property
    def trained_under(self) -> str:
        """Uid of the newest coordinator's pod under which it was seen to train; empty before the first."""
        return str(self.status.get("coordinator") or "")

    @property
    def outcome(self) -> str:
        """Complete or Failed; empty before its end."""
        return next((name for name in ("Complete", "Failed") if self.condition(name).get("status") == "True"), "")

    def condition(self, name: str) -> Json:
        """One condition of its status; empty where there is none."""
        return condition_of(self.status, name)


def training_job(found: Json) -> TrainingJob:
    """What is kept of a TrainingJob as the API gives it; one that makes no sense says so in `problem`."""
    metadata, spec, status = found["metadata"], as_dict(found.get("spec")), as_dict(found.get("status"))
    name = str(metadata["name"])
    read: dict[str, Any] = {}
    try:
        _read_spec(spec, name, read)
    except Wrong as wrong:
        read["problem"] = str(wrong)
    except (TypeError, AttributeError, ValueError, KeyError):
        read["problem"] = "its spec is not what the CRD says; see `kubectl explain trainingjob.spec`"
    job = TrainingJob(
        namespace=str(metadata.get("namespace") or ""),
        name=name,
        uid=str(metadata.get("uid") or ""),
        version=str(metadata.get("resourceVersion") or ""),
        generation=metadata.get("generation") if isinstance(metadata.get("generation"), int) else 0,
        created=str(metadata.get("creationTimestamp") or ""),
        deleting="deletionTimestamp" in metadata,
        suspend=spec.get("suspend") is True,
        status=status,
        finalizers=tuple(str(each) for each in metadata.get("finalizers") or ()),
        deleted=str(metadata.get("deletionTimestamp") or ""),
        **read,
    )
    digest, began, problem = _digest(job), status.get("templateDigest"), job.problem
    if not problem and began and began != digest:
        problem = "its templates were changed: put back what it began with, or make another job"
    return replace(job, digest=digest, problem=problem)


def _read_spec(spec: Json, name: str, read: dict[str, Any]) -> None:
    """Read a spec into `read`, field by field, up to the first that cannot be used.

    Raises:
        Wrong: that one.
    """
    check_name(name)
    read["model_type"] = word(spec, "modelType", OTHER_TYPE)
    read["mode"] = one_of(JobUpdateMode, spec, "updateMode", JobUpdateMode.AUTO)
    read["placing"] = one_of(Placing, spec, "placement", Placing.PREFER)
    read["communication"] = one_of(Communication, spec, "communication", Communication.PS)
    is_all_reduce = read["communication"] is Communication.ALL_REDUCE
    most = MOST_RANKS if is_all_reduce else MOST_TASKS
    read["worker"] = _role(spec, "worker", None, most)
    if is_all_reduce:
        check_absent(spec, ("ps", "coordinator"), "an all-reduce job has none")
        check_no_last_checkpoint(spec.get("checkpoints"))
        read["ps"], read["backoff_limit"] = _NO_SERVERS, backoff_limit(spec)
    else:
        check_absent(spec, ("backoffLimit",), "it is for all-reduce jobs: others lose no step with a worker")
        read["ps"] = _role(spec, "ps", read["worker"], most)
    read["epochs"], read["steps"] = work(spec.get("work"))
    check_suspend(spec.get("suspend", False))
    leader = spec.get("coordinator", {})
    read["coordinator"] = pod_template(leader, "coordinator", needs_requests=False) if "template" in leader else {}
    read["journal_claim"] = claim_name(leader.get("journal"), "coordinator.journal")
    place = checkpoint_place(spec.get("checkpoints"))
    read["checkpoints_claim"], read["checkpoints_store"], read["store_secret"] = place
    read["last_on_delete"] = last_on_delete(spec.get("checkpoints"))
    read["queue"] = queue_name(spec.get("kueue"))


def _role(spec: Json, role: str, worker: RoleSpec | None, most_of_role: int) -> RoleSpec:
    found = spec.get(role)
    if not isinstance(found, dict):
        raise Wrong(f"spec.{role} is missing")
    least = count(found, f"{role}.min", 1, most_of_role)
    most = count(found, f"{role}.max", None, most_of_role)
    if most < least:
        raise Wrong(f"spec.{role}.max is {most}, below spec.{role}.min, which is {least}")
    if worker is not None and "template" not in found:
        return RoleSpec(least, most, {}, {"cpu": _PS_MILLI, "memory": worker.requests.get("memory", 0)})
    template = pod_template(found, role)
    return RoleSpec(least, most, template, requests_of(template["spec"], {}))


_PS_MILLI: Final = 500
"""Of a parameter server without a template: applying what workers send is bound by memory."""


def _digest(job: TrainingJob) -> str:
    """Of all templates; what an older agent knew nothing of changes no digest of a job that has none of it."""
    parts = [job.worker.template, job.ps.template, job.coordinator, job.journal_claim, job.checkpoints_claim]
    parts += [job.checkpoints_store, job.store_secret] if job.checkpoints_store else []
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
