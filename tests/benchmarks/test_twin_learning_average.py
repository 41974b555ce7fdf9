"""The mean of trainings that differ in their seed: its weights, its card, and what is no such training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.twin_learning.__main__ import main, start_file
from benchmarks.twin_learning.fleet import mean_of
from foundation.errors import DONE
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile, read_policy_file, write_policy_file
from policy_net.exchange.shipped import shipped_file
from policy_net.exchange.spec import SET_TAUGHT


def training(seed: int | None, shift: float, **card: Any) -> PolicyFile:
    start = start_file()
    reported = {"clusters": ["east"], "updates": 2, **({} if seed is None else {"seed": seed}), **card}
    return PolicyFile(start.spec, start.weights + np.float32(shift), reported, start.priors)


def test_weights_are_the_mean_and_the_card_has_all_seeds(tmp_path: Path) -> None:
    files = []
    for seed, shift in ((3, 0.5), (0, -0.25), (1, 0.5)):
        files.append(tmp_path / f"seed{seed}.safetensors")
        write_policy_file(files[-1], training(seed, shift))
    out = tmp_path / "mean.safetensors"
    command = ["--data", str(tmp_path), "--write", str(out), "--average", *map(str, files)]
    assert main(command) == DONE
    made = read_policy_file(out)
    assert made.weights == pytest.approx(start_file().weights + 0.25, abs=1e-6)
    assert made.card == {"clusters": ["east"], "updates": 2, "seeds": [3, 0, 1]}
    assert (made.spec, made.priors) == (start_file().spec, start_file().priors)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([training(0, 0.0)], "two files or more"),
        ([training(0, 0.0), training(0, 1.0)], "the seeds are 0, 0"),
        ([training(None, 0.0), training(0, 1.0)], "the seeds are None, 0"),
        ([training(0, 0.0), training(1, 1.0, updates=3)], "differ in more than their seed"),
        ([training(0, 0.0), replace(training(1, 1.0), priors=())], "differ in more than their seed"),
    ],
)
def test_what_is_no_such_training_is_refused(files: list[PolicyFile], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        mean_of(files)


def test_what_ships_is_the_mean_of_five() -> None:
    assert shipped_file(SET_TAUGHT).card["seeds"] == [0, 1, 2, 3, 4]
