"""The numbers of a parameter server: those of torch.optim, and the same bits however blocks lie."""

import mmap
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_runtime.model.buffer_merge import mean_
from elastic_runtime.model.layout import Layout, TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD, Adam, AdamW, Optimizer
from elastic_runtime.server.protocol.clipping import clip_scale
from elastic_runtime.server.store import BlockStore

OPTIMIZERS: list[Optimizer] = [
    SGD(lr=0.1),
    SGD(lr=0.1, weight_decay=0.01),
    SGD(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.01),
    SGD(lr=0.1, momentum=0.9, nesterov=True),
    Adam(lr=0.01),
    Adam(lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1, amsgrad=True),
    AdamW(lr=0.01, weight_decay=0.1),
]
DTYPES = ["float32", "float64", "bfloat16", "float16"]
IDS = [f"{one.kind}-{index}" for index, one in enumerate(OPTIMIZERS)]


def _layout(elements: int, dtype: str = "float32", block_bytes: int = 256) -> Layout:
    return build_layout([TensorSpec("weight", (elements,), dtype)], [], block_bytes)


def _gradients(elements: int, steps: int, slices: int, seed: int, dtype: str = "float32") -> torch.Tensor:
    numbers = torch.randn(steps, slices, elements, generator=torch.Generator().manual_seed(seed))
    return numbers.to(getattr(torch, dtype))


def _start(layout: Layout, optimizer: Optimizer, weights: torch.Tensor, blocks: list[int] | None = None) -> BlockStore:
    store = BlockStore(layout, optimizer)
    for block in layout.blocks if blocks is None else [layout.blocks[index] for index in blocks]:
        store.adopt(block.index, weights[block.start : block.stop])
    return store


def _apply(store: BlockStore, blocks: list[int], slices: torch.Tensor, step: int) -> None:
    places = [store.layout.blocks[block] for block in blocks]
    store.apply(blocks, [[one[place.start : place.stop] for one in slices] for place in places], step)


def _everything(stores: list[BlockStore]) -> dict[tuple[int, str], torch.Tensor]:
    found = {}
    for store in stores:
        for block in store.owned:
            state = store.view(block)
            found[block, "parameters"] = state.parameters
            found |= {(block, name): tensor for name, tensor in state.state.items()}
    return found


