"""One member's fault is not the others' end."""

from __future__ import annotations

import pytest

from elastic_runtime.outbox import Outbox
from elastic_runtime.plan import Member, Role
from elastic_runtime.transport import Endpoint

TOKEN = "of-a-job-that-tests-run"  # noqa: S105  # of no job


@pytest.mark.parametrize("address_json", ["", "{}", '{"tcp": "x"}', "[" * 100_000])
def test_a_peer_without_an_address_is_left_out(address_json: str) -> None:
    with (
        Endpoint("worker-0", bind="tcp://127.0.0.1:0", job_token=TOKEN) as endpoint,
        Endpoint("ps-0", bind="tcp://127.0.0.1:0", job_token=TOKEN) as good,
    ):
        outbox = Outbox(endpoint, lambda _header: ())
        members = (Member("ps-1", Role.SERVER, 7, address_json), Member("ps-0", Role.SERVER, 7, good.address))
        outbox.connect(members, "worker-0")
        assert endpoint.peers == ("ps-0",)
