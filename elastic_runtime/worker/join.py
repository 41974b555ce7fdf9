"""The entry of a script into its job; the environment says whether there is one, and of which kind."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import structlog
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DataParallel, DistributedDataParallel

from elastic_runtime.errors import BadInput, NotNeeded
from elastic_runtime.model.layout import build_layout
from elastic_runtime.model.module_tensors import describe_model
from elastic_runtime.model.optimizers import Optimizer
from elastic_runtime.model.training import Training
from elastic_runtime.telemetry import LEVEL_VARIABLE, configure_script_logging
from elastic_runtime.worker.alone import AloneMode
from elastic_runtime.worker.batches import Batches, Collate, as_samples
from elastic_runtime.worker.job import Job
from elastic_runtime.worker.mode import TrainingMode

COORDINATOR_VARIABLE = "ELASTIC_COORDINATOR"
WORLD_VARIABLE = "WORLD_SIZE"
_EPOCHS_OF_STEPS = 2**31
"""More than a job of so many steps has: `SampleOrder` counts those that it has."""
_log = structlog.get_logger()
_joined: set[str] = set()


def join(
    model: nn.Module,
    optimizer: Optimizer,
    data: Any,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    global_batch: int | None = None,
    worker_batch: int | None = None,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    collate: Collate | None = None,
    prefetch: bool = False,
    min_worker_batch: int | None = None,
    buffer_merge_steps: int = 20,
    practice: Callable[[Any], torch.Tensor] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Job:
    """Join the job that this process was started for, or train alone if it was started for none.

    Args:
        model: on the device that it is to compute on. Its values at the start count in one process only, that of the
            others are overwritten.
        optimizer: `SGD`, `Adam` or `AdamW` of this package.
        data: a map-style torch data set, a tensor, a tuple or mapping of tensors or arrays whose first dimension counts
            the samples, or anything with a length that gives a sample for a number. The same in every process.
        epochs: how often every sample is taken.
        steps: in place of it, or beside it: global steps of the whole job (asynchronous: updates). The job ends with
            whichever comes first.
        global_batch: samples of one step over all workers, however many these are.
        worker_batch: in place of it, for asynchronous training: samples of each worker's batch, whose gradient is
            applied as it comes. Alone, that is the whole batch; by all-reduce there is no such training.
        seed: of the order of the samples and of torch's random numbers.
        shuffle: a new order in every epoch.
        drop_last: leave out an epoch's last step where it would be short.
        collate: makes a batch of a list of samples; None takes torch's `default_collate`.
        prefetch: read the next batch in a thread while this one is computed.
        min_worker_batch: fewest samples of a worker in a step; None: 2 if the model has batch-norm layers, else 1.
        buffer_merge_steps: how often buffers, such as batch norm's running statistics, are merged over the workers.
        practice: computes the loss of a batch's data. A worker that joins a job that trains calls it once while the
            others go on, as a model's first use is slow, and throws the result away; None: they wait for it a little.

    Returns:
        The job: iterate over it for batches, and call its `step` for each.

    Raises:
        BadInput: arguments that cannot be, or a model that cannot be trained so.
    """
    if not isinstance(model, nn.Module):
        raise BadInput(f"the model is a {type(model).__name__}; give a torch.nn.Module")
    if isinstance(model, DataParallel | DistributedDataParallel):
        raise BadInput(
            f"the model is wrapped in {type(model).__name__}; give the model itself: the job is what wraps it"
        )
    batch = worker_batch if global_batch is None else global_batch
    if batch is None or (global_batch is not None and worker_batch is not None):
        raise BadInput("give global_batch, or worker_batch for asynchronous training: one of the two")
    if epochs is None and steps is None:
        raise BadInput("give epochs, or steps, or both: the job ends with whichever comes first")
    samples = as_samples(data, collate)
    training = Training(
        optimizer=optimizer,
        samples=len(samples),
        global_batch=batch,
        synchronous=worker_batch is None,
        worker_batch=worker_batch,
        epochs=epochs if epochs is not None else _EPOCHS_OF_STEPS,
        steps=steps,
        seed=seed,
        shuffle=shuffle,
        drop_last=drop_last,
        min_worker_batch=_least_batch(model) if min_worker_batch is None else min_worker_batch,
        buffer_merge_steps=buffer_merge_steps,
    )
    batches = Batches(samples, training.order(), prefetch)
    if environment is None:
        _join_once()
    mode = _mode(model, training, batches, os.environ if environment is None else environment, practice)
    job = Job(mode, model, batches.order)
    if environment is None or not isinstance(mode, AloneMode):
        report_the_end(job)
    return job


def _mode(
    model: nn.Module,
    training: Training,
    batches: Batches,
    environment: Mapping[str, str],
    practice: Callable[[Any], torch.Tensor] | None,
) -> TrainingMode:
    """How this process trains; code for the others is not even loaded, as the script may run where it cannot."""
    layout = build_layout(*describe_model(model))
    if environment.get(COORDINATOR_VARIABLE):
        configure_script_logging(environment.get(LEVEL_VARIABLE, "warning"))
        from elastic_runtime.worker.asynchronous import AsynchronousMode  # noqa: PLC0415  # see above
        from elastic_runtime.worker.synchronous import SynchronousMode  # noqa: PLC0415

        kind = SynchronousMode if training.synchronous else AsynchronousMode
        try:
            return kind(model, layout, training, batches, environment, practice)
        except NotNeeded as error:
            batches.close()
            _log.warning("worker-dismissed", why=str(error))
            return TrainingMode()
    if environment.get(WORLD_VARIABLE):
        if not training.synchronous:
            raise BadInput("worker_batch is for asynchronous training, which needs parameter servers")
        from elastic_runtime.checkpoint.rank_files import meeting_of, rank_files  # noqa: PLC0415
        from elastic_runtime.worker.ranks.allreduce import AllReduceMode  # noqa: PLC0415
        from elastic_runtime.worker.ranks.process_group import ProcessGroup  # noqa: PLC0415
        from elastic_runtime.worker.ranks.rank_pod import RankPlace  # noqa: PLC0415

        place = RankPlace.read(environment)
        meeting = meeting_of(environment)
        group = ProcessGroup(environment, next(model.parameters()).device, joins=meeting == 1)
        try:
            return AllReduceMode(model, layout, training, batches, group, rank_files(environment), place, meeting)
        except BaseException:
            group.close()
            raise
    return AloneMode(model, training, batches)


def _join_once() -> None:
    """An elastic process has one place in one job; a second training would find that job finished."""
    joined = os.environ.get(COORDINATOR_VARIABLE)
    if joined and joined in _joined:
        raise BadInput("this script has joined its elastic job already: train what else there is in a job of its own")
    if joined:
        _joined.add(joined)


def _least_batch(model: nn.Module) -> int:
    """Batch norm takes the variance over the batch: of one sample there is none."""
    return 2 if any(isinstance(module, _BatchNorm) for module in model.modules()) else 1


def report_the_end(job: Job) -> None:
    """A script that raises says so to the other processes; one that just ends, or leaves the loop, leaves them."""
    before = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            job.fail(error)
        finally:
            before(kind, error, trace)

    sys.excepthook = report
    atexit.register(job.script_ended)
