import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from policy_net.errors import PolicyFileError, SpecMismatch
from policy_net.exchange.policy_file import (
    FORMAT,
    PolicyFile,
    digest_of,
    parse_policy_file,
    read_policy_file,
    write_policy_file,
)
from policy_net.exchange.spec import PolicySpec, split_weights, weights_from_bytes, weights_to_bytes

SPEC = PolicySpec(jobs_per_batch=2, type_columns=2, hidden=(4,))
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=50)
@given(arrays.arrays(np.float32, SPEC.parameter_count, elements=finite))
def test_weights_come_back_bit_for_bit(weights: np.ndarray) -> None:
    assert weights_from_bytes(weights_to_bytes(weights), SPEC).tobytes() == weights.tobytes()
    data = PolicyFile(SPEC, weights, {"seed": 7}).to_bytes()
    content = parse_policy_file(data, "memory")
    assert content.weights.tobytes() == weights.tobytes()
    assert content.spec == SPEC
    assert content.card == {"seed": 7}
    assert digest_of(content.to_bytes()) == digest_of(data)


def some_bytes() -> bytes:
    return PolicyFile(SPEC, np.arange(SPEC.parameter_count, dtype=np.float32)).to_bytes()


@settings(max_examples=100)
@given(st.integers(0, len(some_bytes()) - 1))
def test_a_file_cut_short_anywhere_is_refused_by_name(length: int) -> None:
    with pytest.raises(PolicyFileError, match=r"v1\.policy"):
        parse_policy_file(some_bytes()[:length], "v1.policy")


@settings(max_examples=100)
@given(st.binary(max_size=400))
def test_any_other_bytes_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(PolicyFileError, match=r"v1\.policy"):
        parse_policy_file(data, "v1.policy")


@settings(max_examples=300)
@given(st.integers(0, len(some_bytes()) - 1), st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_found_or_does_no_harm(place: int, bit: int) -> None:
    data = bytearray(some_bytes())
    data[place] ^= 1 << bit
    whole = parse_policy_file(some_bytes(), "v1.policy")
    try:
        found = parse_policy_file(bytes(data), "v1.policy")
    except PolicyFileError:
        return
    # Such as a blank that fills the header up, or the name under which the digest stands.
    assert (found.spec, found.weights.tobytes(), found.card) == (whole.spec, whole.weights.tobytes(), whole.card)


def test_a_damaged_file_says_what_was_found_and_what_was_expected() -> None:
    data = bytearray(some_bytes())
    data[-5] ^= 1
    with pytest.raises(
        PolicyFileError, match=r"v1\.policy: damaged: the digest .* is [0-9a-f]{64}, expected [0-9a-f]{64}"
    ):
        parse_policy_file(bytes(data), "v1.policy")


def test_a_file_from_before_there_was_a_digest_is_read() -> None:
    content = PolicyFile(SPEC, np.ones(SPEC.parameter_count, dtype=np.float32))
    data = content.to_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    said = json.loads(header["__metadata__"]["fedl2-policy-1"])
    del said["digest"]
    header["__metadata__"]["fedl2-policy-1"] = json.dumps(said)
    old = json.dumps(header).encode()
    found = parse_policy_file(len(old).to_bytes(8, "little") + old + data[8 + size :], "old.policy")
    assert found.weights.tobytes() == content.weights.tobytes()


def test_weights_that_are_not_finite_are_refused() -> None:
    weights = np.zeros(SPEC.parameter_count, dtype=np.float32)
    weights[3] = np.nan
    with pytest.raises(PolicyFileError, match="NaN"):
        parse_policy_file(PolicyFile(SPEC, weights).to_bytes(), "v1.policy")


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "file" / "x.policy"
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(PolicyFileError, match="cannot be written"):
        write_policy_file(target, PolicyFile(SPEC, np.zeros(SPEC.parameter_count, dtype=np.float32)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match=r"none\.policy"):
        read_policy_file(tmp_path / "none.policy")


def test_weights_of_another_length_are_refused() -> None:
    with pytest.raises(SpecMismatch, match="bytes"):
        weights_from_bytes(b"1234", SPEC)
    with pytest.raises(SpecMismatch, match="shape"):
        split_weights(np.zeros(3, dtype=np.float32), SPEC)


def test_the_digest_changes_with_every_part_of_the_spec() -> None:
    changes = [{"jobs_per_batch": 3}, {"type_columns": 3}, {"hidden": (5,)}, {"job_types": ("other", "vgg-16")}]
    digests = {SPEC.digest} | {SPEC.model_copy(update=change).digest for change in changes}
    assert len(digests) == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"policy":"set"}', "'set'"),
        ('{"feature_version":2}', "feature version 2"),
        ('{"jobs_per_batch":0}', "jobs_per_batch"),
        ('{"unheard_of":1}', "unheard_of"),
        ('{"job_types":["vgg-16"]}', "other"),
        ("null", "spec"),
        ("not json", "spec"),
    ],
)
def test_a_spec_that_this_program_does_not_read_says_why(text: str, says: str) -> None:
    with pytest.raises(PolicyFileError, match=says):
        PolicySpec.from_json(text)


def test_an_actor_alone_is_another_spec_and_a_spec_with_a_critic_is_what_it_was() -> None:
    alone = SPEC.model_copy(update={"critic": False})
    assert "critic" not in SPEC.to_json(), "a digest from before there was a choice stays"
    assert PolicySpec.from_json(alone.to_json()) == alone != SPEC
    assert [name for name, _ in alone.layout()] == [name for name, _ in SPEC.layout() if name.startswith("actor")]
    weights = np.arange(SPEC.parameter_count, dtype=np.float32)
    data = PolicyFile(alone, weights[: alone.parameter_count]).to_bytes()
    assert parse_policy_file(data, "memory").weights.tobytes() == weights[: alone.parameter_count].tobytes()
    with pytest.raises(PolicyFileError, match=r"tensor critic\.0\.weight is missing"):
        parse_policy_file(_with_spec(data, SPEC), "memory")


def _with_spec(data: bytes, spec: PolicySpec) -> bytes:
    """The file, said to be of another spec, without its digest as files of before have none."""
    content = {"spec": spec.model_dump(mode="json"), "card": {}}
    return save_tensors(load_tensors(data), {FORMAT: json.dumps(content)})


def test_the_papers_network_has_the_papers_shape() -> None:
    spec = PolicySpec(jobs_per_batch=20, type_columns=4, hidden=(256, 256))
    shapes = dict(spec.layout())
    assert shapes["actor.0.weight"] == (256, 180)
    assert shapes["actor.2.weight"] == (61, 256)
    assert shapes["critic.2.weight"] == (1, 256)
