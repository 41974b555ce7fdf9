"""What a worker sends lies in its regions: gradients of each slice apart, buffers as they are in the model."""

import secrets
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from elastic_runtime.model.layout import TensorKind, build_layout
from elastic_runtime.model.module_tensors import describe_model
from elastic_runtime.transport import Endpoint
from elastic_runtime.worker.parameter_servers import SharedModel


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint("worker-0", bind="tcp://127.0.0.1:0", job_token=secrets.token_hex(16)) as made:
        yield made


def test_buffers_are_sent_unscaled_whatever_their_dtype(endpoint: Endpoint) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, affine=False))
    model.register_buffer("small", torch.tensor([0.1, 60000.0, 6e-8], dtype=torch.float16))
    model.register_buffer("wide", torch.tensor([0.1, 3e38], dtype=torch.bfloat16))
    layout = build_layout(*describe_model(model))
    shared = SharedModel(endpoint, layout, model)
    model.get_buffer("1.num_batches_tracked").fill_(2**62 + 1)
    model.get_buffer("small").mul_(0.5)
    shared.take_buffers(bank=1)
    found = {}
    for segment in layout.segments:
        if segment.kind is TensorKind.BUFFER:
            memory = shared.part(segment.index, 0, segment.elements, bank=1).memory()
            flat = torch.frombuffer(memory, dtype=getattr(torch, segment.dtype))
            found |= {slot.tensor.name: flat[slot.start : slot.start + slot.size] for slot in segment.slots}
    assert found.keys() == dict(model.named_buffers()).keys()
    for name, buffer in model.named_buffers():
        assert torch.equal(found[name], buffer.reshape(-1)), name


def test_gradients_of_two_slices_lie_apart(endpoint: Endpoint) -> None:
    model = nn.Linear(2, 1, bias=False)
    layout = build_layout(*describe_model(model))
    shared = SharedModel(endpoint, layout, model)
    for bank, number in enumerate((3.0, 5.0)):
        shared.flat.use_gradients(bank)
        shared.flat.begin_backward()
        model(torch.full((1, 2), number)).sum().backward()
        shared.flat.finish_backward()
    for bank, number in enumerate((3.0, 5.0)):
        part = shared.part(0, 1, 2, bank)
        assert torch.frombuffer(part.memory(), dtype=torch.float32).tolist() == [number]
        assert part.region.descriptor is not None, "servers on this host read it in place"
