"""A learner over gRPC: deadlines on every call, gRPC's errors translated, answers checked, nothing retried here.

Agents call it, and regions call the learner above. Retrying is the caller's: only it knows whether a call still
matters. A learner may be another one than yesterday, restored from a copy, or broken: on weights that are no numbers, a
head that goes back, or another version than was asked for, callers go on with what they have.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import grpc
import numpy as np

from foundation.text import plain_line
from policy_net.errors import LearnerRefused, LearnerUnreachable, PolicyNetError, SpecMismatch, VersionUnavailable
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.learner_connection import LearnerAddress, LearnerConnection, OnEnrolled
from policy_net.exchange.other_server import OtherServers
from policy_net.exchange.policy_file import spec_from_json
from policy_net.exchange.rollout_assignment import RolloutAssignment
from policy_net.exchange.secrets_in_use import SecretInUse
from policy_net.exchange.signed_documents import SignedDocument
from policy_net.exchange.spec import Spec, WeightSpec, weights_from_bytes
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.exchange.wire import (
    PUSH_OUTCOMES,
    Assignment,
    FetchedPolicy,
    GradientUpdate,
    LearnerHead,
    PushAnswer,
    Registration,
    ShareAnswer,
    push_request,
    type_messages,
)

_MOST_TYPES, _LONGEST_TYPE = 4096, 253
"""What a learner takes of job types, and of characters in one's name."""
_MOST_FLEETS, _LONGEST_FLEET = 64, 128

_DIGEST_CHARACTERS = 64
_DIGEST = re.compile(rf"[0-9a-f]{{{_DIGEST_CHARACTERS}}}")
_LONGEST_REASON = 64
"""Rejections have a word; whatever else a learner sends is not worth more of a log."""

_FINAL = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.DATA_LOSS,  # a damaged file on the learner's disk stays damaged
}
"""Statuses that the same request would get again; every other one may be the network's or the learner's bad moment."""

_ELSEWHERE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
"""Statuses of a learner that is gone, held up, or not the active one: another one may be."""

Observer = Callable[[str, str], None]
"""Is told of every call's method and outcome."""


