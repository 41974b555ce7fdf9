"""What one reporter, two liars of five, and an honest fleet whose machines change can make of a fleet's beliefs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from belief_makers import World
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_makers import fleet_beliefs

from global_learner.beliefs.bounds import ALONE, ALONE_IN_ALL, FARTHEST, LARGEST_MOVE, bounded
from global_learner.registry.registry_thread import RegistryThread
from global_learner.telemetry import LearnerTelemetry
from policy_net.domain import JobKind
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.policy import default_set_file

SHIPPED = default_set_file().priors
NOISE = 0.05


def reported(shift: float = 0.0, seed: int = 0, count: int = 16, rows: Sequence[SpeedStatistic] = SHIPPED):
    """A report on the shipped types, so much faster, with a cluster's own noise."""
    noise = np.random.default_rng(seed).normal(0.0, NOISE, len(rows))
    return [
        replace(entry, mean_log_speed=entry.mean_log_speed + shift + own, count=count)
        for entry, own in zip(rows, noise.tolist(), strict=True)
    ]


class Fleet(World):
    """Versions one after the other, of what the clusters say at the moment."""

    def __init__(self, folder: Path, shipped: Sequence[SpeedStatistic] = SHIPPED, **beliefs) -> None:
        super().__init__(folder, tuple(shipped), **beliefs)
        self.revision = 0
        self.step = 0

    def version(self, reports: Mapping[str, Sequence[SpeedStatistic]]) -> PolicyFile:
        self.revision += 1
        self.step += 100
        for cluster, statistics in reports.items():
            self.store.report(cluster, 1, self.revision, statistics, 1.0)
        return self.publish(self.step)

    def restart(self) -> None:
        """A learner that begins again on what is on disk."""
        self.store.close()
        self.beliefs = fleet_beliefs(self.config, RegistryThread(self.registry), LearnerTelemetry())
        self.store = self.beliefs._store


def moves(version: PolicyFile, since: Sequence[SpeedStatistic] = SHIPPED) -> np.ndarray:
    speeds = {(e.job_type, e.ps, e.workers): e.mean_log_speed for e in since}
    assert {(e.job_type, e.ps, e.workers) for e in version.priors} >= set(speeds), "what was known is gone"
    return np.array(
        [e.mean_log_speed - speeds[key] for e in version.priors if (key := (e.job_type, e.ps, e.workers)) in speeds]
    )


def test_one_report_moves_nothing_far(tmp_path: Path) -> None:
    unbound = Fleet(tmp_path / "unbound", large_move_clusters=1)
    assert (moves(unbound.version({"liar": reported(10.0)})) > 1.0).all(), "the attack, where one cluster is enough"
    fleet = Fleet(tmp_path / "fleet")
    version = fleet.version({"liar": reported(10.0)})
    assert np.abs(moves(version)).max() <= ALONE + 1e-6
    assert len(version.card["priors"]["held_back"]) == len({entry.job_type for entry in SHIPPED})


