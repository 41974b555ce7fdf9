"""A script's prepared training: what is shared by its workers, where it goes on, and when all of them stop.

Between two batches all workers have the same model, optimizer and schedulers. There they may stop, with a checkpoint
from which others, of whatever number, go on: the script runs again up to its loop, which begins with the batch that
comes next.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import Any

import numpy as np
import structlog
import torch
from torch import nn
from torch.utils.data import DataLoader

from elastic_runtime.checkpoint.rank_files import RankFiles
from elastic_runtime.errors import BadInput, ModelMismatch
from elastic_runtime.model.buffer_merge import MergeRule
from elastic_runtime.model.data_shards import slice_bounds
from elastic_runtime.worker.prepared.agreement import Agreement, digest
from elastic_runtime.worker.prepared.increments import IncrementSums
from elastic_runtime.worker.prepared.loader import Order, SlicedReader, draw_order, order_from_bytes, order_to_bytes
from elastic_runtime.worker.prepared.user_state import State
from elastic_runtime.worker.ranks.gradient_buckets import merge_buffers
from elastic_runtime.worker.ranks.process_group import ProcessGroup
from elastic_runtime.worker.ranks.rank_keeper import RankKeeper, Reach
from elastic_runtime.worker.ranks.rank_pod import RankPlace, RankPod
from elastic_runtime.worker.script_guards import is_left_on_purpose

_log = structlog.get_logger()
MERGE_STEPS = 20
"""Batches after which buffers, such as batch norm's running statistics, are merged; and at the end of each epoch."""


@dataclass(slots=True)
class Parts:
    """What a script has prepared.

    Attributes:
        others: whatever else has a state: schedulers, a GradScaler, in the order in which they were given.
    """

    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    loader: DataLoader[Any] | None
    others: Sequence[Any]

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that are trained, each once, in the model's order."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]


@dataclass(slots=True)
class Place:
    """Where a training is, between two batches.

    Attributes:
        passes: over the loader, that were made in this epoch; one that is under way does not count.
        position: batches done of the pass that is under way.
        step: batches done in all.
    """

    epoch: int = 0
    passes: int = 0
    position: int = 0
    step: int = 0


