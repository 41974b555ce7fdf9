"""The state machine through the store: killed after any transaction it goes on, and nothing is written down twice."""

import contextlib
import json
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learner_makers import SPEC, policy
from rollout_makers import NOW

from global_learner.errors import BadRequest, ChangedSince, LearnerError, RolloutRefused, UnknownRollout
from global_learner.registry.registry import Registry
from global_learner.registry.signing import Signing
from global_learner.registry.tables import RolloutRow
from global_learner.rollout.evidence_store import EvidenceStore, StoredEvidence
from global_learner.rollout.machine import assignment_of
from global_learner.rollout.plan import RolloutPlan
from global_learner.rollout.rollout_store import RolloutStore, SeenRollout, Taken
from global_learner.rollout.state import (
    Abort,
    Away,
    Joined,
    Left,
    Pause,
    Pin,
    Promote,
    Resume,
    RolloutPhase,
    StageVerdict,
    VersionDamaged,
    VersionGone,
    VersionRole,
    VersionSeen,
)
from global_learner.rollout.verdicts.evidence import Shadowed, SwitchbackBlock
from global_learner.rollout.verdicts.verdict import StageOutcome
from global_learner.storage.audit import KEEPER, Order
from global_learner.storage.commits import Commits
from policy_net.exchange.rollout_assignment import AssignmentRole, candidate_acts
from policy_net.exchange.spec import PolicySpec

pytestmark = pytest.mark.usefixtures("each_database")

CLUSTERS = ("east", "north", "south", "west")
NAMES = st.sampled_from([*CLUSTERS, "stranger"])
WHATS = st.one_of(
    st.builds(StageVerdict, stage=st.integers(0, 4), outcome=st.sampled_from(StageOutcome), held=st.tuples(NAMES)),
    st.sampled_from([Promote(), Promote(), Pause(), Resume(), Abort()]),
    st.builds(VersionSeen, cluster=NAMES, acting=st.sampled_from([1, 2])),
    st.builds(Away, cluster=NAMES),
    st.builds(Left, cluster=NAMES),
    st.builds(Pin, cluster=NAMES),
    st.builds(VersionGone, version=st.sampled_from([1, 2]), instead=st.just(1)),
    st.builds(VersionDamaged, version=st.sampled_from([1, 2])),
)


def opened(folder: Path) -> Registry:
    registry = Registry(folder, Commits(folder))
    registry.signing = Signing(folder, 3600.0, time.time, registry.commits)
    return registry


def filled(folder: Path, versions: int = 2) -> Registry:
    registry = opened(folder)
    for number in range(versions):
        registry.publish(policy(SPEC, number), number, NOW, {}, 0.0, False)
    for cluster in CLUSTERS:
        registry.register(cluster, False, [], NOW)
    return registry


def begun(store: RolloutStore, version: int = 2, plan: RolloutPlan | None = None, dry_run: bool = False) -> Taken:
    order = Order("ada", NOW, dry_run=dry_run)
    return store.start(version, plan or RolloutPlan(), SPEC.digest, (), (), {"east": 7200.0}, order)


def consistent(registry: Registry) -> None:
    """What clusters are assigned, and asked for, is what the rollout's state says."""
    record = RolloutStore(registry).latest()
    assert record is not None
    for row in registry.registrations():
        member = record.state.member(row.cluster)
        if record.state.phase.over or member is None or member.role is VersionRole.PINNED:
            assert (row.rollout, row.rollout_assignment) == (0, None)
            continue
        said = assignment_of(member, record.state.candidate)
        assert row.rollout == record.state.number
        if member.incumbent == 1:
            assert row.assigned_version == said.acting
        assert (row.rollout_assignment is not None) == (said.challenger is not None and said.challenger != said.acting)
        if row.rollout_assignment is not None:
            assert (row.rollout_assignment.beside_version, row.rollout_assignment.seed) == (
                record.state.candidate,
                record.seed,
            )


