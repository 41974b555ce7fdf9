"""A TrainingJob: what its author wrote, and what the agent has noted in its status.

The API server has checked it by the CRD's schema and rules. It is checked here once more, as a CRD may be older than
this agent; and what a schema cannot say of pod templates is checked here only.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

from cluster_agent.kubernetes.capacity import Amounts, requests_of
from cluster_agent.kubernetes.resources import Resource
from policy_net.domain import SUSPENDED, Allocation

Json = dict[str, Any]
_Word = TypeVar("_Word", bound=StrEnum)

TRAINING_JOBS: Final = Resource("fedl2.io", "v1alpha1", "trainingjobs", "TrainingJob")
OTHER_TYPE: Final = "other"
MOST_TASKS: Final = 16
"""Of one role."""
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,46}[a-z0-9])?")
"""Services, and the names of pods, begin with it."""
_LONGEST_TYPE = 63
_LONGEST_CLAIM = 253


class UpdateMode(StrEnum):
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
    """The tasks of one role.

    Attributes:
        template: of their pods; empty where there is none.
        asks: what one takes.
    """

    least: int
    most: int
    template: Json
    asks: Amounts


_NO_ROLE: Final = RoleSpec(1, 1, {}, {})
_NO_SERVERS: Final = RoleSpec(0, 0, {}, {})
_RESTARTS: Final = 3
_MOST_RESTARTS = 100


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """What is kept of a TrainingJob.

    Attributes:
        created: RFC 3339.
        deleting: somebody has deleted it; its objects go with it.
        backoff_limit: of an all-reduce job: failures in a row, without progress in between, that others follow.
        epochs: how many there are to be; None where nobody said it.
        steps: likewise.
        coordinator: a pod template; empty where there is none.
        journal_claim: a volume claim's name; empty without one, like `checkpoints_claim`.
        digest: of all templates.
        problem: why it cannot be used, in a line; empty where it can.
    """

    namespace: str
    name: str
    uid: str
    version: str
    generation: int
    created: str
    deleting: bool
    model_type: str
    suspend: bool
    mode: UpdateMode
    communication: Communication
    worker: RoleSpec
    ps: RoleSpec
    placing: Placing
    epochs: float | None
    steps: float | None
    coordinator: Json
    journal_claim: str
    checkpoints_claim: str
    backoff_limit: int
    digest: str
    status: Json = field(default_factory=dict)
    problem: str = ""

    @property
    def job_id(self) -> str:
        """By which policies and logs know it; an ElasticTarget may have its name too."""
        return f"{self.namespace}/trainingjob/{self.name}"

    @property
    def runtime_name(self) -> str:
        """By which its coordinator and members know it: a job made anew under its name is another."""
        return f"{self.name}-{self.uid[:8]}"

    @property
    def granted(self) -> Allocation:
        """What was decided last that it has; nothing before the first time."""
        found = self.status.get("allocation")
        workers, ps = (found.get("workers"), found.get("ps")) if isinstance(found, dict) else (None, None)
        if not (isinstance(workers, int) and isinstance(ps, int)):
            return SUSPENDED
        sound = 0 < workers <= MOST_TASKS and (ps == 0 if self.is_all_reduce else 0 < ps <= MOST_TASKS)
        return Allocation(workers, ps) if sound else SUSPENDED

    @property
    def is_all_reduce(self) -> bool:
        """Whether its workers exchange gradients directly: there is neither coordinator nor parameter server."""
        return self.communication is Communication.ALL_REDUCE

    @property
    def is_resizable(self) -> bool:
        """Whether it can be resized without losing what it has trained: by all-reduce that takes a checkpoint."""
        return not self.is_all_reduce or bool(self.checkpoints_claim)

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
        found = self.status.get("conditions")
        conditions = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        return next((each for each in conditions if each.get("type") == name), {})


class _Wrong(Exception):
    """A field that cannot be used."""


def training_job(found: Json) -> TrainingJob:
    """What is kept of a TrainingJob as the API gives it; one that makes no sense says so in `problem`."""
    metadata, spec, status = found["metadata"], found.get("spec"), found.get("status")
    spec = spec if isinstance(spec, dict) else {}
    status = status if isinstance(status, dict) else {}
    name = str(metadata["name"])
    problem = ""
    model_type, mode, placing = OTHER_TYPE, UpdateMode.AUTO, Placing.PREFER
    worker, ps, coordinator = _NO_ROLE, _NO_ROLE, Json()
    communication, restarts = Communication.PS, _RESTARTS
    epochs, steps, journal, checkpoints = None, None, "", ""
    try:
        _check_name(name)
        model_type = _text(spec, "modelType", OTHER_TYPE)
        mode = _one_of(UpdateMode, spec, "updateMode", UpdateMode.AUTO)
        placing = _one_of(Placing, spec, "placement", Placing.PREFER)
        communication = _one_of(Communication, spec, "communication", Communication.PS)
        worker = _role(spec, "worker", None)
        if communication is Communication.ALL_REDUCE:
            _check_absent(spec, ("ps", "coordinator"), "an all-reduce job has none")
            ps, restarts = _NO_SERVERS, _restarts(spec)
        else:
            _check_absent(spec, ("backoffLimit",), "it is for all-reduce jobs: others lose no step with a worker")
            ps = _role(spec, "ps", worker)
        epochs, steps = _work(spec.get("work"))
        _check_suspend(spec.get("suspend", False))
        leader = spec.get("coordinator", {})
        coordinator = _template(leader, "coordinator", needs_requests=False) if "template" in leader else {}
        journal = _claim(leader.get("journal"), "coordinator.journal")
        checkpoints = _claim(spec.get("checkpoints"), "checkpoints")
    except _Wrong as wrong:
        problem = str(wrong)
    except (TypeError, AttributeError, ValueError, KeyError):
        problem = "its spec is not what the CRD says; see `kubectl explain trainingjob.spec`"
    digest = _digest([worker.template, ps.template, coordinator, journal, checkpoints])
    began = status.get("templateDigest")
    if not problem and began and began != digest:
        problem = "its templates were changed: put back what it began with, or make another job"
    return TrainingJob(
        namespace=str(metadata.get("namespace") or ""),
        name=name,
        uid=str(metadata.get("uid") or ""),
        version=str(metadata.get("resourceVersion") or ""),
        generation=metadata.get("generation") if isinstance(metadata.get("generation"), int) else 0,
        created=str(metadata.get("creationTimestamp") or ""),
        deleting="deletionTimestamp" in metadata,
        model_type=model_type,
        suspend=spec.get("suspend") is True,
        mode=mode,
        communication=communication,
        worker=worker,
        ps=ps,
        placing=placing,
        epochs=epochs,
        steps=steps,
        coordinator=coordinator,
        journal_claim=journal,
        checkpoints_claim=checkpoints,
        backoff_limit=restarts,
        digest=digest,
        status=status,
        problem=problem,
    )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise _Wrong(f"its name is {name}: use at most 48 small letters, digits and dashes, a letter first")


def _check_suspend(value: Any) -> None:
    if not isinstance(value, bool):
        raise _Wrong(f"spec.suspend is {value!r}: use true or false")


def _check_absent(spec: Json, fields: tuple[str, ...], why: str) -> None:
    for name in fields:
        if spec.get(name) is not None:
            raise _Wrong(f"spec.{name} is given: {why}; leave it out")


def _restarts(spec: Json) -> int:
    value = spec.get("backoffLimit", _RESTARTS)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_RESTARTS:
        raise _Wrong(f"spec.backoffLimit is {value!r}: use 0 to {_MOST_RESTARTS}")
    return value


def _role(spec: Json, role: str, worker: RoleSpec | None) -> RoleSpec:
    found = spec.get(role)
    if not isinstance(found, dict):
        raise _Wrong(f"spec.{role} is missing")
    least, most = _number(found, f"{role}.min", 1), _number(found, f"{role}.max", None)
    if most < least:
        raise _Wrong(f"spec.{role}.max is {most}, below spec.{role}.min, which is {least}")
    if worker is not None and "template" not in found:
        return RoleSpec(least, most, {}, {"cpu": _PS_MILLI, "memory": worker.asks.get("memory", 0)})
    template = _template(found, role)
    return RoleSpec(least, most, template, requests_of(template["spec"], {}))


_PS_MILLI: Final = 500
"""Of a parameter server without a template: applying what workers send is bound by memory."""


def _template(found: Json, role: str, *, needs_requests: bool = True) -> Json:
    template = found.get("template")
    spec = template.get("spec") if isinstance(template, dict) else None
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(template, dict) or not isinstance(spec, dict) or not isinstance(containers, list):
        raise _Wrong(f"spec.{role}.template.spec.containers is missing")
    if not containers or not all(isinstance(each, dict) for each in containers):
        raise _Wrong(f"spec.{role}.template.spec.containers is empty")
    try:
        asks = requests_of(spec, {})
    except (ValueError, TypeError, AttributeError) as error:
        raise _Wrong(f"spec.{role}.template: its requests cannot be read: {error}") from error
    if needs_requests and not any(amount for name, amount in asks.items() if name == "cpu" or "gpu" in name):
        raise _Wrong(
            f"spec.{role}.template requests neither CPU nor GPUs (containers[0].resources.requests), so that nothing "
            "says what one takes"
        )
    return template


def _number(found: Json, name: str, default: int | None) -> int:
    value = found.get(name.rpartition(".")[2], default)
    if value is None:
        raise _Wrong(f"spec.{name} is missing")
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_TASKS:
        raise _Wrong(f"spec.{name} is {value!r}: use 1 to {MOST_TASKS}")
    return value


def _text(spec: Json, name: str, default: str) -> str:
    value = spec.get(name, default)
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST_TYPE:
        raise _Wrong(f"spec.{name} is {value!r}: use a word of at most {_LONGEST_TYPE} letters")
    return value


def _one_of(words: type[_Word], spec: Json, name: str, default: _Word) -> _Word:
    try:
        return words(spec.get(name, default))
    except ValueError as error:
        raise _Wrong(f"spec.{name} is {spec[name]!r}: use {', '.join(words)}") from error


def _work(found: Any) -> tuple[float | None, float | None]:
    if found is None:
        return None, None
    given = {name: found.get(name) for name in ("epochs", "steps") if found.get(name) is not None}
    if len(given) != 1:
        raise _Wrong("spec.work: give either epochs or steps")
    ((name, value),) = given.items()
    kinds, least, most = (int | float, 0.001, 1e6) if name == "epochs" else (int, 1, 1e12)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        raise _Wrong(f"spec.work.{name} is {value!r}: use {least:g} to {most:g}{'' if name == 'epochs' else ', whole'}")
    return (float(value), None) if name == "epochs" else (None, float(value))


def _claim(found: Any, name: str) -> str:
    if found is None:
        return ""
    claim = found.get("claimName")
    if claim is None:
        raise _Wrong(f"spec.{name}.claimName is missing")
    if not isinstance(claim, str) or not 1 <= len(claim) <= _LONGEST_CLAIM:
        raise _Wrong(f"spec.{name}.claimName is {claim!r}: use the name of a volume claim")
    return claim


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
