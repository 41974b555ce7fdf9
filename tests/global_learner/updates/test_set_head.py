"""A learner whose policy is `set`: averaged, within a trust region, and the same again after a crash."""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_makers import settings as learner_settings
from learner_makers import update, write_segment

from global_learner.aggregation.base import ImmediateAggregator
from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import (
    AGGREGATION_NAME,
    SET_TRUST_RADIUS,
    SPREADS_RATE,
    SPREADS_TRUST_RADIUS,
    AggregationMode,
    AggregationSettings,
    OptimizerSettings,
    Units,
)
from global_learner.aggregation.settings import read_settings as read_logged_settings
from global_learner.errors import BadLearnerConfig
from global_learner.recovery import recover
from global_learner.registry.registry import Registry
from global_learner.settings import DL2_AVERAGE_DECAY, SET_AVERAGE_DECAY, PublishSettings, read_settings
from global_learner.storage.snapshot import AdamState, write_snapshot
from global_learner.storage.state_dir import StateDir
from global_learner.storage.update_records import AppliedUpdate
from global_learner.updates.head import Head
from global_learner.updates.ledger import Ledger
from policy_net.domain import JobKind
from policy_net.exchange.policy_file import PolicyFile, parse_policy_file
from policy_net.exchange.shipped import SHIPPED_FILES
from policy_net.exchange.spec import PolicySpec, SetSpec
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.learning.adam import AdamConstants, TrustRegion
from policy_net.set_policy.policy import DEFAULT_SET_FILE
from policy_net.set_policy.spreads import spreads_of

SPEC = SetSpec()
PRICED = SetSpec(prices=1, sessions=1)
PRIORS = (SpeedStatistic("vgg-16", JobKind.PS, 2, 3, 1.5, 7),)
FIRST = PolicyFile(
    SPEC, np.random.default_rng(0).normal(0, 0.3, SPEC.parameter_count).astype(np.float32), {"why": "a test"}, PRIORS
)


def applied(step: int, rate: float = 0.03) -> AppliedUpdate:
    gradient = np.random.default_rng(step).normal(size=SPEC.parameter_count).astype(np.float32)
    made = update(step, spec_digest=SPEC.digest, base_step=step - 1, gradient=gradient)
    return AppliedUpdate(step, rate, 1, 1_700_000_000.0 + step, made)


def head(radius: float) -> Head:
    region = TrustRegion.around(FIRST.weights, radius)
    state = AdamState.start(FIRST.weights)
    return Head(state, Ledger(256), ImmediateAggregator(AdamConstants()), SET_AVERAGE_DECAY, region)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.001, 1.0), st.integers(1, 40))
def test_the_head_never_leaves_its_trust_region_nor_does_the_average(radius: float, steps: int) -> None:
    moved = head(radius)
    for step in range(1, steps + 1):
        moved.apply(applied(step, rate=0.3))
        for weights in (moved.weights, moved.publishable):
            assert np.abs(weights - FIRST.weights).max() <= radius * (1 + 1e-5) + 1e-6


def test_radius_0_is_no_limit() -> None:
    assert TrustRegion.around(FIRST.weights, 0.0) is None
    free = head(0.0)
    for step in range(1, 30):
        free.apply(applied(step, rate=0.3))
    assert np.abs(free.weights - FIRST.weights).max() > 1.0


def test_set_is_averaged_and_bounded_unless_the_settings_say_otherwise_and_dl2_is_not() -> None:
    dl2 = PolicySpec(hidden=(2,))
    optimizer, publish = OptimizerSettings(), PublishSettings()
    assert (optimizer.radius_for(SPEC), optimizer.radius_for(dl2)) == (SET_TRUST_RADIUS, 0.0)
    assert (publish.decay_for(SPEC), publish.decay_for(dl2)) == (SET_AVERAGE_DECAY, 0.0)
    assert publish.decay_for(dl2, only_replays=True) == DL2_AVERAGE_DECAY
    assert OptimizerSettings(trust_radius=0.0).radius_for(SPEC) == 0.0
    assert OptimizerSettings(trust_radius=0.5).radius_for(dl2) == 0.5
    assert PublishSettings(average_decay=0.0).decay_for(SPEC) == 0.0


