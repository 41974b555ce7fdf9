"""A training whose result can be compared bit for bit: what the workers run, and the same without any of our processes.

Nothing but elementwise functions, so that neither vector instructions nor the place in memory changes a bit.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from elastic_runtime import Adam
from elastic_runtime.checkpoint import latest_durable, read_blocks
from elastic_runtime.model.layout import build_layout
from elastic_runtime.model.module_tensors import describe_model
from elastic_runtime.model.training import Training
from elastic_runtime.server.store import BlockStore

TENSORS = 6
ELEMENTS = 1024
SAMPLES = 18
GLOBAL_BATCH = 6
SEED = 4
Outcome = list[tuple[int, torch.Tensor, dict[str, torch.Tensor]]]


def optimizer() -> Adam:
    return Adam(lr=0.01)


class Tiny(nn.Module):
    """Some vectors, each as large as a block."""

    def __init__(self, tensors: int = TENSORS) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(9)
        self.vectors = nn.ParameterList(torch.randn(ELEMENTS, generator=generator) for _ in range(tensors))

    def loss(self, numbers: torch.Tensor) -> torch.Tensor:
        """The mean over samples, each a number."""
        losses = [
            torch.stack([(vector * number).sin().sum() for vector in self.vectors]).sum() for number in numbers.tolist()
        ]
        return torch.stack(losses).mean()


def samples() -> torch.Tensor:
    return torch.linspace(0.5, 2.0, SAMPLES)


def training(steps: int) -> Training:
    epochs = steps * GLOBAL_BATCH // SAMPLES
    assert epochs * SAMPLES == steps * GLOBAL_BATCH
    return Training(
        optimizer=optimizer(),
        samples=SAMPLES,
        global_batch=GLOBAL_BATCH,
        epochs=epochs,
        seed=SEED,
        buffer_merge_steps=1,
    )


def undisturbed(workers: Sequence[int]) -> Outcome:
    """The training with so many workers at each step, by one thread and one store."""
    model = Tiny()
    layout = build_layout(*describe_model(model))
    store = BlockStore(layout, optimizer())
    order, data = training(len(workers)).order(), samples()
    vectors = dict(model.named_parameters())
    (segment,) = layout.segments
    flat = torch.cat([vectors[slot.tensor.name].detach() for slot in segment.slots])
    for block in layout.blocks:
        store.adopt(block.index, flat[block.start : block.stop])
    for step, count in enumerate(workers):
        flat = torch.cat([store.snapshot(block.index).parameters for block in layout.blocks])
        for slot in segment.slots:
            vectors[slot.tensor.name].data.copy_(flat[slot.start : slot.start + slot.size])
        slices = []
        for index in range(count):
            indices = order.slice_indices(step, index, count)
            model.zero_grad()
            (model.loss(data[torch.as_tensor(indices)]) * (len(indices) / order.batch_size(step))).backward()
            slices.append(torch.cat([vectors[slot.tensor.name].grad for slot in segment.slots]))
        gradients = [[one[block.start : block.stop] for one in slices] for block in layout.blocks]
        store.apply([block.index for block in layout.blocks], gradients, step)
    states = [store.snapshot(block.index) for block in layout.blocks]
    return [(state.version, state.parameters, dict(state.state)) for state in states]


def written(checkpoints: Path) -> Outcome:
    """What the newest complete checkpoint holds."""
    manifest = latest_durable(checkpoints)
    assert manifest is not None
    states = sorted(read_blocks(manifest, range(len(manifest.layout.blocks))), key=lambda state: state.block)
    return [(state.version, state.parameters, dict(state.state)) for state in states]


def assert_same(got: Outcome, wanted: Outcome) -> None:
    """Bit for bit: versions, parameters, the optimizer's state."""
    for block, (one, other) in enumerate(zip(got, wanted, strict=True)):
        assert one[0] == other[0], f"version of block {block}"
        assert one[2].keys() == other[2].keys()
        for name, tensor in {"parameters": one[1], **one[2]}.items():
            expected = other[1] if name == "parameters" else other[2][name]
            assert torch.equal(tensor, expected), f"{name} of block {block}"
