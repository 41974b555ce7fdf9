"""A script that joins no job trains as plain PyTorch does, on the batches of the job's order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import elastic_runtime as elastic
from elastic_runtime.model.data_shards import SampleOrder

torch.manual_seed(0)
DATA = (torch.randn(22, 5), torch.randint(0, 3, (22,)))


def _model() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def _join(model: nn.Module, optimizer: Any, **changes: Any) -> elastic.Job:
    arguments = {"data": DATA, "global_batch": 8, "epochs": 3, "seed": 5, "environment": {}, **changes}
    return elastic.join(model, optimizer, **arguments)


@pytest.mark.parametrize(
    ("rule", "make"),
    [
        (elastic.SGD(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
        (
            elastic.SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        ),
        (elastic.Adam(lr=0.01, amsgrad=True), lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True)),
        (elastic.AdamW(lr=0.01, betas=(0.8, 0.9)), lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.9))),
    ],
)
def test_the_result_is_that_of_a_plain_loop(rule: Any, make: Any) -> None:
    model, plain = _model(), _model()
    job = _join(model, rule)
    for batch in job:
        inputs, labels = batch.data
        job.step(cross_entropy(model(inputs), labels))
    assert job.finished
    optimizer = make(plain.parameters())
    order = SampleOrder(22, 8, 5, 3, smallest_slice=2)
    for step in range(9):
        chosen = torch.from_numpy(order.batch_indices(step).copy())
        optimizer.zero_grad()
        cross_entropy(plain(DATA[0][chosen]), DATA[1][chosen]).backward()
        optimizer.step()
    for (name, value), other in zip(model.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(value, other), name


def test_rates_follow_the_step_and_the_norm_is_clipped() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    rule = elastic.SGD(lr=1.0, lr_at={0: 1.0, 1: 0.5}, clip_norm=2.0)
    job = _join(model, rule, data=torch.ones(4, 1), global_batch=2, epochs=1)
    seen = []
    for batch in job:
        job.step(-100 * model(batch.data).mean())
        seen.append(model.weight.item())
    assert seen == pytest.approx([2.0, 3.0])


def test_an_asynchronous_script_trains_alone_with_its_workers_batch() -> None:
    model = _model()
    job = _join(model, elastic.SGD(lr=0.1), global_batch=None, worker_batch=4, epochs=1)
    sizes = []
    for batch in job:
        inputs, labels = batch.data
        job.step(cross_entropy(model(inputs), labels))
        sizes.append(batch.size)
    assert sizes == [4, 4, 4, 4, 4, 2]


def test_a_tensor_without_a_gradient_counts_as_zero() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    model = Half()
    job = _join(model, elastic.SGD(lr=0.1, weight_decay=0.5), data=torch.ones(2, 1), global_batch=2, epochs=1)
    for batch in job:
        job.step((model.used * batch.data).mean())
    assert model.unused.item() == pytest.approx(0.95)


def test_a_job_says_how_far_it_is() -> None:
    model = _model()
    job = _join(model, elastic.SGD(lr=0.1), prefetch=True)
    assert (job.mode, job.is_first, job.finished, job.global_step, job.total_steps) == ("alone", True, False, 0, 9)
    epochs = []
    for batch in job:
        assert (job.global_step, job.epoch) == (batch.step, batch.epoch)
        inputs, labels = batch.data
        job.step(cross_entropy(model(inputs), labels))
        if batch.ends_epoch:
            epochs.append(job.progress.epoch)
    assert epochs == [1.0, 2.0, 3.0]
    assert job.progress.samples == 66
    assert job.progress.samples_per_second > 0
    assert list(job) == []
