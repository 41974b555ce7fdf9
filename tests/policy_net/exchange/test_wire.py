"""Replies whose weights are appended to the message."""

from hypothesis import given
from hypothesis import strategies as st

from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.wire import serialized_with_weights


@given(st.one_of(st.binary(max_size=300), st.integers(100, 70_000).map(bytes)), st.integers(0, 2**63))
def test_weights_that_are_appended_are_read_as_the_field(weights: bytes, step: int) -> None:
    appended = serialized_with_weights(fleet_pb2.PullHeadReply(step=step, spec_digest="ab"), weights)
    assert fleet_pb2.PullHeadReply.FromString(appended) == fleet_pb2.PullHeadReply(
        step=step, spec_digest="ab", weights=weights
    )
    appended = serialized_with_weights(fleet_pb2.PushReply(head_step=step), weights)
    assert fleet_pb2.PushReply.FromString(appended) == fleet_pb2.PushReply(head_step=step, weights=weights)
