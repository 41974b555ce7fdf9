"""The examples of the documentation run as they stand; a minute of training is cut to seconds."""

import math
import runpy
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from docs_pages import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "gym_ppo.py"


@pytest.fixture
def example() -> Iterator[dict[str, Any]]:
    threads = torch.get_num_threads()
    yield runpy.run_path(str(EXAMPLE))
    torch.set_num_threads(threads)  # the example asks for one


@pytest.mark.long
def test_the_stock_agent_trains_and_is_judged(example: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    model = example["new_agent"](seed=0)
    judged: list[object] = []
    its = example["train"].__globals__
    before, its["SAY_SECONDS"] = its["mean_jct_hours"], 1e-6
    its["mean_jct_hours"] = lambda model: judged.append(model) or 12.0
    example["train"](model, seconds=600.0, steps=1)  # one collection of experience and one update
    its["mean_jct_hours"] = before
    assert judged, "nobody waits in silence"
    assert all(line.endswith(" s    12.00") for line in capsys.readouterr().out.splitlines())
    assert model.num_timesteps > 0
    hours = example["mean_jct_hours"](model, seeds=(1,))
    assert math.isfinite(hours)
    assert 0 < example["drf_jct_hours"](seeds=(1,)) < hours


def test_its_command_line_says_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gym_ppo.py", "--help"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert stop.value.code == 0
    assert "--seconds" in capsys.readouterr().out
