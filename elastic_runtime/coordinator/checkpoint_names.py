"""The names of checkpoints' folders, which follow from the step: servers and coordinator need not agree on them."""

from __future__ import annotations


def checkpoint_name(step: int) -> str:
    """The folder of the checkpoint at a step; names sort by step."""
    return f"step-{step:010d}"
