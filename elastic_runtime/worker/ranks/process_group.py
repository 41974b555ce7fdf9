"""The processes that torchrun started, as a group that sums, takes maxima and agrees.

Nothing is pickled: only tensors travel. Every call has a deadline, and one that fails says that a process is gone.
"""

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.rendezvous import rendezvous

from elastic_runtime.errors import BadInput, ElasticError

RANK_VARIABLE = "RANK"
WORLD_VARIABLE = "WORLD_SIZE"
_ADDRESS_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
DEADLINE_SECONDS = 300.0
"""A step of the slowest process, its data included, has to fit; what takes longer counts as hanging."""
_POLL_SECONDS = 0.005
_groups = itertools.count()


class ProcessGroup:
    """torch.distributed's default group; joins it, and leaves it if it was not there before.

    Args:
        joins: whether it joins; else `meet` does.

    Raises:
        BadInput: variables are missing, or no numbers.
        ElasticError: the others do not come in time.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        device: torch.device,
        deadline_seconds: float = DEADLINE_SECONDS,
        *,
        joins: bool = True,
    ) -> None:
        missing = [name for name in (RANK_VARIABLE, WORLD_VARIABLE, *_ADDRESS_VARIABLES) if not environment.get(name)]
        if missing:
            raise BadInput(f"{', '.join(missing)} is not set, and {WORLD_VARIABLE} is: start the script with torchrun")
        self.device, self.deadline_seconds = device, deadline_seconds
        self.rank, self.size = (_number(environment, name) for name in (RANK_VARIABLE, WORLD_VARIABLE))
        self._host = environment[_ADDRESS_VARIABLES[0]]
        self._backend = "nccl" if device.type == "cuda" else "gloo"
        self._owned = not dist.is_initialized()
        self.joined = joins
        if self._owned:
            # What optimizers load later would, if it is loaded while there is a group, keep that group's threads alive
            # after its end; one of them that is still busy when the interpreter ends aborts the process.
            import_module("torch._dynamo")
            if joins:
                with self._translated():
                    self._begin()

    @property
    def may_meet(self) -> bool:
        """Whether the group is this one's own, and not the script's."""
        return self._owned

    def meet(self, size: int, say_port: Callable[[int], None], port_of_first: Callable[[], int | None]) -> None:
        """Leave the group, and form another of `size` processes, whose first one is this one's first too.

        Args:
            say_port: told by the first process where it listens.
            port_of_first: where it does, as the others hear it; None: it does not yet.

        Raises:
            ElasticError: the others do not come in time.
        """
        deadline = datetime.timedelta(seconds=self.deadline_seconds)
        with self._translated():
            if self.joined:
                dist.destroy_process_group()
            if self.rank == 0:
                store = TCPStore(self._host, 0, size, True, deadline, wait_for_workers=False)
                say_port(store.port)
            else:
                # A store's client that finds nobody would ask again much later only.
                store = TCPStore(self._host, self._waited_for(port_of_first), size, False, deadline)
            dist.init_process_group(
                self._backend, timeout=deadline, store=PrefixStore("elastic", store), rank=self.rank, world_size=size
            )
        self.size, self.joined = size, True

    def _waited_for(self, port_of_first: Callable[[], int | None]) -> int:
        until = time.monotonic() + self.deadline_seconds
        while (port := port_of_first()) is None:
            if time.monotonic() >= until:
                raise RuntimeError("the first process does not listen")
            time.sleep(_POLL_SECONDS)
        return port

    def _begin(self) -> None:
        """Join the others, under a name of its own: torchrun's store keeps those of an earlier group."""
        deadline = datetime.timedelta(seconds=self.deadline_seconds)
        store, rank, size = next(rendezvous("env://", timeout=deadline))
        store.set_timeout(deadline)
        named = PrefixStore(f"elastic-{next(_groups)}", store)
        dist.init_process_group(self._backend, timeout=deadline, store=named, rank=rank, world_size=size)

    def begin_sum(self, tensor: torch.Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Callable[[], None]:
        """Begin to replace a tensor by its sum over all processes; calling the returned function waits for it.

        All processes must begin their sums in the same order.
        """
        with self._translated():
            work = dist.all_reduce(tensor, op=op, async_op=True)

        def wait() -> None:
            with self._translated():
                if work is not None:
                    work.wait()

        return wait

    def begin_maximum(self, tensor: torch.Tensor) -> Callable[[], None]:
        """As `begin_sum`, by the largest of all processes for each element."""
        return self.begin_sum(tensor, dist.ReduceOp.MAX)

    def sum(self, tensor: torch.Tensor) -> None:
        """Replace a tensor by its sum over all processes."""
        self.begin_sum(tensor)()

    def maximum(self, tensor: torch.Tensor) -> None:
        """Replace each element by the largest of all processes."""
        self.begin_maximum(tensor)()

    def take_from_first(self, tensor: torch.Tensor) -> None:
        """Replace a tensor by that of the first process."""
        with self._translated():
            dist.broadcast(tensor, src=0)

    def bytes_of_first(self, mine: bytes) -> bytes:
        """What the first process has given here."""
        size = torch.tensor([len(mine)], device=self.device)
        self.take_from_first(size)
        first = torch.zeros(int(size), dtype=torch.uint8, device=self.device)
        if self.rank == 0 and mine:
            first.copy_(torch.frombuffer(bytearray(mine), dtype=torch.uint8))
        self.take_from_first(first)
        return bytes(first.cpu().numpy())

    def all_true(self, mine: bool) -> bool:
        """Whether it is true in every process."""
        false = torch.tensor([0 if mine else 1], device=self.device)
        self.maximum(false)
        return int(false) == 0

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:
            first_line = str(error).partition("\n")[0][:200]
            raise ElasticError(
                f"process {self.rank} lost the others, or they did not come in {self.deadline_seconds:g} s: "
                f"{first_line}; see what the first of them to end has said"
            ) from error

    def close(self) -> None:
        """Leave; may be called again."""
        if self._owned and dist.is_initialized():
            dist.destroy_process_group()
        self._owned = False


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError as error:
        raise BadInput(f"{name} is {environment[name][:80]!r}; torchrun sets it to a whole number") from error