def _torch(optimizer: Optimizer, weights: torch.Tensor, **options: bool) -> torch.optim.Optimizer:
    plain = {name: getattr(optimizer, name) for name in ("lr", "weight_decay")}
    if isinstance(optimizer, SGD):
        momentum = {"momentum": optimizer.momentum, "dampening": optimizer.dampening, "nesterov": optimizer.nesterov}
        return torch.optim.SGD([weights], **plain, **momentum, **options)
    moments = {"betas": optimizer.betas, "eps": optimizer.eps, "amsgrad": optimizer.amsgrad}
    rule = torch.optim.AdamW if isinstance(optimizer, AdamW) else torch.optim.Adam
    return rule([weights], **plain, **moments, **options)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=IDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_numbers_are_those_of_torch_optim_on_the_same_sums(optimizer: Optimizer, dtype: str) -> None:
    layout = _layout(1003, dtype)
    weights = _gradients(1003, 1, 1, 7, dtype)[0, 0]
    fused, plain = weights.clone().requires_grad_(), weights.clone().requires_grad_()
    rules = [_torch(optimizer, fused, fused=True), _torch(optimizer, plain, foreach=False)]
    store = _start(layout, optimizer, weights)
    for step, slices in enumerate(_gradients(1003, 4, 4, 8, dtype)):
        _apply(store, sorted(store.owned), slices, step)
        for parameter, rule in zip((fused, plain), rules, strict=True):
            parameter.grad = slices[0] + slices[1] + slices[2] + slices[3]
            rule.step()
    found = torch.cat([store.view(block).parameters for block in sorted(store.owned)])
    half = dtype in ("bfloat16", "float16")
    same = plain if half and isinstance(optimizer, SGD) else fused  # fused SGD of half precision: pytorch issue 191763
    whole_vectors = 960  # what is left over torch steps by other instructions
    assert torch.equal(found[:whole_vectors], same.detach()[:whole_vectors])
    near = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 0.05, "float16": 0.01}[dtype]
    torch.testing.assert_close(found, same.detach(), rtol=near, atol=near)
    if not half:  # unfused, Adam's squares of half precision underflow
        torch.testing.assert_close(found, plain.detach(), rtol=near, atol=near)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_bit_depends_on_who_owns_which_block_nor_on_the_grouping_of_calls(data: st.DataObject) -> None:
    elements = data.draw(st.integers(1, 700))
    optimizer = data.draw(st.sampled_from(OPTIMIZERS))
    dtype = data.draw(st.sampled_from(DTYPES))
    slices = data.draw(st.integers(1, 4))
    layout = _layout(elements, dtype, data.draw(st.sampled_from([128, 256, 1024])))
    weights = _gradients(elements, 1, 1, 1, dtype)[0, 0]
    gradients = _gradients(elements, 3, slices, 2, dtype)
    whole = _start(layout, optimizer, weights)
    owners = [data.draw(st.integers(0, 2)) for _ in layout.blocks]
    parts = [_start(layout, optimizer, weights, [b for b, owner in enumerate(owners) if owner == k]) for k in range(3)]
    for step in range(3):
        _apply(whole, sorted(whole.owned), gradients[step], step)
        for part in parts:
            blocks = data.draw(st.permutations(sorted(part.owned)))
            cuts = sorted(data.draw(st.sets(st.integers(0, len(blocks))))) if blocks else []
            for start, stop in pairwise([0, *cuts, len(blocks)]):
                _apply(part, blocks[start:stop], gradients[step], step)
    expected, found = _everything([whole]), _everything(parts)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    assert {part.version(block) for part in parts for block in part.owned} == {3}


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=IDS)
def test_a_block_that_moved_goes_on_with_the_same_bits(optimizer: Optimizer) -> None:
    layout, weights, gradients = _layout(300), _gradients(300, 1, 1, 1)[0, 0], _gradients(300, 4, 2, 2)
    stayed, old = _start(layout, optimizer, weights), _start(layout, optimizer, weights)
    new = BlockStore(layout, optimizer)
    for step in range(4):
        if step == 2:
            for block in (1, 4):
                state = old.snapshot(block)
                old.release(block)
                new.adopt(block, state.parameters, state.state, state.version)
        _apply(stayed, sorted(stayed.owned), gradients[step], step)
        for store in (old, new):
            if store.owned:
                _apply(store, sorted(store.owned), gradients[step], step)
    assert old.owned == {0, 2, 3}
    assert new.owned == {1, 4}
    expected, found = _everything([stayed]), _everything([old, new])
    assert all(torch.equal(expected[key], found[key]) for key in expected)


def test_blocks_at_different_versions_are_each_at_their_own_step() -> None:
    layout, weights, gradients = _layout(128), _gradients(128, 1, 1, 1)[0, 0], _gradients(128, 3, 1, 2)
    together, apart = (_start(layout, Adam(lr=0.01), weights) for _ in range(2))
    for step in range(3):
        _apply(together, [0, 1], gradients[step], step)
    _apply(apart, [0], gradients[0], 0)
    mixed = [[gradients[1][0][:64]], [gradients[0][0][64:]]]
    apart.apply([0, 1], mixed, 1)
    apart.apply([1, 0], [[gradients[1][0][64:]], [gradients[2][0][:64]]], 2)
    _apply(apart, [1], gradients[2], 3)
    expected, found = _everything([together]), _everything([apart])
    assert all(torch.equal(expected[key], found[key]) for key in expected)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("clip_norm", [0.5, 1e6])
def test_clipping_by_global_norm_is_torchs_whatever_the_number_of_servers(servers: int, clip_norm: float) -> None:
    optimizer = SGD(lr=0.1, momentum=0.9, clip_norm=clip_norm)
    layout, weights, gradients = _layout(500), _gradients(500, 1, 1, 1)[0, 0], _gradients(500, 3, 2, 2)
    plain = weights.clone().requires_grad_()
    rule = _torch(optimizer, plain)
    whole = _start(layout, optimizer, weights)
    split = [_start(layout, optimizer, weights, list(range(k, len(layout.blocks), servers))) for k in range(servers)]
    for step, slices in enumerate(gradients):
        for stores in ([whole], split):
            norms: dict[int, float] = {}
            for store in stores:
                blocks = [layout.blocks[block] for block in sorted(store.owned)]
                arrived = [[part[place.start : place.stop] for part in slices] for place in blocks]
                store.reduce([place.index for place in blocks], arrived)
                norms |= store.squared_norms()
            for store in stores:
                store.apply_reduced(sorted(store.owned), clip_scale(norms, clip_norm), step)
        plain.grad = slices[0] + slices[1]
        torch.nn.utils.clip_grad_norm_([plain], clip_norm)
        rule.step()
    expected, found = _everything([whole]), _everything(split)
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    torch.testing.assert_close(torch.cat([whole.view(b).parameters for b in sorted(whole.owned)]), plain.detach())
    assert whole.squared_norms() == {}