@pytest.mark.heavy
@pytest.mark.parametrize("each_database", ["sqlite"], indirect=True)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(WHATS, st.booleans(), st.floats(-1e5, 1e5)), max_size=10))
def test_killed_after_any_transaction_it_goes_on_and_writes_nothing_twice(history) -> None:  # type: ignore[no-untyped-def]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        registry = filled(folder)
        expected = [line.action for line in begun(RolloutStore(registry)).lines]
        for what, killed, later in history:
            if killed:
                registry.close()
                registry = opened(folder)
            before = RolloutStore(registry).latest()
            with contextlib.suppress(RolloutRefused, BadRequest):
                taken = RolloutStore(registry).take(1, [what], {}, Order("ada", NOW + later))
                assert taken.record == RolloutStore(registry).latest()
                expected += [line.action for line in taken.lines]
                before = taken.record
            assert RolloutStore(registry).latest() == before
            consistent(registry)
        found = [line.action for line in registry.audit() if line.action.startswith("rollout-")]
        assert found == expected
        events = EvidenceStore(registry).events(1, quiet=True)
        loud = [event for event in events if event.came_of_it or event.what not in ("seen", "away")]
        assert EvidenceStore(registry).events(1) == loud
        assert [event.number for event in events] == list(range(len(events)))
        registry.close()


@pytest.fixture
def registry(tmp_path: Path):  # type: ignore[no-untyped-def]
    registry = filled(tmp_path)
    yield registry
    registry.close()


def test_all_events_of_a_call_are_taken_or_none(registry: Registry) -> None:
    store = RolloutStore(registry)
    begun(store)
    before, lines = store.latest(), registry.audit()
    with pytest.raises(BadRequest, match="knows no cluster"):
        store.take(1, [Promote(), Pin(cluster="stranger")], {}, Order("ada", NOW))
    assert (store.latest(), registry.audit()) == (before, lines)
    consistent(registry)


def test_blocks_are_as_long_as_a_cluster_needs_and_its_seed_is_the_rollouts(registry: Registry) -> None:
    store = RolloutStore(registry)
    begun(store)
    reported = store.take(1, [Promote(), Promote()], {"east": 3 * 3600.0, "north": 60.0}, Order("ada", NOW)).redirected
    tasks = {entry.cluster: entry.rollout_assignment for entry in reported if entry.rollout_assignment is not None}
    assert {rollout_assignment.role for rollout_assignment in tasks.values()} == {AssignmentRole.ALTERNATING}
    usual = {"east": 6 * 3600.0, "north": 2 * 3600.0}
    for cluster, rollout_assignment in tasks.items():
        assert rollout_assignment.block_seconds == usual.get(cluster, 4 * 3600.0)


def test_a_dry_run_says_what_would_come_of_it_and_keeps_nothing(registry: Registry) -> None:
    store = RolloutStore(registry)
    said = begun(store, dry_run=True)
    assert store.latest() is None
    assert registry.audit() == []
    assert begun(store).lines == said.lines
    said = store.take(1, [Abort()], {}, Order("ada", NOW, dry_run=True))
    assert said.record is not None
    assert said.record.state.phase is RolloutPhase.ROLLED_BACK
    assert store.latest().state.phase is RolloutPhase.RUNNING


def test_a_candidate_of_another_spec_is_refused(registry: Registry) -> None:
    other = PolicySpec(jobs_per_batch=2, type_columns=1, hidden=(2,))
    registry.publish(policy(other), 7, NOW, {}, 0.0, False)
    with pytest.raises(BadRequest, match="agents cannot run it"):
        begun(RolloutStore(registry), version=3)


def test_there_is_no_rollout_until_one_is_begun(registry: Registry) -> None:
    with pytest.raises(UnknownRollout, match="no rollout yet"):
        RolloutStore(registry).record(0)
    begun(RolloutStore(registry))
    with pytest.raises(UnknownRollout, match="no rollout 7"):
        RolloutStore(registry).record(7)


