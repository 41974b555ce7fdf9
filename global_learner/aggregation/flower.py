"""Flower's strategies as functions of a cohort: the only place that builds their messages.

A strategy aggregates *replies*, each with one record of arrays and one of metrics, and consumes them (median and
trimmed mean pop the arrays), so every cohort gets new ones. Its result may be float64 (FedAdam under NumPy 2) and is
cast back. Nothing is sent anywhere: Flower's telemetry is switched off before Flower is imported.
Source: flwr 1.41 `flwr.serverapp.strategy`.
"""

from __future__ import annotations

import gc
import inspect
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from global_learner.errors import BadLearnerConfig
from policy_net.exchange.spec import Weights, WeightSpec, split_weights

USABLE = (
    "FedAvg",
    "FedAvgM",
    "FedAdam",
    "FedAdagrad",
    "FedYogi",
    "FedMedian",
    "FedTrimmedAvg",
    "Krum",
    "MultiKrum",
    "Bulyan",
)
"""Strategies that need of a reply only the arrays and the number of examples."""
_FRAMEWORK = frozenset(
    {
        "fraction_train",
        "fraction_evaluate",
        "min_train_nodes",
        "min_evaluate_nodes",
        "min_available_nodes",
        "weighted_by_key",
        "arrayrecord_key",
        "configrecord_key",
        "train_metrics_aggr_fn",
        "evaluate_metrics_aggr_fn",
        "selection_rule",
    }
)
"""Parameters that say who is asked and how, which the learner sets."""

SAMPLES = "num-examples"
"""The metric by which Flower's strategies weigh a reply."""


@cache
def flower() -> ModuleType:
    """Flower's strategies; imported when first needed (0.6 s, 80 MB), without telemetry and without its log lines."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    from flwr.serverapp import strategy  # noqa: PLC0415
    from flwr.supercore.task_identity import TaskIdentity  # noqa: PLC0415

    logging.getLogger("flwr").setLevel(logging.ERROR)
    # Outside Flower's own engine a message can only be made once these are set.
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    return strategy


def build_strategy(name: str, parameters: Mapping[str, float], **framework: Any) -> Any:
    """A new strategy.

    Args:
        name: one of `USABLE`.
        parameters: the strategy's own; whole numbers are passed as such where Flower wants them.
        framework: who is asked and how.

    Raises:
        BadConfig: no such strategy or parameter, or a value that the strategy refuses.
    """
    if name not in USABLE:
        raise BadLearnerConfig(f"setting aggregation.strategy = {name}: unknown; choose one of {', '.join(USABLE)}")
    kind = getattr(flower(), name)
    own = {key: value for key, value in inspect.signature(kind).parameters.items() if key not in _FRAMEWORK}
    for key in parameters:
        if key not in own:
            raise BadLearnerConfig(
                f"setting aggregation.parameters.{key}: {name} has no such parameter; it takes "
                f"{', '.join(own) or 'none'}"
            )
    values = {key: _as(own[key], key, value) for key, value in parameters.items()}
    try:
        return kind(**values, **framework)
    except (TypeError, ValueError) as error:
        raise BadLearnerConfig(f"setting aggregation.parameters: {name} refuses them: {error}") from error


def _as(parameter: inspect.Parameter, key: str, value: float) -> float | int:
    if not isinstance(parameter.default, int) or isinstance(parameter.default, bool):
        return value
    if value != int(value) or value < 0:
        raise BadLearnerConfig(f"setting aggregation.parameters.{key} = {value:g}: must be a whole number from 0")
    return int(value)


def array_record(weights: Weights, spec: WeightSpec) -> Any:
    """A flat vector as Flower's named arrays, in the layout's order."""
    from flwr.app import Array, ArrayRecord  # noqa: PLC0415

    return ArrayRecord({name: Array(np.asarray(view)) for name, view in split_weights(weights, spec).items()})


def flat_weights(record: Any, spec: WeightSpec) -> Weights:
    """Flower's named arrays as one flat float32 vector.

    Raises:
        ValueError: other names or shapes than the spec's.
    """
    arrays: dict[str, NDArray[Any]] = {name: array.numpy() for name, array in record.items()}
    layout = spec.layout()
    if {name: array.shape for name, array in arrays.items()} != dict(layout):
        raise ValueError("the arrays are not those of the policy's spec")
    with np.errstate(over="ignore"):
        return np.concatenate([arrays[name].astype(np.float32).ravel() for name, _ in layout])


@contextmanager
def _older_objects_left_alone() -> Iterator[None]:
    """Set older objects aside from garbage collection, which Flower runs once a reply.

    Replies hold their arrays in circles, and objects that were set aside count as old, which Python rarely looks
    through: so garbage is collected before, and after it among the replies alone.
    """
    gc.collect(1)
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()


@_older_objects_left_alone()
def aggregate(
    strategy: Any, number: int, weights: Weights, replies: Sequence[tuple[Weights, int]], spec: WeightSpec
) -> Weights | None:
    """A strategy's aggregate of a cohort; None if there is none (too few replies, or not finite).

    Args:
        strategy: built with `fraction_train=0.0`, so that it asks nobody.
        number: of the cohort, from 1.
        weights: weights from which the replies started, for strategies with a step of their own.
        replies: vectors and the samples by which they weigh.
        spec: names the arrays.
    """
    from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict  # noqa: PLC0415
    from flwr.app.exception import AppExitException  # noqa: PLC0415

    if hasattr(strategy, "current_arrays"):
        strategy.current_arrays = None
    strategy.configure_train(number, array_record(weights, spec), ConfigRecord(), None)
    messages = [
        Message(
            content=RecordDict(
                {"arrays": array_record(vector, spec), "metrics": MetricRecord({SAMPLES: float(samples)})}
            ),
            dst_node_id=node,
            message_type="train",
        )
        for node, (vector, samples) in enumerate(replies, start=1)
    ]
    try:
        with np.errstate(all="ignore"):
            arrays, _ = strategy.aggregate_train(number, messages)
    except AppExitException:
        return None
    if arrays is None:
        return None
    result = flat_weights(arrays, spec)
    return result if np.isfinite(result).all() else None


def strategy_arrays(strategy: Any) -> dict[str, NDArray[np.generic]]:
    """The arrays that a strategy remembers from cohort to cohort (moments, momentum), by attribute and place."""
    found: dict[str, NDArray[np.generic]] = {}
    for name, value in vars(strategy).items():
        if name == "current_arrays":
            continue
        entries = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
        for place, array in entries:
            if isinstance(array, (np.ndarray, np.generic)):
                found[f"{name}/{'i' if isinstance(value, list) else 'k'}/{place}"] = np.array(array)
    return found


def restore_strategy_arrays(strategy: Any, arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Put back what `strategy_arrays` found."""
    for path, array in arrays.items():
        name, kind, place = path.split("/", 2)
        if kind == "i":
            setattr(strategy, name, [*(getattr(strategy, name) or []), np.array(array)])
        else:
            setattr(strategy, name, {**(getattr(strategy, name) or {}), place: np.array(array)})
