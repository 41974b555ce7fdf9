"""The version that the demo makes worse on purpose: an ordinary one, but for what it believes."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from deploy.local.rollouts import made_worse, publish_worse
from global_learner.registry.registry import Registry
from global_learner.scores.replay_set import REPLAYS
from global_learner.scores.scoring import average_jct
from global_learner.storage.state_dir import StateDir
from policy_net.exchange.policy_file import PolicyFile, parse_policy_file, write_policy_file
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.policy import default_set_file

SHIPPED = default_set_file()


def test_it_has_the_same_spec_and_weights_and_false_beliefs_of_every_type() -> None:
    entry = SHIPPED.priors[0]
    own = SpeedStatistic("own-type", entry.kind, entry.ps, entry.workers, 3.0, 5)
    worse = made_worse(PolicyFile(SHIPPED.spec, SHIPPED.weights, {}, (own,)))
    assert worse.spec == SHIPPED.spec
    assert np.array_equal(worse.weights, SHIPPED.weights)
    assert {row.job_type for row in worse.priors} == {"own-type", *(row.job_type for row in SHIPPED.priors)}
    speeds = {(row.ps, row.workers): row.mean_log_speed for row in worse.priors if row.job_type == "own-type"}
    assert all(speeds[split] - speeds[split[0], split[1] - 1] == 1.0 for split in speeds if split[1] > 1)


@pytest.mark.heavy
def test_it_is_much_worse(tmp_path: Path) -> None:
    good, worse = tmp_path / "good.safetensors", tmp_path / "worse.safetensors"
    write_policy_file(good, SHIPPED)
    write_policy_file(worse, made_worse(SHIPPED))
    workload, environment = REPLAYS[1].world()
    assert average_jct(str(worse), workload, environment) > 2.0 * average_jct(str(good), workload, environment)


def test_it_follows_the_newest_version_and_says_what_it_is(tmp_path: Path) -> None:
    with StateDir(tmp_path) as state, closing(Registry(state.path, state.commits)) as registry:
        for step in (0, 10):
            registry.publish(SHIPPED, step, 1000.0 + step, {}, 0.0, assign_all=False)
    assert publish_worse(tmp_path) == (2, 3)
    with StateDir(tmp_path) as state, closing(Registry(state.path, state.commits)) as registry:
        card, data = registry.policy_bytes(3)
        assert (card.parent, card.spec_digest) == (2, SHIPPED.spec.digest)
        assert card.head_step == 9, "a step that the log has, also if it ends at the newest version's"
        assert card.details.notes == "v2 made worse on purpose"
        assert parse_policy_file(data, "v3").priors == made_worse(SHIPPED).priors
