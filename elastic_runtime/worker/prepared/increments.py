"""Gradients of a script's own `backward()`, summed over the workers before it returns.

What each backward pass adds is summed, and added to what lay in `grad` before: so a script may accumulate, clip and
look at gradients as if it trained alone. Sums are taken while the pass still runs; it ends with the sums' end, by a
callback of autograd's engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn
from torch.autograd import Variable

from elastic_runtime.errors import BadInput
from elastic_runtime.worker.ranks.gradient_buckets import GradientBuckets
from elastic_runtime.worker.ranks.process_group import ProcessGroup

Agree = Callable[[Sequence[bool]], Callable[[], list[bool]]]
"""Given which parameters got a gradient here, begins to agree; what it returns waits, and says which got one."""


class IncrementSums:
    """The gradients of a model over all workers of a group.

    Args:
        parameters: those that are trained, the same in every worker.
        weight: of this worker's slice in what is being computed; asked as a backward pass begins.
        agree: see above; raises where workers do not do the same.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], group: ProcessGroup, weight: Callable[[], float], agree: Agree
    ) -> None:
        self._parameters = list(parameters)
        self._buckets = GradientBuckets(self._parameters, group)
        self._weight, self._agree = weight, agree
        self._came: set[nn.Parameter] = set()
        self._before: dict[nn.Parameter, torch.Tensor] = {}
        self._hooks = [
            parameter.register_hook(partial(self._begin, parameter))  # type: ignore[no-untyped-call]  # torch's
            for parameter in self._parameters
        ]

    def check_closed(self) -> None:
        """Refuse to go on after a backward pass that was not ended.

        Raises:
            BadInput: the script has caught what it raised.
        """
        if self._came:
            raise BadInput(
                "a backward() ended with an error that the script caught; the other workers wait for its sums: let the "
                "error end the script"
            )

    def close(self) -> None:
        """Let the model's gradients be."""
        for hook in self._hooks:
            hook.remove()
        self._buckets.close()

    def _begin(self, parameter: nn.Parameter, gradient: torch.Tensor) -> None:
        """Called by autograd before it adds to a parameter's gradient; the buckets' hooks come after.

        Raises:
            BadInput: in a second part of the same pass, or with a graph of the gradient: the sum has neither.
        """
        if parameter in self._came:
            raise BadInput(
                "a parameter got its gradient in two parts within one backward pass; where checkpoints share a "
                "parameter, use torch.utils.checkpoint with use_reentrant=False"
            )
        if gradient.requires_grad:
            raise BadInput(
                "backward(create_graph=True) of a prepared model: the sum over the workers has no graph; take "
                "torch.autograd.grad with respect to inputs"
            )
        if not self._came:
            self._buckets.scale = self._weight()
            self._buckets.begin()
            Variable._execution_engine.queue_callback(self._end)
        self._came.add(parameter)
        self._set_aside(parameter)

    def _set_aside(self, parameter: nn.Parameter) -> None:
        if parameter.grad is not None:
            self._before[parameter] = parameter.grad.clone()  # it lies in a bucket, which takes what comes now
            parameter.grad = None

    def _end(self) -> None:
        """Called by autograd at the end of a backward pass, in the thread that called `backward()`."""
        came, self._came = self._came, set()
        for parameter in self._parameters:
            if parameter not in came:
                self._set_aside(parameter)
        if not all(map(self._buckets.has_taken, came)):
            raise BadInput(
                "torch.autograd.grad with respect to parameters of a prepared model gives this worker's slice alone; "
                "call backward(), and read their grad"
            )
        before, self._before = self._before, {}
        self._buckets.send_rest()
        wait = self._agree([parameter in came for parameter in self._parameters])
        self._buckets.finish()
        for parameter, got_one in zip(self._parameters, wait(), strict=True):
            if not got_one:  # nowhere: alone it would have none either
                parameter.grad = before.get(parameter)
            elif parameter in before and parameter.grad is not None:
                parameter.grad = before[parameter].add_(parameter.grad)
