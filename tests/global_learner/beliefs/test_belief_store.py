"""Reports on disk: what counts, how often, and for how long."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from global_learner.beliefs.belief_store import BeliefStore, BeliefSummary
from global_learner.beliefs.bounds import BeliefStandard
from global_learner.errors import StateUnusable
from global_learner.section_settings import BeliefSettings
from policy_net.domain import JobKind
from policy_net.exchange.statistics import SpeedStatistic

pytestmark = pytest.mark.usefixtures("each_database")

EVERYBODY = lambda cluster, at: True  # noqa: E731


def seen(count: int = 3, job_type: str = "vgg-16", ps: int = 2, kind: JobKind = JobKind.PS) -> SpeedStatistic:
    return SpeedStatistic(job_type, kind, ps, 2, 4.25, count)


def opened(folder: Path, **settings: object) -> BeliefStore:
    return BeliefStore(folder, BeliefSettings.model_validate(settings))


def test_a_report_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert store.report("north", 1, 1, [seen(3)], 10.0)
    assert store.report("north", 1, 2, [seen(5), seen(1, "resnet-50")], 11.0)
    assert store.reports(EVERYBODY) == {"north": (seen(5), seen(1, "resnet-50"))}
    assert store.summaries == {"north": BeliefSummary(2, 6)}


@pytest.mark.parametrize("again", [(1, 1), (1, 2), (0, 9)])
def test_a_repeated_or_overtaken_report_changes_nothing(tmp_path: Path, again: tuple[int, int]) -> None:
    store = opened(tmp_path)
    store.report("north", 1, 2, [seen(5)], 10.0)
    assert not store.report("north", *again, [seen(400)], 11.0)
    assert store.reports(EVERYBODY) == {"north": (seen(5),)}


def test_a_new_registration_begins_its_revisions_anew(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.report("north", 1, 7, [seen(9)], 10.0)
    assert store.report("north", 2, 1, [seen(4)], 11.0)
    assert store.reports(EVERYBODY) == {"north": (seen(4),)}


def test_an_empty_report_takes_back_what_was_told(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.report("north", 1, 1, [seen()], 10.0)
    store.report("north", 1, 2, [], 11.0)
    assert store.reports(EVERYBODY) == {"north": ()}
    assert store.summaries == {"north": BeliefSummary(0, 0)}


def test_reports_outlive_the_learner(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.report("north", 1, 1, [seen()], 10.0)
    store.report("south", 1, 1, [seen(7, "bert", 0, JobKind.ALLREDUCE)], 10.0)
    # No close: as if the process had been killed.
    again = opened(tmp_path)
    assert again.reports(EVERYBODY) == {"north": (seen(),), "south": (seen(7, "bert", 0, JobKind.ALLREDUCE),)}
    assert not again.report("north", 1, 1, [seen(100)], 11.0)
    assert again.reports(lambda cluster, at: cluster == "south" and at == 10.0).keys() == {"south"}


def test_the_vocabulary_grows_by_appending_and_never_forgets(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.report("north", 1, 1, [seen(job_type="b")], 10.0)
    store.report("south", 1, 1, [seen(job_type="a"), seen(job_type="b")], 10.0)
    store.report("north", 1, 2, [], 10.0)
    expected = [("b", JobKind.PS), ("a", JobKind.PS)]
    assert store.vocabulary() == expected
    assert opened(tmp_path).vocabulary() == expected
    assert store.types == 2


def test_types_beyond_the_vocabulary_are_left_out_and_named(tmp_path: Path) -> None:
    store = opened(tmp_path, max_types=3, max_types_per_cluster=2)
    store.report("north", 1, 1, [seen(job_type=name) for name in "abc"], 10.0)
    assert store.summaries["north"] == BeliefSummary(2, 6, ("c",))
    store.report("south", 1, 1, [seen(job_type=name) for name in "cde"], 10.0)
    assert store.summaries["south"] == BeliefSummary(1, 3, ("d", "e"))
    assert [name for name, _ in store.vocabulary()] == ["a", "b", "c"]
    assert {entry.job_type for entry in store.reports(EVERYBODY)["south"]} == {"c"}


def test_a_damaged_report_is_said_in_one_line(tmp_path: Path, each_database: Callable[[Path, str], None]) -> None:
    opened(tmp_path).report("north", 1, 1, [seen()], 10.0)
    each_database(tmp_path / "beliefs.sqlite", "update reports set content = x'00'")
    with pytest.raises(StateUnusable, match="damaged"):
        opened(tmp_path).reports(EVERYBODY)


@pytest.mark.parametrize("each_database", ["sqlite"], indirect=True)
def test_a_file_that_is_no_book_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "beliefs.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(StateUnusable, match="no usable book"):
        opened(tmp_path)


reports = st.lists(st.tuples(st.sampled_from(["n", "s"]), st.integers(1, 3), st.integers(1, 4)), max_size=12)


@pytest.mark.heavy
@given(reports)
@pytest.mark.parametrize("each_database", ["sqlite"], indirect=True)
def test_whatever_arrives_in_whatever_order_the_newest_stands(tmp_path_factory, arrivals) -> None:
    store = opened(tmp_path_factory.mktemp("store"))
    newest: dict[str, tuple[int, int]] = {}
    for cluster, incarnation, revision in arrivals:
        taken = store.report(cluster, incarnation, revision, [seen(10 * incarnation + revision)], 0.0)
        assert taken == ((incarnation, revision) > newest.get(cluster, (0, 0)))
        newest[cluster] = max(newest.get(cluster, (0, 0)), (incarnation, revision))
    assert store.reports(EVERYBODY) == {
        cluster: (seen(10 * incarnation + revision),) for cluster, (incarnation, revision) in newest.items()
    }
    store.close()


def test_a_store_of_an_older_learner_gets_what_it_lacks_and_keeps_what_it_has(
    tmp_path: Path, each_database: Callable[[Path, str], None]
) -> None:
    store = opened(tmp_path)
    store.report("north", 1, 1, [seen(3)], 10.0)
    store.close()
    for table in ("standings", "held_to"):
        each_database(tmp_path / "beliefs.sqlite", f"DROP TABLE {table}")
    again = opened(tmp_path)
    assert again.reports(EVERYBODY) == {"north": (seen(3),)}
    assert again.standings() == {}
    again.note_version({"north"}, set())
    again.note_version({"north"}, {"south"})
    assert again.standings() == {"north": 2, "south": 0}
    assert again.standard() == BeliefStandard()


def test_what_versions_are_held_to_outlives_the_learner_and_damage_is_said(
    tmp_path: Path, each_database: Callable[[Path, str], None]
) -> None:
    store = opened(tmp_path)
    store.keep_standard(
        BeliefStandard(silenced={"a": (seen(3, "a"),)}, agreed={"a": (seen(4, "a"),), "b": (seen(5, "b"),)})
    )
    store.keep_standard(BeliefStandard(agreed={"a": (seen(4, "a"),), "b": (seen(6, "b"), seen(7, "b", ps=3))}))
    # No close: as if the process had been killed.
    again = opened(tmp_path)
    assert again.standard() == BeliefStandard(agreed={"a": (seen(4, "a"),), "b": (seen(6, "b"), seen(7, "b", ps=3))})
    each_database(tmp_path / "beliefs.sqlite", "update held_to set content = x'00'")
    with pytest.raises(StateUnusable, match="damaged"):
        opened(tmp_path).standard()
