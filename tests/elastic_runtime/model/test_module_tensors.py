"""A PyTorch module is described as it is trained and saved; what cannot be laid out flat is refused by name."""

import pytest
import torch
from torch import nn

from elastic_runtime.errors import BadInput
from elastic_runtime.model.layout import TensorSpec, build_layout
from elastic_runtime.model.module_tensors import describe_model, persistent_buffers, trained_parameters


class Everything(nn.Module):
    """Ties, frozen and odd parameters, buffers of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.out = nn.Linear(3, 5, bias=False)
        self.out.weight = self.embedding.weight
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.scale = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
        self.nothing = nn.Parameter(torch.empty(0, 4, dtype=torch.bfloat16))
        self.register_buffer("mask", torch.ones(2, 2, dtype=torch.bool))
        self.register_buffer("scratch", torch.ones(9), persistent=False)
        self.register_buffer("absent", None)
        self.same_norm = self.norm


def test_what_is_trained_and_what_is_saved_is_described_once_in_the_models_order() -> None:
    parameters, buffers = describe_model(Everything())
    assert parameters == [
        TensorSpec("scale", (), "float64"),
        TensorSpec("nothing", (0, 4), "bfloat16"),
        TensorSpec("embedding.weight", (5, 3), "float32"),
        TensorSpec("norm.weight", (3,), "float32"),
        TensorSpec("norm.bias", (3,), "float32"),
    ]
    assert buffers == [
        TensorSpec("mask", (2, 2), "bool"),
        TensorSpec("norm.running_mean", (3,), "float32"),
        TensorSpec("norm.running_var", (3,), "float32"),
        TensorSpec("norm.num_batches_tracked", (), "int64"),
    ]
    assert build_layout(parameters, buffers).total_bytes == 8 + 4 * (15 + 6) + 4 + 4 * 6 + 8


def test_the_tensors_are_the_models_own() -> None:
    model = Everything()
    assert trained_parameters(model)["embedding.weight"] is model.out.weight
    assert persistent_buffers(model)["norm.running_mean"] is model.norm.running_mean


def test_views_of_one_flat_array_may_lie_side_by_side() -> None:
    model = nn.Linear(4, 4)
    flat = torch.zeros(20)
    model.weight.data, model.bias.data = flat[:16].view(4, 4), flat[16:]
    assert len(describe_model(model)[0]) == 2


def module(tensor: torch.Tensor, buffer: bool = False) -> nn.Module:
    made = nn.Linear(2, 2)
    if buffer:
        made.register_buffer("odd", tensor)
    else:
        made.odd = nn.Parameter(tensor)
    return made


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.ReLU(), "nothing to train"),
        (nn.Linear(2, 2).requires_grad_(False), "nothing to train"),
        (module(torch.ones(2, dtype=torch.complex64)), "parameter 'odd' is of complex64: use one of float64"),
        (module(torch.ones(2, dtype=torch.complex64), buffer=True), "buffer 'odd' is of complex64"),
        (module(torch.ones(2, 2).to_sparse(), buffer=True), "buffer 'odd' is sparse"),
        (module(torch.ones(2, device="meta")), "'odd' has no values (device meta)"),
        (module(torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last)), "'odd' is not contiguous"),
        (nn.LazyLinear(3), "'weight' has no shape yet: run the model once"),
    ],
)
def test_what_cannot_be_laid_out_is_refused_by_name(model: nn.Module, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        describe_model(model)
    assert message in str(caught.value)


def test_two_parameters_in_the_same_memory_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    first, second = model[0], model[1]
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    second.weight.data = first.weight.data
    with pytest.raises(BadInput, match=r"'0.weight' and '1.weight' share memory"):
        describe_model(model)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_quantized_buffer_is_refused() -> None:
    with pytest.raises(BadInput, match="'odd' is of qint8"):
        describe_model(module(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), buffer=True))
