"""The least that each resize had to move, by an integer program that knows nothing of how the runtime assigns."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.models import synthetic_model
from benchmarks.resize.movement_bound import minimum_bytes
from elastic_runtime.model.layout import Layout, build_layout
from elastic_runtime.model.module_tensors import describe_model
from elastic_runtime.model.partition import assign


def layout_of(size_mb: float) -> Layout:
    """How the measured model is cut."""
    return build_layout(*describe_model(synthetic_model(size_mb)))


def least_bytes(layout: Layout, servers: Sequence[int]) -> list[int]:
    """Bytes that each change of the number of servers moves at least.

    The owners before each are those of the runtime's own assignment, replayed; names do not matter for how much moves,
    only how many stay: the oldest.

    Args:
        servers: how many there were at the start and after each resize.
    """
    names = [f"ps-{number}" for number in range(servers[0])]
    owners = assign(layout, names, {})
    next_number = servers[0]
    known: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
    least = []
    for count in servers[1:]:
        fresh = range(next_number, next_number + max(0, count - len(names)))
        next_number = fresh.stop
        names = [*names, *(f"ps-{number}" for number in fresh)][:count]
        key = (tuple(sorted(owners.values())), tuple(names))
        if key not in known:
            known[key] = minimum_bytes(layout, owners, names)
        least.append(known[key])
        owners = assign(layout, names, owners)
    return least
