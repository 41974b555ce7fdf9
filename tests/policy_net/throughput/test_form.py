import numpy as np
import pytest

from policy_net.domain import JobKind
from policy_net.throughput.form import FORMS


@pytest.mark.parametrize("kind", JobKind)
def test_every_term_is_one_at_the_smallest_allocation_and_the_priors_shape_adds_up_to_one(kind: JobKind) -> None:
    form = FORMS[kind]
    smallest = np.array([1.0 if kind.uses_ps else 0.0])
    assert form.features(smallest, np.array([1.0])).tolist() == [[1.0] * form.terms]
    assert sum(form.prior.shape) == pytest.approx(1)


@pytest.mark.parametrize("kind", JobKind)
def test_a_form_covers_exactly_the_allocations_with_which_its_kind_trains(kind: JobKind) -> None:
    form = FORMS[kind]
    assert form.shape == ((17, 17) if kind.uses_ps else (1, 65))
    covered = np.zeros(form.shape, dtype=bool)
    covered[form.cells] = True
    for ps, workers in np.ndindex(80, 80):
        within = ps < form.shape[0] and workers < form.shape[1]
        assert form.has_cell(ps, workers) == (within and bool(covered[ps, workers]))
    assert len(form.cell_features) == covered.sum()
    assert all(form.has_cell(*cell) for cell in form.prior.cells)


@pytest.mark.parametrize("kind", JobKind)
def test_the_parts_in_which_cells_are_calculated_are_all_cells_in_their_order(kind: JobKind) -> None:
    form = FORMS[kind]
    assert [part.stop for part in form.parts] == ([256] if kind.uses_ps else [16, 64])
    assert np.concatenate([form.cell_features[part] for part in form.parts]).tolist() == form.cell_features.tolist()
    assert form.cell_times(form.unseen_coefficients) == pytest.approx(form.cell_features @ form.unseen_coefficients)
