"""The client over real gRPC on loopback, against a service that answers from a `FakeLearner`."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from agent_fakes import SPEC, STATUS, WEIGHTS, FakeLearner, policy_bytes
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from reserved_port import ReservedPort

from cluster_agent.fleet.learner_client import EvidenceAnswer, LearnerClient
from cluster_agent.recording.job_timelines import JobTimeline
from cluster_agent.recording.load_history import LoadCurve, ReplayedPast
from cluster_agent.rollout.alternation import FinishedBlock
from cluster_agent.rollout.assignment_state import Evidence, ShadowSums
from cluster_agent.settings import LearnerConnectionSettings
from policy_net.errors import LearnerRefused, LearnerUnreachable
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment
from policy_net.exchange.spec import weights_from_bytes, weights_to_bytes
from policy_net.exchange.wire import GradientUpdate, PushOutcome


class Service(fleet_pb2_grpc.FleetServicer):
    """A learner's wire form; `status` makes every call fail, `hold` lets every call wait."""

    def __init__(self) -> None:
        self.learner = FakeLearner()
        self.status: grpc.StatusCode | None = None
        self.hold: threading.Event | None = None
        self.pushes: list[fleet_pb2.PushRequest] = []
        self.heartbeats: list[fleet_pb2.HeartbeatRequest] = []
        self.evidence: list[fleet_pb2.ShareEvidenceRequest] = []
        self.rollout_assignment: fleet_pb2.RolloutDuty | None = None
        self.spec_digest = SPEC.digest

    def Register(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        self._misbehave(context)
        reply = self.learner.register(request.spec_digest, request.job_types)
        return fleet_pb2.RegisterReply(
            incarnation=reply.incarnation,
            spec_json=SPEC.to_json(),
            spec_digest=self.spec_digest,
            head_step=7,
            assigned_version=2,
            learning=True,
        )

    def PullHead(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        self._misbehave(context)
        if request.have and request.have_step == 0:
            return fleet_pb2.PullHeadReply(step=0, unchanged=True, spec_digest=self.spec_digest)
        return fleet_pb2.PullHeadReply(step=0, weights=weights_to_bytes(WEIGHTS), spec_digest=self.spec_digest)

    def Push(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        self._misbehave(context)
        self.pushes.append(request)
        outcome = fleet_pb2.PushReply.REJECTED if request.samples == 0 else fleet_pb2.PushReply.APPLIED
        return fleet_pb2.PushReply(
            outcome=outcome, reason="bad-samples", head_step=9, staleness=3, weights=weights_to_bytes(WEIGHTS)
        )

    def Heartbeat(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        self._misbehave(context)
        self.heartbeats.append(request)
        return fleet_pb2.HeartbeatReply(assigned_version=4, head_step=9, reregister=True, duty=self.rollout_assignment)

    def ShareEvidence(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        self._misbehave(context)
        self.evidence.append(request)
        return fleet_pb2.ShareEvidenceReply(taken=True, next_block=len(request.blocks))

    def FetchPolicy(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        self._misbehave(context)
        fetched = self.learner.fetch_policy(request.version)
        return fleet_pb2.FetchPolicyReply(version=request.version, policy_file=fetched.data, digest=fetched.digest)

    def _misbehave(self, context: grpc.ServicerContext) -> None:
        if self.status is not None:
            context.abort(self.status, "as told")
        if self.hold is not None:
            self.hold.wait(100)


@pytest.fixture
def service() -> Service:
    return Service()


def start(service: Service, credentials: grpc.ServerCredentials | None = None) -> tuple[grpc.Server, int]:
    server = grpc.server(ThreadPoolExecutor(4))
    fleet_pb2_grpc.add_FleetServicer_to_server(service, server)
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    return server, port


def make_client(port: int, **changes: object) -> LearnerClient:
    content = {"address": f"127.0.0.1:{port}", "retry": {"call_seconds": 60.0}}
    settings = LearnerConnectionSettings.model_validate(content | changes)
    return LearnerClient(settings, "alpha", lambda method, outcome: None)


@pytest.fixture
def client(service: Service) -> Iterator[LearnerClient]:
    server, port = start(service)
    client = make_client(port)
    yield client
    client.close()
    server.stop(0)


def make_update(samples: int = 256) -> GradientUpdate:
    gradient = np.linspace(-1, 1, SPEC.parameter_count, dtype=np.float32)
    return GradientUpdate("alpha", 1, 5, 7, SPEC.digest, gradient, samples, 200.5, {"reward_mean": 0.25})


def test_every_call_arrives_and_is_understood(service: Service, client: LearnerClient) -> None:
    registration = client.register("", ("vgg-16",))
    assert (registration.incarnation, registration.spec, registration.assigned_version) == (1, SPEC, 2)
    head = client.pull_head(registration, None)
    assert head is not None
    assert np.array_equal(head.weights, WEIGHTS)
    assert client.pull_head(registration, 0) is None

    update = make_update()
    answer = client.push(update, SPEC)
    assert (answer.outcome, answer.head_step, answer.staleness) == (PushOutcome.APPLIED, 9, 3)
    assert answer.head is not None
    assert answer.head.step == 9
    (sent,) = service.pushes
    assert np.array_equal(weights_from_bytes(sent.gradient, SPEC), update.gradient)
    assert (sent.sequence, sent.base_step, sent.effective_samples) == (5, 7, 200.5)
    assert dict(sent.statistics) == {"reward_mean": 0.25}

    rejected = client.push(make_update(samples=0), SPEC)
    assert (rejected.outcome, rejected.reason) == (PushOutcome.REJECTED, "bad-samples")

    life = JobTimeline(3, "vgg-16", ((0.0, 0, 0), (60.0, 2, 1)), ((60.0, "over-cap"),), 0, 90.0, completed=True)
    jobs = replace(STATUS.cluster, simulated=True, baselines={"fifo-easy": 90.0})
    load = LoadCurve(60.0, 30.0, (1.0, -1.0), (0.0, -1.0), (4.0, -1.0), "fifo-easy", ended=True)
    past = ReplayedPast(60.0, 3660.0, 40, 90.0, 95.0, {"fifo-easy": 120.0}, (replace(load, ended=False),))
    reported = replace(STATUS, cluster=jobs, baseline_policy="drf", job_timelines=(life,), load=(load,), replayed=past)
    assignment = client.heartbeat(1, reported)
    heard = service.heartbeats[-1].status
    (curve,) = heard.load
    assert (curve.policy, curve.begin_seconds, curve.step_seconds) == ("fifo-easy", 60.0, 30.0)
    assert [list(curve.gpus_used), list(curve.jobs_waiting), list(curve.gpus)] == [
        [1.0, -1.0],
        [0.0, -1.0],
        [4.0, -1.0],
    ]
    assert curve.ended
    assert [(entry.policy, entry.avg_jct_seconds) for entry in heard.baselines] == [("fifo-easy", 90.0)]
    assert heard.baseline_policy == "drf"
    assert (heard.replayed.begin_seconds, heard.replayed.end_seconds, heard.replayed.jobs) == (60.0, 3660.0, 40)
    assert (heard.replayed.avg_jct_seconds, heard.replayed.twin_jct_seconds) == (90.0, 95.0)
    assert [(entry.policy, entry.avg_jct_seconds) for entry in heard.replayed.baselines] == [("fifo-easy", 120.0)]
    assert [list(entry.gpus_used) for entry in heard.replayed.load] == [[1.0, -1.0]]
    assert heard.simulated
    (job,) = heard.job_timelines
    assert (job.number, job.job_type, job.seconds, job.completed) == (3, "vgg-16", 90.0, True)
    assert [(held.seconds, held.workers, held.ps) for held in job.held] == list(life.sizes)
    assert [(mark.seconds, mark.reason) for mark in job.interventions] == list(life.interventions)
    assert (assignment.version, assignment.head_step, assignment.reregister) == (4, 9, True)
    service.learner.publish(4, policy_bytes())
    assert client.fetch_policy(4).data == policy_bytes()


BLOCK = FinishedBlock(0, True, 2.5, 3.0, 4.0, 5.0, 0.25, 1, 0.01, 12, 100.0, 7300.0, 2.4)


def test_a_duty_arrives_and_its_evidence_is_told(service: Service, client: LearnerClient) -> None:
    assert client.heartbeat(1, STATUS).rollout_assignment is None
    rollout_assignment = RolloutAssignment(3, AssignmentRole.ALTERNATING, 2, 7, 7200.0, 2400.0)
    service.rollout_assignment = rollout_assignment.message()
    answer = client.heartbeat(1, replace(STATUS, rollout=3, rollout_role="alternating", beside_version=2))
    assert (answer.rollout_assignment, answer.assignment_fault) == (rollout_assignment, "")
    reported = service.heartbeats[-1].status
    assert (reported.rollout, reported.rollout_role, reported.beside_version) == (3, "alternating", 2)

    registration = client.register("", ())
    sums = ShadowSums(decisions=4, agreed=3, gain=0.5, compared=2)
    other = replace(BLOCK, number=1, candidate=False, twin=(1.0, 2.0, 3.0))
    answered = client.share_evidence(registration, Evidence(3, (BLOCK, other), sums))
    assert answered == EvidenceAnswer(True, 2)
    (sent,) = service.evidence
    assert (sent.cluster, sent.incarnation, sent.rollout) == ("alpha", 1, 3)
    first, second = sent.blocks
    assert (first.number, first.candidate, first.jobs, first.usual_jobs, first.has_twin) == (0, True, 2.5, 3.0, False)
    assert (first.guard_share, first.starved_jobs, first.decisions, first.end_seconds) == (0.25, 1, 12, 7300.0)
    assert (second.has_twin, second.twin_priced, second.twin_incumbent, second.twin_candidate) == (True, 1.0, 2.0, 3.0)
    assert (sent.shadow.decisions, sent.shadow.agreed, sent.shadow.believed_gain) == (4, 3, 0.25)
    client.share_evidence(registration, Evidence(3, (BLOCK,) * 100, None))
    assert len(service.evidence[-1].blocks) == 64
    assert not service.evidence[-1].HasField("shadow")


@pytest.mark.parametrize(
    "changes", [{"role": "leading"}, {"beside_version": 0}, {"block_seconds": -1.0}, {"washout_seconds": float("nan")}]
)
def test_a_duty_that_cannot_be_read_is_said_and_the_assignment_beside_it_holds(
    service: Service, client: LearnerClient, changes: dict[str, Any]
) -> None:
    sound = RolloutAssignment(3, AssignmentRole.SHADOW, 2, 7, 7200.0, 2400.0).to_json()
    service.rollout_assignment = fleet_pb2.RolloutDuty(**(sound | changes))
    answer = client.heartbeat(1, STATUS)
    assert (answer.version, answer.rollout_assignment) == (4, None)
    assert answer.assignment_fault
    assert "\n" not in answer.assignment_fault


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (grpc.StatusCode.UNAVAILABLE, LearnerUnreachable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, LearnerUnreachable),
        (grpc.StatusCode.INTERNAL, LearnerUnreachable),
        (grpc.StatusCode.PERMISSION_DENIED, LearnerRefused),
        (grpc.StatusCode.INVALID_ARGUMENT, LearnerRefused),
        (grpc.StatusCode.FAILED_PRECONDITION, LearnerRefused),
    ],
)
def test_grpc_errors_become_ours(
    service: Service, client: LearnerClient, status: grpc.StatusCode, error: type[Exception]
) -> None:
    service.status = status
    said = "the connection broke off" if status is grpc.StatusCode.INTERNAL else f"Register: {status.name}: as told"
    with pytest.raises(error, match=said):
        client.register("", ())


def test_nobody_there_is_unreachable() -> None:
    client = make_client(9)
    with pytest.raises(LearnerUnreachable):
        client.register("", ())
    client.close()
    with pytest.raises(LearnerUnreachable, match="closed"):
        client.register("", ())


def test_a_call_ends_at_its_deadline(service: Service) -> None:
    service.hold = threading.Event()
    server, port = start(service)
    client = make_client(port, retry={"call_seconds": 0.05})
    with pytest.raises(LearnerUnreachable, match="gave no answer within"):
        client.heartbeat(1, STATUS)
    service.hold.set()
    client.close()
    server.stop(0)


def test_an_answer_that_makes_no_sense_is_refused(service: Service, client: LearnerClient) -> None:
    registration = client.register("", ())
    service.spec_digest = "0" * 64
    with pytest.raises(LearnerRefused, match="digest"):
        client.register("", ())
    with pytest.raises(LearnerRefused, match="spec"):
        client.pull_head(registration, None)


def make_certificates(folder: Path) -> None:
    """A certificate authority, the learner's certificate and the agent's."""
    start = datetime.datetime(2020, 1, 1)
    end = datetime.datetime(2120, 1, 1)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])

    def write(name: str, subject: x509.Name, key: ec.EllipticCurvePrivateKey, is_authority: bool) -> None:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
        )
        certificate = builder.sign(authority_key, hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    write("ca", authority_name, authority_key, is_authority=True)
    for name in ("learner", "alpha"):
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        write(name, subject, ec.generate_private_key(ec.SECP256R1()), is_authority=False)


def test_with_tls_both_sides_show_a_certificate(service: Service, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    pair = ((tmp_path / "learner.key").read_bytes(), (tmp_path / "learner.pem").read_bytes())
    authority = (tmp_path / "ca.pem").read_bytes()
    credentials = grpc.ssl_server_credentials([pair], authority, require_client_auth=True)
    server, port = start(service, credentials)
    tls = {
        "ca_file": tmp_path / "ca.pem",
        "certificate_file": tmp_path / "alpha.pem",
        "key_file": tmp_path / "alpha.key",
    }
    client = make_client(port, tls=tls)
    assert client.register("", ()).incarnation == 1
    client.close()
    plain = make_client(port)
    with pytest.raises(LearnerUnreachable):
        plain.register("", ())
    plain.close()
    server.stop(0)


@pytest.fixture
def second() -> Iterator[tuple[Service, str]]:
    """Another learner, beside the one of the other tests."""
    service = Service()
    server = grpc.server(ThreadPoolExecutor(2))
    fleet_pb2_grpc.add_FleetServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield service, f"127.0.0.1:{port}"
    server.stop(0).wait()


def settled(client: LearnerClient, tries: int) -> None:
    """Register as an agent does, which tries again while nobody answers."""
    for _ in range(tries):
        with contextlib.suppress(LearnerUnreachable):
            client.register("", [])
            return
    pytest.fail(f"nobody answered in {tries} tries")


def test_a_learner_that_is_not_the_active_one_is_left_for_the_next(second: tuple[Service, str]) -> None:
    service, address = second
    with contextlib.closing(ReservedPort()) as nobody:
        settings = LearnerConnectionSettings(address=nobody.address, further_addresses=(address, nobody.address))
        client = LearnerClient(settings, "north", lambda _method, _outcome: None)
        settled(client, tries=2)
        client.heartbeat(1, STATUS)
        assert len(service.heartbeats) == 1
        service.status = grpc.StatusCode.UNAVAILABLE
        with pytest.raises(LearnerUnreachable):
            client.heartbeat(1, STATUS)
        service.status = None
        settled(client, tries=3)
        client.close()


@pytest.mark.parametrize("status", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.PERMISSION_DENIED])
def test_one_that_refuses_otherwise_is_kept(second: tuple[Service, str], status: grpc.StatusCode) -> None:
    service, address = second
    with contextlib.closing(ReservedPort()) as nobody:
        settings = LearnerConnectionSettings(address=address, further_addresses=(nobody.address,))
        client = LearnerClient(settings, "north", lambda _method, _outcome: None)
        service.status = status
        with pytest.raises((LearnerUnreachable, LearnerRefused)):
            client.register("", [])
        service.status = None
        client.register("", [])
        client.close()
