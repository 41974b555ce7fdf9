"""Errors of an elastic job; every message says what was wrong, where, with the value, and what to do.

`ElasticError` is the root; each class says what a program ends with (`exit_code`). `BadInput` is for the user to mend,
and so are its kinds. Errors of gRPC, ZeroMQ, PyTorch and the system are translated where they are caught, and chained.
A caller that breaks a function's stated contract gets a ValueError: that is a fault of ours, not the user's.
"""

from __future__ import annotations

import functools
import sys
from types import TracebackType
from typing import ClassVar

from foundation.errors import BAD_INPUT, DONE, UNREACHABLE, ExpectedError


class ElasticError(ExpectedError):
    """Root of all errors raised by `elastic_runtime`. Exit code 1, unless a class says another one."""


class BadInput(ElasticError):
    """A setting, a script, a model, a request or a file cannot be used. Exit code 2."""

    exit_code: ClassVar[int] = BAD_INPUT


class ModelMismatch(BadInput):
    """Two models that have to be the same are not: a worker's and its job's, or a job's and a checkpoint's."""


class ResizeFailed(ElasticError):
    """A resize was refused or given up; the job goes on with the workers and PSs that it had. Exit code 1."""


class CheckpointError(ElasticError):
    """A checkpoint is damaged, or cannot be written; none that was complete is lost. Exit code 1."""


class CheckpointDamaged(CheckpointError):
    """A checkpoint is cut short, changed, or in part gone: no other try helps. An older one may be sound."""


class NotNeeded(ElasticError):
    """A task came when its job did without it already, or was started again in vain: nothing is wrong. Exit code 0."""

    exit_code: ClassVar[int] = DONE


class ProtocolError(ElasticError):
    """A message breaks the protocol: too large, cut short, out of order, or from somebody who may not send it."""


class CoordinatorUnreachable(ElasticError):
    """No coordinator answers at this address in time. Exit code 3."""

    exit_code: ClassVar[int] = UNREACHABLE


class CoordinatorMistrusted(CoordinatorUnreachable):
    """Who answers at this address does not show, such as by a certificate, that it is the job's coordinator."""


class CoordinatorUnproven(CoordinatorMistrusted, BadInput):
    """The answer does not show the job's token. Exit code 2; members that met the coordinator before wait for it."""

    exit_code: ClassVar[int] = BAD_INPUT


@functools.cache
def end_with_2_for_bad_input() -> None:
    """A script that ends by a `BadInput` ends with 2 from now on; Python's code for any exception is 1.

    Whoever started the script learns that another try would end the same. Its traceback ends where the script called
    us: what is wrong is there. Under torchrun it ends with 1, as torch's own hook stands around this one.
    """
    before = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, BadInput):
            _cut_at_the_script(trace)
        before(kind, error, trace)
        # The hook of torch.distributed gathers what this one prints, and has not written it yet.
        if isinstance(error, BadInput) and not hasattr(sys.stderr, "getvalue"):
            raise SystemExit(BadInput.exit_code)  # the interpreter ends with it, in good order

    sys.excepthook = end


def _cut_at_the_script(trace: TracebackType | None) -> None:
    """Leave out the frames below the last one that is not ours."""
    last = trace
    while trace is not None:
        if not str(trace.tb_frame.f_globals.get("__name__", "")).startswith("elastic_runtime"):
            last = trace
        trace = trace.tb_next
    if last is not None:
        last.tb_next = None
