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
from foundation.text import plain_line
from policy_net.domain import SUSPENDED, Allocation

Json = dict[str, Any]
_Word = TypeVar("_Word", bound=StrEnum)

TRAINING_JOBS: Final = Resource("fedl2.io", "v1alpha1", "trainingjobs", "TrainingJob")
LAST_CHECKPOINT: Final = "fedl2.io/last-checkpoint"
"""The finalizer of a job that is to have one before it goes."""
OTHER_TYPE: Final = "other"
MOST_TASKS: Final = 16
"""Of one role."""
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,46}[a-z0-9])?")
"""Services, and the names of pods, begin with it."""
_LONGEST_TYPE = 63
_LONGEST_CLAIM = 253
_LONGEST_URL = 1024
_URL = re.compile(r"[a-z][a-z0-9+.-]{0,30}://(([^\s:@/?#]+@)?[^\s@/?#]+(/[^\s?#]*)?|/[^\s?#]+)")
_PASSWORD = re.compile(r"[^/]*//[^/@]*:[^/@]*@")


class UpdateMode(StrEnum):
    """Who sets a job's size."""

    AUTO = "Auto"
    OFF = "Off"
    FROZEN = "Frozen"


class Communication(StrEnum):
    """How workers share what they learn."""

    PS = "PS"


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


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """What is kept of a TrainingJob.

    Attributes:
        created: RFC 3339.
        deleting: somebody has deleted it; its objects go with it.
        epochs: how many there are to be; None where nobody said it.
        steps: likewise.
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
    worker: RoleSpec
    ps: RoleSpec
    placing: Placing
    epochs: float | None
    steps: float | None
    coordinator: Json
    journal_claim: str
    checkpoints_claim: str
    digest: str
    status: Json = field(default_factory=dict)
    problem: str = ""
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
        found = self.status.get("allocation")
        workers, ps = (found.get("workers"), found.get("ps")) if isinstance(found, dict) else (None, None)
        if not (isinstance(workers, int) and isinstance(ps, int)):
            return SUSPENDED
        return Allocation(workers, ps) if 0 < workers <= MOST_TASKS and 0 < ps <= MOST_TASKS else SUSPENDED

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
    epochs, steps, journal, checkpoints, queue = None, None, "", "", ""
    store, secret, last = "", "", False
    try:
        _check_name(name)
        model_type = _text(spec, "modelType", OTHER_TYPE)
        mode = _one_of(UpdateMode, spec, "updateMode", UpdateMode.AUTO)
        placing = _one_of(Placing, spec, "placement", Placing.PREFER)
        _one_of(Communication, spec, "communication", Communication.PS)
        worker = _role(spec, "worker", None)
        ps = _role(spec, "ps", worker)
        epochs, steps = _work(spec.get("work"))
        _check_suspend(spec.get("suspend", False))
        leader = spec.get("coordinator", {})
        coordinator = _template(leader, "coordinator", needs_requests=False) if "template" in leader else {}
        journal = _claim(leader.get("journal"), "coordinator.journal")
        checkpoints, store, secret = _checkpoints(spec.get("checkpoints"))
        last = _last_on_delete(spec.get("checkpoints"))
        queue = _queue(spec.get("kueue"))
    except _Wrong as wrong:
        problem = str(wrong)
    except (TypeError, AttributeError, ValueError, KeyError):
        problem = "its spec is not what the CRD says; see `kubectl explain trainingjob.spec`"
    # What an older agent knew nothing of changes no digest of a job that has none of it.
    more = [store, secret] if store else []
    digest = _digest([worker.template, ps.template, coordinator, journal, checkpoints, *more])
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
        worker=worker,
        ps=ps,
        placing=placing,
        epochs=epochs,
        steps=steps,
        coordinator=coordinator,
        journal_claim=journal,
        checkpoints_claim=checkpoints,
        digest=digest,
        status=status,
        problem=problem,
        queue=queue,
        checkpoints_store=store,
        store_secret=secret,
        last_on_delete=last,
        finalizers=tuple(str(each) for each in metadata.get("finalizers") or ()),
        deleted=str(metadata.get("deletionTimestamp") or ""),
    )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise _Wrong(f"its name is {name}: use at most 48 small letters, digits and dashes, a letter first")


def _check_suspend(value: Any) -> None:
    if not isinstance(value, bool):
        raise _Wrong(f"spec.suspend is {value!r}: use true or false")


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


def _checkpoints(found: Any) -> tuple[str, str, str]:
    """A volume claim, or a store and its Secret."""
    if found is None or found.get("store") is None:
        if found is not None and found.get("secretName") is not None:
            raise _Wrong("spec.checkpoints.secretName is for a store: give spec.checkpoints.store")
        return _claim(found, "checkpoints"), "", ""
    store, secret = found["store"], found.get("secretName")
    if found.get("claimName") is not None:
        raise _Wrong("spec.checkpoints: give either claimName or store")
    if isinstance(store, str) and _PASSWORD.match(store):
        raise _Wrong("spec.checkpoints.store holds a password: put it into the Secret of spec.checkpoints.secretName")
    if not isinstance(store, str) or len(store) > _LONGEST_URL or not _URL.fullmatch(store):
        raise _Wrong(plain_line(f"spec.checkpoints.store is {str(store)[:80]!r}: use a URL such as s3://bucket/prefix"))
    if secret is not None and not (isinstance(secret, str) and 1 <= len(secret) <= _LONGEST_CLAIM):
        raise _Wrong(f"spec.checkpoints.secretName is {secret!r}: use the name of a Secret")
    return "", store.rstrip("/"), secret or ""


def _last_on_delete(found: Any) -> bool:
    value = False if found is None else found.get("lastOnDelete", False)
    if not isinstance(value, bool):
        raise _Wrong(f"spec.checkpoints.lastOnDelete is {value!r}: use true or false")
    return value


def _claim(found: Any, name: str) -> str:
    if found is None:
        return ""
    claim = found.get("claimName")
    if claim is None:
        raise _Wrong(f"spec.{name}.claimName is missing")
    if not isinstance(claim, str) or not 1 <= len(claim) <= _LONGEST_CLAIM:
        raise _Wrong(f"spec.{name}.claimName is {claim!r}: use the name of a volume claim")
    return claim


def _queue(found: Any) -> str:
    if found is None:
        return ""
    name = found.get("queueName")
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_CLAIM:
        raise _Wrong(f"spec.kueue.queueName is {name!r}: use the name of a LocalQueue of its namespace")
    return name


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
