import numpy as np
import pytest

from policy_net.domain import JobKind
from policy_net.throughput.form import FORMS, SIDE


@pytest.mark.parametrize("kind", JobKind)
def test_every_term_is_one_at_the_smallest_allocation_and_the_priors_shape_adds_up_to_one(kind: JobKind) -> None:
    form = FORMS[kind]
    smallest = np.array([1.0 if kind.uses_ps else 0.0])
    assert form.features(smallest, np.array([1.0])).tolist() == [[1.0] * form.terms]
    assert sum(form.prior.shape) == pytest.approx(1)


@pytest.mark.parametrize("kind", JobKind)
def test_a_form_covers_exactly_the_allocations_with_which_its_kind_trains(kind: JobKind) -> None:
    form = FORMS[kind]
    covered = np.zeros((SIDE, SIDE), dtype=bool)
    covered[form.cells] = True
    for ps, workers in np.ndindex(SIDE, SIDE):
        assert covered[ps, workers] == form.has_cell(ps, workers)
    assert not form.has_cell(1, SIDE)
    assert len(form.cell_features) == covered.sum()
    assert all(form.has_cell(*cell) for cell in form.prior.cells)