class PreparedTraining:
    """One worker's part.

    Args:
        group: of all workers; None: there are no others, and nobody looks after this one.
        states: of `elastic.state`; more may come.

    Raises:
        ModelMismatch: another worker, or the checkpoint, has another model.
        CheckpointError: the checkpoint cannot be read.
    """

    def __init__(
        self,
        parts: Parts,
        states: list[State],
        group: ProcessGroup | None = None,
        files: RankFiles | None = None,
        pod_place: RankPlace | None = None,
    ) -> None:
        self._parts, self._states, self._group = parts, states, group
        self.place = Place()
        self.finished = False
        self._order: Order | None = None
        self._kept_states: list[dict[str, Any]] = []
        self._passes_to_skip = 0
        self._in_loop = False
        self._epochs = 1
        self._weight = 1.0
        self._samples = 0
        self._batch_size = 1
        self._backwards = self._pending = self._optimizer_steps = 0
        self._draws_alike = False
        self._drawn: int | None = None
        self._alike: torch.Tensor | None = None
        self._apart = torch.empty(0)
        self._length = 1
        self._keeper: RankKeeper | None = None
        self._optimized = {optimizer: _parameters_of(optimizer) for optimizer in parts.optimizers}
        for optimizer in parts.optimizers:
            optimizer.register_step_pre_hook(self._on_step)
        if group is None:
            return
        self._share_model(group)
        self._agreement = Agreement(group, self._named_facts, self._states_digest, self._wants_stop)
        self._sums = IncrementSums(parts.trained, group, lambda: self._weight, self._begin_agreement)
        parts.model.register_forward_pre_hook(self._on_forward)
        parts.model.register_forward_hook(self._on_forward_end, always_call=True)
        if files is not None:
            pod = None if pod_place is None else RankPod(pod_place, group.rank, group.size)
            self._keeper = RankKeeper(files, self, self._reach, group, pod)
            self._keeper.begin()

    @property
    def step(self) -> int:
        """Batches that are trained since the job began."""
        return self.place.step

    @property
    def is_first(self) -> bool:
        """Whether this worker is the one that saves and prints."""
        return self._group is None or self._group.rank == 0

    def add_state(self, state: State) -> None:
        """Take up values of the script's; where the job goes on, they become what they were."""
        if len(self._kept_states) > len(self._states):
            state.take(self._kept_states[len(self._states)])
        self._states.append(state)

    def epochs(self, start: int, stop: int) -> Iterator[int]:
        """The epochs that are left; the one that the job was in again, as far as it is left."""
        self._begin_loop()
        self._epochs = stop - start
        try:
            while self.place.epoch < self._epochs:
                yield start + self.place.epoch
                self.place = Place(self.place.epoch + 1, step=self.place.step)
        except GeneratorExit:
            if not is_left_on_purpose():
                raise
        self._finish()

    def steps(self, count: int) -> Iterator[int]:
        """The steps that are left, one loop over all of them; see `each`."""
        self._begin_loop()
        try:
            yield from self.each(range(count))
        except GeneratorExit:
            if not is_left_on_purpose():
                raise
        self._finish()

    def each(self, items: Sequence[Any]) -> Iterator[Any]:
        """The items of a pass that are left, the same in every worker; they draw the same random numbers in each.

        Raises:
            BadInput: outside `elastic.epochs`.
            ModelMismatch: workers did not do the same.
            SystemExit: all stop here; see `batches`.
        """
        self._check_loop("elastic.each was")
        if self._passes_to_skip:
            self._passes_to_skip -= 1
            return
        self._length = len(items)
        self._draws_alike = self._group is not None and self._group.size > 1
        try:
            while self.place.position < len(items):
                self._safe_point()
                self._share_random_numbers()
                yield items[self.place.position]
                self._end_batch()
        finally:
            self._draws_alike, self.place.position = False, 0  # a loop that is left begins anew
        self._end_pass()

    def batches(self) -> Iterator[Any]:
        """The batches of the pass over the loader that comes next, or what is left of it; see `PreparedLoader`.

        Raises:
            BadInput: outside `elastic.epochs`.
            ModelMismatch: workers did not do the same.
            SystemExit: all stop here; the job goes on from its checkpoint when its processes are started again.
        """
        self._check_loop("the prepared loader was")
        if self._passes_to_skip:
            self._passes_to_skip -= 1
            return
        loader = self._parts.loader
        assert loader is not None  # noqa: S101  (who asks is the prepared one; narrows the type)
        if self._group is None:
            for batch in loader:
                yield batch
                self._end_batch()
            self._end_pass()
            return
        try:
            yield from self._slices(loader, self._group)
        finally:
            self._order = None  # a loop that is left begins anew
        self._end_pass()

    def rows(self, count: int) -> slice:
        """This worker's rows of a batch of so many that all workers have drawn alike."""
        if self._group is None:
            return slice(0, count)
        start, stop = slice_bounds(count, self._group.size, 1)[self._group.rank]
        self._weight, self._samples, self._batch_size = (stop - start) / count, stop - start, count
        self._drawn = _number_of(torch.get_rng_state().numpy().tobytes()) >> 8
        return slice(start, stop) if start < stop else slice(0, 1)

    def weigh(self, count: float) -> None:
        """Let this worker's slice count by so many of what its loss is a mean over, such as tokens."""
        if self._group is not None and self._group.size > 1:
            total = float(self.sum(torch.tensor(float(count), dtype=torch.float64)))
            self._weight = float(count) / total if total else 0.0

    def sum(self, value: Any) -> Any:
        """The sum of every worker's value, a number or a tensor; all workers have to ask.

        A worker for which a batch has no sample computes one for nothing; what it gives then counts as zero.
        """
        if self._group is None:
            return value
        is_tensor = isinstance(value, torch.Tensor)
        mine = value.detach().clone() if is_tensor else torch.tensor(float(value), dtype=torch.float64)
        if self._weight == 0.0:
            mine.zero_()
        mine = mine.to(self._group.device)
        self._group.sum(mine)
        return mine if is_tensor else type(value)(mine.item())

    def close(self) -> None:
        """Leave the other workers."""
        if self._group is not None:
            self._group.close()

    def content(self, step: int) -> dict[str, Any]:
        """Content of a checkpoint between two batches."""
        order = None if self._order is None else order_to_bytes(self._order)
        return {
            "step": step,
            "prepared": asdict(self.place),
            "order": None if order is None else torch.frombuffer(bytearray(order), dtype=torch.uint8),
            "names": [name for name, _ in self._tensors()],
            "tensors": [tensor.detach().cpu() for _, tensor in self._tensors()],
            "optimizers": [optimizer.state_dict() for optimizer in self._parts.optimizers],
            "others": [other.state_dict() for other in self._parts.others],
            "states": [state.content() for state in self._states],
            "random": _random_numbers(),
            "generators": [generator.get_state() for generator in self._generators()],
            "counts": [self._backwards, self._optimizer_steps],
            "finished": self.finished,
        }

    def take(self, content: dict[str, Any]) -> int:
        """Become what a checkpoint holds; the batches that it has.

        Raises:
            ModelMismatch: it is of another script.
        """
        if "prepared" not in content or content["names"] != [name for name, _ in self._tensors()]:
            raise ModelMismatch("the job's checkpoint is of another model; submit the changed script as another job")
        given = len(content["optimizers"]), len(content["others"])
        if given != (len(self._parts.optimizers), len(self._parts.others)):
            raise ModelMismatch(
                f"the job's checkpoint has {given[0]} optimizers and {given[1]} schedulers or scalers, and the script "
                "prepares others; submit the changed script as another job"
            )
        with torch.no_grad():
            for (name, tensor), kept in zip(self._tensors(), content["tensors"], strict=True):
                if tensor.shape != kept.shape:
                    raise ModelMismatch(
                        f"{name} is {list(tensor.shape)}, and {list(kept.shape)} in the job's checkpoint; submit the "
                        "changed script as another job"
                    )
                tensor.copy_(kept)
        for object_, kept in zip(
            (*self._parts.optimizers, *self._parts.others), (*content["optimizers"], *content["others"]), strict=True
        ):
            object_.load_state_dict(kept)
        self._kept_states = content["states"]
        for state, kept in zip(self._states, self._kept_states, strict=False):
            state.take(kept)
        self.place = Place(**content["prepared"])
        self._passes_to_skip = self.place.passes
        order = content["order"]
        self._order = None if order is None else order_from_bytes(order.numpy().tobytes())
        self._backwards, self._optimizer_steps = content["counts"]
        self.finished = content["finished"]
        _put_random_numbers(content["random"])
        for generator, kept in zip(self._generators(), content["generators"], strict=True):
            generator.set_state(kept)
        return int(content["step"])

    def _generators(self) -> list[torch.Generator]:
        """Those that the loader's order is drawn from, if they are the script's own."""
        loader = self._parts.loader
        if loader is None:
            return []
        found = [loader.generator, *(getattr(one, "generator", None) for one in (loader.sampler, loader.batch_sampler))]
        return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())

    def _slices(self, loader: DataLoader[Any], group: ProcessGroup) -> Iterator[Any]:
        if self._order is None:
            self.place.position = 0
            mine = order_to_bytes(draw_order(loader)) if self.is_first else b""
            self._order = order_from_bytes(group.bytes_of_first(mine))
        order = self._order
        self._draw_apart()
        seed = _number_of("reading", torch.initial_seed(), group.rank, self.place.epoch)
        reader = SlicedReader(loader, order, self.place.position, group.rank, group.size, seed)
        merges = MergeRule(MERGE_STEPS, total_steps=len(order))
        for weight, data in reader:
            self._safe_point()
            position = self.place.position
            self._weight, self._batch_size = weight, len(order[position])
            self._samples = round(weight * self._batch_size)
            yield data
            self._end_batch()
            if merges.merges(position):
                self._merge_buffers()

    def _end_batch(self) -> None:
        self.place.position += 1
        self.place.step += 1
        self._weight, self._drawn = 1.0, None

    def _end_pass(self) -> None:
        self.place.passes += 1
        self.place.position = 0

    def _check_loop(self, what: str) -> None:
        if not self._in_loop:
            raise BadInput(
                f"{what} read outside elastic.epochs: write `for epoch in elastic.epochs(N):` around the loop over its "
                "batches"
            )

    def _begin_loop(self) -> None:
        if self._in_loop:
            raise BadInput("elastic.epochs or elastic.steps is used a second time; a job trains in one loop")
        self._in_loop = True

    def _safe_point(self) -> None:
        """Between two batches: take the first worker's values where they differ; stop here if one was asked to."""
        if self._group is None:
            return
        if self._agreement.differs:
            self._agreement.differs = False
            self._take_states_of_first()
        if self._keeper is None:
            return
        stopping = self._agreement.stopping and not self._pending  # what is half accumulated is in no checkpoint
        if stopping:
            self._merge_buffers()
        self._keeper.after_step(self.place.step, finished=False, stopped=stopping)
        if stopping:
            _log.info("stopped-between-batches", step=self.place.step)
            raise SystemExit(0)

    def _finish(self) -> None:
        self._in_loop = False
        if self.finished:
            return
        self.finished = True
        if self._group is not None:
            self._merge_buffers()
            if self._keeper is not None:
                self._keeper.after_step(self.place.step, finished=True, stopped=False)

    def _on_step(self, optimizer: torch.optim.Optimizer, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Called by torch before a step of an optimizer.

        Raises:
            BadInput: a closure, which calls `backward()` as often as it likes; or parameters that were added.
        """
        if any(argument is not None for argument in (*args[1:], kwargs.get("closure"))):
            raise BadInput(
                "optimizer.step got a closure, which may call backward() more often in one worker than in another; "
                "use an optimizer that steps without one"
            )
        if _parameters_of(optimizer) != self._optimized[optimizer]:
            raise BadInput(
                "the optimizer has another number of parameters than when it was prepared; add parameters before "
                "elastic.prepare"
            )
        self._optimizer_steps += 1
        self._pending = 0

    def _begin_agreement(self, got_gradient: Sequence[bool]) -> Any:
        self._backwards += 1
        self._pending += bool(self._parts.optimizers)  # without one nobody knows what is accumulated
        return self._agreement.begin(got_gradient)

    def _named_facts(self) -> dict[str, int]:
        optimizers = [
            {name: value for name, value in group.items() if name != "params"} | {"parameters": len(group["params"])}
            for optimizer in self._parts.optimizers
            for group in optimizer.param_groups
        ]
        facts = {
            "batches": self.place.step,
            "calls of backward()": self._backwards,
            "steps of the optimizer": self._optimizer_steps,
            "the optimizer's settings": digest(optimizers),
        }
        if self._drawn is not None:
            facts["the random numbers drawn before elastic.rows"] = self._drawn
        if self._parts.others:
            facts["the schedulers' states"] = digest([other.state_dict() for other in self._parts.others])
        return facts

    def _states_digest(self) -> int:
        return digest([state.digest() for state in self._states])

    def _wants_stop(self) -> bool:
        return self._keeper is not None and self._keeper.stop_requested

    def _reach(self, step: int) -> Reach:
        samples = step * (self._parts.loader.batch_size or 1 if self._parts.loader is not None else self._batch_size)
        length = max(1, self._length if self._parts.loader is None else len(self._parts.loader))
        return Reach(samples, step / length, float(self._epochs), self._epochs * length)

    def _tensors(self) -> list[tuple[str, torch.Tensor]]:
        model = self._parts.model
        return [*model.named_parameters(), *model.named_buffers()]

    def _share_model(self, group: ProcessGroup) -> None:
        named = [(name, list(tensor.shape), str(tensor.dtype)) for name, tensor in self._tensors()]
        mine = repr(named).encode()
        first = group.bytes_of_first(mine)
        if not group.all_true(first == mine):
            theirs = "" if first == mine else "; worker 0 has another one than this"
            raise ModelMismatch(f"the workers do not prepare the same model{theirs}: all have to run the same script")
        with torch.no_grad():
            for _, tensor in self._tensors():
                group.take_from_first(tensor)

    def _merge_buffers(self) -> None:
        if self._group is not None and self._group.size > 1 and self.place.step:
            merge_buffers(self._parts.model, self._group, self._samples, self._batch_size)

    def _take_states_of_first(self) -> None:
        assert self._group is not None  # noqa: S101  (narrows the type)
        buffer = BytesIO()
        if self.is_first:
            torch.save([state.content(plain_only=True) for state in self._states], buffer)
        content = torch.load(BytesIO(self._group.bytes_of_first(buffer.getvalue())), weights_only=True)
        if not self.is_first:
            for state, kept in zip(self._states, content, strict=True):
                state.take(kept)

    def _share_random_numbers(self) -> None:
        """Let all workers draw what the first one draws, until the model computes."""
        if self._group is None or self._group.size == 1:
            return
        buffer = BytesIO()
        if self.is_first:
            torch.save(_random_numbers(), buffer)
        kept = torch.load(BytesIO(self._group.bytes_of_first(buffer.getvalue())), weights_only=True)
        if not self.is_first:
            _put_random_numbers(kept)

    def _draw_apart(self) -> None:
        """From here on a worker draws numbers of its own: samples are changed, and neurons left out, by others."""
        assert self._group is not None  # noqa: S101  (narrows the type)
        if self.is_first:
            return
        number = _number_of("worker", torch.get_rng_state().numpy().tobytes(), self._group.rank)
        torch.manual_seed(number)
        random.seed(number)
        np.random.seed(number % 2**32)

    def _on_forward(self, *_arguments: Any) -> None:
        """Called by torch before the model computes: what it draws, as for dropout, is each worker's own."""
        if not self._draws_alike or self._alike is not None:
            return
        assert self._group is not None  # noqa: S101  (narrows the type)
        self._alike = torch.get_rng_state()
        if not self.is_first:
            torch.manual_seed(_number_of("worker", self._alike.numpy().tobytes(), self._group.rank))
        self._apart = torch.get_rng_state()

    def _on_forward_end(self, *_arguments: Any) -> None:
        """Called after it: from here on all draw alike again, and where they stood, unless the model has drawn."""
        if self._alike is None:
            return
        alike, self._alike = self._alike, None
        if torch.equal(torch.get_rng_state(), self._apart):
            torch.set_rng_state(alike)
        else:
            torch.default_generator.manual_seed(_number_of("all", alike.numpy().tobytes()))


def _parameters_of(optimizer: torch.optim.Optimizer) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)


def _number_of(*words: object) -> int:
    text = " ".join(map(str, words)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1


def _random_numbers() -> dict[str, Any]:
    """Where the generators stand that scripts draw from: torch's on the CPU, Python's and numpy's."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "python": [version, torch.tensor(words), gauss],
        "numpy": [kind, torch.from_numpy(np.array(keys, dtype=np.int64)), position, has_gauss, cached],
    }


def _put_random_numbers(kept: dict[str, Any]) -> None:
    torch.set_rng_state(kept["torch"])
    version, words, gauss = kept["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    kind, keys, position, has_gauss, cached = kept["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
