"""Which version acts in every decision follows from seed, cluster, begin and time alone."""

from dataclasses import replace

from agent_fakes import make_job
from hypothesis import given
from hypothesis import strategies as st

from cluster_agent.rollout.alternation import (
    Alternation,
    DecisionInterval,
    UninterruptedBlocks,
    candidate_decides,
    run_behind,
)
from policy_net.domain import ClusterState
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment, candidate_acts

BLOCK = 3600.0


def rollout_assignment(seed: int = 7) -> RolloutAssignment:
    return RolloutAssignment(3, AssignmentRole.ALTERNATING, 2, seed, BLOCK, 1200.0)


def empty(time: float) -> ClusterState:
    return ClusterState(time, (), (), 1200.0)


@given(
    st.integers(0, 2**40),
    st.floats(0.0, 1e7),
    st.integers(0, 9),
    st.lists(st.floats(1.0, 3 * BLOCK), min_size=1, max_size=40),
    st.integers(0, 6),
)
def test_the_turn_of_every_decision_follows_from_where_the_run_began(
    seed: int, begin: float, behind: int, steps: list[float], left_out: int
) -> None:
    asked = rollout_assignment(seed)

    def turns(every: int) -> dict[float, bool]:
        alternation, now, found = Alternation(next_number=behind), begin, {}
        before = now
        for index, step in enumerate([0.0, *steps]):
            now += step
            if index and index % every:
                continue
            interval = None if index == 0 else DecisionInterval(before, now, (), ())
            alternation.advance(asked, "north", empty(now), interval, 1.0)
            before = now
            found[now] = alternation.candidate_acts(asked, "north", now)
            assert alternation.tally is not None
            assert alternation.tally.candidate == found[now], "what is reported of a block is who acted in it"
            assert found[now] == candidate_acts(seed, "north", alternation.tally.number)
        return found

    all_turns, few = turns(1), turns(1 + left_out)
    run = run_behind(behind, begin)
    assert run.first % 2 == 0
    assert run.first >= behind
    assert all_turns == {now: candidate_decides(asked, "north", run, now) for now in all_turns}
    assert few == {now: all_turns[now] for now in few}, "decisions that were not made change no other's turn"


@given(st.integers(0, 1000), st.floats(0.0, 1e9), st.floats(0.0, 1e6))
def test_a_block_begins_where_the_one_before_ends_and_holds_its_own_times(
    first: int, begin: float, after: float
) -> None:
    run = UninterruptedBlocks(2 * first, begin)
    number = run.block_at(begin + after, BLOCK)
    assert run.begin_of(number, BLOCK) <= begin + after + 1e-3
    assert begin + after <= run.begin_of(number + 1, BLOCK) + 1e-3


def test_of_an_interrupted_pair_nothing_is_reported_and_the_next_begins_at_an_even_number() -> None:
    alternation, reported, before = Alternation(), [], 0.0
    for index, hour in enumerate([0.0, 0.5, 1.1, 1.9, 2.2, 3.3]):
        if hour == 3.3:
            alternation.interrupt()
        interval = None if index == 0 or hour == 3.3 else DecisionInterval(before, hour * BLOCK, (), ())
        reported += alternation.advance(rollout_assignment(), "north", empty(hour * BLOCK), interval, 1.0)
        if alternation.tally is not None:
            alternation.tally.decided(0.01, changed=False)
        before = hour * BLOCK
    assert [block.number for block in reported] == [0, 1]
    assert alternation.tally is not None
    assert (alternation.tally.number, alternation.tally.begin) == (4, 3.3 * BLOCK)


def test_what_the_learner_holds_is_not_made_again() -> None:
    alternation = Alternation()
    alternation.advance(rollout_assignment(), "north", empty(0.0), None, 1.0)
    alternation.on_taken(0)
    assert alternation.run is not None, "it holds nothing of this pair"
    alternation.on_taken(5)
    assert alternation.run is None
    alternation.advance(rollout_assignment(), "north", empty(60.0), DecisionInterval(0.0, 60.0, (), ()), 1.0)
    assert alternation.tally is not None
    assert alternation.tally.number == 6
    again = Alternation.from_json(alternation.to_json())
    assert again == alternation


def test_a_block_in_which_nothing_was_decided_says_nothing_and_neither_does_its_pair() -> None:
    alternation, reported, before = Alternation(), [], 0.0
    for index, hour in enumerate([0.0, 1.1, 3.5, 4.1, 5.1, 6.1]):
        interval = None if index == 0 else DecisionInterval(before, hour * BLOCK, ((before, hour * BLOCK),), ())
        reported += alternation.advance(rollout_assignment(), "north", empty(hour * BLOCK), interval, 1.0)
        assert alternation.tally is not None
        alternation.tally.decided(0.01, changed=False)
        before = hour * BLOCK
    # No decision fell into block 2, and block 3 began too late for its version to have acted in it.
    assert [block.number for block in reported] == [0, 1, 4, 5]


def test_a_block_without_a_decision_counts_where_there_was_no_job() -> None:
    alternation, reported, before = Alternation(), [], 0.0
    for index, hour in enumerate([0.0, 1.1, 3.5, 4.1, 5.1, 6.1]):
        came = ((3.4 * BLOCK, 3.5 * BLOCK),) if hour == 3.5 else ()
        interval = None if index == 0 else DecisionInterval(before, hour * BLOCK, came, tuple(at for at, _ in came))
        reported += alternation.advance(rollout_assignment(), "north", empty(hour * BLOCK), interval, 1.0)
        assert alternation.tally is not None
        alternation.tally.decided(0.01, changed=False)
        before = hour * BLOCK
    # Nothing was decided in block 2, and a job came late in block 3, not long before its first decision.
    assert [block.number for block in reported] == [0, 1, 4, 5]
    alternation, reported, before = Alternation(), [], 0.0
    for index, hour in enumerate([0.0, 1.1, 3.5, 4.1]):
        interval = None if index == 0 else DecisionInterval(before, hour * BLOCK, (), ())
        reported += alternation.advance(rollout_assignment(), "north", empty(hour * BLOCK), interval, 1.0)
        assert alternation.tally is not None
        alternation.tally.decided(0.01, changed=False)
        before = hour * BLOCK
    assert [(block.number, block.jobs, block.decisions, block.guard_share) for block in reported] == [
        (0, 0.0, 1, 0.0),
        (1, 0.0, 1, 0.0),
        (2, 0.0, 0, 0.0),
        (3, 0.0, 1, 0.0),
    ]


def test_a_block_that_begins_with_a_decision_begins_with_the_jobs_that_it_finds() -> None:
    node, jobs = ClusterState(0.0, (), (), 1200.0), tuple(make_job(number) for number in range(3))
    alternation, reported = Alternation(), []
    for hour in range(3):
        # Two stayed through the hour; the third came at its very end, and nobody left.
        stays = (*[((hour - 1) * BLOCK, hour * BLOCK)] * 2, (hour * BLOCK, hour * BLOCK))
        interval = None if hour == 0 else DecisionInterval((hour - 1) * BLOCK, hour * BLOCK, stays, (hour * BLOCK,))
        state = replace(node, time_seconds=hour * BLOCK, jobs=jobs)
        reported += alternation.advance(rollout_assignment(), "north", state, interval, 1.0)
        assert alternation.tally is not None
        alternation.tally.decided(0.01, changed=False)
    assert [block.jobs_at_start for block in reported] == [3.0, 3.0]
