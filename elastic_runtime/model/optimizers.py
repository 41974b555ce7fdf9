"""The optimizer that a user chooses, with its learning rates; the parameter servers run it.

Names, defaults and meaning are those of `torch.optim`, so that a script's choice can be carried over as it stands.
`clip_norm` and `lr_at` stand for `torch.nn.utils.clip_grad_norm_` and a learning-rate scheduler, neither of which a
worker can run itself: it has no gradient of the whole batch. A schedule is plain data that travels to the servers; it
is asked for the rate of step `t`, where `t` counts the steps applied before it (the first step is 0).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, ClassVar, TypeVar, cast

from elastic_runtime.errors import BadInput
from elastic_runtime.model.plain_fields import require_finite, require_object, require_whole

_T = TypeVar("_T")


@dataclass(frozen=True)
class PiecewiseRate:
    """Constant between given steps: `PiecewiseRate({0: 0.1, 30_000: 0.01})`.

    Attributes:
        rates: from which step on (≥ 0) which rate (≥ 0) holds; before the first the optimizer's own `lr` does. A
            mapping is taken too; kept sorted by step.
        warm_up_steps: over so many first steps the rate rises linearly to what it would be otherwise.

    Raises:
        BadInput: no rate, a negative or repeated step, or a rate that is negative or not finite.
    """

    rates: tuple[tuple[int, float], ...] | Mapping[int, float]
    warm_up_steps: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.rates, Mapping | tuple | list):
            raise BadInput(f"lr_at: rates is {self.rates!r}; give a mapping {{step: rate}}")
        pairs = tuple(self.rates.items()) if isinstance(self.rates, Mapping) else tuple(self.rates)
        if not pairs:
            raise BadInput("lr_at: a piecewise schedule names no step; give at least one, such as {0: 0.1}")
        cleaned = []
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise BadInput(f"lr_at: {pair!r} is not a pair of a step and a rate")
            cleaned.append((require_whole("lr_at: step", pair[0], 0), require_finite("lr_at: rate", pair[1], 0.0)))
        cleaned.sort()
        for before, after in pairwise(cleaned):
            if before[0] == after[0]:
                raise BadInput(f"lr_at: step {after[0]} has two rates; leave one")
        object.__setattr__(self, "rates", tuple(cleaned))
        require_whole("lr_at: warm_up_steps", self.warm_up_steps, 0)

    def rate(self, step: int, lr: float) -> float:
        """The rate of this step, where `lr` is the optimizer's own."""
        rates = cast(tuple[tuple[int, float], ...], self.rates)
        place = bisect_right(rates, (step, math.inf))
        return _warmed(rates[place - 1][1] if place else lr, step, self.warm_up_steps)


@dataclass(frozen=True)
class CosineRate:
    """Half a cosine from the optimizer's `lr` to `final_lr`, after a linear warm-up; `final_lr` from then on.

    Source: Loshchilov & Hutter 2017 (SGDR), one cycle. With `final_lr` equal to `lr` it is a warm-up and no more.

    Attributes:
        total_steps: when `final_lr` is reached, warm-up included.
        warm_up_steps: over so many first steps the rate rises linearly to `lr`.

    Raises:
        BadInput: `total_steps` not above `warm_up_steps`, or a value that is negative or not finite.
    """

    total_steps: int
    warm_up_steps: int = 0
    final_lr: float = 0.0

    def __post_init__(self) -> None:
        require_whole("lr_at: total_steps", self.total_steps, 1)
        require_whole("lr_at: warm_up_steps", self.warm_up_steps, 0)
        object.__setattr__(self, "final_lr", require_finite("lr_at: final_lr", self.final_lr, 0.0))
        if self.warm_up_steps >= self.total_steps:
            raise BadInput(
                f"lr_at: warm_up_steps {self.warm_up_steps} leaves nothing of total_steps {self.total_steps}; lower it"
            )

    def rate(self, step: int, lr: float) -> float:
        """The rate of this step, where `lr` is the optimizer's own."""
        if step < self.warm_up_steps:
            return _warmed(lr, step, self.warm_up_steps)
        if step >= self.total_steps:
            return self.final_lr
        done = (step - self.warm_up_steps) / (self.total_steps - self.warm_up_steps)
        return self.final_lr + (lr - self.final_lr) * (1.0 + math.cos(math.pi * done)) / 2.0


Schedule = PiecewiseRate | CosineRate