def test_buffers_become_the_mean_over_samples_and_whole_numbers_the_largest() -> None:
    specs = [TensorSpec("mean", (5,), "float32"), TensorSpec("count", (), "int64"), TensorSpec("seen", (2,), "bool")]
    layout = build_layout([], specs)
    store = BlockStore(layout, Adam())
    start = {"float32": torch.ones(5), "int64": torch.tensor([3]), "bool": torch.tensor([True, False])}
    for block in layout.blocks:
        store.adopt(block.index, start[layout.segments[block.segment].dtype])
        assert store.state_names(block.index) == ()
    arrived = [
        [torch.full((5,), 1.0), torch.full((5,), 5.0)],
        [torch.tensor([2**62 + 1]), torch.tensor([4])],
        [torch.tensor([False, False]), torch.tensor([False, True])],
    ]
    store.apply([0, 1, 2], arrived, 0, [3, 1])
    assert store.view(0).parameters.tolist() == [2.0] * 5
    assert store.view(1).parameters.tolist() == [2**62 + 1]
    assert store.view(2).parameters.tolist() == [False, True]
    store.pass_over([0])
    assert [store.version(block) for block in range(3)] == [2, 1, 1]
    store.apply([0], [arrived[0]], 0)
    assert store.view(0).parameters.tolist() == [3.0] * 5  # without samples all count the same
    with pytest.raises(ValueError, match="3 counts of samples"):
        store.apply([0], [arrived[0]], 0, [1, 1, 1])
    with pytest.raises(ValueError, match="buffers have no gradient"):
        store.reduce([0], [arrived[0]])


