"""The whole learner on a loopback port, in the test's process, and a caller of it."""

import asyncio
import time
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from learner_makers import SPEC, fleet_beliefs, policy, settings, update

from global_learner.identity import OperatorIdentity
from global_learner.learner import Learner, Opened
from global_learner.recovery import recover
from global_learner.registry.registry import Registry
from global_learner.registry.registry_thread import RegistryThread
from global_learner.registry.signing import Signing
from global_learner.service.admin_service import AdminService
from global_learner.service.admission import AdmissionLimits, Pause, bounded_server, pause
from global_learner.service.fleet_service import FleetService
from global_learner.service.identity_setup import ExternalCredentials, open_identities
from global_learner.service.lanes import OPERATOR_SHARE, one_lane
from global_learner.storage.state_dir import StateDir
from global_learner.telemetry import LearnerTelemetry
from global_learner.updates.quarantine import Quarantine
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.spec import PolicySpec
from policy_net.exchange.wire import push_request

CALL_SECONDS = 60.0
_MESSAGE_BYTES = 4 << 20


class Caller:
    """Stubs with deadlines."""

    def __init__(self, channel: grpc.aio.Channel, own: grpc.aio.Channel, learner: Learner) -> None:
        self._fleet, self._admin = rpc.FleetStub(channel), rpc.AdminStub(own)
        self.learner = learner

    async def call(self, name: str, request):
        stub = self._fleet if hasattr(self._fleet, name) else self._admin
        return await getattr(stub, name)(request, timeout=CALL_SECONDS)

    async def register(self, cluster: str = "north", **fields) -> pb.RegisterReply:
        return await self.call("Register", pb.RegisterRequest(cluster=cluster, **fields))

    async def push(self, number: int, want_weights: bool = False, **changes) -> pb.PushReply:
        return await self.call("Push", push_request(update(number, **changes), want_weights))

    async def fleet(self) -> pb.GetFleetReply:
        return await self.call("GetFleet", pb.GetFleetRequest())

    async def refused(self, name: str, request) -> grpc.StatusCode:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(name, request)
        assert "\n" not in (caught.value.details() or "")
        return caught.value.code()


@asynccontextmanager
async def serving(folder: Path, spec: PolicySpec = SPEC, pause: Pause = pause, **sections):
    config = settings(folder, spec, **sections)
    with StateDir(config.state_dir) as state:
        registry = RegistryThread(Registry(state.path, state.commits, Signing(state.path, 3600.0, time.time)))
        telemetry = LearnerTelemetry()
        beliefs = fleet_beliefs(config, registry, telemetry)
        recovered = recover(state, registry.registry, config, policy(spec), time.time(), beliefs.priors)
        quarantine = Quarantine(config.quarantine, state.path, time.time, commits=state.commits)
        learner = Learner(config, Opened(state, registry, recovered, quarantine, beliefs), telemetry)
        with open_identities(config, ExternalCredentials(), state.path, registry, telemetry, time.time) as who:
            lanes = one_lane(OPERATOR_SHARE)  # of tests that call it all at once
            server = bounded_server(AdmissionLimits(_MESSAGE_BYTES, 100), who.identity.caller, lanes, telemetry)
            fleet = FleetService(learner, who.identity, who.registrar, telemetry, time.perf_counter, pause)
            rpc.add_FleetServicer_to_server(fleet, server)
            owner = OperatorIdentity()
            operators = bounded_server(
                AdmissionLimits(_MESSAGE_BYTES, 100), owner.caller, one_lane(OPERATOR_SHARE), telemetry
            )
            admin = AdminService(learner, owner, who.registrar, telemetry, config.scores.enabled)
            rpc.add_AdminServicer_to_server(admin, operators)
            ports = [one.add_insecure_port("127.0.0.1:0") for one in (server, operators)]
            learner.start()
            await asyncio.gather(server.start(), operators.start())
            agents, own = (grpc.aio.insecure_channel(f"127.0.0.1:{port}") for port in ports)
            async with agents, own:
                yield Caller(agents, own, learner)
            await asyncio.gather(server.stop(0), operators.stop(0))
            await learner.close()
        registry.close()


async def versions_until(caller: Caller, version: int) -> list[pb.VersionCard]:
    """The cards once this version is published; publishing does not hold up updates."""
    async with asyncio.timeout(CALL_SECONDS):
        while (await caller.fleet()).latest_version < version:
            await asyncio.sleep(0)
    return list((await caller.call("ListVersions", pb.ListVersionsRequest())).versions)
