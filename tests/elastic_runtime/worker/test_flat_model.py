"""A model in flat memory computes what it computed before, and its banks hold what the model has."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from elastic_runtime.errors import BadInput, ModelMismatch
from elastic_runtime.model.layout import Layout, Segment, TensorKind, TensorSpec, build_layout
from elastic_runtime.worker.flat_model import Allocate, Bank, FlatModel, make_bank


def _layout(model: nn.Module) -> Layout:
    def spec(name: str, tensor: torch.Tensor) -> TensorSpec:
        return TensorSpec(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))

    parameters = [spec(name, tensor) for name, tensor in model.named_parameters() if tensor.requires_grad]
    return build_layout(parameters, [spec(name, tensor) for name, tensor in model.named_buffers()])


def _memory(name: str, size_bytes: int) -> memoryview:
    return memoryview(bytearray(size_bytes))


class _Small(nn.Module):
    """Tied, unused, scalar, empty and half-precision tensors; running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 7)
        self.out.weight = self.embed.weight
        self.unused = nn.Parameter(torch.ones(3))
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.empty = nn.Parameter(torch.zeros(0, 2))
        self.bias16 = nn.Parameter(torch.zeros(7, dtype=torch.bfloat16))
        self.bias64 = nn.Parameter(torch.zeros(7, dtype=torch.float64))
        self.register_buffer("mask", torch.tensor([True] * 7))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.embed(tokens)) * self.scale
        return (self.out(hidden) + self.bias16.float() + self.bias64.float()) * self.mask


def _model() -> _Small:
    torch.manual_seed(3)
    return _Small()


TOKENS = torch.tensor([0, 3, 5, 6, 6])
LABELS = torch.tensor([1, 2, 3, 4, 0])


def _loss(model: nn.Module) -> torch.Tensor:
    return nn.functional.cross_entropy(model(TOKENS), LABELS)


def _segments(layout: Layout, kind: TensorKind = TensorKind.PARAMETER) -> list[int]:
    return [segment.index for segment in layout.segments if segment.kind == kind]


def test_gradients_are_those_of_the_model_as_it_was_and_absent_ones_are_zero() -> None:
    plain, model = _model(), _model()
    layout = _layout(model)
    flat = FlatModel(model, layout, _memory)
    for index in _segments(layout):
        flat.gradients(index).fill_(99.0)
    _loss(plain).backward()
    flat.begin_backward()
    _loss(model).backward()
    flat.finish_backward()
    expected = {name: parameter.grad for name, parameter in plain.named_parameters()}
    for index in _segments(layout):
        for slot in layout.segments[index].slots:
            gradient = flat.gradients(index)[slot.start : slot.start + slot.size].view(slot.tensor.shape)
            wanted = expected[slot.tensor.name]
            assert torch.equal(gradient, torch.zeros_like(gradient) if wanted is None else wanted), slot.tensor.name
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_swap_brings_the_staged_values_and_keeps_the_parameters() -> None:
    model = _model()
    layout = _layout(model)
    flat = FlatModel(model, layout, _memory)
    parameters = list(model.parameters())
    before = copy.deepcopy(model.state_dict())
    for index in _segments(layout):
        assert torch.equal(
            flat.active(index), torch.cat([before[slot.tensor.name].flatten() for slot in layout.segments[index].slots])
        )
        flat.staging(index).copy_(flat.active(index) + 1)
    flat.swap()
    assert [id(parameter) for parameter in model.parameters()] == [id(parameter) for parameter in parameters]
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name] + 1)
    assert model.out.weight is model.embed.weight
    flat.swap()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])


def test_a_step_taken_in_the_banks_is_the_optimizers() -> None:
    plain, model = _model(), _model()
    flat = FlatModel(model, _layout(model), _memory)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        _loss(plain).backward()
        optimizer.step()
        flat.begin_backward()
        _loss(model).backward()
        flat.finish_backward()
        for index in _segments(_layout(model)):
            torch.add(flat.active(index), flat.gradients(index), alpha=-0.1, out=flat.staging(index))
        flat.swap()
    for (name, parameter), other in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(parameter, other), name


@pytest.fixture
def _device_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Banks as they are for an accelerator: the model computes with copies of what lies in the caller's memory."""

    def apart(allocate: Allocate, name: str, segment: Segment, device: torch.device) -> Bank:
        host = make_bank(allocate, name, segment, device).host
        copy_there = host.clone()
        parts = copy_there.split([slot.size for slot in segment.slots])
        views = (part.view(slot.tensor.shape) for part, slot in zip(parts, segment.slots, strict=True))
        return Bank(host, copy_there, tuple(views))

    monkeypatch.setattr("elastic_runtime.worker.flat_model.make_bank", apart)


