"""The residual: one small network over all jobs at once, whose output tilts the planner's scores; and its inputs.

Legend: J jobs, K own features of a job, F = 2·K + 3 what the network sees of a job, H a hidden width, O outputs
(priority, steepness). Behind these F stands, as the last input, how loud the output is to be.
The inputs are ratios, so that they mean the same in clusters and for jobs of every size. Each own feature stands there
twice, once times contention: what is right in an empty cluster is wrong in a full one.
The output is bounded by a tanh; new weights have a last layer of zeros, so that the policy starts as the planner alone.
Its gradient is written out: at a few dozen parameters numpy has it before torch has begun.
On a single machine output and gradient count for a fiftieth. What clusters teach is wrong there: jobs are short beside
their starts, few at a time, and gain by every core.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.needs import remaining_samples
from policy_net.domain import ClusterState, Job, Resources
from policy_net.exchange.spec import PRICES, SESSIONS, SET_INPUTS, SetSpec, Weights, split_weights
from policy_net.set_policy.planner import Tilt
from policy_net.set_policy.steps import StepTable, desired_share
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs

Array = NDArray[np.float64]

OWN_FEATURES = 9
CONTEXT_FEATURES = 3
LOUDNESS_ON_ONE_MACHINE = 0.02
"""Not 0, so that what a machine shows can still be learned from."""
assert SET_INPUTS == 2 * OWN_FEATURES + CONTEXT_FEATURES  # noqa: S101  (two modules state one width)


class Residual:
    """The network of one policy."""

    def __init__(self, spec: SetSpec, weights: Weights) -> None:
        """Raises SpecMismatch if the weights are of another length than the spec's."""
        views = split_weights(weights, spec)
        self._layers = [
            (views[f"residual.{layer}.weight"].astype(np.float64), views[f"residual.{layer}.bias"].astype(np.float64))
            for layer in range(len(spec.hidden) + 1)
        ]
        self._bound = spec.bound
        self._other_weights = spec.parameter_count - sum(weight.size + bias.size for weight, bias in self._layers)
        last_weight, last_bias = self._layers[-1]
        self.silent = not (last_weight.any() or last_bias.any())

    @property
    def flat(self) -> Array:
        """Its own weights and biases, layer by layer, as they are calculated with."""
        return np.concatenate([part.ravel() for layer in self._layers for part in layer])

    def tilts(self, inputs_JF: Array) -> list[Tilt]:
        """Priority and steepness of every job; the same for jobs of which all inputs are the same."""
        # A matrix product rounds row by row, so that such jobs would not tie, and not come by arrival.
        first: dict[bytes, Tilt] = {}
        rows = inputs_JF + 0.0  # also of zeros there is one alone
        return [
            first.setdefault(row.tobytes(), (priority, steepness))
            for row, (priority, steepness) in zip(rows, self.outputs(inputs_JF).tolist(), strict=True)
        ]

    def outputs(self, inputs_JF: Array) -> Array:
        """The tilts of all jobs, shape (J, O)."""
        return inputs_JF[:, SET_INPUTS:] * (self._bound * np.tanh(self._forward(inputs_JF)[1] / self._bound))

    def gradient(self, inputs_JF: Array, slope_JO: Array) -> Array:
        """The gradient of a figure in all parameters, from its gradient in the tilts; shape (parameter_count,).

        It is 0 in those that are not the residual's: they move steps, and not tilts.
        """
        entering, linear_JO = self._forward(inputs_JF)
        back = inputs_JF[:, SET_INPUTS:] * slope_JO * (1.0 - np.tanh(linear_JO / self._bound) ** 2)
        pieces: list[Array] = []
        for layer in reversed(range(len(self._layers))):
            pieces = [(back.T @ entering[layer]).ravel(), back.sum(axis=0), *pieces]
            if layer:
                back = (back @ self._layers[layer][0]) * (entering[layer] > 0.0)
        return np.concatenate([*pieces, np.zeros(self._other_weights)])

    def _forward(self, inputs_JF: Array) -> tuple[list[Array], Array]:
        """What enters every layer, and what leaves the last one before it is bounded."""
        entering = [inputs_JF[:, :SET_INPUTS]]
        for weight, bias in self._layers[:-1]:
            entering.append(np.maximum(entering[-1] @ weight.T + bias, 0.0))
        weight, bias = self._layers[-1]
        return entering, entering[-1] @ weight.T + bias


