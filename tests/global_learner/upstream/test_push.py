"""What a region's push says of itself to the learner above."""

from __future__ import annotations

import pytest
from learner_makers import vector

from global_learner.aggregation.region import Parcel
from global_learner.upstream.uplink import update_of
from policy_net.exchange.spec import SetSpec
from policy_net.exchange.wire import push_request

SPEC = SetSpec()


@pytest.mark.parametrize("only_replays", [True, False])
def test_a_push_comes_from_replays_where_nothing_else_was_gathered(only_replays: bool) -> None:
    parcel = Parcel(1, 1, 0, vector(2, SPEC), 10, 10.0, 3)  # type: ignore[arg-type]
    update = update_of(parcel, "east", SPEC.digest, only_replays=only_replays)
    request = push_request(update, want_weights=True)
    assert (request.cluster, request.samples, request.replayed) == ("east", 10, only_replays)
