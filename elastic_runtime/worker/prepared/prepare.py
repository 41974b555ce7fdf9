"""Words of a script that keeps its own loop: `elastic.prepare` and those around it.

    best = elastic.state(accuracy=0.0)
    model, optimizer, loader, scheduler = elastic.prepare(model, optimizer, loader, scheduler)
    for epoch in elastic.epochs(10):
        for batch in loader:
            ...

Model, optimizer and schedulers are the script's own, and so is what it does with them. Alone it is plain PyTorch, bit
for bit; under torchrun, and as an all-reduce job, each worker computes its slice of each batch, and gradients are
summed before `backward()` returns.
Source: the habit of Hugging Face's Accelerate. Deviation: nothing wraps the model or the optimizer; the batch is the
global one, however many workers share it.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data import DataLoader

from elastic_runtime.checkpoint.rank_files import meeting_of, rank_files
from elastic_runtime.errors import BadInput
from elastic_runtime.telemetry import LEVEL_VARIABLE, configure_script_logging
from elastic_runtime.worker.prepared.loader import PreparedLoader, check_loader
from elastic_runtime.worker.prepared.training import Parts, PreparedTraining
from elastic_runtime.worker.prepared.user_state import State
from elastic_runtime.worker.ranks.process_group import RANK_VARIABLE, WORLD_VARIABLE, ProcessGroup
from elastic_runtime.worker.ranks.rank_pod import RankPlace

_COORDINATOR_VARIABLE = "ELASTIC_COORDINATOR"
LONGEST_WAIT_SECONDS = 3600.0
"""For another worker, as one may evaluate while the others wait; one that dies is seen at once."""
_SHARDED = ("FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine")

_training: PreparedTraining | None = None
_states: list[State] = []


def prepare(*given: Any, environment: Mapping[str, str] | None = None) -> Any:
    """Prepare a training: its model, its optimizer, its loader, its schedulers and scalers, in any order.

    Args:
        given: one model, its optimizer (a list of several; none if the script changes the parameters itself), at most
            one DataLoader, and anything else that has a `state_dict()` and a `load_state_dict()`.

    Returns:
        the same, in the same order; the loader is one that gives this worker's slices.

    Raises:
        BadInput: what cannot be trained so, and what to do instead.
        ModelMismatch: another worker, or the job's checkpoint, has another model.
        CheckpointError: the job's checkpoint cannot be read.
    """
    global _training  # noqa: PLW0603  (a process takes part in one job)
    if _training is not None:
        raise BadInput("elastic.prepare was called already; give it everything at once: a process trains one job")
    environment = os.environ if environment is None else environment
    if environment.get(_COORDINATOR_VARIABLE):
        raise BadInput(
            "elastic.prepare is for workers without parameter servers, and this job has them; submit it as an "
            "all-reduce job, or use elastic.join"
        )
    parts = _parts_of(given)
    group = files = place = None
    meeting = 1
    if environment.get(WORLD_VARIABLE):
        configure_script_logging(environment.get(LEVEL_VARIABLE, "warning"))
        files, place = rank_files(environment), RankPlace.read(environment)
        meeting = meeting_of(environment)
        device = parts.trained[0].device
        group = ProcessGroup(environment, device, LONGEST_WAIT_SECONDS, joins=meeting == 1)
    try:
        _training = PreparedTraining(parts, _states, group, files, place, meeting)
    except BaseException:
        if group is not None:
            group.close()
        raise
    atexit.register(_training.close)
    answer = [PreparedLoader(one, _training) if isinstance(one, DataLoader) else one for one in given]
    return answer[0] if len(answer) == 1 else tuple(answer)


def state(**values: Any) -> State:
    """Values of the script's own that are part of the job, as attributes; the first worker's hold.

    Raises:
        BadInput: a value that cannot be kept.
    """
    found = State(values)
    if _training is None:
        _states.append(found)
    else:
        _training.add_state(found)
    return found


def epochs(start: int, stop: int | None = None) -> Iterator[int]:
    """The epochs of `range(start, stop)`, or `range(start)`; a job that goes on begins with the one that it was in."""
    return _prepared("epochs").epochs(0 if stop is None else start, start if stop is None else stop)


def steps(count: int) -> Iterator[int]:
    """Steps from 0, or from where the job is, for scripts that draw their own batches; see `rows`."""
    return _prepared("steps").steps(count)


def each(items: Sequence[Any]) -> Iterator[Any]:
    """Items of one pass within an epoch, such as `range(0, len(data), length)`, for scripts without a loader.

    All workers get the same, and draw the same random numbers; each takes its `rows` of what it makes of them.
    """
    return _prepared("each").each(items)


def rows(count: int) -> slice:
    """This worker's rows of a batch of so many samples that was drawn in this step."""
    if count < 1:
        raise BadInput(f"elastic.rows({count}): give the number of samples in the whole batch, 1 or more")
    return _prepared("rows").rows(count)


