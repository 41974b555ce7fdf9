"""What the demo says of its canary stage is drawn from the blocks that the stage saw, and from no others."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from verdict_makers import blocks_of

from deploy.local.rollouts import RolloutEnd, canary_power
from global_learner.registry.registry import Registry
from global_learner.registry.tables import RolloutBlockRow
from global_learner.rollout.evidence_store import block_json
from global_learner.storage.state_dir import StateDir

END = RolloutEnd(1, 7, 1, "done", "done", "", (), 7, 60.0, ("north", "south"))


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learner")
    with (
        StateDir(folder) as state,
        closing(Registry(state.path, state.commits)) as registry,
        registry.transaction() as session,
    ):
        for rollout, cluster, pairs in ((1, "north", 8), (1, "south", 8), (1, "west", 2), (2, "north", 1)):
            for block in blocks_of(3, pairs, name=cluster):
                row = RolloutBlockRow(rollout=rollout, cluster=cluster, number=block.number, unix_seconds=0.0)
                row.block = block_json(block)
                session.add(row)
    return folder


@pytest.mark.heavy
def test_it_says_the_margin_and_how_likely_a_worse_version_is_stopped(learner: Path) -> None:
    power = canary_power(END, learner)
    assert power is not None
    assert power.pairs == 16
    assert power.worse.loss == 0.1
    assert f"10% worse would be stopped by its canary stage in {power.worse.stops:.0%} of 200 rollouts" in power.words
    assert "; its margin is 10%" in power.words
    found = power.to_json()
    assert (found["margin"], found["worse"]["stopped"]) == (0.1, power.worse.stops)
    assert power.least is not None
    assert power.least.stops >= 0.8
    assert found["least_loss_stopped_in_four_of_five"] == power.least.loss <= 0.1


@pytest.mark.heavy
def test_where_it_would_not_stop_it_it_says_what_it_would(learner: Path) -> None:
    power = canary_power(END, learner)
    assert power is not None
    weak = replace(power, worse=replace(power.worse, fails=0.1, asks=0.2), least=replace(power.worse, loss=0.5))
    assert "in 30% of 200 rollouts drawn from its 16 pairs of blocks (10% by a verdict, 20% without one" in weak.words
    assert f"), one 50% worse in {power.worse.stops:.0%}; its margin" in weak.words
    assert "), in 80% only one that is far worse; its margin" in replace(weak, least=None).words


def test_a_rollout_that_did_not_get_to_its_canaries_has_none(learner: Path) -> None:
    assert canary_power(replace(END, canaries=()), learner) is None
    assert canary_power(replace(END, number=2), learner) is None
