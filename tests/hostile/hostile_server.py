"""A learner that answers whatever it is told to, as bytes; for agents that must live with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
from agent_fakes import SPEC, WEIGHTS, policy_bytes
from google.protobuf.message import Message

from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.spec import weights_to_bytes

FLEET = pb.DESCRIPTOR.services_by_name["Fleet"]
Answer = Callable[[bytes, grpc.ServicerContext], bytes]


def sound_replies() -> dict[str, Message]:
    """A sound answer of every method that an agent calls; a new one needs a line here."""
    weights, file = weights_to_bytes(WEIGHTS), policy_bytes()
    return {
        "Register": pb.RegisterReply(
            incarnation=1, spec_json=SPEC.to_json(), spec_digest=SPEC.digest, assigned_version=2, learning=True
        ),
        "PullHead": pb.PullHeadReply(step=7, weights=weights, spec_digest=SPEC.digest),
        "Push": pb.PushReply(outcome=pb.PushReply.APPLIED, head_step=8, weights=weights),
        "Heartbeat": pb.HeartbeatReply(
            assigned_version=2,
            head_step=8,
            duty=pb.RolloutDuty(rollout=1, role="shadow", beside_version=3, block_seconds=7200.0),
        ),
        "FetchPolicy": pb.FetchPolicyReply(version=2, policy_file=file, digest=digest_of(file), name="v2"),
        "Poll": pb.PollReply(
            task=pb.RoundTask(task="t", kind=pb.RoundTask.TRAIN, weights=weights, spec_digest=SPEC.digest)
        ),
        "Reply": pb.ReplyReply(taken=True),
        "ShareBeliefs": pb.ShareBeliefsReply(taken=True, statistics=1),
        "ShareSketch": pb.ShareSketchReply(taken=True),
        "ReturnPolicy": pb.ReturnPolicyReply(taken=True),
        "ShareEvidence": pb.ShareEvidenceReply(taken=True, next_block=2),
        "RenewCertificate": pb.CertificateReply(certificate=b"", authority=b""),
    }


class HostileServer(grpc.GenericRpcHandler):
    """Serves every method of `Fleet` with bytes; sound ones unless `answers` says otherwise."""

    def __init__(self, compression: grpc.Compression = grpc.Compression.NoCompression) -> None:
        self.answers: dict[str, bytes | Answer] = {}
        self.asked: list[str] = []
        self.released = threading.Event()
        self._sound = {name: reply.SerializeToString() for name, reply in sound_replies().items()}
        self._server = grpc.server(
            ThreadPoolExecutor(8), options=[("grpc.max_send_message_length", -1)], compression=compression
        )
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        name = handler_call_details.method.rpartition("/")[2]

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.asked.append(name)
            chosen = self.answers.get(name, self._sound[name])
            return chosen if isinstance(chosen, bytes) else chosen(request, context)

        return grpc.unary_unary_rpc_method_handler(answer)

    def sound(self, name: str) -> bytes:
        """What a method answers unless told otherwise."""
        return self._sound[name]

    def hang(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """An answer that does not come until the test is over."""
        self.released.wait(100.0)
        return b""

    def close(self) -> None:
        self.released.set()
        self._server.stop(0)
