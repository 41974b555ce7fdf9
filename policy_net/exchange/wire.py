"""The messages of `fleet.proto` as plain values, and back; only lengths are checked here, judgement is the learner's.

Plain protobuf, no gRPC: whoever opens the connection passes the bytes on.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from policy_net.errors import SpecMismatch
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.messages import GradientUpdate, RoundAnswer, RoundKind, RoundTask
from policy_net.exchange.spec import Weights, weights_to_bytes
from policy_net.plain_text import plain_line

_FLOAT_BYTES = 4
_LONGEST_ERROR = 500


def push_request(update: GradientUpdate, want_weights: bool) -> fleet_pb2.PushRequest:
    """The wire form of an update; `want_weights` asks for the newest head with the answer."""
    return fleet_pb2.PushRequest(
        cluster=update.cluster,
        incarnation=update.incarnation,
        sequence=update.sequence,
        base_step=update.base_step,
        spec_digest=update.spec_digest,
        gradient=weights_to_bytes(update.gradient),
        samples=update.samples,
        effective_samples=update.effective_samples,
        statistics=dict(update.statistics),
        want_weights=want_weights,
    )


def gradient_update(request: fleet_pb2.PushRequest) -> GradientUpdate:
    """The update in a request; its gradient is a read-only view of the request's bytes.

    Raises:
        SpecMismatch: the gradient's bytes are no whole number of float32.
    """
    return GradientUpdate(
        cluster=request.cluster,
        incarnation=request.incarnation,
        sequence=request.sequence,
        base_step=request.base_step,
        spec_digest=request.spec_digest,
        gradient=floats(request.gradient),
        samples=request.samples,
        effective_samples=request.effective_samples,
        statistics=MappingProxyType(dict(request.statistics)),
    )


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


def floats(data: bytes) -> Weights:
    """A read-only flat vector on little-endian float32 bytes, of whatever length they have.

    Raises:
        SpecMismatch: a float is cut in two.
    """
    if len(data) % _FLOAT_BYTES:
        raise SpecMismatch(f"{len(data)} bytes are no whole number of float32 values")
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)
