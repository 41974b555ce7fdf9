"""On which version a cluster acted before, as the audit log tells it."""

from hypothesis import given
from hypothesis import strategies as st

from global_learner.registry.assignments import VersionMove, moves_of, version_before
from global_learner.storage.audit_chain import VERSIONS, AuditLine


def line(action: str, subject: str, detail: str, number: int = 1) -> AuditLine:
    return AuditLine(VERSIONS, number, 0.0, "ada", action, subject, detail, "", "")


def test_moves_are_read_as_they_are_written_by_hand_by_rollouts_and_after_a_loss() -> None:
    lines = [
        line("assigned", "north", "v1 to v2: the outage of v1 to v9"),
        line("rollout-assigned", "north", "v2 (incumbent) to v2 beside v3 (alternating)"),
        line("rollout-assigned", "north", "v2 beside v3 (alternating) to v3 (candidate)"),
        line("assigned", "south", "v1 to v2"),
        line("loss-accepted", "north", "v3 to v12, as its file is lost"),
        line("version-refused", "north", "v3: v1 to v2"),
        line("released", "north", "out of quarantine"),
    ]
    assert moves_of(lines) == {
        "north": [VersionMove(1, 2), VersionMove(2, 3), VersionMove(3, 12)],
        "south": [VersionMove(1, 2)],
    }


def test_the_version_before_is_that_before_what_was_taken_back() -> None:
    forward = [VersionMove(1, 2), VersionMove(2, 5)]
    assert version_before(forward, 5) == 2
    # A rollout brought v7, and it was rolled back; going back once more leads further, never to v7.
    assert version_before([*forward, VersionMove(5, 7), VersionMove(7, 5)], 5) == 2
    assert version_before([*forward, VersionMove(5, 7), VersionMove(7, 5), VersionMove(5, 2)], 2) == 1
    assert version_before([*forward, VersionMove(5, 2), VersionMove(2, 1)], 1) is None
    assert version_before([], 1) is None


def test_what_nobody_wrote_down_is_not_guessed() -> None:
    assert version_before([VersionMove(1, 2)], 4) is None  # moved by auto_assign since
    assert version_before([VersionMove(1, 2), VersionMove(4, 5)], 5) == 4
    assert version_before([VersionMove(1, 2), VersionMove(4, 5), VersionMove(5, 4)], 4) is None


@given(st.lists(st.integers(2, 9), min_size=1, max_size=12))
def test_going_back_again_and_again_leads_to_the_first_version(versions: list[int]) -> None:
    at, moves = 1, []
    for version in versions:
        if version != at:
            moves.append(VersionMove(at, version))
            at = version
    for _ in range(len(moves) + 1):
        before = version_before(moves, at)
        if before is None:
            break
        moves.append(VersionMove(at, before))
        at = before
    assert at == 1