def test_new_versions_pass_over_the_clusters_of_a_rollout(registry: Registry) -> None:
    store = RolloutStore(registry)
    begun(store)
    store.take(1, [Pin(cluster="west")], {}, Order("ada", NOW))
    registry.publish(policy(SPEC, 5), 5, NOW, {}, 0.0, True)
    assert {row.cluster: row.assigned_version for row in registry.registrations()} == {
        "east": 1, "north": 1, "south": 1, "west": 3
    }  # fmt: skip


def test_an_operators_word_and_the_pin_are_one_transaction(registry: Registry) -> None:
    store = RolloutStore(registry)
    begun(store)
    store.take(1, [Promote()], {}, Order("ada", NOW))
    with pytest.raises(LearnerError, match="no cluster 'stranger' is registered"):
        store.assign(2, SPEC.digest, ["west", "stranger"], Order("ada", NOW), False)
    assert store.latest().state.member("west").role is VersionRole.SHADOW
    done = store.assign(2, SPEC.digest, ["west"], Order("ada", NOW), False)
    assert done.pinned == ("west",)
    assert store.latest().state.member("west").role is VersionRole.PINNED
    row = next(row for row in registry.registrations() if row.cluster == "west")
    assert (row.assigned_version, row.held, row.rollout, row.rollout_assignment) == (2, True, 0, None)
    consistent(registry)


def test_what_was_said_first_of_a_block_stands_and_nobody_else_is_heard(registry: Registry) -> None:
    store, evidence = RolloutStore(registry), EvidenceStore(registry)
    begun(store)
    assert evidence.add(1, "east", [SwitchbackBlock(0, True, 1.0, 1.0)], None, NOW) is None  # the gate asks for nothing
    store.take(1, [Promote()], {}, Order("ada", NOW))
    assert evidence.add(1, "east", [], Shadowed(10, 9), NOW) == StoredEvidence(0)
    assert evidence.add(1, "east", [], Shadowed(3, 3), NOW) == StoredEvidence(0)
    record = store.take(1, [Promote(), Promote(), Promote()], {}, Order("ada", NOW)).record
    assert record is not None
    own = next(member.cluster for member in record.state.members if member.role is VersionRole.ALTERNATING)
    acted = [candidate_acts(record.seed, own, number) for number in range(5)]
    blocks = [SwitchbackBlock(number, acted[number], float(number), 1.0) for number in (0, 1, 4)]
    later = NOW + 86_400.0
    assert evidence.add(1, own, blocks, None, later) == StoredEvidence(5)
    again = [SwitchbackBlock(0, acted[0], 99.0, 1.0), SwitchbackBlock(3, acted[3], 99.0, 1.0)]
    assert evidence.add(1, own, again, None, later) == StoredEvidence(5)
    assert evidence.add(2, own, blocks, None, later) is None
    assert evidence.brought(1).blocks == {own: blocks}
    assert evidence.brought(1).shadowed == {"east": Shadowed(10, 9)}
    store.take(1, [Abort()], {}, Order("ada", NOW))
    assert evidence.add(1, own, [SwitchbackBlock(7, True, 1.0, 1.0)], None, NOW) is None


def alternating(store: RolloutStore) -> tuple[str, float]:
    """A cluster that alternates from `NOW` on, and how long its blocks are."""
    begun(store)
    reported = store.take(1, [Promote(), Promote()], {}, Order("ada", NOW)).redirected
    return next(
        (entry.cluster, entry.rollout_assignment.block_seconds)
        for entry in reported
        if entry.rollout_assignment is not None
    )


