import json

from hypothesis import given
from hypothesis import strategies as st
from learner_makers import applied

from global_learner.updates.ledger import FIRST_LIMIT, WINDOW, AppliedSequences, Ledger


@given(st.lists(st.integers(1, 3 * WINDOW) | st.just(2**53), max_size=80))
def test_a_sequence_is_known_as_applied_exactly_if_it_was(offered: list[int]) -> None:
    sequences = AppliedSequences(incarnation=1)
    taken: set[int] = set()
    for sequence in offered:
        if sequence < sequences.oldest:
            continue
        assert sequences.holds(sequence) == (sequence in taken)
        if not sequences.holds(sequence):
            sequences.add(sequence)
            taken.add(sequence)
    assert sequences.count == len(taken)
    for sequence in range(sequences.oldest, 3 * WINDOW + 1):
        assert sequences.holds(sequence) == (sequence in taken)


def test_a_new_incarnation_starts_over_and_the_cluster_keeps_its_count() -> None:
    ledger = Ledger(8)
    ledger.record(applied(1, incarnation=1, sequence=1))
    ledger.record(applied(2, incarnation=2, sequence=1))
    assert ledger.sequences("north", 2).count == 1
    assert not ledger.sequences("north", 1).holds(1)
    assert ledger.clusters["north"].accepted == ledger.accepted == 2


def test_a_cluster_is_active_while_the_window_holds_an_update_of_it() -> None:
    ledger = Ledger(active_window_updates=2)
    assert ledger.active_clusters_with("north") == 1
    ledger.record(applied(1, cluster="north"))
    ledger.record(applied(2, cluster="south"))
    assert ledger.active_clusters_with("south") == 2
    assert ledger.active_clusters_with("east") == 3
    ledger.record(applied(3, cluster="south"))
    assert ledger.active_clusters_with("south") == 1


def test_the_median_staleness_is_of_the_recent_window() -> None:
    ledger = Ledger(3)
    for step, base in ((1, 0), (2, 0), (3, 0), (4, 0)):
        ledger.record(applied(step, base_step=base))
    assert ledger.staleness_p50 == 2.0
    assert ledger.since_version.staleness_p50 == 1.5


def test_taking_a_versions_count_starts_the_next_one() -> None:
    ledger = Ledger(8)
    ledger.record(applied(1))
    assert ledger.take_since_version().contributions == {"north": 1}
    assert ledger.since_version.contributions == {}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), max_size=30))
def test_a_ledger_survives_a_snapshot(history: list[tuple[str, int]]) -> None:
    ledger = Ledger(8)
    for step, (cluster, incarnation) in enumerate(history, start=1):
        ledger.record(applied(step, cluster=cluster, incarnation=incarnation, base_step=step // 2))
    content = json.loads(json.dumps(ledger.to_json()))
    back = Ledger.from_json(content, 8)
    assert back.to_json() == ledger.to_json()
    for seen in (ledger, back):
        seen.record(applied(len(history) + 1, cluster="c"))
    assert back.to_json() == ledger.to_json()


def test_a_snapshot_of_an_older_learner_is_read_and_what_it_lacks_is_learned_anew() -> None:
    ledger = Ledger(8)
    for number in range(1, 5):
        ledger.record(applied(number))
    old = ledger.to_json()
    del old["norms"], old["latest_steps"]
    again = Ledger.from_json(old, 8)
    assert again.accepted == 4
    assert again.norms.limit(4.0) == FIRST_LIMIT
    again.record(applied(5))
    assert again.latest_steps.fair_staleness(0, 5) == 5
    assert list(again.norms.to_json()) == ["north"]