def test_in_spreads_the_head_moves_and_stays_in_what_each_parameter_has_to_move_to_be_noticed() -> None:
    optimizer = OptimizerSettings(units=Units.SPREADS)
    assert OptimizerSettings().units_for(SPEC) is None
    units = optimizer.units_for(PRICED)
    assert units is not None
    assert np.array_equal(units, spreads_of(PRICED))
    assert optimizer.radius_for(PRICED) == SPREADS_TRUST_RADIUS
    start = np.zeros(PRICED.parameter_count, dtype=np.float32)
    aggregator = build_aggregator(AggregationSettings(), optimizer, PRICED)
    moved = Head(AdamState.start(start), Ledger(256), aggregator, 0.0, TrustRegion.around(start, 0.5, units))
    slope = np.where(np.arange(start.size) % 2, 1.0, -1.0).astype(np.float32)
    for step in range(1, 8):
        made = update(step, spec_digest=PRICED.digest, base_step=step - 1, gradient=slope)
        moved.apply(AppliedUpdate(step, 0.1, 1, 1_700_000_000.0 + step, made))
        assert moved.weights == pytest.approx(-slope * units * min(0.1 * step, 0.5), rel=1e-3)


@pytest.mark.parametrize("mode", [AggregationMode.ASYNC, AggregationMode.BUFFERED, AggregationMode.ROBUST])
def test_a_policy_without_spreads_is_refused_in_one_line(mode: AggregationMode) -> None:
    with pytest.raises(BadLearnerConfig, match=r"optimizer\.units: spreads are of set policies, and this is dl2"):
        build_aggregator(
            AggregationSettings.model_validate({"mode": mode}),
            OptimizerSettings(units=Units.SPREADS),
            PolicySpec(hidden=(2,)),
        )


@pytest.mark.parametrize("aggregation", [{"mode": "rounds"}, {"mode": "buffered", "strategy": "FedAdam"}])
def test_who_leaves_the_steps_to_a_strategy_cannot_count_them_in_spreads(aggregation: dict[str, str]) -> None:
    with pytest.raises(BadLearnerConfig, match=r"optimizer\.units"):
        build_aggregator(AggregationSettings.model_validate(aggregation), OptimizerSettings(units=Units.SPREADS), SPEC)


@pytest.mark.parametrize("snapshot_at", [0, 3, 8])
def test_after_a_crash_the_head_is_the_lost_one_and_versions_have_the_priors(tmp_path: Path, snapshot_at: int) -> None:
    lost = head(SET_TRUST_RADIUS)
    config = learner_settings(tmp_path, publish={"every_steps": 4}, optimizer={"learning_rate": 0.03})
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path)
        try:
            recover(state, registry, config, FIRST, 0.0)
            records = [applied(step) for step in range(1, 9)]
            write_segment(state.log, 1, records, SPEC)
            for record in records:
                lost.apply(record)
                if record.step == snapshot_at:
                    write_snapshot(state.snapshots, lost.snapshot(SPEC.digest, {}))
            found = recover(state, registry, config, FIRST, 0.0)
            files = [registry.policy_bytes(card.version)[1] for card in registry.versions()]
        finally:
            registry.close()
    assert found.spec == SPEC
    assert found.head.step == 8
    assert found.head.weights.tobytes() == lost.weights.tobytes()
    assert found.head.publishable.tobytes() == lost.publishable.tobytes()
    assert parse_policy_file(files[0], "v1").priors == PRIORS


