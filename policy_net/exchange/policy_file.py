"""A policy on disk: one safetensors file with the named tensors, the spec and a card in its metadata.

The card is free-form JSON (seeds, data, scores, parent): what a reader wants to know before trusting the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from foundation.files import PARTIAL, check_replaceable, write_whole
from foundation.text import parse_json
from policy_net.errors import PolicyFileError
from policy_net.exchange.spec import SET, PolicySpec, SetSpec, Spec, Weights, split_weights
from policy_net.exchange.statistics import SpeedStatistic, statistics_from_rows, statistics_to_rows

FORMAT = "fedl2-policy-1"
TAUGHT = "taught"
"""On a card: for which jobs the policy was taught (`policy_net.dl2.policy.TaughtJobs`)."""
LESSONS = "lessons"
"""In what stands under `TAUGHT`: how many updates of each cluster led to the policy."""
_HEADER_LENGTH_BYTES = 8
_DIGEST = "digest"


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """The content of a policy file.

    Attributes:
        priors: what is believed of speeds before a cluster has seen any; empty for kinds of policies without beliefs.
    """

    spec: Spec
    weights: Weights
    card: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    priors: tuple[SpeedStatistic, ...] = ()

    @property
    def network_spec(self) -> PolicySpec:
        """The spec of a `dl2` policy, where nothing else will do.

        Raises:
            PolicyFileError: the policy is of another kind.
        """
        if not isinstance(self.spec, PolicySpec):
            raise PolicyFileError(f"the file holds a {self.spec.policy!r} policy; only a dl2 policy can be used here")
        return self.spec

    def to_bytes(self) -> bytes:
        """The file's bytes; the same content gives the same bytes."""
        # One key only: safetensors writes several in an order of its own, and a version's digest must be reproducible.
        content: dict[str, Any] = {"spec": self.spec.model_dump(mode="json"), "card": dict(self.card)}
        if self.priors:  # only then, so that files without them keep their digests
            content["priors"] = statistics_to_rows(self.priors)
        tensors = {name: np.ascontiguousarray(view) for name, view in split_weights(self.weights, self.spec).items()}
        content[_DIGEST] = _content_digest(content, save_tensors(tensors))
        metadata = {FORMAT: _canonical(content)}
        return save_tensors(tensors, metadata)


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def _content_digest(content: Mapping[str, Any], data: bytes) -> str:
    """SHA-256 over what a file says and its numbers, hex; `data` is a file with these numbers."""
    size = int.from_bytes(data[:_HEADER_LENGTH_BYTES], "little")
    signed = {name: value for name, value in content.items() if name != _DIGEST}
    numbers = memoryview(data)[_HEADER_LENGTH_BYTES + size :]
    return hashlib.sha256(_canonical(signed).encode() + b"\n" + numbers).hexdigest()


def digest_of(data: bytes) -> str:
    """SHA-256 of a policy file's bytes, hex: a version's identity."""
    return hashlib.sha256(data).hexdigest()


def parse_policy_file(data: bytes, source: str) -> PolicyFile:
    """Read a policy file's bytes; `source` names them in errors.

    Raises:
        PolicyFileError: cut short, damaged (its digest is another), not finite, or of another spec than this program
            reads.
    """
    content = _content(data, source)
    expected = content.get(_DIGEST)
    # Files from before there was a digest have none.
    if expected is not None and (found := _content_digest(content, data)) != expected:
        raise PolicyFileError(
            f"{source}: damaged: the digest of its content is {found}, expected {expected}; copy the file again"
        )
    try:
        spec = _spec_of(content.get("spec"))
        priors = statistics_from_rows(content.get("priors", []))
    except PolicyFileError as error:
        raise PolicyFileError(f"{source}: {error}") from error
    try:
        tensors = load_tensors(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise PolicyFileError(f"{source}: damaged policy file ({error}); copy it again") from error
    pieces = []
    for name, shape in spec.layout():
        tensor = tensors.get(name)
        if tensor is None or tensor.shape != shape or tensor.dtype != np.float32:
            found = "missing" if tensor is None else f"{tensor.dtype} {tensor.shape}"
            raise PolicyFileError(f"{source}: tensor {name} is {found}, its spec needs float32 {shape}")
        pieces.append(tensor.ravel())
    weights: Weights = np.concatenate(pieces)
    if not np.isfinite(weights).all():
        raise PolicyFileError(f"{source}: the weights hold NaN or infinity; the file cannot be used")
    return PolicyFile(spec, weights, content.get("card", {}), priors)


def spec_from_json(text: str) -> Spec:
    """Read a spec of either kind.

    Raises:
        PolicyFileError: the text is no spec that this program reads.
    """
    try:
        return _spec_of(parse_json(text))
    except ValueError as error:
        raise PolicyFileError(f"policy spec: no JSON ({error})") from error


def _spec_of(entry: object) -> Spec:
    kind = SetSpec if isinstance(entry, dict) and entry.get("policy") == SET else PolicySpec
    return kind.from_json(json.dumps(entry))


def _content(data: bytes, source: str) -> dict[str, Any]:
    """Spec and card, from the safetensors header: read before the tensors so that a wrong file gets a plain message."""
    size = int.from_bytes(data[:_HEADER_LENGTH_BYTES], "little") if len(data) >= _HEADER_LENGTH_BYTES else -1
    header = data[_HEADER_LENGTH_BYTES : _HEADER_LENGTH_BYTES + max(size, 0)]
    if size < 0 or len(header) != size:
        raise PolicyFileError(f"{source}: cut short or no policy file ({len(data)} bytes); copy it again or train one")
    try:
        content = parse_json(parse_json(header)["__metadata__"][FORMAT])
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise PolicyFileError(
            f"{source}: not a policy file of format {FORMAT}; train one with `policy-net train`"
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("card", {}), dict):
        raise PolicyFileError(f"{source}: damaged policy file (its metadata is no mapping); copy it again")
    return content


def read_policy_file(path: Path) -> PolicyFile:
    """Read a policy file from disk.

    Raises:
        PolicyFileError: as `parse_policy_file`, or the file cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PolicyFileError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_policy_file(data, str(path))


def check_writable(path: Path) -> None:
    """Find out before the work, not after it, that a policy file cannot be written there.

    Raises:
        PolicyFileError: it cannot.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        check_replaceable(path)
        partial.touch()
        partial.unlink()
    except OSError as error:
        raise PolicyFileError(
            f"{path}: cannot be written ({error.strerror}); name a file in a folder of yours"
        ) from error


def write_policy_file(path: Path, content: PolicyFile) -> None:
    """Write a policy file whole or not at all.

    Raises:
        PolicyFileError: the file cannot be written; nothing is left behind.
    """
    data = content.to_bytes()
    try:
        check_replaceable(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise PolicyFileError(f"{path}: cannot be written ({error.strerror})") from error