@given(
    values=st.lists(st.floats(-6e4, 6e4, width=16), min_size=1, max_size=6),
    samples=st.lists(st.integers(0, 2**20), min_size=1, max_size=6).filter(any),
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_buffers_that_are_equal_everywhere_stay_as_they_are(
    dtype: str, values: list[float], samples: list[int]
) -> None:
    buffer = torch.tensor(values, dtype=getattr(torch, dtype))
    merged = torch.zeros_like(buffer)
    mean_(merged, [buffer] * len(samples), samples)
    assert torch.equal(merged, buffer)


@given(st.lists(st.tuples(st.floats(-100, 100, width=16), st.integers(1, 1000)), min_size=2, max_size=16))
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_mean_of_buffers_is_rounded_once(dtype: str, parts: list[tuple[float, int]]) -> None:
    rounded = [torch.tensor([value], dtype=getattr(torch, dtype)) for value, _ in parts]
    samples = [count for _, count in parts]
    exact = sum(
        (Fraction(float(part)) * count for part, count in zip(rounded, samples, strict=True)), Fraction(0)
    ) / sum(samples)
    merged = torch.zeros_like(rounded[0])
    mean_(merged, rounded, samples)
    allowed = torch.finfo(merged.dtype).eps / 2 * 1.001 * abs(exact) + torch.finfo(merged.dtype).smallest_normal
    assert abs(Fraction(float(merged)) - exact) <= allowed


def test_a_part_without_samples_does_not_count_whatever_it_holds() -> None:
    merged = torch.zeros(2)
    mean_(merged, [torch.tensor([float("inf"), float("nan")]), torch.ones(2)], [0, 7])
    assert merged.tolist() == [1.0, 1.0]
    mean_(merged, [torch.zeros(2)], [0])
    assert merged.tolist() == [1.0, 1.0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", DTYPES)
def test_read_only_message_memory_is_taken_as_it_is_and_never_written(dtype: str) -> None:
    layout = _layout(100, dtype, 1024)
    gradients = _gradients(100, 2, 2, 3, dtype)
    stores = [_start(layout, SGD(lr=0.1, momentum=0.9), torch.ones(100, dtype=gradients.dtype)) for _ in range(3)]
    for step in range(2):
        raw = [part.view(torch.uint8).numpy().tobytes() for part in gradients[step]]
        odd = [memoryview(b"x" + part)[1:] for part in raw]
        arrays = [np.frombuffer(part, dtype=np.uint8) for part in raw]
        assert not arrays[0].flags.writeable
        for store, slices in zip(stores, (raw, odd, arrays), strict=True):
            store.apply([0], [slices], step)
        assert raw == [part.view(torch.uint8).numpy().tobytes() for part in gradients[step]]
    reference = _start(layout, SGD(lr=0.1, momentum=0.9), torch.ones(100, dtype=gradients.dtype))
    for step in range(2):
        _apply(reference, [0], gradients[step], step)
    for store in stores:
        assert torch.equal(store.view(0).parameters, reference.view(0).parameters)


@pytest.mark.parametrize(
    ("blocks", "gradients", "message"),
    [
        ([0, 9], [[torch.ones(64)]] * 2, "block 9 is not held"),
        ([0, 0], [[torch.ones(64)]] * 2, "given twice"),
        ([0, 1], [[torch.ones(64)], []], "a slice at least"),
        ([0, 1], [[torch.ones(64)]], "a slice at least"),
        ([0, 1], [[torch.ones(64)], [torch.ones(63)]], "is due"),
        ([0, 1], [[torch.ones(64)], [torch.ones(64, dtype=torch.float64)]], "float64"),
        ([0, 1], [[torch.ones(64)], [b"x" * 255]], "255 bytes"),
        ([0, 1], [[torch.ones(64)], [np.ones((64, 2), dtype=np.float32)[:, 0]]], "no contiguous memory"),
        ([0, 1], [[torch.ones(64)], [None]], "no contiguous memory"),
    ],
)
def test_a_step_that_does_not_fit_changes_nothing(blocks: list[int], gradients: list[list], message: str) -> None:
    store = _start(_layout(128), SGD(lr=1.0), torch.zeros(128))
    with pytest.raises(ValueError, match=message):
        store.apply(blocks, gradients, 0)
    assert not any(store.view(block).parameters.any() for block in (0, 1))
    assert [store.version(block) for block in (0, 1)] == [0, 0]


def test_a_block_is_adopted_once_and_with_all_of_its_state() -> None:
    store = _start(_layout(128), Adam(), torch.zeros(128), [0])
    for arguments, message in [
        ((0, torch.ones(64)), "held already"),
        ((1, torch.ones(64), {"exp_avg": torch.ones(64)}, 3), "where"),
        ((1, torch.ones(64), {}, 3), "where"),
        ((1, torch.ones(65)), "is due"),
    ]:
        with pytest.raises(ValueError, match=message):
            store.adopt(*arguments)
    assert store.owned == {0}
    with pytest.raises(ValueError, match="block 1 is not held"):
        store.release(1)
    with pytest.raises(ValueError, match="no reduced gradient"):
        store.apply_reduced([0], 1.0, 0)


@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE], ids=["shared", "private"])
def test_parameters_may_lie_in_memory_that_others_read(flags: int) -> None:
    shared = mmap.mmap(-1, 4 * 100_000, flags=flags | mmap.MAP_ANONYMOUS)
    layout = _layout(100_000, block_bytes=200_000)
    store = BlockStore(layout, SGD(lr=1.0), {(0, "parameters"): shared})
    seen = np.frombuffer(shared, dtype=np.float32)
    store.adopt(0, torch.full((49_984,), 3.0))
    store.adopt(1, torch.full((49_984,), 4.0))
    store.apply([0], [[torch.ones(49_984)]], 0)
    assert seen[:49_984].min() == seen[:49_984].max() == 2.0
    assert (seen[49_984:99_968] == 4.0).all()
    store.release(0)
    assert (seen[49_984:99_968] == 4.0).all()
    assert (seen[1024:49_000] == 0.0).all()
    with pytest.raises(ValueError, match="for a segment of"):
        BlockStore(layout, SGD(lr=1.0), {(0, "parameters"): bytearray(17)})
    with pytest.raises(ValueError, match="read-only"):
        BlockStore(layout, SGD(lr=1.0), {(0, "parameters"): bytes(400_000)})


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123  # not a file
        return int(file.read().split()[1]) * mmap.PAGESIZE


def test_memory_is_there_for_owned_blocks_only_and_goes_back() -> None:
    mebibyte = 2**20
    layout = _layout(256 * mebibyte, block_bytes=16 * mebibyte)  # a gibibyte, and two more of state
    before = _resident_bytes()
    store = BlockStore(layout, Adam())
    store.adopt(3, torch.ones(4 * mebibyte))
    held = _resident_bytes() - before
    assert 40 * mebibyte < held < 90 * mebibyte
    store.release(3)
    assert _resident_bytes() - before < 30 * mebibyte
