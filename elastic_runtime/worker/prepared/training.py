"""A script's prepared training: what is shared by its workers, where it goes on, and when all of them stop.

Between two batches all workers have the same model, optimizer and schedulers. There they may stop, with a checkpoint
from which others, of whatever number, go on: the script runs again up to its loop, which begins with the batch that
comes next.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from operator import is_not
from typing import Any

import numpy as np
import structlog
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Subset

from elastic_runtime.checkpoint.rank_files import RankFiles
from elastic_runtime.errors import BadInput, ModelMismatch
from elastic_runtime.model.buffer_merge import MergeRule
from elastic_runtime.model.data_shards import slice_bounds
from elastic_runtime.model.module_tensors import persistent_buffers
from elastic_runtime.worker.prepared.agreement import Agreement, digest
from elastic_runtime.worker.prepared.increments import IncrementSums
from elastic_runtime.worker.prepared.loader import (
    Order,
    SlicedReader,
    draw_order,
    order_from_bytes,
    order_to_bytes,
    samplers_of,
)
from elastic_runtime.worker.prepared.user_state import State, content_of, digest_of, restore, without_numpy
from elastic_runtime.worker.ranks.gradient_buckets import merge_buffers
from elastic_runtime.worker.ranks.process_group import ProcessGroup
from elastic_runtime.worker.ranks.rank_keeper import STOP, RankKeeper, Reach
from elastic_runtime.worker.ranks.rank_pod import RankPlace, RankPod
from elastic_runtime.worker.script_guards import HookGuard, is_left_on_purpose

_log = structlog.get_logger()
MERGE_STEPS = 20
"""Batches after which buffers, such as batch norm's running statistics, are merged; and at the end of each epoch."""
_DIGEST_STEPS = 20
"""Batches after which `elastic.state` is compared; and at the first one of each pass."""


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
        meeting: number of the group that this worker begins in; above 1 it joins others that train, at its loop.

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
        meeting: int = 1,
    ) -> None:
        self._parts, self._states, self._group = parts, states, group
        self.place = Place()
        self.finished = False
        self._order: Order | None = None
        self._kept_states: list[dict[str, Any]] = []
        self._resumed: dict[str, Any] | None = None
        self._passes_to_skip = 0
        self._in_loop = self._looped = False
        self._thread = threading.get_ident()
        self._hook_guard = HookGuard(parts.model)
        self._trained = parts.trained
        self._smallest = 2 if any(isinstance(module, _BatchNorm) for module in parts.model.modules()) else 1
        self._epochs = 1
        self._weight = 1.0
        self._samples = 0
        self._batch_size = 1
        self._backwards = self._optimizer_steps = 0
        self._draws_alike = False
        self._drawn: int | None = None
        self._alike: torch.Tensor | None = None
        self._apart = torch.empty(0)
        self._length = 1
        self._keeper: RankKeeper | None = None
        self._meeting = meeting
        self._catches_up = meeting > 1
        self._optimized = {optimizer: _parameters_of(optimizer) for optimizer in parts.optimizers}
        for optimizer in parts.optimizers:
            optimizer.register_step_pre_hook(self._on_step)
        if group is None:
            return
        if not self._catches_up:
            self._share_model(group)
        self._agreement = Agreement(group, self._named_facts, self._states_digest, self._wish)
        self._sums = IncrementSums(parts.trained, group, self._weight_of_backward, self._begin_agreement)
        parts.model.register_forward_pre_hook(self._on_forward)
        parts.model.register_forward_hook(self._on_forward_end, always_call=True)
        if files is not None:
            pod = None if pod_place is None else RankPod(pod_place, group.rank, group.size)
            self._keeper = RankKeeper(files, self, self._reach, group, pod, live=pod is None and group.may_meet)
            if not self._catches_up:
                self._keeper.begin()

    def __deepcopy__(self, _memo: dict[int, Any]) -> PreparedTraining:
        """Itself: a copy of the model, such as an average of it, has hooks that name this."""
        return self

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
            restore(state, self._kept_states[len(self._states)])
        self._states.append(state)

    def epochs(self, start: int, stop: int) -> Iterator[int]:
        """The epochs that are left; the one that the job was in again, as far as it is left."""
        self._begin_loop()
        self._epochs = stop - start
        try:
            while not self.finished and self.place.epoch < self._epochs:
                yield start + self.place.epoch
                self.place = Place(self.place.epoch + 1, step=self.place.step)
                if not self._all_go_on(True):
                    break
        except GeneratorExit:
            if not is_left_on_purpose():
                raise
            self._all_go_on(False)
        self._finish()

    def steps(self, count: int) -> Iterator[int]:
        """The steps that are left, one loop over all of them; see `each`."""
        if self._parts.loader is not None:
            raise BadInput("elastic.steps beside a prepared loader: read the loader in elastic.epochs, or leave it out")
        self._begin_loop()
        try:
            if not self.finished:
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
        try:
            while self.place.position < len(items):
                self._safe_point()
                self._draws_alike = self._group is not None and self._group.size > 1
                self._share_random_numbers()
                yield items[self.place.position]
                self._end_batch()
        finally:
            self._draws_alike = False
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
        start, stop = slice_bounds(count, self._group.size, self._smallest)[self._group.rank]
        self._weight, self._samples, self._batch_size = (stop - start) / count, stop - start, count
        self._drawn = _number_of(torch.get_rng_state().numpy().tobytes()) >> 8
        return slice(start, stop) if start < stop else slice(0, self._smallest)

    def weigh(self, count: float) -> None:
        """Let this worker's slice count by so many of what its loss is a mean over, such as tokens."""
        if self._group is not None and self._group.size > 1 and not self._catches_up:
            mine = float(count) if self._weight else 0.0  # one without samples computes for nothing
            total = float(self.sum(mine))
            self._weight = mine / total if total else 0.0

    def sum(self, value: Any) -> Any:
        """The sum of every worker's value, a number or a tensor; all workers have to ask.

        A worker for which a batch has no sample computes one for nothing; what it gives then counts as zero. One that
        has joined gets its own value until its first batch: the others are through with what comes before.
        """
        if self._group is None or self._catches_up:
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
            "gradients": [None if one.grad is None else one.grad.detach().cpu() for one in self._trained],
            "optimizers": [without_numpy(optimizer.state_dict()) for optimizer in self._parts.optimizers],
            "others": [without_numpy(other.state_dict()) for other in self._parts.others],
            "states": [without_numpy(content_of(state)) for state in self._states],
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
        for (name, tensor), kept in zip(self._tensors(), content["tensors"], strict=True):
            if tensor.shape != kept.shape:
                raise ModelMismatch(
                    f"{name} is {list(tensor.shape)}, and {list(kept.shape)} in the job's checkpoint; submit the "
                    "changed script as another job"
                )
        self.place = Place(**content["prepared"])
        self._passes_to_skip = self.place.passes
        order = content["order"]
        self._order = None if order is None else order_from_bytes(order.numpy().tobytes())
        self._backwards, self._optimizer_steps = content["counts"]
        self.finished = content["finished"]
        self._kept_states = content["states"]
        self._resumed = None if self.finished else content
        self._restore(content)
        return int(content["step"])

    def _restore(self, content: dict[str, Any]) -> None:
        """Put values, states and random numbers back; also at the first batch, as the script has run up to it again."""
        with torch.no_grad():
            for (_, tensor), kept in zip(self._tensors(), content["tensors"], strict=True):
                tensor.copy_(kept)
            for parameter, kept in zip(self._trained, content["gradients"], strict=True):
                parameter.grad = None if kept is None else kept.to(parameter.device)
        for object_, kept in zip(
            (*self._parts.optimizers, *self._parts.others), (*content["optimizers"], *content["others"]), strict=True
        ):
            object_.load_state_dict(kept)
        for state, kept in zip(self._states, content["states"], strict=False):
            restore(state, kept)
        _put_random_numbers(content["random"])
        for generator, kept in zip(self._generators(), content["generators"], strict=True):
            generator.set_state(kept)

    def _generators(self) -> list[torch.Generator]:
        """Those that the loader's order is drawn from, if they are the script's own."""
        loader = self._parts.loader
        if loader is None:
            return []
        found = [loader.generator, *(getattr(one, "generator", None) for one in samplers_of(loader))]
        return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())

    def _slices(self, loader: DataLoader[Any], group: ProcessGroup) -> Iterator[Any]:
        if self._order is None:
            self.place.position = 0
            mine = order_to_bytes(draw_order(loader)) if self.is_first else b""
            self._order = order_from_bytes(group.bytes_of_first(mine))
        order = self._order
        place, rank, size = self.place, group.rank, group.size
        seed = _number_of("reading", torch.initial_seed(), rank, place.epoch, place.passes)
        reading = iter(SlicedReader(loader, order, place.position, rank, size, self._smallest, seed))
        merges = MergeRule(MERGE_STEPS, total_steps=len(order))
        begins = place.position
        for position in range(begins, len(order)):
            self._safe_point()
            if group.size != size:  # what was read ahead was cut for another number of workers
                size = group.size
                reading = iter(SlicedReader(loader, order, position, rank, size, self._smallest, seed + position))
            if position == begins:
                self._draw_apart()
            self._weight, data = next(reading)
            self._batch_size = len(order[position])
            self._samples = round(self._weight * self._batch_size)
            yield data
            self._end_batch()
            if merges.merges(position):
                self._merge_buffers()

    def _end_batch(self) -> None:
        if threading.get_ident() != self._thread:
            raise BadInput("the prepared loader is read in another thread; read it in the one that prepared it")
        if len(self._trained) != len(now := self._parts.trained) or any(map(is_not, self._trained, now)):
            raise BadInput(
                "other parameters are trained than when the model was prepared; add, freeze and unfreeze them before "
                "elastic.prepare"
            )
        self._hook_guard.check()
        if self._group is not None:
            self._sums.check_closed()
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
                "batches; what is not trained with reads loader.loader"
            )

    def _begin_loop(self) -> None:
        if self._looped:
            raise BadInput("elastic.epochs or elastic.steps is used a second time; a job trains in one loop")
        self._in_loop = self._looped = True
        self._hook_guard.check()
        if self._catches_up and self._keeper is not None:
            self._keeper.join_running(self._meeting)

    def _safe_point(self) -> None:
        """Between two batches: take the first worker's values where they differ; stop here if one was asked to."""
        if self._group is None:
            return
        if self._agreement.differs:
            self._agreement.differs = False
            self._take_states_of_first()
        if self._resumed is not None:
            resumed, self._resumed = self._resumed, None
            self._restore(resumed)
        self._catches_up = False
        if self._keeper is None:
            return
        self._check_schedulers()
        wish, self._agreement.wish = self._agreement.wish, 0
        if wish:
            self._merge_buffers()
        self._keeper.after_step(self.place.step, finished=False, stopped=wish == STOP)
        if wish == STOP or (wish and not self._keeper.regroup(self.place.step)):
            _log.info("stopped-between-batches", step=self.place.step)
            raise SystemExit(0)

    def _check_schedulers(self) -> None:
        """Refuse a scheduler that would begin anew where the job goes on.

        Raises:
            BadInput: one steps an optimizer, and the job does not know of it.
        """
        known = [*self._parts.others, *(value for state in self._states for value in vars(state).values())]
        if any(isinstance(one, LRScheduler) for one in known):
            return
        if any(getattr(optimizer.step, "_wrapped_by_lr_sched", False) for optimizer in self._parts.optimizers):
            raise BadInput(
                "a scheduler steps the optimizer's learning rate, and would begin anew where the job goes on: give it "
                "to elastic.prepare, or, if it is made later, to elastic.state(scheduler=scheduler)"
            )

    def _all_go_on(self, mine: bool) -> bool:
        """Whether no worker has left its loop over the epochs."""
        return self._group is None or self._group.all_true(mine)

    def _finish(self) -> None:
        self._in_loop = False
        had_finished, self.finished = self.finished, True
        if self._group is not None:
            if not had_finished:
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

    def _weight_of_backward(self) -> float:
        if self._draws_alike and self._drawn is None:
            raise BadInput(
                "backward() before elastic.rows: take this worker's rows of the batch in every step of elastic.steps "
                "or elastic.each, or all workers compute the same"
            )
        return self._weight

    def _begin_agreement(self, got_gradient: Sequence[bool]) -> Any:
        self._backwards += 1
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
        if self.place.position and self.place.step % _DIGEST_STEPS:
            return 0
        return digest([digest_of(state) for state in self._states])

    def _wish(self) -> int:
        return 0 if self._keeper is None else self._keeper.wish

    def _reach(self, step: int) -> Reach:
        samples = step * (self._parts.loader.batch_size or 1 if self._parts.loader is not None else self._batch_size)
        length = max(1, self._length if self._parts.loader is None else len(self._parts.loader))
        return Reach(samples, step / length, float(self._epochs), self._epochs * length)

    def _tensors(self) -> list[tuple[str, torch.Tensor]]:
        return [*self._parts.model.named_parameters(), *persistent_buffers(self._parts.model).items()]

    def _share_model(self, group: ProcessGroup) -> None:
        named = [(name, list(tensor.shape), str(tensor.dtype)) for name, tensor in self._tensors()]
        loader = self._parts.loader
        data = None if loader is None else loader.dataset
        sizes = [] if loader is None else [len(loader), digest(list(data.indices)) if isinstance(data, Subset) else 0]
        mine = repr([named, sizes]).encode()
        first = group.bytes_of_first(mine)
        if not group.all_true(first == mine):
            theirs = "" if first == mine else "; worker 0 has another one than this"
            raise ModelMismatch(
                f"the workers do not prepare the same model and samples{theirs}: all have to run the same script, with "
                "the same seed where it splits its data"
            )
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
            torch.save([without_numpy(content_of(state, plain_only=True)) for state in self._states], buffer)
        content = torch.load(BytesIO(self._group.bytes_of_first(buffer.getvalue())), weights_only=True)
        if not self.is_first:
            for state, kept in zip(self._states, content, strict=True):
                restore(state, kept)

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
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


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
