"""`python -m benchmarks.one_machine [-o json]`: policies on simulated single machines.

Each world is another machine with ten to thirty jobs of types of its own (see `worlds.py`); every policy starts from
nothing in each. Ratios are geometric means, over the worlds, of the average completion time over that of `fifo`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.one_machine.ratios import BASE, log_ratios
from benchmarks.processes import process_pool

POLICIES = ("drf", "optimus", "marginal", "set")
FIRST_WORLD = 9_500_000
"""As elsewhere, numbers from here on judge: nothing is to be trained or tuned on them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_machine", description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), help=f"beside {BASE}; names")
    parser.add_argument("--worlds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=FIRST_WORLD, help="number of the first world")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.worlds < 2 or options.processes < 1 or options.first < 0:
        parser.error("--worlds takes 2 or more, --processes 1 or more, --first 0 or more")
    numbers = range(options.first, options.first + options.worlds)
    with process_pool(options.processes) as pool:
        logs = np.array(list(pool.map(partial(log_ratios, tuple(options.policies)), numbers)))
    result = {
        policy: {
            "over_fifo": round(float(np.exp(column.mean())), 4),
            "standard_error": round(float(np.exp(column.mean()) * column.std(ddof=1) / math.sqrt(len(column))), 4),
            "worst_world": round(float(np.exp(column.max())), 3),
        }
        for policy, column in zip(options.policies, logs.T, strict=True)
    }
    print(json.dumps(result) if options.output == "json" else _table(result))
    return 0


def _table(result: dict[str, dict[str, float]]) -> str:
    columns = ("over_fifo", "standard_error", "worst_world")
    lines = [f"{'policy':<16}" + "".join(f"{name:>16}" for name in columns)]
    lines += [f"{policy:<16}" + "".join(f"{row[name]:>16}" for name in columns) for policy, row in result.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
