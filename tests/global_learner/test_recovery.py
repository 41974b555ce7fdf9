"""Whatever the moment of the crash, the recovered head is the lost one, bit for bit."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_makers import SPEC, applied, policy, write_segment
from learner_makers import settings as learner_settings

from global_learner.aggregation.base import ImmediateAggregator
from global_learner.errors import StateUnusable
from global_learner.recovery import recover
from global_learner.registry.registry import Registry
from global_learner.storage.snapshot import AdamState, Snapshot, write_snapshot
from global_learner.storage.state_dir import StateDir
from global_learner.storage.update_log import segment_name
from global_learner.storage.update_records import AppliedUpdate, UpdateKind, encode
from global_learner.updates.head import Head, due_publication
from global_learner.updates.ledger import Ledger
from policy_net.exchange.policy_file import parse_policy_file
from policy_net.exchange.spec import PolicySpec
from policy_net.learning.adam import AdamConstants

WINDOW = 256


def history(count: int):
    rng = np.random.default_rng(3)
    names, sequences = ("north", "south"), {"north": 0, "south": 0}
    for step in range(1, count + 1):
        name = names[rng.integers(2)]
        sequences[name] += 1
        yield applied(
            step,
            cluster=name,
            sequence=sequences[name],
            base_step=int(rng.integers(max(0, step - 4), step)),
            learning_rate=float(rng.uniform(0, 1e-2)),
        )


def recovered(folder: Path, **publish):
    config = learner_settings(folder, publish={"every_steps": 4, "average_decay": 0.5, **publish})
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path, state.commits)
        try:
            found = recover(state, registry, config, policy(), 0.0)
            versions = [(card.head_step, registry.policy_bytes(card.version)[1]) for card in registry.versions()]
        finally:
            registry.close()
    return found, versions


@pytest.mark.heavy
@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(0, 13),
    snapshot_at=st.integers(0, 13),
    segment_at=st.integers(2, 13),
    torn_bytes=st.integers(0, 200),
)
def test_snapshot_and_log_give_the_lost_head(tmp_path_factory, count, snapshot_at, segment_at, torn_bytes) -> None:
    folder = tmp_path_factory.mktemp("learner")
    recovered(folder)
    state_dir = folder / "state"
    head = Head(AdamState.start(policy().weights), Ledger(WINDOW), ImmediateAggregator(AdamConstants()), 0.5)
    expected_versions = []
    log: dict[int, list[AppliedUpdate]] = {1: []}
    records = list(history(count + 1))
    for record in records[:count]:
        head.apply(record)
        due = due_publication(head, 4, record.unix_seconds)
        if due is not None:
            expected_versions.append((due.head_step, due.weights.tobytes()))
        if record.step == segment_at:
            log[record.step] = []
        log[max(log)].append(record)
        if record.step == snapshot_at:
            snapshot = Snapshot(SPEC.digest, head.state.copy(), head.ledger.to_json(), {})
            registry = Registry(state_dir)
            for step, _ in expected_versions:
                weights = next(w for s, w in expected_versions if s == step)
                content = policy()
                content.weights[:] = np.frombuffer(weights, np.float32)
                registry.publish(content, step, 0.0, {}, 0.0, assign_all=False)
            registry.close()
            write_snapshot(state_dir / "snapshots", snapshot)
    # The crash: part of the next record was written and never acknowledged.
    encoded = encode(records[count])
    torn = encoded.head + bytes(encoded.gradient)
    for first, body in log.items():
        write_segment(state_dir / "log", first, body)
    with (state_dir / "log" / segment_name(max(log))).open("ab") as newest:
        newest.write(torn[: min(torn_bytes, len(torn) - 1)])

    for _ in range(2):  # recovering again changes nothing
        found, versions = recovered(folder)
        assert found.head.step == count
        assert found.head.weights.tobytes() == head.weights.tobytes()
        assert found.head.state.first_moment.tobytes() == head.state.first_moment.tobytes()
        assert found.head.state.second_moment.tobytes() == head.state.second_moment.tobytes()
        assert found.head.publishable.tobytes() == head.publishable.tobytes()
        assert json.dumps(found.head.ledger.to_json()) == json.dumps(head.ledger.to_json())
        assert [step for step, _ in versions] == [0, *(step for step, _ in expected_versions)]
        for (_, data), (_, weights) in zip(versions[1:], expected_versions, strict=True):
            assert parse_policy_file(data, "version").weights.tobytes() == weights


def test_a_missing_update_stops_the_recovery(tmp_path: Path) -> None:
    recovered(tmp_path)
    write_segment(tmp_path / "state" / "log", 1, [applied(1), applied(3)])
    with pytest.raises(StateUnusable, match="update 2 is missing"):
        recovered(tmp_path)


def test_a_state_of_another_spec_is_refused(tmp_path: Path) -> None:
    recovered(tmp_path)
    other = PolicySpec(jobs_per_batch=2, type_columns=1, hidden=(2,))
    config = learner_settings(tmp_path)
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path, state.commits)
        with pytest.raises(StateUnusable, match="use another state_dir"):
            recover(state, registry, config, policy(other), 0.0)
        registry.close()


def test_another_initial_policy_of_the_same_spec_does_not_change_the_head(tmp_path: Path) -> None:
    before, _ = recovered(tmp_path)
    config = learner_settings(tmp_path)
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path, state.commits)
        after = recover(state, registry, config, policy(seed=9), 0.0)
        registry.close()
    assert after.head.weights.tobytes() == before.head.weights.tobytes()


def test_a_second_learner_is_kept_out(tmp_path: Path) -> None:
    with StateDir(tmp_path / "state"), pytest.raises(StateUnusable, match="held by another learner"):
        StateDir(tmp_path / "state")
    StateDir(tmp_path / "state").close()


def test_a_second_learner_is_kept_out_although_the_lock_file_was_removed(tmp_path: Path) -> None:
    with StateDir(tmp_path / "state"):
        (tmp_path / "state" / "lock").unlink()
        with pytest.raises(StateUnusable, match="held by another learner"):
            StateDir(tmp_path / "state")
    StateDir(tmp_path / "state").close()


def test_a_file_in_the_directorys_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StateUnusable, match="cannot be used"):
        StateDir(tmp_path / "state")


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("snapshots/*.snapshot", r"damaged: its checksum is [0-9a-f]{8}, expected [0-9a-f]{8}; restore"),
        ("log/updates-00000000000000000001.log", "damaged|missing"),
    ],
)
def test_a_flipped_byte_stops_the_start_in_one_line_that_names_the_file(
    tmp_path: Path, pattern: str, says: str
) -> None:
    recovered(tmp_path)
    state = tmp_path / "state"
    head = Head(AdamState.start(policy().weights), Ledger(WINDOW), ImmediateAggregator(AdamConstants()), 0.5)
    for first, steps in ((1, (1, 2)), (3, (3,))):
        write_segment(state / "log", first, [applied(step) for step in steps])
    if "snapshots" in pattern:
        write_snapshot(state / "snapshots", Snapshot(SPEC.digest, head.state.copy(), head.ledger.to_json(), {}))
    (path,) = state.glob(pattern)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)
    with pytest.raises(StateUnusable, match=says) as caught:
        recovered(tmp_path)
    assert path.parent.name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_crash_before_a_policy_from_elsewhere_is_entered_costs_its_step_and_nothing_else(tmp_path: Path) -> None:
    found, versions = recovered(tmp_path / "usual")
    assert [step for step, _ in versions] == [0]
    nobody = dataclasses.replace(applied(4, cluster="ada"), kind=UpdateKind.PUBLISHED)
    written = [*history(3), nobody, *(dataclasses.replace(record, step=record.step + 4) for record in history(4))]
    recovered(tmp_path)
    write_segment(tmp_path / "state" / "log", 1, written)
    found, versions = recovered(tmp_path)
    # Step 4 is the version's that never came to be; at step 8 one of the head is due as usual.
    assert [step for step, _ in versions] == [0, 8]
    assert (found.head.step, found.head.ledger.published_step, found.head.state.idle_steps) == (8, 4, 1)
    assert "ada" not in found.head.ledger.clusters
