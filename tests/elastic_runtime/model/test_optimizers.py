"""A user's choice of optimizer: checked at once, and the same on the other side."""

import json
import math

import pytest

from elastic_runtime.errors import BadInput
from elastic_runtime.model.optimizers import SGD, Adam, AdamW, CosineRate, Optimizer, PiecewiseRate, from_json, to_json

CHOICES: list[Optimizer] = [
    SGD(lr=1),
    SGD(0.1, momentum=0.9, dampening=0.1, weight_decay=1e-4, clip_norm=1.0),
    SGD(0.1, momentum=0.9, nesterov=True, lr_at={0: 0.1, 10: 0.01}),
    Adam(),
    Adam(lr=0.01, betas=(0.5, 0.9), eps=1e-6, amsgrad=True, lr_at=CosineRate(100, warm_up_steps=10)),
    AdamW(lr_at=PiecewiseRate({5: 0.1}, warm_up_steps=3)),
]


@pytest.mark.parametrize("optimizer", CHOICES, ids=repr)
def test_an_optimizer_survives_json(optimizer: Optimizer) -> None:
    assert from_json(json.loads(json.dumps(to_json(optimizer)))) == optimizer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "lamb"}, "optimizer is of kind 'lamb'; known are sgd, adam, adamw"),
        ({"kind": None}, "of kind None"),
        ({"lr": -1}, "Adam: lr is -1; it must be at least 0"),
        ({"lr": math.nan}, "Adam: lr is nan"),
        ({"lr": "0.1"}, "Adam: lr is '0.1'"),
        ({"lr": True}, "Adam: lr is True"),
        ({"betas": [0.9]}, "betas"),
        ({"betas": [0.9, 1.0]}, "betas"),
        ({"eps": -1}, "eps"),
        ({"amsgrad": 1}, "amsgrad is 1"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"clip_norm": 0}, "clip_norm is 0"),
        ({"momentum": 0.9}, "optimizer has unknown fields: momentum"),
        ({"lr_at": 3}, "lr_at is of kind None"),
        ({"lr_at": {"kind": "cosine"}}, "lacks"),
        ({"lr_at": {"kind": "cosine", "total_steps": 5, "warm_up_steps": 5, "final_lr": 0}}, "leaves nothing"),
        ({"lr_at": {"kind": "piecewise", "rates": [], "warm_up_steps": 0}}, "names no step"),
        ({"lr_at": {"kind": "piecewise", "rates": [[1, 2], [1, 3]], "warm_up_steps": 0}}, "two rates"),
        ({"lr_at": {"kind": "piecewise", "rates": [[-1, 2]], "warm_up_steps": 0}}, "whole number"),
        ({"lr_at": {"kind": "piecewise", "rates": [3], "warm_up_steps": 0}}, "no pair|not a pair"),
        ({"lr_at": {"kind": "piecewise", "rates": 3, "warm_up_steps": 0}}, "rates is 3"),
    ],
)
def test_what_cannot_be_is_refused_by_name(change: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        from_json(to_json(Adam()) | change)


def test_a_missing_field_and_no_object_are_refused() -> None:
    plain = to_json(SGD(0.1))
    del plain["momentum"]
    with pytest.raises(BadInput, match="optimizer lacks momentum"):
        from_json(plain)
    with pytest.raises(BadInput, match="kind None"):
        from_json([1])


@pytest.mark.parametrize("options", [{"nesterov": True}, {"nesterov": True, "momentum": 0.9, "dampening": 0.1}])
def test_nesterov_without_its_momentum_is_refused(options: dict) -> None:
    with pytest.raises(BadInput, match="nesterov"):
        SGD(0.1, **options)
    with pytest.raises(BadInput, match="lr_at"):
        SGD(0.1, lr_at=lambda step: 0.1)


def test_rates_by_step() -> None:
    piecewise = SGD(1.0, lr_at={10: 0.5, 20: 0.25})
    assert [piecewise.lr_for(step) for step in (0, 9, 10, 19, 20, 10**6)] == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    warm = SGD(1.0, lr_at=PiecewiseRate({0: 0.8}, warm_up_steps=4))
    assert [warm.lr_for(step) for step in (0, 1, 3, 4)] == pytest.approx([0.2, 0.4, 0.8, 0.8])
    cosine = SGD(1.0, lr_at=CosineRate(14, warm_up_steps=4, final_lr=0.2))
    assert [cosine.lr_for(step) for step in (0, 3, 4, 9, 14, 99)] == pytest.approx([0.25, 1.0, 1.0, 0.6, 0.2, 0.2])
    assert SGD(0.3).lr_for(7) == 0.3
