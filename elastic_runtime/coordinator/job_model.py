"""What a coordinator has to know of the model and of the training: blocks, steps, the most workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from elastic_runtime.errors import BadInput
from elastic_runtime.model.data_shards import SampleOrder, check_workers
from elastic_runtime.model.layout import Layout, difference
from elastic_runtime.model.training import Training


@dataclass(frozen=True)
class JobModel:
    """A model's layout and the choices of its training."""

    layout: Layout
    training: Training

    @cached_property
    def order(self) -> SampleOrder:
        """Of the samples."""
        return self.training.order()

    @property
    def total_steps(self) -> int | None:
        """Steps of the whole job; None in asynchronous training, which has no common step."""
        return self.order.total_steps if self.training.synchronous else None

    def refusal(self, other: JobModel, task: str) -> str:
        """Why a worker with another model cannot join; empty if it can."""
        differs = difference(other.layout, self.layout)
        if differs:
            return f"{task} has another model than its job: {differs}"
        differs = other.training.difference(self.training)
        if differs:
            return f"{task} trains otherwise than its job (here: the task; there: the job): {differs}"
        return ""

    def check(self, servers: int, workers: int) -> None:
        """Refuse a size with which a task would have nothing to do.

        Raises:
            BadInput: more PSs than blocks, or more workers than the batch allows.
        """
        if self.training.synchronous:
            check_workers(workers, self.training.global_batch, self.training.min_worker_batch)
        blocks = len(self.layout.blocks)
        if servers > blocks:
            raise BadInput(
                f"{servers} PSs for a model of {blocks} blocks: ask for at most {blocks}, one for each block"
            )


@lru_cache(maxsize=8)
def read_model(layout_json: str, training_json: str) -> JobModel:
    """The model of two JSON texts.

    Raises:
        BadInput: they are not what this version writes.
    """
    layout = Layout.from_json(layout_json.encode())
    if not layout.blocks:
        raise BadInput("a model without parameters; there is nothing to train")
    return JobModel(layout, Training.from_json(training_json.encode()))
