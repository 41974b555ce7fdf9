"""Requests to an API server: every answer that a real one was seen to give becomes the error that says what to do."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from apiserver.asked import FLOW_CONTROL, NOT_SERVED_YET, re_initializing
from apiserver.serving import Fault, KubeServer
from kube_clients import api_of, pod
from kubernetes.client import ApiClient, Configuration

from cluster_agent.errors import BadAgentConfig
from cluster_agent.kubernetes.access import Access, open_client
from cluster_agent.kubernetes.api_server import ApiServer, ContentType
from cluster_agent.kubernetes.errors import (
    AlreadyExists,
    ApiError,
    ApiRefused,
    ApiUnanswered,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotActing,
    NotFound,
    Unauthorized,
)
from cluster_agent.kubernetes.resources import PODS, Resource

POD = PODS.path("team", "a")


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with KubeServer().running() as running:
        yield running


def test_objects_are_made_read_changed_and_deleted(server: KubeServer) -> None:
    api = api_of(server)
    made = api.create(PODS.path("team"), pod("a", "team"))
    assert made["metadata"]["uid"]
    patched = api.patch(POD, {"metadata": {"labels": {"x": "y"}}}, ContentType.MERGE_PATCH)
    assert patched["metadata"]["labels"] == {"x": "y"}
    assert api.get(POD) == patched
    api.replace(POD, {**patched, "metadata": {**patched["metadata"], "labels": {}}})
    with pytest.raises(Conflict, match="has been modified"):
        api.replace(POD, patched)
    with pytest.raises(Conflict, match="Precondition failed"):
        api.delete(POD, {"preconditions": {"uid": "another"}})
    api.delete(POD, {"preconditions": {"uid": made["metadata"]["uid"]}})
    with pytest.raises(NotFound, match='pods "a" not found'):
        api.get(POD)


def test_whoever_may_not_write_any_more_still_reads_and_nothing_else_leaves_it(server: KubeServer) -> None:
    api_of(server).create(PODS.path("team"), pod("a", "team"))
    before = len(server.asked)
    acts = False
    api = api_of(server, may_write=lambda: acts)
    assert api.get(POD)["metadata"]["name"] == "a"
    for write in (
        lambda: api.create(PODS.path("team"), pod("b", "team")),
        lambda: api.replace(POD, pod("a", "team")),
        lambda: api.patch(POD, {}, ContentType.MERGE_PATCH),
        lambda: api.delete(POD),
    ):
        with pytest.raises(NotActing, match=r"namespaces/team/pods.*not sent, another agent may act by now"):
            write()
    assert [asked.verb for asked in list(server.asked)[before:]] == ["get"]
    acts = True
    api.delete(POD)


def test_an_object_that_is_there_already_is_told_from_a_conflict(server: KubeServer) -> None:
    api = api_of(server)
    api.create(PODS.path("team"), pod("a", "team"))
    with pytest.raises(AlreadyExists):
        api.create(PODS.path("team"), pod("a", "team"))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (400, Invalid),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (410, Expired),
        (415, ApiRefused),
        (422, Invalid),
    ],
)
def test_refusals_say_what_was_asked_and_why(server: KubeServer, code: int, error: type[ApiRefused]) -> None:
    cause = {"field": "spec.max", "message": "must not be below min"}
    status = {"kind": "Status", "message": "two\nlines", "reason": "Odd", "code": code, "details": {"causes": [cause]}}
    server.faults = lambda asked: Fault(code=code, status=status)
    with pytest.raises(error) as caught:
        api_of(server).get(POD)
    assert str(caught.value) == f"GET {POD}: {code} Odd: two lines"
    assert (caught.value.code, caught.value.causes) == (code, (("spec.max", "must not be below min"),))


@pytest.mark.parametrize("code", [429, 500, 503, 504])
def test_a_server_in_trouble_is_one_to_ask_later(server: KubeServer, code: int) -> None:
    server.faults = lambda asked: Fault(code=code, retry_after=7)
    with pytest.raises(ApiUnanswered) as caught:
        api_of(server).create(PODS.path("team"), pod("a", "team"))
    assert caught.value.retry_after_seconds == 7.0
    assert caught.value.may_have_happened is (code != 429)


@pytest.mark.parametrize("fault", [FLOW_CONTROL, re_initializing()], ids=["flow control", "cache"])
def test_a_server_that_is_full_or_fills_its_cache_is_asked_later_and_did_nothing(
    server: KubeServer, fault: Fault
) -> None:
    server.faults = lambda asked: fault
    for ask in (lambda api: api.get(POD), lambda api: api.create(PODS.path("team"), pod("a", "team"))):
        with pytest.raises(ApiUnanswered) as caught:
            ask(api_of(server))
        assert (caught.value.retry_after_seconds, caught.value.may_have_happened) == (1.0, False)
    server.faults = lambda asked: None
    with pytest.raises(NotFound):
        api_of(server).get(POD)


def test_a_resource_that_is_not_served_yet_is_not_found_though_the_answer_is_plain_text(server: KubeServer) -> None:
    server.faults = lambda asked: NOT_SERVED_YET
    with pytest.raises(NotFound) as caught:
        api_of(server).get(POD)
    assert str(caught.value) == f"GET {POD}: 404"


def test_a_page_of_a_proxy_is_no_answer_of_the_server(server: KubeServer) -> None:
    server.faults = lambda asked: Fault(code=502, status={"html": "Bad gateway"})
    with pytest.raises(ApiUnanswered, match="502"):
        api_of(server).get(POD)


def test_an_answer_that_was_lost_may_have_happened_and_is_not_sent_twice(server: KubeServer) -> None:
    server.faults = lambda asked: Fault(cut=True) if asked.writes else None
    api = api_of(server)
    with pytest.raises(ApiUnanswered) as caught:
        api.create(PODS.path("team"), pod("a", "team"))
    assert caught.value.may_have_happened
    assert api.get(POD)["metadata"]["name"] == "a"
    assert [asked.verb for asked in server.asked] == ["create", "get"]


def test_a_request_has_a_deadline(server: KubeServer) -> None:
    server.faults = lambda asked: Fault(hang_seconds=30.0)
    with pytest.raises(ApiUnanswered, match="does not answer"):
        api_of(server, request_seconds=0.3).get(PODS.path("team"))


def trickling() -> tuple[socket.socket, str]:
    """A server whose answer never ends, a letter at a time."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
            try:
                while True:
                    connection.sendall(b" ")
                    time.sleep(0.02)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    return listening, f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_an_answer_that_comes_drop_by_drop_has_the_same_deadline() -> None:
    listening, address = trickling()
    configuration = Configuration(host=address)
    with listening, pytest.raises(ApiUnanswered, match=r"takes longer than 0\.3 s"):
        ApiServer(ApiClient(configuration), 0.3).get(POD)


