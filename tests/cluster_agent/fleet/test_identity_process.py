"""Enrolled agents and a learner as real processes: who gets in, who is turned out, and what a kill in between does."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from processes import ENDLESS, Fleet, wait_until
from reserved_port import ReservedPort

from foundation.command_line import run
from global_learner.policyctl import cli as policyctl
from policy_net.exchange.enrolled_identity import EnrolledIdentity, read_enrollment
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.identity_file import read_identity

pytestmark = pytest.mark.heavy

CALL_SECONDS = 60.0
DAY_SECONDS = 86_400.0
SLOWLY_SECONDS = 0.12


class EnrolledFleet:
    """A fleet whose learner signs certificates."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.fleet = Fleet(folder)
        self.folder = folder
        self._capsys = capsys
        self._enroll = ReservedPort()

    def start_learner(self, **identity: object):
        return self.fleet.start_learner(identity={"enroll_port": self._enroll.port, **identity})

    def close(self) -> None:
        self.fleet.close()
        self._enroll.close()

    @property
    def administrator(self) -> Path:
        return self.folder / "learner" / "identity" / "admin.pem"

    def ask(self, *words: str) -> object:
        options = ["--learner", f"127.0.0.1:{self.fleet.port}", "--cert", str(self.administrator), "-o", "json"]
        self._capsys.readouterr()
        assert run(policyctl.app, "policyctl", [*words, *options]) == 0, self._capsys.readouterr().err
        return json.loads(self._capsys.readouterr().out)

    def enroll(self, cluster: str) -> Path:
        path = self.folder / f"{cluster}.enrollment"
        self.ask("cluster", "enroll", cluster, "--out", str(path))
        return path

    def start_agent(self, cluster: str):
        changes = self.fleet.learning()
        changes["learner"]["enrollment_file"] = f"{cluster}.enrollment"  # type: ignore[index]
        return self.fleet.start_agent(cluster, slot_wall_seconds=SLOWLY_SECONDS, episodes=ENDLESS, **changes)

    def updates(self, cluster: str) -> int:
        views = self.ask("fleet")["clusters"]  # type: ignore[index]
        return sum(view["updates_accepted"] for view in views if view["cluster"] == cluster)

    def state(self, cluster: str) -> str:
        entries = self.ask("cluster", "list")
        return next((entry["state"] for entry in entries if entry["cluster"] == cluster), "")  # type: ignore[union-attr]

    def identity_file(self, cluster: str) -> Path:
        return self.folder / cluster / "identity" / "identity.pem"

    def channel(self, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
        address = f"127.0.0.1:{self.fleet.port}"
        return grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)


@pytest.fixture
def enrolled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[EnrolledFleet]:
    fleet = EnrolledFleet(tmp_path, capsys)
    yield fleet
    fleet.close()


def status_of(channel: grpc.Channel, cluster: str) -> grpc.StatusCode:
    with channel, pytest.raises(grpc.RpcError) as caught:
        rpc.FleetStub(channel).Register(pb.RegisterRequest(cluster=cluster), timeout=CALL_SECONDS)
    return caught.value.code()


def test_a_cluster_is_enrolled_learns_is_turned_out_while_it_runs_and_comes_back(enrolled: EnrolledFleet) -> None:
    enrolled.start_learner()
    for cluster in ("alpha", "beta"):
        enrolled.enroll(cluster)
        assert enrolled.state(cluster) == "invited"
    agents = {cluster: enrolled.start_agent(cluster) for cluster in ("alpha", "beta")}
    wait_until(lambda: min(enrolled.updates(name) for name in agents) >= 2, "both learn")
    assert [enrolled.state(name) for name in agents] == ["enrolled", "enrolled"]

    own = read_identity(enrolled.identity_file("alpha"))
    nobody = grpc.ssl_channel_credentials(own.authority)
    assert status_of(enrolled.channel(nobody), "alpha") is grpc.StatusCode.UNAVAILABLE
    assert status_of(enrolled.channel(None), "alpha") is grpc.StatusCode.UNAVAILABLE
    alpha = grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
    assert status_of(enrolled.channel(alpha), "beta") is grpc.StatusCode.PERMISSION_DENIED

    with enrolled.channel(alpha) as open_connection:
        fleet = rpc.FleetStub(open_connection)
        fleet.FetchPolicy(pb.FetchPolicyRequest(version=1), timeout=CALL_SECONDS)
        assert enrolled.ask("cluster", "revoke", "alpha", "--yes") == {
            "cluster": "alpha",
            "certificates": 1,
            "tokens": 0,
            "dry_run": False,
        }
        with pytest.raises(grpc.RpcError) as caught:
            fleet.FetchPolicy(pb.FetchPolicyRequest(version=1), timeout=CALL_SECONDS)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    stopped_at = enrolled.updates("alpha")
    decisions, going_on = len(enrolled.fleet.decisions("alpha")), enrolled.updates("beta")
    wait_until(lambda: len(enrolled.fleet.decisions("alpha")) >= decisions + 5, "alpha schedules on alone")
    wait_until(lambda: enrolled.updates("beta") >= going_on + 3, "beta goes on")
    stopped_at += 1  # one may have been let in before, and be on disk only now
    assert enrolled.updates("alpha") <= stopped_at
    assert enrolled.state("alpha") == "revoked"
    output = agents["alpha"].output
    wait_until(lambda: "learner-refused" in output.read_text(), "alpha says that it is refused")
    said = output.read_text()
    assert "update-refused" not in said
    assert said.count("learner-refused") == 1, "two threads are refused, and it is said once"

    enrolled.enroll("alpha")
    wait_until(lambda: enrolled.state("alpha") == "enrolled", "the running agent takes up the new file")
    wait_until(lambda: enrolled.updates("alpha") > stopped_at, "and learns again")
    assert {cluster: agent.stop() for cluster, agent in agents.items()} == {"alpha": 0, "beta": 0}


