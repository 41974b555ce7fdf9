"""Every element lies in exactly one block, whatever the model; both ends of a job cut it alike."""

import itertools
import json
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_runtime.errors import BadInput
from elastic_runtime.model.layout import ELEMENT_BYTES, Block, Layout, TensorKind, TensorSpec, build_layout, difference
from elastic_runtime.protocol.block_runs import block_runs


def specs(kind: TensorKind) -> st.SearchStrategy[list[TensorSpec]]:
    shapes = st.lists(st.integers(0, 40), max_size=3).map(tuple)
    rows = st.lists(st.tuples(shapes, st.sampled_from(sorted(ELEMENT_BYTES[kind]))), max_size=8)
    return rows.map(lambda rows: [TensorSpec(f"{kind}.{i}", *row) for i, row in enumerate(rows)])


LAYOUTS = st.builds(
    build_layout, specs(TensorKind.PARAMETER), specs(TensorKind.BUFFER), st.one_of(st.none(), st.integers(1, 10_000))
)


def floats(*sizes: int) -> list[TensorSpec]:
    return [TensorSpec(f"layer{i}.weight", (size,), "float32") for i, size in enumerate(sizes)]


@given(LAYOUTS)
def test_every_element_lies_in_one_slot_and_in_one_block(layout: Layout) -> None:
    assert [block.index for block in layout.blocks] == list(range(len(layout.blocks)))
    for index, segment in enumerate(layout.segments):
        assert segment.index == index
        ends = [0, *(slot.start + slot.size for slot in segment.slots)]
        assert [slot.start for slot in segment.slots] == ends[:-1]
        assert ends[-1] == segment.elements
        assert {slot.tensor.dtype for slot in segment.slots} == {segment.dtype}
        blocks = [block for block in layout.blocks if block.segment == index]
        bounds = [0, *(block.stop for block in blocks)]
        assert [block.start for block in blocks] == bounds[:-1]
        assert bounds[-1] == segment.elements
        assert all(block.size_bytes == (block.stop - block.start) * segment.element_bytes > 0 for block in blocks)
        assert all(block.size_bytes == layout.block_bytes and block.stop % 16 == 0 for block in blocks[:-1])
    keys = [(segment.kind, segment.dtype) for segment in layout.segments]
    assert len(set(keys)) == len(keys)


@given(LAYOUTS)
def test_a_layout_comes_back_from_json(layout: Layout) -> None:
    copy = Layout.from_json(layout.to_json())
    assert copy == layout
    assert copy.digest == layout.digest
    assert difference(layout, copy) == ""


@given(LAYOUTS, st.data(), st.integers(1, 20_000))
def test_runs_carry_the_blocks_once_in_order_and_cannot_be_longer(
    layout: Layout, data: st.DataObject, most_bytes: int
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(layout.blocks), unique=True)) if layout.blocks else []
    indices = sorted(block.index for block in chosen)
    found = [
        layout.blocks[first : first + count]
        for first, count in block_runs(layout.blocks, indices, most_bytes=most_bytes)
    ]
    assert [block.index for run in found for block in run] == indices
    for run in found:
        assert len({block.segment for block in run}) == 1
        assert _size_bytes(run) <= most_bytes or len(run) == 1
    for run, following in itertools.pairwise(found):
        adjacent = (run[-1].segment, run[-1].stop) == (following[0].segment, following[0].start)
        assert not adjacent or _size_bytes(run) + following[0].size_bytes > most_bytes


def _size_bytes(blocks: Sequence[Block]) -> int:
    return sum(block.size_bytes for block in blocks)