def test_a_smaller_region_takes_the_head_back_at_the_next_start(tmp_path: Path) -> None:
    wide = learner_settings(tmp_path, optimizer={"trust_radius": 1.0})
    narrow = learner_settings(tmp_path, optimizer={"trust_radius": 0.01})
    far = head(1.0)
    for step in range(1, 9):
        far.apply(applied(step))
    with StateDir(wide.state_dir) as state:
        registry = Registry(state.path)
        try:
            recover(state, registry, wide, FIRST, 0.0)
            write_snapshot(state.snapshots, far.snapshot(SPEC.digest, {}))
            found = recover(state, registry, narrow, FIRST, 0.0)
        finally:
            registry.close()
    assert np.abs(far.weights - FIRST.weights).max() > 0.02
    for weights in (found.head.weights, found.head.publishable):
        assert np.abs(weights - FIRST.weights).max() <= 0.01 + 1e-6


@pytest.mark.parametrize("snapshot_at", [0, 3])
@pytest.mark.parametrize("with_units", [True, False])
def test_a_state_of_when_steps_were_counted_in_weights_goes_on_in_spreads(
    tmp_path: Path, snapshot_at: int, with_units: bool
) -> None:
    """The copy of the settings as it was written then, of two forms, with its checksum; the log is taken as it was."""
    lost = head(SET_TRUST_RADIUS)
    before = {"learning_rate": 1e-4, "decay_steps": None, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
    before |= {"units": "weights", "trust_radius": None} if with_units else {"trust_radius": None}
    content = {"aggregation": AggregationSettings().model_dump(mode="json"), "optimizer": before}
    checksum = zlib.crc32(json.dumps(content, sort_keys=True).encode())
    config = learner_settings(tmp_path)
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path)
        try:
            recover(state, registry, config, FIRST, 0.0)
            (state.path / AGGREGATION_NAME).write_text(json.dumps({**content, "checksum": checksum}))
            records = [applied(step, rate=1e-4) for step in range(1, 6)]
            write_segment(state.log, 1, records, SPEC)
            for record in records:
                lost.apply(record)
                if record.step == snapshot_at:
                    write_snapshot(state.snapshots, lost.snapshot(SPEC.digest, {}))
            found = recover(state, registry, config, FIRST, 0.0)
            assert found.head.weights.tobytes() == lost.weights.tobytes()
            assert (found.head.step, found.head.state.moves) == (5, 0), "in spreads it has not moved yet"
            assert not found.head.state.second_moment.any()
            written = read_logged_settings(state.path)
            again = recover(state, registry, config, FIRST, 0.0)
        finally:
            registry.close()
    assert written is not None
    assert written[1] == config.optimizer_for(SPEC)
    assert written[1].units is Units.SPREADS
    assert again.head.weights.tobytes() == lost.weights.tobytes()
    assert again.head.state.moves == 0
    assert written[1].rate_at(again.head.state.moves) == SPREADS_RATE
    again.head.apply(applied(6, rate=0.1))
    moved = np.abs(again.head.weights - lost.weights) / spreads_of(SPEC)
    assert moved.max() > 0.05, "a step is longer than any of the old ones"


def test_a_configuration_names_the_shipped_policy_by_its_word(tmp_path: Path) -> None:
    config = tmp_path / "learner.yaml"
    config.write_text("state_dir: state\ninitial_policy: set\n")
    assert read_settings(config).initial_policy == DEFAULT_SET_FILE
    config.write_text("state_dir: state\ninitial_policy: set-taught\n")
    assert read_settings(config).initial_policy == SHIPPED_FILES["set-taught"]
    config.write_text("state_dir: state\ninitial_policy: mine/set\n")
    assert read_settings(config).initial_policy == tmp_path / "mine" / "set"


@pytest.mark.parametrize("mode", list(AggregationMode))
def test_every_mode_has_a_place_for_it(tmp_path: Path, mode: AggregationMode) -> None:
    aggregation = AggregationSettings(mode=mode, buffer=3).model_dump(mode="json")
    config = learner_settings(tmp_path, aggregation=aggregation)
    with StateDir(config.state_dir) as state:
        registry = Registry(state.path)
        try:
            assert recover(state, registry, config, FIRST, 0.0).spec == SPEC
        finally:
            registry.close()
