"""What a region's push says of itself to the learner above."""

from __future__ import annotations

from typing import Any

import pytest
from learner_makers import vector

from global_learner.aggregation.gathered import Parcel
from global_learner.upstream.parent_client import ParentClient
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.spec import SetSpec, weights_to_bytes

SPEC = SetSpec()


class Line:
    """A connection that answers every push, and keeps what was said."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    async def call(self, name: str, request: Any) -> pb.PushReply:
        self.said.append(request)
        return pb.PushReply(outcome=pb.PushReply.APPLIED, head_step=1, weights=weights_to_bytes(vector(1, SPEC)))  # type: ignore[arg-type]


@pytest.mark.parametrize("only_replays", [True, False])
async def test_a_push_comes_from_replays_where_nothing_else_was_gathered(only_replays: bool) -> None:
    line = Line()
    client = ParentClient(line, "east", SPEC, only_replays=only_replays)  # type: ignore[arg-type]
    answer = await client.push(Parcel(1, 1, 0, vector(2, SPEC), 10, 10.0, 3))  # type: ignore[arg-type]
    assert answer.outcome == "applied"
    assert [request.replayed for request in line.said] == [only_replays]