def initial_residual(spec: SetSpec, seed: int) -> Weights:
    """He-uniform hidden layers, a last layer of zeros; usual prices, where they are among the weights."""
    generator = np.random.default_rng(seed)
    pieces = []
    last = f"residual.{len(spec.hidden)}."
    for name, shape in spec.layout():
        if name in (PRICES, SESSIONS) or name.endswith("bias") or name.startswith(last):
            pieces.append(np.zeros(int(np.prod(shape)), dtype=np.float32))
        else:
            bound = np.sqrt(6.0 / shape[1])
            pieces.append(generator.uniform(-bound, bound, size=shape).astype(np.float32).ravel())
    return np.concatenate(pieces)


def job_inputs(state: ClusterState, tables: Sequence[StepTable], uncertainties: Sequence[float]) -> Array:
    """Inputs of all jobs, shape (J, F + 1), each of order one.

    Args:
        uncertainties: of every job, the deviation of the log of its believed best speed.
    """
    jobs = state.jobs
    if not jobs:
        return np.empty((0, SET_INPUTS + 1))
    own = np.empty((len(jobs), OWN_FEATURES))
    total = state.total
    for row, job, table, uncertainty in zip(own, jobs, tables, uncertainties, strict=True):
        row[:] = _own_features(job, table, uncertainty, total, state.slot_seconds)
    demand = float(own[:, 5].sum())
    contention = math.log(max(demand, 1e-3)) / 2.0
    contention = min(max(contention, -1.5), 1.5)
    lengths = own[:, 0].copy()
    own[:, 0] -= lengths.mean()
    ordered = np.sort(lengths)
    shorter, not_longer = ordered.searchsorted(lengths, "left"), ordered.searchsorted(lengths, "right")
    own[:, 8] = (shorter + not_longer) / (2 * len(jobs)) - 0.5
    own[:, 5] = np.log(np.maximum(own[:, 5], 1e-4)) / 4.0 + 0.5
    loudness = LOUDNESS_ON_ONE_MACHINE if len(state.nodes) == 1 else 1.0
    context = np.array((contention, contention * contention, float(own[:, 3].mean()), loudness))
    return np.hstack((own, own * contention, np.broadcast_to(context, (len(jobs), CONTEXT_FEATURES + 1))))


def uncertainty_of(beliefs: GaussianProcessBeliefs | None, job: Job, table: StepTable) -> float:
    """Deviation of the log of the believed best speed of a job; 0 where speeds are known."""
    if beliefs is None:
        return 0.0
    return beliefs.deviation(job.job_type, table.best.ps, table.best.workers)


def _own_features(
    job: Job, table: StepTable, uncertainty: float, total: Resources, slot_seconds: float
) -> tuple[float, ...]:
    best = table.best
    if table.best_speed <= 0.0:
        return (0.0,) * OWN_FEATURES
    slots_left = remaining_samples(job) / table.best_speed / slot_seconds
    length = math.log(max(slots_left, 1e-3)) / 2.0
    first = table.slowest_speed
    return (
        length,  # becomes that over the mean of all jobs
        length,
        0.0 if job.work_known else 1.0,
        uncertainty,
        math.log(table.best_speed / first) / 2.0 if first > 0 else 0.0,
        desired_share(job, table, total),  # becomes its log
        math.log1p(job.run_seconds / (slots_left * slot_seconds)) / 2.0,
        job.current.tasks / best.tasks,
        0.0,  # becomes the rank of the length
    )
