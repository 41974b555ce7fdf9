"""Values of the script's own that are part of the job: its checkpoints have them, and the first worker's hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from elastic_runtime.errors import BadInput, ModelMismatch
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
        if not _has_state(value):
            _check_plain(value, name)
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"elastic.state({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def digest(self) -> int:
        """Of the plain values."""
        return digest({name: value for name, value in vars(self).items() if not _has_state(value)})

    def content(self, *, plain_only: bool = False) -> dict[str, Any]:
        """What a checkpoint holds, or what the other workers take.

        Raises:
            BadInput: a value became something that cannot be kept.
        """
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            if not _has_state(value):
                _check_plain(value, name)  # a list may have been changed in place
                found[name] = value
            elif not plain_only:
                found[name] = value.state_dict()
        if (size_bytes := _tensor_bytes(found)) > LARGEST_TENSORS_BYTES and plain_only:
            raise BadInput(
                f"elastic.state holds {size_bytes >> 20} MB of tensors, more than {LARGEST_TENSORS_BYTES >> 20}: keep "
                "them in something with a state_dict(), such as a module"
            )
        return found

    def take(self, content: Mapping[str, Any]) -> None:
        """Become what `content` gave; what it does not name stays.

        Raises:
            ModelMismatch: it is of another script.
        """
        for name, kept in content.items():
            if name not in vars(self):
                raise ModelMismatch(
                    f"the job's checkpoint has {name!r} in elastic.state, and the script has not; submit a changed "
                    "script as another job"
                )
            value = getattr(self, name)
            if _has_state(value):
                value.load_state_dict(kept)
            else:
                setattr(self, name, kept)


def _has_state(value: object) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _tensor_bytes(value: object) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(_tensor_bytes, value.values()))
    return sum(map(_tensor_bytes, value)) if isinstance(value, list | tuple) else 0


def _check_plain(value: object, name: str) -> None:
    if isinstance(value, torch.Tensor | bool | int | float | str | None):
        return
    if isinstance(value, list | tuple):
        for part in value:
            _check_plain(part, name)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            _check_plain(key, name)
            _check_plain(part, name)
    else:
        raise BadInput(
            f"elastic.state({name}=…) is a {type(value).__module__}.{type(value).__qualname__}; give numbers, words, "
            "tensors, lists and mappings of them, or something with a state_dict()"
        )
