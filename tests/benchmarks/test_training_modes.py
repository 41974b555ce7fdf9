"""The comparison with plain DistributedDataParallel: both sides run, learn the same, and are timed."""

import json

import pytest

from benchmarks.training_modes import __main__ as command


@pytest.mark.long
def test_both_sides_run_and_learn_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["-o", "json", "--rounds", "1", "--steps", "150", "--global-batch", "64"]) == 0
    record = json.loads(capsys.readouterr().out)
    (run,) = record["runs"]
    assert run["ps_over_ddp_all"] == [run["ps_over_ddp"]]
    assert min(run["ps_steps_per_second"], run["ddp_steps_per_second"]) > 0
    assert abs(run["ps_loss"] - run["ddp_loss"]) < 0.2


@pytest.mark.parametrize("wrong", [["--rounds", "0"], ["--steps", "100"], ["--global-batch", "1"]])
def test_what_cannot_be_measured_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(wrong)
    assert stop.value.code == 2
