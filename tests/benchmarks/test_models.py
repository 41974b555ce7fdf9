"""Models for measurements have the size that they are asked for, and can be trained."""

import pytest
import torch

import elastic_runtime as elastic
from benchmarks.models import synthetic_data, synthetic_model


@pytest.mark.parametrize(("size_mb", "layers"), [(1.0, 1), (2.5, 8), (24.0, 8)])
def test_a_model_has_the_stated_size(size_mb: float, layers: int) -> None:
    model = synthetic_model(size_mb, layers)
    assert sum(p.numel() * p.element_size() for p in model.parameters()) == pytest.approx(size_mb * 1e6, rel=0.01)


def test_it_is_trained_without_growing_out_of_bounds() -> None:
    model = synthetic_model(0.5, layers=4)
    job = elastic.join(model, elastic.SGD(lr=1e-3), synthetic_data(model, 16), global_batch=4, epochs=3, environment={})
    for batch in job:
        inputs, targets = batch.data
        job.step(torch.nn.functional.mse_loss(model(inputs), targets))
    assert job.finished
