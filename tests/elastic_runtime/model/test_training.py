"""What a script chose travels as it is, and what cannot be is said in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_runtime.errors import BadInput
from elastic_runtime.model.optimizers import SGD, Adam, AdamW, CosineRate, PiecewiseRate
from elastic_runtime.model.training import Training


def _training(**changes: Any) -> Training:
    return Training(**{"optimizer": SGD(lr=0.1), "samples": 100, "global_batch": 10, "epochs": 2, **changes})


@given(
    optimizer=st.sampled_from(
        [
            SGD(lr=0.1, momentum=0.9, nesterov=True, clip_norm=1.0),
            Adam(lr=0.01, betas=(0.8, 0.99), amsgrad=True),
            AdamW(lr_at=CosineRate(total_steps=10, warm_up_steps=2)),
            SGD(lr=0.1, lr_at=PiecewiseRate({5: 0.01})),
        ]
    ),
    samples=st.integers(10, 10**12),
    global_batch=st.integers(1, 10),
    epochs=st.integers(1, 10**6),
    seed=st.integers(0, 2**64 - 1),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    buffer_merge_steps=st.integers(1, 1000),
    worker_batch=st.none() | st.integers(1, 10),
)
def test_it_comes_back_as_it_was(worker_batch: int | None, **chosen: Any) -> None:
    training = Training(**chosen, worker_batch=worker_batch, synchronous=worker_batch is None)
    assert Training.from_json(training.to_json()) == training
    assert Training.from_json(training.to_json()).to_json() == training.to_json()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "sgd"}, "optimizer is 'sgd'; give elastic_runtime's SGD, Adam or AdamW"),
        ({"epochs": 0}, "epochs is 0; give a whole number of at least 1"),
        ({"global_batch": 2.5}, "global_batch is 2.5; give a whole number"),
        ({"epochs": True}, "epochs is True"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"shuffle": "no"}, "shuffle is 'no'; give True or False"),
        ({"worker_batch": 4}, "worker_batch is for asynchronous training"),
        ({"synchronous": False}, "worker_batch is None"),
        ({"min_worker_batch": 11}, "smallest_slice is 11, more than the global batch of 10"),
        ({"samples": 101, "min_worker_batch": 2}, r"last batch has 1 of the 2 samples .* set drop_last"),
        ({"samples": 9, "drop_last": True}, "no step is left"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as raised:
        _training(**changes)
    assert "\n" not in str(raised.value)


def test_a_short_last_batch_may_be_left_out() -> None:
    assert _training(samples=101, min_worker_batch=2, drop_last=True).order().steps_per_epoch == 10


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        json.dumps({"format": 2}).encode(),
        _training().to_json().replace(b'"epochs":2', b'"epochs":"2"'),
        _training().to_json().replace(b'"epochs":2', b'"epochs":2,"more":1'),
        _training().to_json().replace(b'"epochs":2,', b""),
        _training().to_json().replace(b'"lr":0.1', b'"lr":NaN'),
        _training().to_json().replace(b'"kind":"sgd"', b'"kind":"lion"'),
        _training().to_json()[:-5],
    ],
)
def test_what_is_no_training_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput) as raised:
        Training.from_json(data)
    assert "\n" not in str(raised.value)


def test_a_difference_is_named() -> None:
    assert _training().difference(_training()) == ""
    assert _training().difference(_training(seed=3)) == "seed is 0 here and 3 there"
    assert "lr=0.2" in _training().difference(_training(optimizer=SGD(lr=0.2)))