class FleetClient:
    """Calls that agents and regions make alike.

    Each raises `LearnerUnreachable` if no answer came in time and `LearnerRefused` if the answer was no.
    """

    def __init__(
        self,
        address: LearnerAddress,
        observe: Observer,
        clock: Callable[[], float] = time.time,
        on_enrolled: OnEnrolled = lambda _: None,
        on_replaced: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Open a channel; nothing is sent yet.

        Args:
            on_enrolled: is told the fleet's keys that come with a certificate for a token.
            on_replaced: is told the name of a secret whose files were replaced.

        Raises:
            IdentityFileError: a certificate, key or enrollment file cannot be used.
        """
        self._cluster = address.cluster
        self._seconds = address.call_seconds
        self._learner = address.words.learner
        self._observe = observe
        self._heads = HeadCheck()
        self._others = OtherServers(address.words, self._seconds)
        self._connection = LearnerConnection(address, self._call, clock, on_enrolled, on_replaced)

    @property
    def secrets(self) -> list[SecretInUse]:
        """The certificate that is shown, and those that the learner's is checked against."""
        return self._connection.secrets

    def close(self) -> None:
        """Close the channel; a call under way fails."""
        self._connection.close()

    def register(self, spec_digest: str, job_types: Sequence[str]) -> Registration:
        """Say that this cluster is there; `spec_digest` is empty where any spec will do."""
        # Users name their types; one that the learner does not take must not cost the cluster its registration.
        taken = [name for name in job_types if 0 < len(name) <= _LONGEST_TYPE and name.isprintable()][:_MOST_TYPES]
        request = fleet_pb2.RegisterRequest(cluster=self._cluster, spec_digest=spec_digest, job_types=taken)
        reply = self._call("Register", self._connection.fleet().Register, request)
        with self._checking("Register"):
            spec: Spec = spec_from_json(reply.spec_json)
            if spec.digest != reply.spec_digest:
                raise LearnerRefused(f"its spec has digest {spec.digest}, and it says {reply.spec_digest}")
        return Registration(
            reply.incarnation,
            spec,
            reply.head_step,
            reply.assigned_version,
            reply.learning,
            reply.rounds,
            _document(reply, "timestamp"),
            self._fleets("Register", reply.fleets),
        )

    def pull_head(self, registration: Registration, have_step: int | None) -> LearnerHead | None:
        """The head; None if it is still the one of `have_step`."""
        request = fleet_pb2.PullHeadRequest(
            cluster=self._cluster,
            incarnation=registration.incarnation,
            have_step=have_step or 0,
            have=have_step is not None,
        )
        seen = self._heads.newest(registration.incarnation)
        reply = self._call("PullHead", self._connection.fleet().PullHead, request)
        if reply.unchanged:
            return None
        spec = registration.spec
        with self._checking("PullHead"):
            if reply.spec_digest != spec.digest:
                raise LearnerRefused(f"the head is of spec {reply.spec_digest[:12]}, not {spec.digest[:12]}")
            return self._heads.checked(registration.incarnation, seen, reply.step, reply.weights, spec)

    def follow_back(self) -> None:
        """Take heads again that lie before those that were sent: the learner lost them, and the caller knows it."""
        self._heads = HeadCheck()

    def push(self, update: GradientUpdate, spec: WeightSpec) -> PushAnswer:
        """Offer an update, again if need be; asks for the head, since the next gradient will be computed at it."""
        request = push_request(update, want_weights=True)
        seen = self._heads.newest(update.incarnation)
        reply = self._call("Push", self._connection.fleet().Push, request)
        with self._checking("Push"):
            outcome = next((each for each, number in PUSH_OUTCOMES.items() if number == reply.outcome), None)
            if outcome is None:
                raise LearnerRefused(f"it answered with outcome {reply.outcome}, which is not known here")
            head = None
            if reply.weights:
                head = self._heads.checked(update.incarnation, seen, reply.head_step, reply.weights, spec)
        return PushAnswer(outcome, plain_line(reply.reason, _LONGEST_REASON), reply.head_step, reply.staleness, head)

    def beat(self, incarnation: int, status: fleet_pb2.ClusterStatus) -> Assignment:
        """Say how the cluster is."""
        request = fleet_pb2.HeartbeatRequest(cluster=self._cluster, incarnation=incarnation, status=status)
        reply = self._call("Heartbeat", self._connection.fleet().Heartbeat, request)
        rollout_assignment, fault = _rollout_assignment(reply)
        return Assignment(
            reply.assigned_version,
            reply.head_step,
            reply.reregister,
            _document(reply, "timestamp"),
            rollout_assignment,
            fault,
            reply.lost_digest[:_DIGEST_CHARACTERS],
            self._fleets("Heartbeat", reply.fleets),
        )

    def share_beliefs(
        self, registration: Registration, revision: int, statistics: Sequence[SpeedStatistic]
    ) -> ShareAnswer:
        """Tell speeds, in place of those told before; revisions rise within a registration."""
        request = fleet_pb2.ShareBeliefsRequest(
            cluster=self._cluster,
            incarnation=registration.incarnation,
            revision=revision,
            types=type_messages(statistics),
        )
        reply = self._call("ShareBeliefs", self._connection.fleet().ShareBeliefs, request)
        return ShareAnswer(reply.taken, tuple(reply.left_out))

    def fetch_policy(self, version: int) -> FetchedPolicy:
        """A published version's file."""
        request = fleet_pb2.FetchPolicyRequest(cluster=self._cluster, version=version)
        reply = self._call("FetchPolicy", self._connection.fleet().FetchPolicy, request)
        with self._checking("FetchPolicy"):
            if reply.version != version:
                raise LearnerRefused(f"it sent v{reply.version} where v{version} was asked for")
            if not _DIGEST.fullmatch(reply.digest):
                raise LearnerRefused(f"v{version} comes with no digest (SHA-256, hex)")
        return FetchedPolicy(
            reply.version,
            reply.policy_file,
            reply.digest,
            _document(reply, "signed"),
            _document(reply, "timestamp"),
            tuple(map(SignedDocument.of, reply.roots)),
        )

    def _call(self, name: str, method: Callable[..., Any], request: object) -> Any:
        turn = self._connection.turn
        try:
            reply = method(request, timeout=self._seconds)
        except grpc.RpcError as error:
            code = error.code()
            if code in _ELSEWHERE:
                self._connection.leave(turn)
            self._observe(name, code.name.lower())
            kind = LearnerRefused if code in _FINAL else LearnerUnreachable
            if code is grpc.StatusCode.DATA_LOSS and name == "FetchPolicy":
                kind = VersionUnavailable
            details = error.details() or ""
            address = self._connection.enroll_address if name == "Enroll" else self._connection.address_of(turn)
            message = self._others.explained(name, code.name, details, address, self._connection.certified)
            message = message or f"{code.name}: {plain_line(details)}"
            raise kind(f"{name}: {message}{self._connection.advice}") from error
        except ValueError as error:  # gRPC's answer to a call on a closed channel
            self._observe(name, "closed")
            raise LearnerUnreachable(f"{name}: the connection is closed") from error
        self._observe(name, "ok")
        return reply

    def _fleets(self, call: str, names: Iterable[str]) -> tuple[str, ...]:
        found = tuple(names)
        with self._checking(call):
            if len(found) > _MOST_FLEETS or any(len(name) > _LONGEST_FLEET for name in found):
                raise LearnerRefused(f"it names {len(found)} fleets above it; at most {_MOST_FLEETS} are taken")
        return found

    @contextlib.contextmanager
    def _checking(self, name: str) -> Iterator[None]:
        """Whatever is wrong with an answer in here is a refusal, and counted as one."""
        try:
            yield
        except (PolicyNetError, LearnerRefused) as error:
            self._observe(name, "unusable")
            raise LearnerRefused(
                f"{name}: the answer of the {self._learner} cannot be used: {plain_line(str(error))}"
            ) from error


def _rollout_assignment(reply: fleet_pb2.HeartbeatReply) -> tuple[RolloutAssignment | None, str]:
    """A rollout's assignment, or what is wrong with it: the assigned version is none the worse."""
    if not reply.HasField("duty"):
        return None, ""
    try:
        return RolloutAssignment.of(reply.duty), ""
    except ValueError as error:
        return None, plain_line(str(error))


class HeadCheck:
    """The check of every head that comes; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._incarnation = 0
        self._step = 0

    def newest(self, incarnation: int) -> int:
        """The newest step of an incarnation that was seen; ask before a call what its answer must not fall behind."""
        with self._lock:
            return self._step if incarnation == self._incarnation else 0

    def checked(self, incarnation: int, seen: int, step: int, data: bytes, spec: WeightSpec) -> LearnerHead:
        """A head that can be learned from.

        Args:
            seen: `newest` of before the call.

        Raises:
            LearnerRefused: its weights are of another length or not finite, or it lies before one that was sent.
        """
        try:
            weights = weights_from_bytes(data, spec)
        except SpecMismatch as error:
            raise LearnerRefused(f"the learner's head cannot be used: {error}") from error
        if not np.isfinite(weights).all():
            raise LearnerRefused(f"the learner's head of step {step} holds NaN or infinity; it is not used")
        if step < seen:
            raise LearnerRefused(f"the learner's head went back from step {seen} to {step}; register again")
        with self._lock:
            newest = self._step if incarnation == self._incarnation else 0
            self._incarnation, self._step = incarnation, max(newest, step)
        return LearnerHead(step, weights)


def _document(reply: Any, name: str) -> SignedDocument | None:
    """A field that only learners which sign have."""
    return SignedDocument.of(getattr(reply, name)) if reply.HasField(name) else None