@pytest.mark.parametrize(
    ("megabytes", "expected"), [(0.1, 4096), (1, 15616), (25, 390528), (102, 1048576), (408, 1048576)]
)
def test_a_small_model_has_blocks_for_sixteen_servers_too(megabytes: float, expected: int) -> None:
    layout = build_layout(floats(int(megabytes * 1e6) // 4), [])
    assert layout.block_bytes == expected
    assert max(block.size_bytes for block in layout.blocks) == expected
    assert layout.total_bytes == int(megabytes * 1e6) // 4 * 4


def test_scalars_empty_tensors_and_mixed_dtypes_get_their_places() -> None:
    parameters = [
        TensorSpec("scale", (), "float64"),
        TensorSpec("nothing", (3, 0), "float16"),
        TensorSpec("half", (5,), "bfloat16"),
    ]
    buffers = [TensorSpec("batches", (), "int64"), TensorSpec("mask", (2, 2), "bool")]
    layout = build_layout(parameters, buffers)
    assert [(segment.kind, segment.dtype, segment.elements) for segment in layout.segments] == [
        (TensorKind.PARAMETER, "float64", 1),
        (TensorKind.PARAMETER, "float16", 0),
        (TensorKind.PARAMETER, "bfloat16", 5),
        (TensorKind.BUFFER, "int64", 1),
        (TensorKind.BUFFER, "bool", 4),
    ]
    assert [block.size_bytes for block in layout.blocks] == [8, 10, 8, 4]
    assert build_layout([], []).blocks == ()


def test_the_digest_is_the_same_in_another_process() -> None:
    layout = build_layout(floats(100, 2000), [TensorSpec("mean", (7,), "float32")])
    program = (
        "import sys; from elastic_runtime.model.layout import Layout; "
        "print(Layout.from_json(sys.stdin.buffer.read()).digest, 'torch' in sys.modules)"
    )
    environment_free = subprocess.run(
        [sys.executable, "-c", program], input=layout.to_json(), capture_output=True, check=True, timeout=60
    )
    assert environment_free.stdout.decode().split() == [layout.digest, "False"]


def test_another_block_size_is_another_digest() -> None:
    assert build_layout(floats(5000), [], 4096).digest != build_layout(floats(5000), [], 8192).digest


@pytest.mark.parametrize(
    ("parameters", "buffers", "message"),
    [
        ([TensorSpec("w", (2,), "complex64")], [], "'w' complex64 [2]: a parameter has to be of float64"),
        ([TensorSpec("w", (2,), "int64")], [], "a parameter has to be of"),
        ([], [TensorSpec("b", (2,), "quint8")], "a buffer has to be of"),
        ([TensorSpec("w", (2, -1), "float32")], [], "no tensor has this shape"),
        ([TensorSpec("w", (2**30, 2**30), "float32")], [], "no tensor has this shape"),
        ([TensorSpec("w", (2**46,), "float32")], [], "choose larger blocks"),
        ([TensorSpec("", (2,), "float32")], [], "has no name"),
        ([TensorSpec("w", (), "float32")] * 2, [], "two tensors named 'w'"),
        ([TensorSpec("w", (), "float32")], [TensorSpec("w", (), "int64")], "both a parameter and a buffer"),
    ],
)
def test_a_model_that_cannot_be_is_refused(
    parameters: list[TensorSpec], buffers: list[TensorSpec], message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        build_layout(parameters, buffers)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_block_of_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="block_bytes is 0"):
        build_layout(floats(5), [], 0)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"parameters": [["layer0.weight", [101], "float32"]]},
        {"parameters": [["layer0.weight", [True], "float32"]]},
        {"parameters": [["layer0.weight", [1.5], "float32"]]},
        {"parameters": [[1, [100], "float32"]]},
        {"parameters": ["abc"]},
        {"parameters": [["a\nb", [100], "float31"]]},
        {"parameters": 5},
        {"block_bytes": 0},
        {"block_bytes": 5000},
        {"block_bytes": "4096"},
        {"digest": "0" * 64},
        {"buffers": None},
    ],
)
def test_a_changed_layout_is_refused_in_one_line(change: dict[str, object]) -> None:
    content = json.loads(build_layout(floats(100), []).to_json())
    with pytest.raises(BadInput) as caught:
        Layout.from_json(json.dumps({**content, **change}).encode())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_layout_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput, match="not a layout of a model"):
        Layout.from_json(data)


def test_the_difference_names_the_first_tensor_that_differs() -> None:
    mine = build_layout(floats(3, 4), [TensorSpec("mean", (2,), "float32")])
    wider = build_layout(floats(3, 5), [])
    assert difference(mine, wider) == (
        "parameter 'layer1.weight' float32 [4] in this model is parameter 'layer1.weight' float32 [5] in the other one"
    )
    assert "'layer1.weight' float32 [4] is in this model and not" in difference(mine, build_layout(floats(3), []))
    assert "buffer 'mean' float32 [2] is in the other model" in difference(build_layout(floats(3, 4), []), mine)
    assert "another order: parameter 'layer0.weight'" in difference(
        build_layout(floats(3, 4), []), build_layout(floats(3, 4)[::-1], [])
    )
    assert "blocks of 4096 bytes here and of 8192" in difference(
        build_layout(floats(3), []), build_layout(floats(3), [], 8192)
    )
