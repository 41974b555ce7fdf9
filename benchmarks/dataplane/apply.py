"""A server's step against the memory's speed: its traffic against that of `add_`, in one run.

Both sides are counted by the bytes that the arithmetic cannot do without, whatever caches do: `add_` reads two arrays
and writes one; Adam reads four and writes three. Before each measurement other memory is written, so that neither
side finds in a cache what the other left there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from elastic_runtime.model.layout import TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD, Adam, Optimizer
from elastic_runtime.server.store import BlockStore

MODEL_MB = (25, 102)
_OPTIMIZERS: dict[str, tuple[Optimizer, int]] = {
    "sgd": (SGD(lr=1e-3), 3),
    "momentum": (SGD(lr=1e-3, momentum=0.9), 5),
    "adam": (Adam(lr=1e-3), 7),
}
"""Each with how many arrays a step reads or writes."""
_ADD_ARRAYS = 3
_FLOAT_BYTES = 4
_CACHE_BYTES = 128 * 1024**2
"""Above the last-level caches of today's servers."""


def apply_over_add(
    model_mb: Sequence[float] = MODEL_MB, rounds: int = 9, clock: Callable[[], float] = time.thread_time
) -> dict[str, Any]:
    """Bytes a second of `BlockStore.apply`, one slice, over those of `Tensor.add_`; one thread, interleaved, medians.

    Args:
        model_mb: sizes of the model, in 10⁶ bytes of float32.
        rounds: how often each is measured.
        clock: seconds; the default counts those of this thread, which does all the work, so that others who want the
            processor do not count.

    Returns:
        `runs`, each with the model's size, the optimizer, both speeds in GB/s and their ratio (the median of the
        ratios of the rounds), and `apply_over_add`, the smallest ratio.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        runs = [_run(mb, name, rounds, clock) for mb in model_mb for name in _OPTIMIZERS]
    finally:
        torch.set_num_threads(threads)
    return {"runs": runs, "apply_over_add": min(run["apply_over_add"] for run in runs)}


def _run(model_mb: float, name: str, rounds: int, clock: Callable[[], float]) -> dict[str, Any]:
    optimizer, arrays = _OPTIMIZERS[name]
    elements = int(model_mb * 1e6) // _FLOAT_BYTES
    layout = build_layout([TensorSpec("weight", (elements,), "float32")], [])
    seeded = torch.Generator().manual_seed(1)
    gradient, target, addend = (torch.randn(elements, generator=seeded) for _ in range(3))
    other = torch.empty(_CACHE_BYTES, dtype=torch.uint8)
    store = BlockStore(layout, optimizer)
    for block in layout.blocks:
        store.adopt(block.index, target[block.start : block.stop])
    blocks = [block.index for block in layout.blocks]
    slices = [[gradient[block.start : block.stop]] for block in layout.blocks]
    apply_seconds, add_seconds = [], []
    for step in range(rounds + 1):
        other.fill_(step)
        started = clock()
        store.apply(blocks, slices, step)
        ended = clock()
        other.fill_(step)
        add_started = clock()
        target.add_(addend)
        add_ended = clock()
        if step:  # the first step touches the memory for the first time
            apply_seconds.append(ended - started)
            add_seconds.append(add_ended - add_started)
    size_bytes = elements * _FLOAT_BYTES
    ratios = [arrays * add / (_ADD_ARRAYS * step) for add, step in zip(add_seconds, apply_seconds, strict=True)]
    return {
        "model_mb": model_mb,
        "optimizer": name,
        "apply_gb_per_second": arrays * size_bytes / statistics.median(apply_seconds) / 1e9,
        "add_gb_per_second": _ADD_ARRAYS * size_bytes / statistics.median(add_seconds) / 1e9,
        "apply_over_add": statistics.median(ratios),
    }