def weight(count: float) -> None:
    """How many, such as tokens, this worker's loss is a mean over, before its `backward()`; all workers say it."""
    if not count >= 0:
        raise BadInput(f"elastic.weight({count}): give a number of 0 or more")
    _prepared("weight").weigh(count)


def total(value: Any) -> Any:
    """The sum of all workers' values: a number, or a tensor of one shape; all have to ask."""
    return _prepared("sum").sum(value)


def is_first() -> bool:
    """Whether this worker is the one that saves and prints; before `prepare` too."""
    return _training.is_first if _training is not None else os.environ.get(RANK_VARIABLE, "0") == "0"


def finished() -> bool:
    """Whether the training is done."""
    return _training is not None and _training.finished


def _prepared(name: str) -> PreparedTraining:
    if _training is None:
        raise BadInput(f"elastic.{name} before elastic.prepare; prepare the model, the optimizer and the loader first")
    return _training


def _parts_of(given: Sequence[Any]) -> Parts:
    models: list[nn.Module] = []
    optimizers: list[torch.optim.Optimizer] = []
    loaders: list[DataLoader[Any]] = []
    others: list[Any] = []
    for one in _flat(given):
        if isinstance(one, nn.Module):
            _check_model(one)
            models.append(one)
        elif isinstance(one, torch.optim.Optimizer):
            optimizers.append(one)
        elif isinstance(one, DataLoader):
            check_loader(one)
            loaders.append(one)
        elif hasattr(one, "state_dict") and hasattr(one, "load_state_dict"):
            others.append(one)
        else:
            raise BadInput(
                f"elastic.prepare got a {type(one).__module__}.{type(one).__qualname__}; give a model, an optimizer, a "
                "DataLoader, and what has a state_dict()"
            )
    if len(models) != 1:
        raise BadInput(f"elastic.prepare got {len(models)} models; give one (several: in one nn.ModuleList)")
    if sum(isinstance(one, torch.optim.Optimizer) for one in given) > 1:
        raise BadInput("elastic.prepare got two optimizers; give them as a list, if each batch steps both")
    if len(loaders) > 1:
        raise BadInput(
            "elastic.prepare got two loaders; give the one that is trained with: one that evaluates stays as it is, "
            "and is read where elastic.is_first"
        )
    parts = Parts(models[0], optimizers, loaders[0] if loaders else None, others)
    _check_parameters(parts)
    return parts


def _flat(given: Sequence[Any]) -> Iterator[Any]:
    for one in given:
        yield from one if isinstance(one, list | tuple) else [one]


def _check_model(model: nn.Module) -> None:
    wrapper = next((kind.__name__ for kind in type(model).__mro__ if kind.__name__ in _SHARDED), None)
    if isinstance(model, DataParallel | DistributedDataParallel):
        raise BadInput(f"the model is wrapped in {type(model).__name__}; give the model itself: elastic sums gradients")
    if wrapper is not None:
        raise BadInput(
            f"the model is a {wrapper}, whose parameters lie in parts on its workers; every worker of an elastic job "
            "holds all of them: submit it as a job of a fixed size"
        )


def _check_parameters(parts: Parts) -> None:
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in parts.model.parameters()):
        raise BadInput("a parameter has no shape yet: run the model once on a batch before elastic.prepare")
    trained = parts.trained
    if not trained:
        raise BadInput("the model has no parameter with requires_grad: there is nothing to train")
    known = {id(parameter) for parameter in parts.model.parameters()}
    for optimizer in parts.optimizers:
        if isinstance(optimizer, torch.optim.SparseAdam):
            raise BadInput("SparseAdam takes sparse gradients alone, and sums over workers are dense; use Adam")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise BadInput(
                "LBFGS calls backward() as often as it likes, in each worker another number of times; use an optimizer "
                "that steps without a closure"
            )
        if any(id(parameter) not in known for group in optimizer.param_groups for parameter in group["params"]):
            raise BadInput(
                "the optimizer has a parameter that the prepared model has not, and which the workers would not share; "
                "prepare the model whose parameters it was given"
            )
