"""Messages between agents and the learner: `fleet.proto`'s as plain values, the way there and back, and answers.

Plain protobuf, no gRPC; `fleet_client.py` asks a learner over gRPC. Only lengths are checked here, and whether
statistics can have been observed; judgement is the learner's. What is not one of `SpeedStatistic`'s six fields has no
place in the messages, so that nothing else about jobs can leave a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from foundation.text import plain_line
from policy_net.domain import JobKind
from policy_net.errors import ImpossibleStatistics, SpecMismatch
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.rollout_assignment import RolloutAssignment
from policy_net.exchange.signed_documents import SignedDocument
from policy_net.exchange.spec import Weights, WeightSpec, weights_to_bytes
from policy_net.exchange.statistics import SpeedStatistic

WINDOW_JOBS = "window_jobs"
"""The statistic of an update from replays that says how many jobs the window had."""
MOST_TIMES_OFF = 1.25
"""A replay of a cluster's past under what acted there that is so many times off what happened says nothing of other
schedulers: what they are to show are gains of this size."""
_FLOAT_BYTES = 4
_LONGEST_ERROR = 500
_LENGTH_DELIMITED = 2
"""Protobuf's wire type of bytes."""


@dataclass(frozen=True, slots=True)
class GradientUpdate:
    """One cluster's gradient of the loss at a head step; (cluster, incarnation, sequence) names it for ever.

    Attributes:
        base_step: the learner head's step at which the gradient was computed.
        gradient: float32, shape (parameter_count,); descent goes along its negative.
        effective_samples: the same after importance weighting.
        replayed: it comes from replays of the cluster's past, and not from what decisions brought.
    """

    cluster: str
    incarnation: int
    sequence: int
    base_step: int
    spec_digest: str
    gradient: Weights
    samples: int
    effective_samples: float
    statistics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    replayed: bool = False


_SAME_OF_UPDATES = ("cluster", "incarnation", "sequence", "base_step", "spec_digest", "samples", "effective_samples")
"""Fields that a request has as an update has them."""


def push_request(update: GradientUpdate, want_weights: bool) -> fleet_pb2.PushRequest:
    """The wire form of an update; `want_weights` asks for the newest head with the answer."""
    return fleet_pb2.PushRequest(
        **{name: getattr(update, name) for name in _SAME_OF_UPDATES},
        gradient=weights_to_bytes(update.gradient),
        statistics=dict(update.statistics),
        want_weights=want_weights,
        replayed=update.replayed,
    )


def gradient_update(request: fleet_pb2.PushRequest) -> GradientUpdate:
    """The update in a request; its gradient is a read-only view of the request's bytes.

    Raises:
        SpecMismatch: the gradient's bytes are no whole number of float32.
    """
    return GradientUpdate(
        **{name: getattr(request, name) for name in _SAME_OF_UPDATES},
        gradient=floats(request.gradient),
        statistics=MappingProxyType(dict(request.statistics)),
        # Agents of before the field told a window's jobs all the same, and of live gradients nothing of the kind.
        replayed=request.replayed or WINDOW_JOBS in request.statistics,
    )


class RoundKind(StrEnum):
    """What a round asks for."""

    TRAIN = "train"
    EVALUATE = "evaluate"


@dataclass(frozen=True, slots=True)
class RoundTask:
    """What a round asks of a cluster.

    Attributes:
        task: names it; the answer repeats it.
        weights: where to start, shape (parameter_count,).
        numbers: the strategy's configuration, as are `texts`.
    """

    task: str
    kind: RoundKind
    weights: Weights
    spec_digest: str
    numbers: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class RoundAnswer:
    """A cluster's answer to a task.

    Attributes:
        weights: of a train task: where the cluster ended; empty otherwise.
        error: not empty: there is no answer, and why.
    """

    task: str
    weights: Weights
    samples: int
    metrics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    error: str = ""


_KINDS = {RoundKind.TRAIN: fleet_pb2.RoundTask.TRAIN, RoundKind.EVALUATE: fleet_pb2.RoundTask.EVALUATE}


def round_task(task: RoundTask) -> fleet_pb2.RoundTask:
    """The wire form of a round's task."""
    return fleet_pb2.RoundTask(
        task=task.task,
        kind=_KINDS[task.kind],
        weights=weights_to_bytes(task.weights),
        spec_digest=task.spec_digest,
        numbers=dict(task.numbers),
        texts=dict(task.texts),
    )


def task_of_round(message: fleet_pb2.RoundTask) -> RoundTask:
    """The task in a message.

    Raises:
        SpecMismatch: it asks for something unknown, or a float is cut in two.
    """
    kind = next((kind for kind, number in _KINDS.items() if number == message.kind), None)
    if kind is None:
        raise SpecMismatch(f"a round asks for kind {message.kind}, which this program does not know")
    weights = floats(message.weights)
    return RoundTask(message.task, kind, weights, message.spec_digest, dict(message.numbers), dict(message.texts))


def reply_request(answer: RoundAnswer, cluster: str, incarnation: int) -> fleet_pb2.ReplyRequest:
    """The wire form of an answer."""
    return fleet_pb2.ReplyRequest(
        cluster=cluster,
        incarnation=incarnation,
        task=answer.task,
        weights=weights_to_bytes(answer.weights),
        samples=answer.samples,
        metrics=dict(answer.metrics),
        error=answer.error,
    )


def round_answer(request: fleet_pb2.ReplyRequest) -> RoundAnswer:
    """The answer in a request; its weights are a read-only view of the request's bytes.

    Raises:
        SpecMismatch: a float is cut in two.
    """
    error = plain_line(request.error, _LONGEST_ERROR)
    return RoundAnswer(request.task, floats(request.weights), request.samples, dict(request.metrics), error)