@pytest.mark.usefixtures("_device_apart")
def test_a_model_on_an_accelerator_computes_with_copies() -> None:
    plain, model = _model(), _model()
    layout = _layout(model)
    flat = FlatModel(model, layout, _memory)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(3):
        for index in _segments(layout):
            flat.gradients(index).fill_(float("nan"))
        optimizer.zero_grad()
        _loss(plain).backward()
        optimizer.step()
        flat.begin_backward()
        _loss(model).backward()
        flat.finish_backward()
        assert all(bool(flat.gradients(index).isfinite().all()) for index in _segments(layout))
        for index in _segments(layout):
            torch.add(flat.active(index), flat.gradients(index), alpha=-0.1, out=flat.staging(index))
        flat.swap()
    for (name, parameter), other in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(parameter, other), name


def test_a_sparse_gradient_is_stored_dense() -> None:
    model = nn.Embedding(5, 2, sparse=True)
    flat = FlatModel(model, _layout(model), _memory)
    flat.begin_backward()
    model(torch.tensor([1, 1, 4])).sum().backward()
    flat.finish_backward()
    assert flat.gradients(0).view(5, 2)[:, 0].tolist() == [0, 2, 0, 0, 1]


def test_buffers_go_out_and_come_back() -> None:
    model = _model()
    layout = _layout(model)
    flat = FlatModel(model, layout, _memory)
    _loss(model)
    flat.collect_buffers()
    masks, floats, counts = _segments(layout, TensorKind.BUFFER)
    assert torch.equal(flat.buffers(floats), torch.cat([model.norm.running_mean, model.norm.running_var]))
    assert flat.buffers(counts).tolist() == [1]
    assert flat.buffers(masks).dtype == torch.bool
    flat.buffers(floats).fill_(4.0)
    flat.buffers(counts).fill_(9)
    model.norm.running_mean = torch.zeros(4)  # a module may replace its buffers
    flat.load_buffers()
    assert model.norm.running_mean.tolist() == [4.0] * 4
    assert int(model.norm.num_batches_tracked) == 9


def test_frozen_tensors_stay_where_they_are() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    before = model[0].weight.data_ptr()
    flat = FlatModel(model, _layout(model), _memory)
    assert model[0].weight.data_ptr() == before
    assert flat.active(0).numel() == 6


def test_an_rnn_gives_the_same_result_in_flat_memory() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(3, 4, num_layers=2)
    inputs = torch.randn(5, 2, 3)
    expected = model(inputs)[0]
    layout = _layout(model)
    flat = FlatModel(model, layout, _memory)
    assert torch.equal(model(inputs)[0], expected)
    for segment in layout.segments:
        own = flat.active(segment.index)
        ends = own.data_ptr() + own.numel() * own.element_size()
        names = {slot.tensor.name for slot in segment.slots}
        assert all(
            own.data_ptr() <= parameter.data_ptr() < ends
            for name, parameter in model.named_parameters()
            if name in names
        )


def test_a_released_model_needs_the_memory_no_more() -> None:
    model = _model()
    taken: list[memoryview] = []

    def allocate(_name: str, size_bytes: int) -> memoryview:
        taken.append(memoryview(bytearray(size_bytes)))
        return taken[-1]

    flat = FlatModel(model, _layout(model), allocate)
    before = copy.deepcopy(model.state_dict())
    flat.release()
    for memory in taken:
        memory[:] = bytes(memory.nbytes)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    _loss(model).backward()
    assert model.scale.grad is not None


def test_another_model_is_refused_by_its_first_tensor() -> None:
    with pytest.raises(ModelMismatch, match="no parameter 'weight'"):
        FlatModel(nn.Linear(2, 3), _layout(nn.Linear(3, 3)), _memory)


def test_tensors_that_share_memory_unknown_to_torch_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight.data = model[0].weight.data
    with pytest.raises(BadInput, match=r"'0.weight' and '1.weight' share memory"):
        FlatModel(model, _layout(model), _memory)


def test_too_little_memory_is_noticed() -> None:
    with pytest.raises(ValueError, match="active-0 wants 16 writable bytes, and was given 15"):
        FlatModel(
            nn.Linear(4, 1, bias=False), _layout(nn.Linear(4, 1, bias=False)), lambda *_: memoryview(bytearray(15))
        )
