"""The training of a job: the choices of a script that must be the same in all its workers.

It travels to the coordinator when a worker registers, and from there to the parameter servers; a worker whose choices
differ is refused with the first difference.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from elastic_runtime.errors import BadInput
from elastic_runtime.model import optimizers
from elastic_runtime.model.data_shards import SampleOrder
from elastic_runtime.model.optimizers import Optimizer
from elastic_runtime.model.plain_fields import require_object, require_whole

_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Training:
    """One job's training; its fields are the arguments of `join`, which says what they mean.

    Attributes:
        global_batch: samples of one step over all workers; in asynchronous training as `worker_batch`.
        synchronous: workers compute one global batch together; else each applies its own batch as it comes.
        worker_batch: samples of a worker's batch in asynchronous training; None in synchronous.
        buffer_merge_steps: buffers are merged over the workers every so many steps; see `MergeRule`.

    Raises:
        BadInput: values that cannot be, or that do not go together.
    """

    optimizer: Optimizer
    samples: int
    global_batch: int
    epochs: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    min_worker_batch: int = 1
    synchronous: bool = True
    worker_batch: int | None = None
    buffer_merge_steps: int = 20
    steps: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, Optimizer):
            kind = type(self.optimizer)  # torch's own are shown on many lines
            what = repr(self.optimizer) if kind is str else f"a {kind.__module__}.{kind.__qualname__}"
            raise BadInput(f"optimizer is {what[:80]}; give elastic_runtime's SGD, Adam or AdamW")
        for name in ("samples", "global_batch", "epochs", "min_worker_batch", "buffer_merge_steps"):
            require_whole(name, getattr(self, name), 1)
        require_whole("seed", self.seed, 0)
        if self.steps is not None:
            require_whole("steps", self.steps, 1)
        for name in ("shuffle", "drop_last", "synchronous"):
            if not isinstance(getattr(self, name), bool):
                raise BadInput(f"{name} is {_short(getattr(self, name))}; give True or False")
        if self.synchronous and self.worker_batch is not None:
            raise BadInput("worker_batch is for asynchronous training; in synchronous training give global_batch")
        if not self.synchronous:
            require_whole("worker_batch", self.worker_batch, 1)
        self._check_last_batch(self.order())

    def order(self) -> SampleOrder:
        """The order in which samples are taken, the same in every process."""
        return SampleOrder(
            self.samples,
            self.global_batch,
            self.seed,
            self.epochs,
            drop_last=self.drop_last,
            shuffle=self.shuffle,
            smallest_slice=self.min_worker_batch,
            steps=self.steps,
        )

    def to_json(self) -> bytes:
        """What `from_json` reads: equal choices give equal bytes. Without `steps` it is what earlier versions write."""
        content: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.steps is None:
            del content["steps"]
        content["optimizer"] = optimizers.to_json(self.optimizer)
        return json.dumps({"format": _FORMAT, **content}, separators=(",", ":"), sort_keys=True).encode()

    @staticmethod
    def from_json(data: bytes) -> Training:
        """The training that `to_json` wrote.

        Raises:
            BadInput: it is none, or of a version that this one does not know.
        """
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"not a job's training: {error}; it was cut or changed") from error
        if isinstance(content, dict) and content.get("format") != _FORMAT:
            raise BadInput(f"a training of format {_short(content.get('format'))}, and this version reads {_FORMAT}")
        if isinstance(content, dict):
            content.setdefault("steps", None)
        content = require_object("training", content, {"format"} | {field.name for field in fields(Training)})
        del content["format"]
        content["optimizer"] = optimizers.from_json(content["optimizer"])
        return Training(**content)

    def difference(self, other: Training) -> str:
        """The first choice in which another training differs, in words; empty if none does."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine != theirs:
                return f"{field.name} is {mine!r} here and {theirs!r} there"
        return ""

    def _check_last_batch(self, order: SampleOrder) -> None:
        last = order.batch_size(min(order.steps_per_epoch, order.total_steps) - 1)
        if last < self.min_worker_batch:
            raise BadInput(
                f"an epoch's last batch has {last} of the {self.min_worker_batch} samples that a worker needs "
                f"({self.samples} samples in batches of {self.global_batch}): set drop_last or change global_batch"
            )


def _short(value: object) -> str:
    return repr(value)[:80]
