"""One member's fault is not the others' end."""

from __future__ import annotations

import time

import pytest

from elastic_runtime.member.outbox import Outbox, traffic_bytes
from elastic_runtime.protocol.plan import Member, TaskRole
from elastic_runtime.transport import Endpoint, Message

TOKEN = "of-a-job-that-tests-run"  # noqa: S105  # of no job


@pytest.mark.parametrize("address_json", ["", "{}", '{"tcp": "x"}', "[" * 100_000])
def test_a_peer_without_an_address_is_left_out(address_json: str) -> None:
    with (
        Endpoint("worker-0", bind="tcp://127.0.0.1:0", job_token=TOKEN) as endpoint,
        Endpoint("ps-0", bind="tcp://127.0.0.1:0", job_token=TOKEN) as good,
    ):
        outbox = Outbox(endpoint, lambda _header: ())
        members = (Member("ps-1", TaskRole.SERVER, 7, address_json), Member("ps-0", TaskRole.SERVER, 7, good.address))
        outbox.connect(members, "worker-0")
        assert endpoint.peers == ("ps-0",)


def test_what_was_sent_to_who_has_left_stays_counted() -> None:
    with (
        Endpoint("worker-0", bind="tcp://127.0.0.1:0", job_token=TOKEN) as worker,
        Endpoint("ps-0", bind="tcp://127.0.0.1:0", job_token=TOKEN) as server,
    ):
        region = worker.region("gradients", 1000)
        outbox = Outbox(worker, lambda _header: (region.part(),))
        worker.connect("ps-0", server.address)
        server.connect("worker-0", worker.address)
        worker.send("ps-0", b"push", [region.part()], timeout_seconds=60.0)
        deadline = time.monotonic() + 60.0
        while not isinstance(server.receive(0.01), Message):
            assert time.monotonic() < deadline, "nothing came"
            worker.receive(0.01)
        sent, received = traffic_bytes(worker)[0], traffic_bytes(server)[1]
        assert min(sent, received) >= 1000
        outbox.connect((Member("ps-1", TaskRole.SERVER, 7, server.address),), "worker-0")
        server.disconnect("worker-0")
        assert "ps-0" not in worker.peers
        assert (traffic_bytes(worker)[0], traffic_bytes(server)[1]) == (sent, received)