def _warmed(rate: float, step: int, warm_up_steps: int) -> float:
    return rate * (step + 1) / warm_up_steps if step < warm_up_steps else rate


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """What all optimizers have.

    Attributes:
        clip_norm: the global norm that gradients are scaled down to; None never scales.
        lr_at: learning rate by step; None keeps `lr`. A mapping {step: rate} is a `PiecewiseRate`.
    """

    kind: ClassVar[str]

    clip_norm: float | None = None
    lr_at: Schedule | Mapping[int, float] | None = None

    def _check(self, name: str, least: float = 0.0, below: float = float("inf")) -> None:
        value = require_finite(f"{type(self).__name__}: {name}", getattr(self, name), least, below)
        object.__setattr__(self, name, value)

    def _check_flag(self, name: str) -> None:
        if not isinstance(getattr(self, name), bool):
            raise BadInput(f"{type(self).__name__}: {name} is {getattr(self, name)!r}; give True or False")

    def _check_common(self) -> None:
        for name in ("lr", "weight_decay"):
            self._check(name)
        if self.clip_norm is not None:
            self._check("clip_norm")
            if self.clip_norm == 0.0:
                raise BadInput(f"{type(self).__name__}: clip_norm is 0, which stops training; None is no clipping")
        if isinstance(self.lr_at, Mapping):
            object.__setattr__(self, "lr_at", PiecewiseRate(self.lr_at))
        if self.lr_at is not None and not isinstance(self.lr_at, PiecewiseRate | CosineRate):
            raise BadInput(
                f"{type(self).__name__}: lr_at is {self.lr_at!r}; give a mapping {{step: rate}} or a CosineRate"
            )

    def lr_for(self, step: int) -> float:
        """The learning rate of a step; the first one is 0."""
        lr: float = self.lr  # type: ignore[attr-defined]  # every rule has it, as its first argument
        return self.lr_at.rate(step, lr) if isinstance(self.lr_at, PiecewiseRate | CosineRate) else lr


@dataclass(frozen=True)
class SGD(_Rule):
    """Stochastic gradient descent with momentum, as `torch.optim.SGD`.

    Raises:
        BadInput: a value out of its range, or Nesterov's momentum without momentum or with dampening.
    """

    kind: ClassVar[str] = "sgd"

    lr: float
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        self._check_common()
        self._check("momentum")
        self._check("dampening")
        self._check_flag("nesterov")
        if self.nesterov and (self.momentum == 0.0 or self.dampening != 0.0):
            raise BadInput("SGD: nesterov needs momentum above 0 and dampening 0")

    @property
    def state_names(self) -> tuple[str, ...]:
        """The tensors kept for each parameter, under torch's names."""
        return ("momentum_buffer",) if self.momentum else ()


@dataclass(frozen=True)
class Adam(_Rule):
    """Adam, as `torch.optim.Adam`.

    Source: Kingma & Ba 2015, Algorithm 1; with `amsgrad` Reddi et al. 2018.

    Raises:
        BadInput: a value out of its range.
    """

    kind: ClassVar[str] = "adam"

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False

    def __post_init__(self) -> None:
        self._check_common()
        self._check("eps")
        self._check_flag("amsgrad")
        if not isinstance(self.betas, tuple | list) or len(self.betas) != 2:
            raise BadInput(f"{type(self).__name__}: betas is {self.betas!r}; give two numbers")
        names = (f"{type(self).__name__}: betas[{index}]" for index in range(2))
        betas = tuple(require_finite(name, beta, 0.0, 1.0) for name, beta in zip(names, self.betas, strict=True))
        object.__setattr__(self, "betas", betas)

    @property
    def state_names(self) -> tuple[str, ...]:
        """The tensors kept for each parameter, under torch's names."""
        return ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if self.amsgrad else ())


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam whose weight decay does not pass through the moments, as `torch.optim.AdamW`.

    Source: Loshchilov & Hutter 2019.
    """

    kind: ClassVar[str] = "adamw"

    weight_decay: float = 0.01


Optimizer = SGD | Adam | AdamW

_OPTIMIZERS: dict[str, type[SGD] | type[Adam]] = {rule.kind: rule for rule in (SGD, Adam, AdamW)}
_SCHEDULES: dict[str, type[PiecewiseRate] | type[CosineRate]] = {"piecewise": PiecewiseRate, "cosine": CosineRate}


def to_json(optimizer: Optimizer) -> dict[str, Any]:
    """The optimizer as plain data for JSON: its kind and every field."""
    plain = {"kind": optimizer.kind} | {field.name: getattr(optimizer, field.name) for field in fields(optimizer)}
    for kind, schedule in _SCHEDULES.items():
        if isinstance(optimizer.lr_at, schedule):
            lr_at = optimizer.lr_at
            plain["lr_at"] = {"kind": kind} | {field.name: getattr(lr_at, field.name) for field in fields(lr_at)}
    return {name: _as_lists(value) for name, value in plain.items()}


def from_json(plain: object) -> Optimizer:
    """The optimizer that `to_json` wrote.

    Raises:
        BadInput: an unknown kind, a field missing or unknown, or a value out of its range.
    """
    rule = _named("optimizer", plain, _OPTIMIZERS)
    found = require_object("optimizer", plain, {"kind"} | {field.name for field in fields(rule)})
    del found["kind"]
    if found["lr_at"] is not None:
        schedule = _named("optimizer: lr_at", found["lr_at"], _SCHEDULES)
        known = {"kind"} | {field.name for field in fields(schedule)}
        parts = require_object("optimizer: lr_at", found["lr_at"], known)
        del parts["kind"]
        found["lr_at"] = schedule(**parts)
    return rule(**found)


def _named(what: str, plain: object, known: Mapping[str, _T]) -> _T:
    kind = plain.get("kind") if isinstance(plain, Mapping) else None
    if not isinstance(kind, str) or kind not in known:
        raise BadInput(f"{what} is of kind {kind!r}; known are {', '.join(known)}")
    return known[kind]


def _as_lists(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _as_lists(part) for name, part in value.items()}
    return [_as_lists(part) for part in value] if isinstance(value, tuple) else value