def test_blocks_for_which_there_was_no_time_wait_until_there_was(registry: Registry) -> None:
    store, evidence = RolloutStore(registry), EvidenceStore(registry)
    own, lasts = alternating(store)
    story = [SwitchbackBlock(number, True, 1.0, 1.0) for number in range(64)]
    assert evidence.add(1, own, story, None, NOW) == StoredEvidence(2, waiting=62)
    assert evidence.add(1, own, story, None, NOW + 0.99 * lasts) == StoredEvidence(2, waiting=62)
    assert evidence.add(1, own, story, None, NOW + 5 * lasts) == StoredEvidence(7, waiting=57)
    assert evidence.add(1, own, story, None, NOW - 86_400.0) == StoredEvidence(
        7, waiting=57
    )  # a clock that goes back takes none
    assert evidence.add(1, own, story, None, NOW + 70 * lasts) == StoredEvidence(64)
    assert evidence.brought(1).blocks == {own: story}


@pytest.mark.heavy
def test_an_honest_cluster_loses_nothing_to_a_fast_clock_an_outage_or_numbers_that_it_passed_over(
    registry: Registry,
) -> None:
    store, evidence = RolloutStore(registry), EvidenceStore(registry)
    own, lasts = alternating(store)
    lived: list[SwitchbackBlock] = []
    for number in range(300):  # its clock is 2% fast, and every tenth pair was interrupted
        if number // 2 % 10:
            lived.append(SwitchbackBlock(number, True, float(number), 1.0))
        held = evidence.add(1, own, lived[-64:], None, NOW + (number + 1) * lasts / 1.02)
        assert held is not None
        assert held.waiting == 0
    # Nobody answered it for 60 blocks.
    late = [SwitchbackBlock(number, True, float(number), 1.0) for number in range(300, 360)]
    assert evidence.add(1, own, late, None, NOW + 361 * lasts) == StoredEvidence(360)
    assert evidence.brought(1).blocks == {own: lived + late}


def test_time_counts_from_when_a_cluster_is_asked_anew(registry: Registry) -> None:
    store, evidence = RolloutStore(registry), EvidenceStore(registry)
    own, lasts = alternating(store)
    first = [SwitchbackBlock(number, True, 1.0, 1.0) for number in range(10)]
    assert evidence.add(1, own, first, None, NOW + 10 * lasts) == StoredEvidence(10)
    store.take(1, [Left(cluster=own)], {}, Order(KEEPER, NOW + 10 * lasts))
    anew = NOW + 50 * lasts
    store.take(1, [Joined(cluster=own, incumbent=1)], {}, Order(KEEPER, anew))
    asked: list[float] = []
    while not asked:  # in the wave, or else with the fleet
        reported = store.take(1, [Promote()], {own: 6 * 3600.0}, Order("ada", anew)).redirected
        asked = [
            entry.rollout_assignment.block_seconds
            for entry in reported
            if entry.cluster == own and entry.rollout_assignment is not None
        ]
    assert asked == [12 * 3600.0]
    story = [SwitchbackBlock(number, True, 1.0, 1.0) for number in range(10, 20)]
    assert evidence.add(1, own, story, None, anew + 3 * 12 * 3600.0) == StoredEvidence(15, waiting=5)


def test_simulated_clusters_live_as_much_faster_as_is_set(registry: Registry) -> None:
    store, evidence = RolloutStore(registry), EvidenceStore(registry)
    own, lasts = alternating(store)
    story = [SwitchbackBlock(number, True, 1.0, 1.0) for number in range(64)]
    assert evidence.add(1, own, story, None, NOW + lasts / 100.0, 1000.0) == StoredEvidence(12, waiting=52)


def test_in_a_rollout_that_an_earlier_program_began_time_counts_from_its_begin(registry: Registry) -> None:
    store, evidence = RolloutStore(registry), EvidenceStore(registry)
    begun(store)
    reported = store.take(1, [Promote(), Promote()], {}, Order("ada", NOW + 86_400.0)).redirected
    own, lasts = next(
        (entry.cluster, entry.rollout_assignment.block_seconds)
        for entry in reported
        if entry.rollout_assignment is not None
    )
    with registry.transaction() as session:
        row = session.get(RolloutRow, 1)
        assert row is not None
        state = json.loads(row.state)
        for member in state["members"]:
            del member["since_unix_seconds"]
        row.state = json.dumps(state)
    story = [SwitchbackBlock(number, True, 1.0, 1.0) for number in range(64)]
    expected = int(86_400.0 / lasts) + 2
    assert evidence.add(1, own, story, None, NOW + 86_400.0) == StoredEvidence(expected, waiting=64 - expected)


