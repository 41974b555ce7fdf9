"""A script trains the same alone, as torchrun starts it, and elastic; or the same line refuses it in all three."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from forks import Forks
from modes import MODES, Run
from script import STEPS_LEFT_AT

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]


class Runs:
    """Runs of the script; each case is run once in each mode."""

    def __init__(self, forks: Forks, folder: Path) -> None:
        self._forks, self._folder = forks, folder
        self._known: dict[tuple[str, str], Run] = {}

    def of(self, case: str, mode: str) -> Run:
        if (case, mode) not in self._known:
            folder = self._folder / f"{case}-{mode}"
            folder.mkdir()
            self._known[case, mode] = MODES[mode](self._forks, folder, case)
        return self._known[case, mode]


@pytest.fixture(scope="session")
def runs(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(forks, tmp_path_factory.mktemp("parity"))


def assert_same(run: Run, other: Run) -> None:
    assert run.weights is not None, run.output
    assert other.weights is not None, other.output
    for name, value in other.weights.items():
        torch.testing.assert_close(run.weights[name], value, rtol=1e-9, atol=1e-11, msg=name)


def assert_trained(run: Run, steps: int) -> None:
    """To its end, so that it was saved; in an elastic job the checkpoint holds the same."""
    assert run.ended_well, run.output
    assert all(note["finished"] and note["step"] == steps for note in run.notes), run.notes
    assert run.weights is not None
    if run.checkpoint is not None:
        step, weights = run.checkpoint
        assert step == steps
        assert all(torch.equal(weights[name], value) for name, value in run.weights.items())


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_trains_the_same(runs: Runs, mode: str) -> None:
    run = runs.of("plain", mode)
    assert_trained(run, 18)
    assert_same(run, runs.of("plain", "alone"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", ["halves_then_step", "halves_of_its_own"])
def test_gradients_that_a_script_accumulates_count_as_those_of_one_loss(runs: Runs, case: str, mode: str) -> None:
    run = runs.of(case, mode)
    assert_trained(run, 18)
    assert_same(run, runs.of("plain", "alone"))


@pytest.mark.parametrize("mode", MODES)
def test_a_hook_that_only_looks_at_gradients_may(runs: Runs, mode: str) -> None:
    run = runs.of("hook_that_looks", mode)
    assert_trained(run, 18)
    assert_same(run, runs.of("plain", "alone"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", ["left_after_a_step", "left_before_a_step", "left_by_one", "ended_by_one"])
def test_a_loop_that_is_left_ends_the_job_with_what_was_trained(runs: Runs, case: str, mode: str) -> None:
    run = runs.of(case, mode)
    assert_trained(run, STEPS_LEFT_AT)
    assert_same(run, runs.of("steps", "alone"))


@pytest.mark.parametrize("mode", MODES)
def test_a_job_of_so_many_steps_ends_with_them(runs: Runs, mode: str) -> None:
    run = runs.of("steps", mode)
    assert_trained(run, STEPS_LEFT_AT)
    assert_same(run, runs.of("steps", "alone"))
    assert [step for step, ends in run.notes[0]["steps"] if ends] == [5, STEPS_LEFT_AT - 1]


@pytest.mark.parametrize("mode", ["alone", "elastic"])
def test_an_asynchronous_job_ends_where_a_loop_is_left(runs: Runs, mode: str) -> None:
    run = runs.of("left_asynchronously", mode)
    assert run.ended_well, run.output
    assert all(note["finished"] and STEPS_LEFT_AT <= note["step"] < 6000 for note in run.notes), run.notes
    assert run.weights is not None
    if run.checkpoint is not None:  # it may hold updates that others had in hand when this process had its last values
        assert run.checkpoint[0] >= run.notes[0]["step"]


@pytest.mark.parametrize("mode", ["alone", "elastic"])
def test_an_asynchronous_job_of_so_many_updates_ends_with_them(runs: Runs, mode: str) -> None:
    run = runs.of("asynchronous_steps", mode)
    assert_trained(run, STEPS_LEFT_AT)
    assert sum(sum(note["steps"]) for note in run.notes) == 44 + 8  # an epoch of six batches, and one of the next


@pytest.mark.parametrize("mode", MODES)
def test_what_is_evaluated_after_synchronizing_is_the_model_of_this_step(runs: Runs, mode: str) -> None:
    run, wanted = runs.of("evaluated", mode), runs.of("evaluated", "alone")
    assert_trained(run, 18)
    for notes in run.notes:
        for (step, loss), (same_step, same_loss) in zip(notes["evaluated"], wanted.notes[0]["evaluated"], strict=True):
            assert (step, loss) == (same_step, pytest.approx(same_loss, rel=1e-9))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("case", "line"),
    [
        ("clamped", r"BadInput: parameter '0\.weight' was written by the script after step 2"),
        ("clamped_by_data", r"BadInput: parameter '0\.weight' was written by the script after step 2"),
        ("loaded", r"BadInput: parameter '0\.weight' was written by the script after step 3"),
        ("loaded_before_the_loop", r"BadInput: parameter '0\.weight' was written by the script before the first step"),
        ("gradients_clipped", r"BadInput: the gradient of parameter '0\.weight' was changed after backward\(\)"),
        (
            "gradients_clipped_by_data",
            r"BadInput: the gradient of parameter '0\.weight' was changed after backward\(\)",
        ),
        ("hook_that_changes", r"BadInput: a hook of the script's changes the gradient of parameter '0\.weight'"),
        (
            "hook_that_changes_in_place",
            r"BadInput: a hook of the script's changes the gradient of parameter '0\.weight'",
        ),
        ("hook_once_accumulated", r"BadInput: parameter '0\.weight' has a hook of the script's that runs once"),
        ("checkpoints_that_share", r"BadInput: parameter '\d\.(weight|bias)' got its gradient in two parts"),
        ("gradients_left_over", r"BadInput: parameter '0\.weight' has a gradient before the batch of step 1"),
        ("backward_twice", r"BadInput: the loss of step 0 went through backward\(\) already"),
        ("left_and_entered_again", r"BadInput: the loop over the job's batches was left after step 5"),
    ],
)
def test_what_would_train_wrongly_is_refused_by_the_same_line(runs: Runs, case: str, line: str, mode: str) -> None:
    run = runs.of(case, mode)
    assert not run.ended_well
    assert re.search(line, run.output), run.output
    assert run.weights is None


@pytest.mark.parametrize("mode", MODES)
def test_bad_input_before_joining_ends_the_script_with_its_line(runs: Runs, mode: str) -> None:
    run = runs.of("bad_before_joining", mode)
    assert not run.ended_well
    assert run.output.count("BadInput: lr_at: warm_up_steps 5 leaves nothing of total_steps 5") >= 1
    assert mode != "elastic" or "worker-2" not in run.output  # nobody tried again
