"""`python -m benchmarks.dataplane [-o json]`: push and pull, as in a training step, against what the machine can do.

Two processes for each way; this one pushes bytes to the other and pulls as many back, from private memory into private
memory. All ways take turns within each round. The measure for TCP is a raw loopback socket between buffers that are
there already; for shared memory, one copy in and one copy out.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.status import Status

from benchmarks.command import parser_of, show
from benchmarks.dataplane.endpoints import Endpoints
from benchmarks.dataplane.pair import Pair
from benchmarks.dataplane.raw_socket import RawSocket
from benchmarks.dataplane.rounds import cpu_over, measure, rows, speed_over
from benchmarks.dataplane.two_copies import TwoCopies

SIZES_MB = (1, 25, 102)
ROUNDS = 15
_COLUMNS = ("way", "size_mb", "gb_per_second", "push_gb_per_second", "pull_gb_per_second", "cpu_seconds_per_gb")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = parser_of("dataplane", __doc__)
    parser.add_argument("--size-mb", type=int, nargs="+", default=list(SIZES_MB), help="payload each way, 10⁶ bytes")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="figures are medians over these")
    options = parser.parse_args(arguments)
    if min(options.size_mb) < 1 or options.rounds < 1:
        parser.error("--size-mb and --rounds take 1 or more")
    with Status("", console=Console(stderr=True)) as status:
        result = benchmark(options.size_mb, options.rounds, status.update)
    show(result, options.output, "rows", _COLUMNS)
    return 0


def benchmark(sizes_mb: Sequence[int], rounds: int, reported: Any = lambda _: None) -> dict[str, Any]:
    """All figures of one run."""
    most_bytes = max(sizes_mb) * 1_000_000
    load_before = os.getloadavg()[0]
    with ExitStack() as stack:
        pairs: dict[str, Pair] = {
            "raw-socket": RawSocket(most_bytes),
            "tcp": Endpoints(most_bytes, way="tcp"),
            "tcp-curve": Endpoints(most_bytes, way="tcp-curve"),
            "ipc-frames": Endpoints(most_bytes, way="ipc-frames"),
            "two-copies": TwoCopies(most_bytes),
            "shared-memory": Endpoints(most_bytes, way="shared-memory"),
        }
        for pair in pairs.values():
            stack.callback(pair.close)
        measured = measure(pairs, sizes_mb, rounds, reported)
    return {
        "tcp_over_raw_socket": speed_over(measured, "tcp", "raw-socket"),
        "tcp_cpu_over_raw_socket": cpu_over(measured, "tcp", "raw-socket"),
        "curve_over_raw_socket": speed_over(measured, "tcp-curve", "raw-socket"),
        "ipc_over_raw_socket": speed_over(measured, "ipc-frames", "raw-socket"),
        "shm_over_two_copy_bound": speed_over(measured, "shared-memory", "two-copies"),
        "shm_cpu_over_two_copy_bound": cpu_over(measured, "shared-memory", "two-copies"),
        "rows": rows(measured),
        "rounds": rounds,
        "machine": {
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "load_before": round(load_before, 2),
            "load_after": round(os.getloadavg()[0], 2),
        },
    }


if __name__ == "__main__":
    sys.exit(main())
