"""How little can be moved: the least bytes of any even assignment, to judge the one that was chosen.

An integer program, solved by HiGHS, that shares no line with the assignment itself: x[o, s, r] is how many blocks of
size s go from owner o to PS r, and m is the smallest load; every load is between m and m plus a largest block.
For benchmarks and tests: seconds where an assignment takes milliseconds.

Source: DL2 §5 asks for least movement and says no number; this one is ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from benchmarks.models import synthetic_model
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


_OPTIMAL = 0
_NOBODY = ""


def minimum_bytes(
    layout: Layout, old: Mapping[int, str], ps_ids_after: Iterable[str], limit_seconds: float = 10.0
) -> int:
    """Bytes that any change moves at least, from `old` to an assignment that is even over `ps_ids_after`.

    Even: the fullest PS has at most one largest block more than the emptiest. Blocks without an old owner are free.
    Where the solver needs longer than `limit_seconds` the answer is what it had proved by then, which may be less.
    """
    if not layout.blocks:
        return 0
    after = sorted(set(ps_ids_after))
    largest_bytes = max(block.size_bytes for block in layout.blocks)
    stocks = Counter((old.get(block.index, _NOBODY), block.size_bytes) for block in layout.blocks)
    flows = [(owner, size_bytes, ps) for owner, size_bytes in stocks for ps in after]
    costs_bytes = [size_bytes if owner not in (ps, _NOBODY) else 0 for owner, size_bytes, ps in flows]
    # One row for each stock, all of which goes somewhere, then one for each PS, whose load less m is within one block.
    rows = lil_array((len(stocks) + len(after), len(flows) + 1))
    stock_rows = {stock: row for row, stock in enumerate(stocks)}
    load_rows = {ps: len(stocks) + row for row, ps in enumerate(after)}
    for column, (owner, size_bytes, ps) in enumerate(flows):
        rows[stock_rows[owner, size_bytes], column] = 1.0
        rows[load_rows[ps], column] = size_bytes / largest_bytes
    for row in load_rows.values():
        rows[row, len(flows)] = -1.0
    counts = list(stocks.values())
    solved = milp(
        np.array([*costs_bytes, 0]) / largest_bytes,
        integrality=np.array([1] * len(flows) + [0]),
        bounds=Bounds(0, np.inf),
        constraints=LinearConstraint(rows.tocsr(), [*counts, *[0.0] * len(after)], [*counts, *[1.0] * len(after)]),
        options={"time_limit": limit_seconds, "mip_rel_gap": 0.0, "presolve": False},
    )
    if solved.status == _OPTIMAL and solved.x is not None:
        amounts = solved.x[: len(flows)].round().astype(np.int64)
        return int(amounts @ np.array(costs_bytes, np.int64))
    return max(0, int(solved.mip_dual_bound * largest_bytes)) if solved.mip_dual_bound is not None else 0