def test_nor_does_one_cluster_wear_the_fleets_beliefs_down_version_by_version(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    for _ in range(8):
        version = fleet.version({"liar": reported(-10.0)})
    assert np.abs(moves(version)).max() <= ALONE_IN_ALL + 1e-6


@pytest.mark.heavy
@pytest.mark.parametrize("lie", [10.0, 2.0, 1.0, -1.0])
def test_two_liars_of_five_move_next_to_nothing(tmp_path: Path, lie: float) -> None:
    fleet = Fleet(tmp_path)
    reports = {name: reported(seed=number) for number, name in enumerate(("north", "south", "east"))}
    reports |= {"liar": reported(lie, 8), "other-liar": reported(lie, 9)}
    for _ in range(3):
        version = fleet.version(reports)
    assert np.abs(moves(version)).max() < 0.35
    assert np.median(np.abs(moves(version))) < 0.1


def test_a_fleet_whose_machines_all_become_three_times_as_fast_is_followed_at_once(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.version({name: reported(seed=number) for number, name in enumerate(("north", "south"))})
    version = fleet.version(
        {name: reported(math.log(3.0), seed=number) for number, name in enumerate(("north", "south"))}
    )
    assert np.median(moves(version)) == pytest.approx(math.log(3.0), abs=0.05)
    assert "held_back" not in version.card["priors"]


@pytest.mark.heavy
def test_an_honest_fleet_has_the_very_same_priors_as_without_bounds(tmp_path: Path, monkeypatch) -> None:
    reports = {name: reported(seed=number) for number, name in enumerate(("north", "south", "east"))}
    held = Fleet(tmp_path / "held")
    free = Fleet(tmp_path / "free", large_move_clusters=1)
    for _ in range(3):
        assert held.version(reports).to_bytes() == free.version(reports).to_bytes()


def test_when_a_second_cluster_confirms_it_the_move_is_made(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    first = fleet.version({"north": reported(1.5)})
    assert np.median(moves(first)) == pytest.approx(ALONE, abs=0.01)
    second = fleet.version({"north": reported(1.5), "south": reported(1.5, seed=1)})
    assert np.median(moves(second)) == pytest.approx(1.5, abs=0.05)


def test_when_the_reporters_are_turned_out_the_first_versions_priors_are_back_at_once(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    out: set[str] = set()
    fleet.beliefs.priors.exclude(lambda cluster, at: cluster in out)
    fleet.version({"north": reported(1.5), "south": reported(1.5, seed=1)})
    out |= {"north", "south"}
    assert np.abs(moves(fleet.version({}))).max() < 1e-5


def test_one_cluster_cannot_change_a_types_kind(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    rows = [e for e in SHIPPED if e.job_type == "vgg-16"]
    ring = [SpeedStatistic("vgg-16", JobKind.ALLREDUCE, 0, workers, 15.0, 16) for workers in (1, 2, 4)]
    version = fleet.version({"liar": ring})
    assert {e.kind for e in version.priors if e.job_type == "vgg-16"} == {rows[0].kind}


SPLITS = [(ps, workers) for ps in (1, 2) for workers in (1, 2, 4)]
NEW = [SpeedStatistic("new", JobKind.PS, ps, workers, 3.0 + 0.2 * workers, 16) for ps, workers in SPLITS]
RING = [SpeedStatistic("new", JobKind.ALLREDUCE, 0, workers, 12.0, 16) for workers in (1, 2, 4, 8)]


def of_new(version: PolicyFile) -> list[SpeedStatistic]:
    return [entry for entry in version.priors if entry.job_type == "new"]


def new(shift: float = 0.0, shape: float = 0.0) -> list[SpeedStatistic]:
    """A report on a type that v1 lacks, so much faster, its proportions off by up to so much."""
    off = [shift + shape * ((entry.ps * 7 + entry.workers * 3) % 5 - 2) for entry in NEW]
    return [replace(entry, mean_log_speed=entry.mean_log_speed + by) for entry, by in zip(NEW, off, strict=True)]


def test_a_second_reporter_cannot_take_a_new_type_for_another_kind(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    reports = {"north": new(), "liar": RING}
    assert not of_new(fleet.version(reports)), "one's word against another's"
    assert {e.kind for e in of_new(fleet.version(reports | {"south": new()}))} == {JobKind.PS}


def test_a_reporter_of_another_kind_does_not_keep_a_known_type_from_being_learned(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.version({"north": new()})
    version = fleet.version({"north": new(0.2), "liar": RING})
    assert {e.kind for e in of_new(version)} == {JobKind.PS}
    assert moves(version, NEW) == pytest.approx(0.2, abs=1e-5)


@pytest.mark.parametrize("again", [False, True], ids=["", "learner restarted"])
def test_a_type_that_was_withheld_comes_back_where_it_was(tmp_path: Path, again: bool) -> None:
    fleet = Fleet(tmp_path, ())
    fleet.version({"north": new()})
    for _ in range(2):
        assert not of_new(fleet.version({"north": new(), "liar": new(9.0, shape=2.0)}))
        fleet.beliefs.priors.now()  # Nobody publishes it: as if the learner had been killed before.
        if again:
            fleet.restart()
    version = fleet.version({"north": new(), "liar": new(2.0)})
    assert np.abs(moves(version, NEW)).max() <= ALONE + 1e-6
    assert version.card["priors"]["held_back"] == ["new"]


def test_the_last_reporter_of_a_type_wears_nothing_down_that_two_clusters_agreed_on(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, ())
    for _ in range(2):
        fleet.version({"north": new(), "south": new(0.05)})
    fleet.version({"north": [], "south": [], "liar": new(6.0)})
    fleet.restart()
    for _ in range(8):
        version = fleet.version({"liar": new(6.0)})
    agreed = new(0.025)
    assert np.abs(moves(version, agreed)).max() <= ALONE_IN_ALL + 0.01
    # Nor by being silent for a while, or of another kind.
    assert not of_new(fleet.version({"liar": []}))
    assert not of_new(fleet.version({"liar": RING}))
    assert np.abs(moves(fleet.version({"liar": new(-6.0)}), agreed)).max() <= ALONE + 0.01


def test_what_two_clusters_agree_on_later_is_what_the_last_one_is_held_to(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, ())
    for shift in (0.0, 0.0, math.log(6.0), math.log(6.0)):
        fleet.version({"north": new(shift), "south": new(shift)})
    for _ in range(3):
        version = fleet.version({"north": [], "south": new(math.log(6.0))})
    assert moves(version, new(math.log(6.0))) == pytest.approx(0.0, abs=1e-5)


def test_two_whose_machines_lie_apart_leave_a_reference_too_until_two_agree_closely(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, ())
    for _ in range(2):
        fleet.version({"north": new(), "south": new(1.2)})
    middle = fleet.store.standard().agreed["new"]
    assert [e.mean_log_speed for e in middle] == pytest.approx([e.mean_log_speed for e in new(0.6)], abs=1e-5)
    fleet.version({"north": [], "south": new(6.0)})
    for _ in range(6):
        version = fleet.version({"south": new(6.0)})
    assert moves(version, middle).max() <= ALONE_IN_ALL + 1e-5
    for _ in range(3):
        version = fleet.version({"north": new(), "east": new(), "south": new(1.2)})
    # What the third has seen elsewhere shows in the middle, but two within a quarter of it are believed.
    assert np.abs(moves(version, NEW)).max() < ALONE
    assert fleet.store.standard().agreed["new"] != middle


def test_what_only_a_cluster_that_was_turned_out_bears_out_holds_nobody(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, ())
    out: set[str] = set()
    fleet.beliefs.priors.exclude(lambda cluster, at: cluster in out)
    fleet.version({"liar": new(9.0)})
    assert not of_new(fleet.version({"liar": new(9.0), "north": new()}))
    out.add("liar")
    assert moves(fleet.version({}), NEW) == pytest.approx(0.0, abs=1e-5)


def test_a_type_that_nobody_tells_of_any_more_is_forgotten_unless_two_agreed_on_it(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, ())
    fleet.version({"liar": new(9.0)})
    assert not of_new(fleet.version({"liar": new(9.0), "north": new()})), "withheld"
    assert not of_new(fleet.version({"liar": [], "north": []}))
    assert moves(fleet.version({"north": new()}), NEW) == pytest.approx(0.0, abs=1e-5)


lone_words = st.lists(
    st.one_of(st.none(), st.just(RING), st.tuples(st.floats(-6.0, 6.0), st.floats(-1.0, 1.0))), min_size=1, max_size=6
)


@pytest.mark.heavy
@settings(max_examples=25, deadline=None)
@given(lone_words)
def test_whatever_the_last_reporter_says_it_stays_within_twofold_of_what_two_agreed_on(tmp_path_factory, words) -> None:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), ())
    for _ in range(2):
        fleet.version({"north": new(), "south": new()})
    fleet.version({"north": [], "south": [], "liar": new()})
    agreed = {(e.ps, e.workers): e.mean_log_speed for e in NEW}
    for word in words:
        rows = [] if word is None else word if isinstance(word, list) else new(*word)
        for entry in of_new(fleet.version({"liar": rows})):
            assert entry.kind is JobKind.PS
            assert abs(entry.mean_log_speed - agreed[entry.ps, entry.workers]) <= ALONE_IN_ALL + 1e-5
    fleet.store.close()


def test_a_newcomer_counts_less_than_clusters_that_had_a_part_in_many_versions(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    honest = {name: reported(seed=number) for number, name in enumerate(("north", "south"))}
    for _ in range(8):
        fleet.version(honest)
    assert fleet.store.standings() == {"north": 8, "south": 8}
    version = fleet.version(honest | {"new": reported(0.2, seed=7)})
    # By the mean of three that count alike it would be a third of 0.2.
    assert np.mean(moves(version)) < 0.2 / 6
    assert fleet.store.standings() == {"north": 8, "south": 8, "new": 1}


def test_a_type_that_nobody_knew_is_believed_as_it_is_told(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    new = [SpeedStatistic("new", JobKind.PS, 1, workers, 4.0 + workers, 9) for workers in (1, 2)]
    version = fleet.version({"north": new})
    assert [e.mean_log_speed for e in version.priors if e.job_type == "new"] == [5.0, 6.0]


rows_of_one = st.lists(
    st.builds(
        SpeedStatistic,
        st.sampled_from(["vgg-16", "resnet-50"]),
        st.just(JobKind.PS),
        st.integers(1, 4),
        st.integers(1, 4),
        st.floats(-13.0, 20.0),
        st.integers(1, 50),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda entry: (entry.job_type, entry.ps, entry.workers),
)
KNOWN = [entry for entry in SHIPPED if entry.job_type in ("vgg-16", "resnet-50")]


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), rows_of_one, min_size=1), rows_of_one)
def test_whatever_is_reported_no_known_split_leaves_the_bounds(reports, merged) -> None:
    known = {(e.job_type, e.ps, e.workers): e.mean_log_speed for e in KNOWN}
    found = bounded(merged, reports, KNOWN, KNOWN, 2).statistics
    for entry in found:
        was = known.get((entry.job_type, entry.ps, entry.workers))
        if was is None:
            continue
        move = abs(entry.mean_log_speed - was)
        assert move <= min(LARGEST_MOVE, FARTHEST) + 1e-9
        supporters = sum(any(e.job_type == entry.job_type for e in rows) for rows in reports.values())
        if supporters < 2:
            assert move <= ALONE + 1e-9
