"""Network of a `dl2` policy in memory, as the compiled code reads it, the random numbers that it draws, and its groups.

The policy is not imported: a replay of another scheduler loads none of it (see `schedulers`).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.twin.believed import address_of
from policy_net.twin.memory import ACTION, KEEP, UNIFORM, GroupMemory, NetworkMemory

WIDEST = 4096
"""Of the hidden layers; `core/twin.h` has the same."""


class NetworkOfCase:
    """A policy's network for one run; kept as long as the run.

    Args:
        job_types: of every job of the run.

    Attributes:
        memory: what the compiled code is given.
    """

    def __init__(self, policy: Any, job_types: Sequence[str]) -> None:
        spec, layers = policy.spec, policy.network.layers
        columns = {name: column for column, name in enumerate(spec.job_types)}
        self._column = np.array([columns.get(name, 0) for name in job_types], dtype=np.int64)
        self._widths = np.array([spec.feature_count, *(len(bias) for _, bias in layers)], dtype=np.int64)
        self._weight = np.concatenate([part.ravel() for layer in layers for part in layer])
        self._seed, self._first_decision = policy.seed, policy.decision_index
        self._finite = np.ones(1, dtype=np.int64)
        self._failure: BaseException | None = None
        self._uniform = UNIFORM(self._next_number)
        self._drawn = (-1, 0)
        self._generator = np.random.default_rng(0)
        self._policy = policy
        self._group = self._group_memory()
        self.memory = NetworkMemory(
            jobs_per_batch=spec.jobs_per_batch,
            type_columns=spec.type_columns,
            bundles=spec.bundles,
            reserves=spec.reserves,
            draws=policy.draws,
            layers=len(layers),
            exploration=policy.exploration,
            widths=address_of(self._widths),
            column=address_of(self._column),
            weight=address_of(self._weight),
            finite=address_of(self._finite),
            uniform=self._uniform,
            group=0 if self._group is None else ctypes.addressof(self._group),
        )

    @property
    def failure(self) -> BaseException | None:
        """Why the network could not go on; None if it could."""
        return self._failure or (None if self._finite[0] else FloatingPointError("the network's logits are not finite"))

    def _group_memory(self) -> GroupMemory | None:
        choice = self._policy.choice
        if choice is None:
            return None
        phase = (choice.phase - self._first_decision) % choice.every
        return GroupMemory(draws=choice.draws, every=choice.every, phase=phase, keep=KEEP(self._keep_group))

    def _next_number(self, decision: int, draw: int, number: Any) -> int:
        """The numbers of a decision follow from the seed, its index and the draw, as the policy's own do."""
        try:
            if (decision, draw) != self._drawn:
                self._drawn = (decision, draw)
                index = self._first_decision + decision
                self._generator = np.random.default_rng((self._seed, index, draw) if draw else (self._seed, index))
            number[0] = self._generator.random()
        except BaseException as failure:
            self._failure = failure
            return 1
        return 0

    def _keep_group(self, _decision: int) -> int:
        """Hand a group to the policy; its memory is the compiled code's until this returns."""
        try:
            group, inputs, actions = self._group, int(self._widths[0]), int(self._widths[-1])
            assert group is not None  # noqa: S101  (narrows the type)
            taken = _copied(group.action, (group.rows,), ACTION)
            self._policy.keep_drawn(
                _copied(group.features, (group.rows, inputs), np.float32),
                _copied(group.mask, (group.rows, actions), np.bool_),
                *(np.ascontiguousarray(taken[name]) for name in ("index", "probability", "job", "draw")),
                *(_copied(each, (group.draws, group.jobs), np.float64) for each in (group.utility, group.share)),
            )
        except BaseException as failure:
            self._failure = failure
            return 1
        return 0


def _copied(address: int, shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
    kind = np.dtype(kind)
    return np.frombuffer(ctypes.string_at(address, kind.itemsize * math.prod(shape)), dtype=kind).reshape(shape)


def uncovered_network(policy: Any) -> str | None:
    """Why the compiled code cannot act with a policy's network; None if it can."""
    if not policy.spec.hidden or max(policy.spec.hidden) > WIDEST:
        return f"the network has no hidden layer, or one wider than {WIDEST}"
    if not policy.explores_as_usual:
        return "the network explores in a way of its own"
    if not all(np.isfinite(part).all() for layer in policy.network.layers for part in layer):
        return "a weight is not finite"
    return None
