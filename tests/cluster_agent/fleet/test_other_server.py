"""An agent that is sent to another port than its learner's: what is there, and which setting to mend, in one line."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from page_server import pages
from reserved_port import ReservedPort

from cluster_agent.errors import AgentError
from cluster_agent.fleet.learner_client import WORDS, LearnerClient
from cluster_agent.settings import LearnerConnectionSettings
from policy_net.errors import LearnerRefused, LearnerUnreachable
from policy_net.exchange.other_server import OtherServers

GRPC_WORDS = ("failed to connect", "last error", "ipv4:", "HTTP/2", "Handshake", "Method not found", "refused (")
BROKEN = "failed to connect to all addresses; last error: UNKNOWN: ipv4:"


def reported(address: str, error: type[AgentError]) -> str:
    """What an agent's log says of its registration there; none of it is gRPC's."""
    settings = LearnerConnectionSettings.model_validate({"address": address, "retry": {"call_seconds": 60.0}})
    client = LearnerClient(settings, "north", lambda _method, _outcome: None)
    with pytest.raises(error) as caught:
        client.register("", ())
    client.close()
    line = str(caught.value)
    assert [word for word in GRPC_WORDS if word in line] == []
    return line


def test_a_port_of_pages_is_called_one() -> None:
    with pages() as port:
        line = reported(f"127.0.0.1:{port}", LearnerUnreachable)
    assert f"no learner answers at 127.0.0.1:{port}: what listens there speaks HTTP, as a learner's page" in line
    assert line.endswith("; set learner.address to the HOST:PORT of a learner's `listen`")


def test_a_port_that_takes_no_clusters_is_called_one() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    line = reported(f"127.0.0.1:{port}", LearnerRefused)
    server.stop(None).wait()
    assert f"what listens at 127.0.0.1:{port} takes no clusters, as a learner's enrollment port" in line
    assert line.endswith("; set learner.address to the HOST:PORT of a learner's `listen`")


def test_nobody_there_is_said_so() -> None:
    with contextlib.closing(ReservedPort()) as nobody:
        assert reported(nobody.address, LearnerUnreachable).endswith(
            f"no learner answers at {nobody.address}: nobody listens there"
        )


def explained(servers: OtherServers, call: str, code: grpc.StatusCode, details: str, port: int = 1) -> str:
    return servers.explained(call, code.name, details, f"127.0.0.1:{port}", certified=True)


def test_an_address_is_looked_at_once_a_minute() -> None:
    now = [0.0]
    servers = OtherServers(WORDS, 60.0, lambda: now[0])
    with pages() as port:
        first = explained(servers, "Heartbeat", grpc.StatusCode.UNAVAILABLE, BROKEN, port)
    assert "speaks HTTP" in first
    now[0] = 59.0
    assert explained(servers, "Heartbeat", grpc.StatusCode.UNAVAILABLE, BROKEN, port) == first
    now[0] = 61.0
    assert "nobody listens there" in explained(servers, "Heartbeat", grpc.StatusCode.UNAVAILABLE, BROKEN, port)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "the learner at 127.0.0.1:1 gave no answer within 60 s"),
        (grpc.StatusCode.INTERNAL, "no learner answers at 127.0.0.1:1: the connection broke off"),
    ],
)
def test_silence_and_a_broken_answer_are_said_in_our_words(code: grpc.StatusCode, says: str) -> None:
    assert explained(OtherServers(WORDS, 60.0), "Heartbeat", code, "RST_STREAM with error code 2") == says


def test_the_port_of_enrollments_is_told_from_the_learners() -> None:
    said = explained(OtherServers(WORDS, 60.0), "Enroll", grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
    assert "enrolls nobody, as a learner's `listen` does" in said
    assert said.endswith("; set learner.enroll_address to the HOST:PORT of a learner's `identity.enroll_port`")


@pytest.mark.parametrize(
    ("call", "code", "details"),
    [
        ("Register", grpc.StatusCode.UNAVAILABLE, "another learner is the active one"),
        ("Register", grpc.StatusCode.PERMISSION_DENIED, "alpha was revoked"),
        ("ShareSketch", grpc.StatusCode.UNIMPLEMENTED, "Method not found!"),  # of a learner of before
    ],
)
def test_what_a_learner_says_stays_its_own(call: str, code: grpc.StatusCode, details: str) -> None:
    assert explained(OtherServers(WORDS, 60.0), call, code, details) == ""
