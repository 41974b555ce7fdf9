"""The example of elastic training learns its digits as it stands."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator

import pytest
import torch
from docs_pages import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "digits" / "train.py"


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)  # the example asks for one


def test_the_script_reaches_its_accuracy_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line[:8] for line in lines[:-1]] == [f"epoch {epoch:2d}" for epoch in range(1, 13)]
    said = re.fullmatch(r"alone: trained 276 steps  loss 0\.\d+  test loss 0\.\d+  test accuracy (0\.\d+)", lines[-1])
    assert said is not None, lines[-1]
    assert float(said[1]) >= 0.97
