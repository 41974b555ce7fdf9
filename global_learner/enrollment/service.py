"""The service `Enrollment` of fleet.proto, on a port of its own: the only call for which nobody shows a certificate."""

# ruff: noqa: N802  # methods are named by fleet.proto
from __future__ import annotations

from global_learner.enrollment.registrar import Registrar
from global_learner.service.calls import Context, answered
from global_learner.telemetry import Telemetry
from policy_net.exchange.generated import fleet_pb2, fleet_pb2_grpc


class EnrollmentService(fleet_pb2_grpc.EnrollmentServicer):
    """Answers agents that have a token and no certificate yet."""

    def __init__(self, registrar: Registrar, telemetry: Telemetry) -> None:
        self.telemetry = telemetry
        self._registrar = registrar

    @answered
    async def Enroll(self, request: fleet_pb2.EnrollRequest, context: Context) -> fleet_pb2.CertificateReply:
        """A certificate for a token; the token says for which name."""
        del context
        grant = await self._registrar.enroll(request.cluster, request.token, request.signing_request)
        return fleet_pb2.CertificateReply(certificate=grant.pem, authority=self._registrar.authority_pem)
