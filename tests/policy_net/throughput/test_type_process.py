import numpy as np
import pytest
from beliefs_reports import seen

from policy_net.domain import JobKind
from policy_net.throughput.form import FORMS, SIDE
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs, TypeProcess
from policy_net.throughput.parametric import OnlineFit

CELLS = [(1, 1), (2, 1), (1, 4), (4, 4)]


def test_a_process_of_what_another_model_was_shown_is_as_if_it_had_seen_it_itself() -> None:
    fit, process = OnlineFit(), GaussianProcessBeliefs()
    for beliefs in (fit, process):
        beliefs.observe([seen(*cell, speed=50.0 + cell[0]) for cell in CELLS])
    shown = fit.beliefs_by_type()["a"]
    assert TypeProcess.on(shown).grid() == pytest.approx(process.grid("a"))
    TypeProcess.on(shown).cells[1, 1].samples = 0.0
    assert shown.cells[1, 1].samples > 0.0


@pytest.mark.parametrize("kind", JobKind)
def test_only_the_forms_own_cells_are_on_the_grid(kind: JobKind) -> None:
    process = TypeProcess(FORMS[kind])
    mean, sd = process.posterior()
    grid = process.on_grid(np.ones_like(mean))
    assert grid.shape == (SIDE, SIDE)
    assert grid.sum() == len(mean) == len(sd)
    assert all(grid[cell] == process.form.has_cell(*cell) for cell in np.ndindex(grid.shape))


def test_of_a_type_of_which_nothing_was_seen_nothing_much_is_expected() -> None:
    process = TypeProcess(FORMS[JobKind.PS])
    mean, _ = process.posterior()
    assert process.grid() == pytest.approx(process.on_grid(np.exp(mean)))