def type_messages(statistics: Iterable[SpeedStatistic]) -> list[fleet_pb2.TypeStatistics]:
    """The wire form, one message a type and kind, in the order of their first statistic."""
    messages: dict[tuple[str, JobKind], fleet_pb2.TypeStatistics] = {}
    for entry in statistics:
        message = messages.setdefault(
            (entry.job_type, entry.kind), fleet_pb2.TypeStatistics(job_type=entry.job_type, kind=entry.kind.value)
        )
        message.ps.append(entry.ps)
        message.workers.append(entry.workers)
        message.mean_log_speed.append(entry.mean_log_speed)
        message.count.append(entry.count)
    return list(messages.values())


def statistics_of(messages: Sequence[fleet_pb2.TypeStatistics]) -> tuple[SpeedStatistic, ...]:
    """The inverse of `type_messages`; every split once, every type of one kind.

    Raises:
        ImpossibleStatistics: they cannot have been observed.
    """
    found: dict[tuple[str, int, int], SpeedStatistic] = {}
    kinds: dict[str, str] = {}
    for message in messages:
        name = message.job_type[:64]
        if kinds.setdefault(message.job_type, message.kind) != message.kind:
            raise ImpossibleStatistics(f"type {name!r} is reported as {kinds[message.job_type]!r} and {message.kind!r}")
        lists = (message.ps, message.workers, message.mean_log_speed, message.count)
        if len({len(values) for values in lists}) != 1:
            raise ImpossibleStatistics(f"type {name!r}: its lists have {[len(values) for values in lists]} entries")
        for ps, workers, mean, count in zip(*lists, strict=True):
            try:
                entry = SpeedStatistic(message.job_type, JobKind(message.kind), ps, workers, mean, count)
            except ValueError as error:
                raise ImpossibleStatistics(f"type {name!r}: {error}") from error
            if (message.job_type, ps, workers) in found:
                raise ImpossibleStatistics(f"type {name!r}: {ps} PSs and {workers} workers are reported twice")
            found[message.job_type, ps, workers] = entry
    return tuple(found[split] for split in sorted(found))


def times_off(claimed: float, really: float) -> float:
    """How many times one figure is the other, the larger over the smaller; both are above zero."""
    return max(claimed / really, really / claimed)


def floats(data: bytes) -> Weights:
    """A read-only flat vector on little-endian float32 bytes, of whatever length they have.

    Raises:
        SpecMismatch: a float is cut in two.
    """
    if len(data) % _FLOAT_BYTES:
        raise SpecMismatch(f"{len(data)} bytes are no whole number of float32 values")
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)


def serialized_with_weights(reply: fleet_pb2.PushReply | fleet_pb2.PullHeadReply, weights: bytes) -> bytes:
    """A reply's bytes with its field `weights`, which is large: set in the message it would be copied twice more."""
    if not weights:
        return reply.SerializeToString()
    key = reply.DESCRIPTOR.fields_by_name["weights"].number << 3 | _LENGTH_DELIMITED
    return b"".join((reply.SerializeToString(), _varint(key), _varint(len(weights)), weights))


def _varint(number: int) -> bytes:
    """Source: Protocol Buffers encoding, base 128 varints."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


class PushOutcome(StrEnum):
    """What became of an update."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"


PUSH_OUTCOMES = {
    PushOutcome.APPLIED: fleet_pb2.PushReply.APPLIED,
    PushOutcome.DUPLICATE: fleet_pb2.PushReply.DUPLICATE,
    PushOutcome.REJECTED: fleet_pb2.PushReply.REJECTED,
}
"""By the outcome, its number on the wire."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The learner's answer to a cluster that says it is there.

    Attributes:
        incarnation: numbers this registration; update sequences start at 1 within it.
        learning: False if this cluster's updates are not wanted.
        rounds: the learner asks for work, round by round; updates are not pushed.
        fleets: the learner's fleet, and those above it that it knows, the nearest first.
    """

    incarnation: int
    spec: WeightSpec
    head_step: int
    assigned_version: int
    learning: bool
    rounds: bool = False
    timestamp: SignedDocument | None = None
    fleets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LearnerHead:
    """The learner's newest weights."""

    step: int
    weights: Weights


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """What became of an update, and the head after it if it was sent along."""

    outcome: PushOutcome
    reason: str
    head_step: int
    staleness: int
    head: LearnerHead | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the learner wants of this cluster now.

    Attributes:
        rollout_assignment: what a rollout asks besides; None: nothing.
        assignment_fault: what is wrong with one that cannot be read.
        lost_digest: of a policy file that the learner lost and takes back; empty: of none.
    """

    version: int
    head_step: int
    reregister: bool
    timestamp: SignedDocument | None = None
    rollout_assignment: RolloutAssignment | None = None
    assignment_fault: str = ""
    lost_digest: str = ""
    fleets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareAnswer:
    """What became of a report of speeds.

    Attributes:
        taken: False if the learner had it, or a later one.
        left_out: job types for which the fleet's vocabulary has no room.
    """

    taken: bool
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchedPolicy:
    """A published version as it came over the wire; not checked yet.

    Attributes:
        signed: what the version is; None from a learner that signs nothing.
        timestamp: that this cluster is to act on it now.
    """

    version: int
    data: bytes
    digest: str
    signed: SignedDocument | None = None
    timestamp: SignedDocument | None = None
    roots: tuple[SignedDocument, ...] = ()
