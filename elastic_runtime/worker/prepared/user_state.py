"""Values of the script's own that are part of the job: its checkpoints have them, and the first worker's hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from elastic_runtime.errors import BadInput
from elastic_runtime.worker.prepared.agreement import digest

LARGEST_TENSORS_BYTES = 64 * 2**20
"""Of all plain values of a script together; what is larger belongs into something with a `state_dict`."""


class State:
    """Named values, as attributes; made by `elastic.state`.

    A value is plain (numbers, words, flags, None, tensors, and lists, tuples and mappings of them), or has a
    `state_dict()` and a `load_state_dict()`.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        """Take a value.

        Raises:
            BadInput: it cannot be kept.
        """
        if not _has_state(value):
            value = without_numpy(value)
            _check_plain(value, name)
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"elastic.state({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def digest_of(state: State) -> int:
    """Digest of a state's plain values."""
    return digest({name: value for name, value in vars(state).items() if not _has_state(value)})


def content_of(state: State, *, plain_only: bool = False) -> dict[str, Any]:
    """What a checkpoint holds of a state, or what the other workers take.

    Raises:
        BadInput: a value became something that cannot be kept.
    """
    found: dict[str, Any] = {}
    for name, value in vars(state).items():
        if not _has_state(value):
            found[name] = without_numpy(value)  # a list may have been changed in place
            _check_plain(found[name], name)
        elif not plain_only:
            found[name] = value.get_state() if isinstance(value, torch.Generator) else value.state_dict()
    if plain_only and (size_bytes := _tensor_bytes(found)) > LARGEST_TENSORS_BYTES:
        raise BadInput(
            f"elastic.state holds {size_bytes >> 20} MB of tensors, more than {LARGEST_TENSORS_BYTES >> 20}: keep them "
            "in something with a state_dict(), such as a module"
        )
    return found


def restore(state: State, content: Mapping[str, Any]) -> None:
    """Let a state become what `content_of` gave; what that does not name stays."""
    for name, kept in content.items():
        value: Any = getattr(state, name, None)
        if isinstance(value, torch.Generator):
            value.set_state(kept)
        elif _has_state(value):
            value.load_state_dict(kept)
        else:
            setattr(state, name, kept)


def without_numpy(value: Any) -> Any:
    """The value with numbers and mappings of Python's own: a checkpoint is read without code of others."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {without_numpy(key): without_numpy(part) for key, part in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(map(without_numpy, value))
    return value


def _has_state(value: object) -> bool:
    return isinstance(value, torch.Generator) or (hasattr(value, "state_dict") and hasattr(value, "load_state_dict"))


def _tensor_bytes(value: object) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(_tensor_bytes, value.values()))
    return sum(map(_tensor_bytes, value)) if isinstance(value, list | tuple) else 0


def _check_plain(value: object, name: str) -> None:
    """Exact types alone: of others a checkpoint would hold their class."""
    if isinstance(value, torch.Tensor) or type(value) in {bool, int, float, str, type(None)}:
        return
    if type(value) in {list, tuple, dict}:
        parts: Any = value
        for part in (*parts.keys(), *parts.values()) if isinstance(parts, dict) else parts:
            _check_plain(part, name)
    else:
        raise BadInput(
            f"elastic.state({name}=…) is a {type(value).__module__}.{type(value).__qualname__}; give numbers, words, "
            "tensors, lists and mappings of them, a torch.Generator, or something with a state_dict()"
        )
