"""A real learner under attack: certificates good and bad, raw requests, and what it counts and keeps."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from learner_makers import SPEC, update
from learner_process import DEADLINE_SECONDS, LearnerProcess
from processes import wait_until
from prometheus_client.parser import text_string_to_metric_families
from rpc_table import GOOD_CLUSTER, ROWS, Caller, methods

from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.identity_file import IdentityFile, new_key, parse_identity, read_identity, signing_request
from policy_net.exchange.spec import PolicySpec
from policy_net.exchange.wire import push_request

CALL_SECONDS = 60.0
IDENTITY = {"names": ["127.0.0.1"], "enroll_port": 0}


UNHURRIED = {f"{calls}_per_minute": 60_000 for calls in ("registrations", "reports", "fetches", "renewals")}
"""Rates that no test of something else comes near."""


class Answer(NamedTuple):
    """How a call ended; `reply` is None unless it was done."""

    status: grpc.StatusCode
    line: str
    reply: Any

    @property
    def done(self) -> bool:
        return self.status is grpc.StatusCode.OK


class HostileLearner:
    """A learner with certificates, one sound cluster, and the platform's owner."""

    def __init__(self, folder: Path, spec: PolicySpec = SPEC, **sections: Any) -> None:
        self.process = LearnerProcess(folder, spec, identity=IDENTITY, **{"calls": UNHURRIED, **sections})
        self._channels: dict[Any, grpc.Channel] = {}
        self._sequence = 0
        self.incarnation = 0
        self.start()

    def start(self) -> None:
        """Start, or start again; the sound cluster keeps its certificate."""
        self.process.start()
        self.enroll_port = json.loads((self.process.folder / "ports.json").read_text())["enroll_port"]
        self.admin = read_identity(self.process.state_dir / "identity" / "admin.pem")
        if not self._channels:
            self.north = self.enrolled(GOOD_CLUSTER)
        self.register()

    def register(self) -> None:
        reply = self.fleet(self.north).Register(pb.RegisterRequest(), timeout=CALL_SECONDS)
        self.incarnation, self._sequence = reply.incarnation, 0

    def close(self) -> None:
        self.forget_channels()
        self.process.close()

    def enrolled(self, cluster: str) -> IdentityFile:
        """A cluster's identity, by the whole way."""
        invited = self.administrator().EnrollCluster(pb.EnrollClusterRequest(cluster=cluster), timeout=CALL_SECONDS)
        key = new_key()
        request = pb.EnrollRequest(cluster=cluster, token=invited.token, signing_request=signing_request(key, cluster))
        stub = rpc.EnrollmentStub(self.channel(None, enroll=True))
        reply = stub.Enroll(request, timeout=CALL_SECONDS, wait_for_ready=True)
        return parse_identity(key + reply.certificate + reply.authority)

    def person(self, name: str, role: str) -> IdentityFile:
        """Somebody whom the platform's owner gave a role."""
        key = new_key()
        request = pb.EnrollOperatorRequest(name=name, role=role, signing_request=signing_request(key, name))
        reply = self.administrator().EnrollOperator(request, timeout=CALL_SECONDS)
        return parse_identity(key + reply.certificate + reply.authority)

    def forget_channels(self) -> None:
        """Close all connections: what comes next is a newcomer."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def channel(self, identity: IdentityFile | None, enroll: bool = False) -> grpc.Channel:
        """A connection under an identity, or under none; kept open."""
        name = (identity, enroll)
        if name not in self._channels:
            port = self.enroll_port if enroll else self.process.port
            pair = (identity.key, identity.certificate) if identity is not None else (None, None)
            credentials = grpc.ssl_channel_credentials(self.admin.authority, *pair)
            options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
            self._channels[name] = grpc.secure_channel(f"127.0.0.1:{port}", credentials, options)
        return self._channels[name]

    def channel_for(self, method: str) -> grpc.Channel:
        """The connection of whoever may call a method."""
        caller = ROWS[method].caller
        if caller is Caller.NOBODY:
            return self.channel(None, enroll=True)
        return self.channel(self.admin if caller is Caller.ADMIN else self.north)

    def fleet(self, identity: IdentityFile) -> rpc.FleetStub:
        return rpc.FleetStub(self.channel(identity))

    def administrator(self) -> rpc.AdminStub:
        return rpc.AdminStub(self.channel(self.admin))

    def send(
        self, method: str, request: Message | bytes, channel: grpc.Channel | None = None, **options: Any
    ) -> Answer:
        """Make a call with whatever bytes."""
        path, _, reply = methods()[method]
        raw = (channel or self.channel_for(method)).unary_unary(path, response_deserializer=reply.FromString)
        data = request if isinstance(request, bytes) else request.SerializeToString()
        try:
            answer = raw(data, timeout=CALL_SECONDS, **options)
        except grpc.RpcError as error:
            return Answer(error.code(), error.details() or "", None)
        return Answer(grpc.StatusCode.OK, "", answer)

    def good_push(self) -> pb.PushReply:
        """The sound cluster's next update."""
        self._sequence += 1
        step = self.shown()["head_step"]
        sound = update(self._sequence, incarnation=self.incarnation, base_step=step)
        return self.fleet(self.north).Push(push_request(sound, False), timeout=CALL_SECONDS)

    def counted(self) -> Counter[tuple[str, ...]]:
        """All counters that are not nought: name and labels."""
        address = f"http://127.0.0.1:{self.process.http_port}/metrics"
        with urllib.request.urlopen(address, timeout=DEADLINE_SECONDS) as page:
            lines = page.read().decode().splitlines()
        # To parse the whole page takes ten times as long as what is looked at, and it is looked at thousands of times.
        counters = [line for line in lines if "_total" in line and not line.startswith("# H") and line[-4:] != " 0.0"]
        return Counter(
            {
                (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): int(sample.value)
                for family in text_string_to_metric_families("\n".join([*counters, ""]))
                if family.type == "counter"
                for sample in family.samples
                if sample.name.endswith("_total")
            }
        )

    def counts_until(self, key: tuple[str, ...], number: int) -> None:
        """Wait until a counter stands there: what never arrived is counted when its call ends."""
        wait_until(lambda: self.counted()[key] >= number, f"{key} at {number}", CALL_SECONDS)

    def shown(self) -> dict[str, Any]:
        """The fleet and everything that is kept, as the owner sees it, but for what every call changes."""
        admin = self.administrator()
        fleet = admin.GetFleet(pb.GetFleetRequest(), timeout=CALL_SECONDS)
        views = {}
        for view in fleet.clusters:
            for figure in ("seconds_since_heard", "updates_rejected", "updates_duplicate"):
                view.ClearField(figure)
            views[view.cluster] = MessageToDict(view)
        versions = admin.ListVersions(pb.ListVersionsRequest(), timeout=CALL_SECONDS).versions
        identities = admin.ListClusters(pb.ListClustersRequest(), timeout=CALL_SECONDS).clusters
        people = admin.ListOperators(pb.ListOperatorsRequest(), timeout=CALL_SECONDS).operators
        return {
            "people": [MessageToDict(entry) for entry in people],
            "head_step": fleet.head_step,
            "updates_accepted": fleet.updates_accepted,
            "clusters": views,
            "versions": [MessageToDict(card) for card in versions],
            "identities": [MessageToDict(entry) for entry in identities],
        }

    def memory_bytes(self) -> int:
        """Resident memory of the learner's process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
