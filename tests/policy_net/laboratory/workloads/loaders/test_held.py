import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.laboratory.workloads.loaders.record import AllocatedGpus, WholeRequest, as_one_request


def test_pieces_side_by_side_add_up_and_pieces_in_turn_do_not() -> None:
    assert as_one_request([AllocatedGpus(0, 10, 2), AllocatedGpus(0, 10, 3)]) == WholeRequest(5, 10)
    assert as_one_request([AllocatedGpus(0, 10, 2), AllocatedGpus(10, 20, 2)]) == WholeRequest(2, 20)
    assert as_one_request([AllocatedGpus(0, 10, 4), AllocatedGpus(50, 60, 1)]) == WholeRequest(4, 12.5)


def test_the_smallest_fraction_of_a_gpu_keeps_its_time() -> None:
    assert as_one_request([AllocatedGpus(0, 10, 1e-12)]) == WholeRequest(1e-12, 10)


def test_pieces_of_no_time_keep_their_size() -> None:
    assert as_one_request([AllocatedGpus(5, 5, 3)]) == WholeRequest(3, 0)
    assert as_one_request([]) == WholeRequest(0, 0)


pieces = st.builds(
    lambda start, length, gpus: AllocatedGpus(start, start + length, gpus),
    st.integers(0, 1000), st.integers(0, 500), st.integers(0, 64),
)  # fmt: skip


@given(st.lists(pieces, max_size=12))
def test_gpu_time_is_kept_and_the_peak_is_held_at_some_moment(many: list[AllocatedGpus]) -> None:
    held = as_one_request(many)
    gpu_seconds = sum(piece.gpus * (piece.end_seconds - piece.start_seconds) for piece in many)
    assert held.gpus * held.seconds == pytest.approx(gpu_seconds)
    if gpu_seconds:
        at = {
            sum(other.gpus for other in many if other.start_seconds <= piece.start_seconds < other.end_seconds)
            for piece in many
        }
        assert held.gpus == max(at)