def test_an_agent_renews_in_time_and_outlives_its_first_certificate(enrolled: EnrolledFleet) -> None:
    enrolled.start_learner(certificate_days=10.0 / DAY_SECONDS)
    enrolled.enroll("alpha")
    agent = enrolled.start_agent("alpha")
    wait_until(enrolled.identity_file("alpha").exists, "enrolled")

    def present():
        return read_identity(enrolled.identity_file("alpha"))

    first = present()
    wait_until(lambda: present().ends_unix_seconds > first.ends_unix_seconds, "renewed")
    wait_until(lambda: time.time() > first.ends_unix_seconds, "its first certificate has run out")
    updates = enrolled.updates("alpha")
    wait_until(lambda: enrolled.updates("alpha") > updates, "learns after its first certificate")
    assert agent.stop() == 0
    log = agent.output.read_text()
    assert "expired" not in log
    assert "learner-refused" not in log


def test_an_agent_killed_between_request_and_certificate_enrolls_with_the_same_token(enrolled: EnrolledFleet) -> None:
    learner = enrolled.start_learner()
    path = enrolled.enroll("alpha")
    # What an agent does before it is killed: a key on disk, a request, and an answer that nobody kept.
    invitation = read_enrollment(path)
    (enrolled.folder / "alpha").mkdir()
    request = EnrolledIdentity(enrolled.folder / "alpha" / "identity", "alpha", path).first_request()
    credentials = grpc.ssl_channel_credentials(invitation.authority.encode())
    with grpc.secure_channel(f"127.0.0.1:{invitation.enroll_port}", credentials) as channel:
        message = pb.EnrollRequest(cluster="alpha", token=invitation.token, signing_request=request.request)
        lost = rpc.EnrollmentStub(channel).Enroll(message, timeout=CALL_SECONDS)
    learner.kill()
    learner = enrolled.start_learner()
    agent = enrolled.start_agent("alpha")
    wait_until(lambda: enrolled.updates("alpha") >= 1, "it learns")
    assert read_identity(enrolled.identity_file("alpha")).certificate == lost.certificate
    learner.kill()
    enrolled.start_learner()
    updates = enrolled.updates("alpha")
    wait_until(lambda: enrolled.updates("alpha") > updates, "it learns after the learner's restart")
    assert agent.stop() == 0


def test_a_token_that_somebody_else_used_is_a_clear_refusal_and_nothing_starts(enrolled: EnrolledFleet) -> None:
    enrolled.start_learner()
    path = enrolled.enroll("alpha")
    thief = EnrolledIdentity(enrolled.folder / "thief", "alpha", path)
    invitation = read_enrollment(path)
    credentials = grpc.ssl_channel_credentials(invitation.authority.encode())
    with grpc.secure_channel(f"127.0.0.1:{invitation.enroll_port}", credentials) as channel:
        request = thief.first_request().request
        message = pb.EnrollRequest(cluster="alpha", token=invitation.token, signing_request=request)
        rpc.EnrollmentStub(channel).Enroll(message, timeout=CALL_SECONDS)
    agent = enrolled.start_agent("alpha")
    assert agent.ended() == 3
    line = agent.output.read_text().splitlines()[-1]
    assert line.startswith(f"cluster-agent: {path}: the learner refuses this enrollment file: used-token: ")
    assert "policy.initial" not in line
    assert "find out who used this one" in line
    assert invitation.token not in agent.output.read_text()
    assert invitation.token not in (enrolled.folder / "learner.log").read_text()


def test_a_running_agent_says_that_its_learner_came_back_with_certificates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = EnrolledFleet(tmp_path, capsys)
    try:
        learner = here.fleet.start_learner()
        agent = here.fleet.start_agent(
            "north", slot_wall_seconds=SLOWLY_SECONDS, episodes=ENDLESS, **here.fleet.learning()
        )
        wait_until(lambda: len(here.fleet.decisions("north")) > 5, "the agent decides")
        learner.stop()
        wait_until(lambda: "learner-lost" in agent.output.read_text(), "the agent misses the learner")
        here.start_learner()
        wait_until(lambda: "learner.enrollment_file" in agent.output.read_text(), "the agent says what to set")
        lost = [line for line in agent.output.read_text().splitlines() if "learner-lost" in line]
        assert "speaks TLS" in lost[-1]
        assert len(lost) <= 4
    finally:
        here.close()
