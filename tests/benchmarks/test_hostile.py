"""The benchmark of a learner under attack, as it is run: its figures are there, and honest clusters are among them."""

from __future__ import annotations

import json

import pytest

from benchmarks.hostile.__main__ import main
from benchmarks.hostile.attackers import slow_signing_request
from global_learner.enrollment.authority import requested_key
from global_learner.errors import BadRequest

FIGURES = {"name", "applied_share", "p99_ratio", "operator_max_seconds", "memory_ratio"}


@pytest.mark.long
@pytest.mark.parametrize("attack", ["slow-readers", "csr-flood"])
def test_an_attack_is_measured(attack: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--attacks", attack, "--rounds", "1", "--seconds", "1", "-o", "json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["attacks"]
    assert result["name"] == attack
    assert set(result) >= FIGURES
    assert all(result[name] > 0.0 for name in FIGURES - {"name"})
    assert result["outcomes"]["applied"] > 0


def test_the_slow_signing_request_is_a_request_that_is_refused_for_its_key() -> None:
    with pytest.raises(BadRequest, match="key is taken on"):
        requested_key(slow_signing_request(0))