def test_a_word_on_a_rollout_that_went_on_since_it_was_seen_is_refused(tmp_path: Path) -> None:
    registry = filled(tmp_path)
    store = RolloutStore(registry)
    begun(store)

    def promote(seen: SeenRollout, dry_run: bool = False) -> int:
        taken = store.take(1, [Promote()], {}, Order("ben", NOW, dry_run=dry_run), seen=seen)
        assert taken.record is not None
        return taken.record.state.stage

    both_saw = SeenRollout(1, 0)
    store.take(1, [VersionSeen(cluster="east", acting=1)], {}, Order("learner", NOW))  # decides nothing
    assert promote(both_saw, dry_run=True) == 1
    assert promote(both_saw) == 1
    for dry_run in (False, True):
        with pytest.raises(ChangedSince, match=r"went on since you looked.*ben: rollout-promoted rollout 1.*stage 1 "):
            promote(both_saw, dry_run)
    latest = store.latest()
    assert latest is not None
    assert latest.state.stage == 1
    assert promote(SeenRollout(1, latest.state.events)) == 2
    with pytest.raises(ChangedSince, match="rollout 1 of v2 is the latest by now, not 7"):
        promote(SeenRollout(7, 3))


@pytest.mark.parametrize("what", [Pause(), Abort(), Pin(cluster="east")])
def test_every_word_of_an_operator_is_compared(tmp_path: Path, what: Pause | Abort | Pin) -> None:
    store = RolloutStore(filled(tmp_path))
    begun(store)
    store.take(1, [Promote()], {}, Order("ada", NOW))
    before = store.latest()
    with pytest.raises(ChangedSince):
        store.take(1, [what], {}, Order("ben", NOW), seen=SeenRollout(1, 0))
    assert store.latest() == before
    # Who wants less of a version is not refused because the learner brought it further.
    store.take(1, [StageVerdict(stage=1, outcome=StageOutcome.PASS)], {}, Order(KEEPER, NOW))
    with pytest.raises(ChangedSince):
        store.take(1, [Promote()], {}, Order("ben", NOW), seen=SeenRollout(1, 1))
    store.take(1, [what], {}, Order("ben", NOW), seen=SeenRollout(1, 1))
    assert store.latest() != before


def test_clusters_that_are_to_act_on_something_else_than_was_seen_are_not_assigned(tmp_path: Path) -> None:
    registry = filled(tmp_path, versions=3)
    store = RolloutStore(registry)

    def assign(version: int, cluster: str, seen: dict[str, int], to_newest: bool = False):  # type: ignore[no-untyped-def]
        store.assign(version, SPEC.digest, [cluster], Order("ben", NOW), to_newest, seen=seen)

    def acting() -> dict[str, int]:
        return {row.cluster: row.assigned_version for row in registry.registrations()}

    assign(2, "east", {"east": 1})
    with pytest.raises(ChangedSince, match="east is to act on v2 by now, not on v1 as when you looked"):
        assign(3, "east", {"east": 1})
    with pytest.raises(ChangedSince, match="east"):  # what is held is compared also where others move on
        assign(3, "east", {"east": 1}, to_newest=True)
    with pytest.raises(ChangedSince, match="east"):
        store.go_back(SPEC.digest, ["east"], Order("ben", NOW, ""), hold=False, seen={"east": 3})
    assert acting() == {"east": 2, "north": 1, "south": 1, "west": 1}
    assign(3, "west", {"west": 2}, to_newest=True)  # it went on by itself, as every version comes to it
    assign(3, "east", {})
    assert acting() == {"east": 3, "north": 1, "south": 1, "west": 3}
