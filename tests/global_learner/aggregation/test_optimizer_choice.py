"""What a learner's section `optimizer` comes to where it leaves things open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from learner_makers import settings as learner_settings
from pydantic import ValidationError

from global_learner.aggregation.settings import (
    REPLAYED_DECAY_STEPS,
    REPLAYED_RATE,
    SPREADS_DECAY_STEPS,
    SPREADS_RATE,
    WEIGHTS_RATE,
    AggregationSettings,
    ChosenUnits,
    OptimizerChoice,
    OptimizerSettings,
    Units,
)
from policy_net.exchange.spec import PolicySpec, SetSpec

DL2, SET = PolicySpec(hidden=(2,)), SetSpec(prices=1, sessions=1)
UPSTREAM = {"address": "127.0.0.1:7", "name": "east"}
PRIVACY = {"clip_norm": 1.0, "noise_multiplier": 1.0}


def resolved(spec: PolicySpec | SetSpec, section: dict[str, Any], **aggregation: Any) -> OptimizerSettings:
    chosen = AggregationSettings.model_validate(aggregation)
    return OptimizerChoice.model_validate(section).resolved(spec, chosen, noisy=False)


def test_the_policys_kind_says_what_a_step_is_counted_in_and_how_long_it_is() -> None:
    lessons = resolved(DL2, {})
    assert (lessons.learning_rate, lessons.decay_steps) == (REPLAYED_RATE, REPLAYED_DECAY_STEPS)
    assert (lessons.units, lessons.radius_for(DL2)) == (Units.WEIGHTS, 0.0)
    assert resolved(DL2, {"units": "weights"}) == OptimizerSettings(), "as it has always been"
    alone = DL2.model_copy(update={"critic": False})
    assert resolved(alone, {"units": "weights"}) == lessons, "it learns from replays in any case"
    assert OptimizerChoice().resolved(DL2, AggregationSettings(), noisy=True) == OptimizerSettings()
    found = resolved(SET, {})
    assert (found.units, found.learning_rate, found.decay_steps) == (Units.SPREADS, SPREADS_RATE, SPREADS_DECAY_STEPS)
    assert resolved(SET, {"units": "spreads"}) == found
    assert resolved(SET, {"beta1": 0.5, "decay_steps": 7}).decay_steps == 7
    assert resolved(SET, {"beta1": 0.5}).beta1 == 0.5


@pytest.mark.parametrize("number", [{"learning_rate": 3e-4}, {"learning_rate": 0.0}, {"trust_radius": 0.2}])
def test_a_number_without_units_means_what_it_meant_when_there_were_no_others(number: dict[str, float]) -> None:
    found = resolved(SET, number)
    assert found.units is Units.WEIGHTS
    assert found == OptimizerSettings.model_validate({"learning_rate": WEIGHTS_RATE} | number)


def test_what_is_said_holds_and_what_is_not_said_beside_it_stays_out() -> None:
    assert resolved(SET, {"units": "weights"}) == OptimizerSettings()
    found = resolved(SET, {"units": "spreads", "learning_rate": 0.3})
    assert (found.units, found.learning_rate, found.decay_steps) == (Units.SPREADS, 0.3, None)
    assert resolved(DL2, {"units": "spreads"}).units is Units.SPREADS, "and is refused by whoever builds on it"


@pytest.mark.parametrize(
    ("aggregation", "units"),
    [
        ({"mode": "robust"}, Units.SPREADS),
        ({"mode": "buffered"}, Units.SPREADS),
        ({"mode": "buffered", "strategy": "FedAdam"}, Units.WEIGHTS),
        ({"mode": "buffered", "strategy": "FedAdam", "server_step": "adam"}, Units.SPREADS),
        ({"mode": "buffered", "server_step": "strategy"}, Units.WEIGHTS),
        ({"mode": "rounds"}, Units.WEIGHTS),
    ],
)
def test_where_a_strategy_takes_the_steps_there_are_no_spreads(aggregation: dict[str, Any], units: Units) -> None:
    assert resolved(SET, {}, **aggregation).units is units


def test_noise_walks_in_short_steps(tmp_path: Path) -> None:
    quiet, noisy = learner_settings(tmp_path), learner_settings(tmp_path, privacy=PRIVACY)
    assert (quiet.optimizer_for(SET).units, noisy.optimizer_for(SET).units) == (Units.SPREADS, Units.WEIGHTS)
    assert (quiet.only_replays(SET), noisy.only_replays(SET)) == (True, False)
    assert (quiet.only_replays(DL2), noisy.only_replays(DL2)) == (True, True)


def test_rounds_are_answered_live(tmp_path: Path) -> None:
    rounds = learner_settings(tmp_path, aggregation={"mode": "rounds"})
    assert (rounds.only_replays(SET), rounds.only_replays(DL2)) == (False, False)
    assert rounds.optimizer_for(DL2).learning_rate == WEIGHTS_RATE


def test_a_region_takes_what_the_learner_above_takes(tmp_path: Path) -> None:
    east = learner_settings(tmp_path, upstream=UPSTREAM)
    assert (east.only_replays(SET), east.only_replays(DL2)) == (True, True)
    assert east.optimizer_for(SET) == OptimizerSettings(), "it takes no steps, and its log is what it was"
    reported = learner_settings(tmp_path, upstream=UPSTREAM, optimizer={"units": "weights"})
    assert (reported.only_replays(SET), reported.only_replays(DL2)) == (False, False)
    assert reported.only_replays(DL2.model_copy(update={"critic": False})), "nobody above takes anything else"
    for section in ({"units": "spreads"}, {"units": "weights", "beta1": 0.5}):
        with pytest.raises(ValidationError, match="a region takes no steps"):
            learner_settings(tmp_path, upstream=UPSTREAM, optimizer=section)
    assert ChosenUnits.AUTO is OptimizerChoice().units