def test_nobody_there_is_said_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    api = ApiServer(ApiClient(Configuration(host=f"http://127.0.0.1:{port}")))
    with pytest.raises(ApiUnanswered, match=f"http://127.0.0.1:{port} does not answer"):
        api.get(POD)


def test_a_server_that_cannot_be_trusted_gets_nothing() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            heard.append(connection.recv(65536))

    threading.Thread(target=serve, daemon=True).start()
    configuration = Configuration(host=f"https://127.0.0.1:{listening.getsockname()[1]}")
    configuration.retries = False
    with listening, pytest.raises(ApiUnanswered):
        ApiServer(ApiClient(configuration)).create(PODS.path("team"), pod("secret-name", "team"))
    assert b"secret-name" not in b"".join(heard)


def test_a_token_that_has_run_out_is_refused() -> None:
    now = [1000.0]
    server = KubeServer({"short": "agent"}, wall_clock=lambda: now[0])
    server.expiry_unix_seconds["short"] = 1600.0
    with server.running():
        assert api_of(server, bearer="short").get(PODS.path("team"))
        now[0] = 1600.0
        with pytest.raises(Unauthorized, match="401 Unauthorized"):
            api_of(server, bearer="short").get(PODS.path("team"))


def test_a_token_is_sent_and_a_wrong_one_refused(server: KubeServer) -> None:
    server.tokens = {"right": "agent"}
    with pytest.raises(Unauthorized):
        api_of(server, bearer="wrong").get(PODS.path("team"))
    api_of(server, bearer="right").get(PODS.path("team"))
    assert [asked.user for asked in server.asked] == ["agent"]


def test_a_watch_ends_where_it_is_told_to(server: KubeServer) -> None:
    with api_of(server).watch(PODS.path("team"), {"timeoutSeconds": 60}, 30.0) as stream:
        threading.Timer(0.2, stream.shutdown).start()
        began = time.monotonic()
        with contextlib.suppress(ApiError):  # whether it is seen as an end or as a cut
            assert list(stream) == []
    assert time.monotonic() - began < 20.0


def kubeconfig(folder: Path, **cluster: str) -> Path:
    content = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def test_a_kubeconfig_says_where_and_as_whom(server: KubeServer, tmp_path: Path) -> None:
    server.tokens = {"t": "somebody"}
    client = open_client(Access(kubeconfig(tmp_path, server=server.address)))
    ApiServer(client).get(PODS.path("team"))
    assert [asked.user for asked in server.asked] == ["somebody"]


def test_credentials_that_cannot_be_used_are_said_in_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(BadAgentConfig, match=f"kubernetes: {missing} cannot be used"):
        open_client(Access(missing))
    good = kubeconfig(tmp_path, server="http://127.0.0.1:1")
    with pytest.raises(BadAgentConfig, match=r"cannot be used: .*other"):
        open_client(Access(good, context="other"))
    good.write_text("clusters: {", encoding="utf-8")
    with pytest.raises(BadAgentConfig, match="cannot be used") as caught:
        open_client(Access(good))
    assert "\n" not in str(caught.value)


def test_addresses_of_objects() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("team", "a", "status") == "/api/v1/namespaces/team/pods/a/status"
    assert Resource("g.io", "v1", "things", "Thing", namespaced=False).path(name="x/y") == "/apis/g.io/v1/things/x%2Fy"
    with pytest.raises(ValueError, match="namespace is missing"):
        PODS.path(name="a")
