"""Events: told once and counted after, never in the way of who tells, whatever the server does."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver.serving import Fault, KubeServer
from kube_clients import api_of

from cluster_agent.kubernetes.events import About, EventRecorder, EventType

JOB = About("batch/v1", "Job", "team", "train", "1-2")


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with KubeServer().running() as running:
        yield running


def recorder(server: KubeServer, clock: Any = time.monotonic) -> EventRecorder:
    return EventRecorder(api_of(server), "agent-0", clock, time.time)


def events(server: KubeServer) -> list[dict[str, Any]]:
    return server.call(lambda: list(server.store.all("events")))


def send(reported: EventRecorder) -> None:
    while reported.step(0.0):
        pass


def test_who_does_not_act_any_more_tells_nothing_and_counts_it(server: KubeServer) -> None:
    reported = EventRecorder(api_of(server, may_write=lambda: False), "agent-0", time.monotonic, time.time)
    reported.record(JOB, "Resized", "from 2 to 4 workers")
    send(reported)
    assert (events(server), reported.dropped) == ([], 1)


def test_the_same_told_again_is_one_event_with_a_count(server: KubeServer) -> None:
    now = [0.0]
    reported = recorder(server, lambda: now[0])
    for _ in range(3):
        reported.record(JOB, "Resized", "from 2 to 4 workers")
    reported.record(JOB, "Resized", "from 4 to 2 workers", EventType.WARNING)
    send(reported)
    found = {event["message"]: event for event in events(server)}
    assert found["from 2 to 4 workers"]["count"] == 3
    assert found["from 4 to 2 workers"]["type"] == "Warning"
    assert found["from 2 to 4 workers"]["involvedObject"]["uid"] == "1-2"
    now[0] = 601.0
    reported.record(JOB, "Resized", "from 2 to 4 workers")
    send(reported)
    assert sorted(event["count"] for event in events(server)) == [1, 1, 3]


def test_an_event_that_somebody_deleted_is_told_anew(server: KubeServer) -> None:
    reported = recorder(server)
    reported.record(JOB, "Frozen", "by its label")
    send(reported)
    name = events(server)[0]["metadata"]["name"]
    server.call(lambda: server.store.delete("events", "team", name, {}))
    reported.record(JOB, "Frozen", "by its label")
    send(reported)
    assert [event["count"] for event in events(server)] == [1]


def test_a_server_that_takes_none_costs_events_and_nothing_else(server: KubeServer) -> None:
    reported = recorder(server)
    server.faults = lambda asked: Fault(code=403)
    for number in range(300):
        reported.record(JOB, "Resized", f"{number}")
    assert reported.dropped == 100
    send(reported)
    assert reported.dropped == 300
    server.faults = lambda asked: None
    reported.record(JOB, "Resized", "at last")
    send(reported)
    assert [event["message"] for event in events(server)] == ["at last"]


def test_what_is_told_is_one_line_that_a_server_takes(server: KubeServer) -> None:
    reported = recorder(server)
    reported.record(About("v1", "Node", "", "n" * 253), "Odd", "a\nb\x1b[31m" + "x" * 5000)
    send(reported)
    event = events(server)[0]
    assert event["metadata"]["namespace"] == "default"
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["message"]) <= 1000
    assert "\n" not in event["message"]
    assert "\x1b" not in event["message"]


def test_what_is_told_under_a_name_of_its_own_is_there_once_whoever_tells_it(server: KubeServer) -> None:
    stands: list[bool] = []
    counted: list[tuple[str, str]] = []
    for _ in range(2):  # agents, of which one follows the other
        reported = recorder(server)
        reported.count = lambda kind, reason: counted.append((kind, reason))
        for _ in range(2):
            reported.report_once(JOB, "train.1", "Resized", "from 2 to 4 workers", stands.append)
        send(reported)
    assert stands == [True] * 4
    assert [(event["metadata"]["name"], event["count"]) for event in events(server)] == [("train.1", 1)]
    assert counted == [("Job", "Resized")]
    server.faults = lambda asked: Fault(code=500)
    reported.report_once(JOB, "train.2", "Resized", "from 4 to 2 workers", stands.append)
    send(reported)
    assert (stands[4:], reported.dropped) == ([False], 1)
