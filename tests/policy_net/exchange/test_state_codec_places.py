"""Where tasks lie, in a logged state and in a record of progress: exactly back, and not there where nobody says it."""

import json

import pytest
from states import make_job, make_state

from policy_net.domain import Allocation, Progress, Share
from policy_net.exchange.state_codec import decode_progress, decode_state, encode_progress, encode_state

ENTRY = Progress("job-0", "bert", Allocation(3, 0), 60.0, 600.0, 6.0, 9.0)


def test_a_state_comes_back_with_its_placement() -> None:
    state = make_state([make_job(0)])
    assert "placement" not in encode_state(state)
    lies = {"job-0": (Share("n0", Allocation(2, 1)), Share("n1", Allocation(1, 0)))}
    for placement in (lies, {}):
        placed = type(state)(state.time_seconds, state.nodes, state.jobs, state.slot_seconds, placement=placement)
        assert decode_state(json.loads(json.dumps(encode_state(placed)))) == placed


def test_progress_comes_back_with_its_places() -> None:
    assert len(encode_progress(ENTRY)) == 10
    placed = Progress(*("job-0", "bert", Allocation(3, 0), 60.0, 600.0, 6.0, 9.0), places=(("v100", 2), ("", 1)))
    for entry in (ENTRY, placed):
        assert decode_progress(json.loads(json.dumps(encode_progress(entry)))) == entry


def test_a_row_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="progress has 10, or 11"):
        decode_progress([*encode_progress(ENTRY), [], []])
