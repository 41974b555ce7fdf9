"""The fleet of `benchmarks.learning`: a learner and nine agents as processes, one of which is bad."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning.fleet import RunSettings, run_fleet
from benchmarks.learning.worlds import BAD, PUSHING
from policy_net.dl2.network import initial_weights
from policy_net.exchange.policy_file import PolicyFile, write_policy_file
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.training.settings import Dl2Settings


@pytest.mark.heavy
def test_clusters_teach_and_the_silent_one_does_not(tmp_path: Path) -> None:
    spec = Dl2Settings().spec(MODEL_NAMES)
    start = initial_weights(spec, 0)
    write_policy_file(tmp_path / "v1.safetensors", PolicyFile(spec, start, {}))
    steps: list[int] = []
    settings = RunSettings(seed=0, updates=4 * len(PUSHING), attack="opposite")
    result = run_fleet(tmp_path / "run", tmp_path / "v1.safetensors", settings, steps.append)
    assert sum(result.updates.values()) >= 4 * len(PUSHING)
    assert BAD in result.updates
    assert set(result.updates) <= set(PUSHING)
    assert steps == sorted(steps)
    assert not np.array_equal(result.final.weights, start)
    log = (tmp_path / "run" / f"{BAD}.log").read_text()
    assert "Traceback" not in log
