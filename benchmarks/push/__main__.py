"""`python -m benchmarks.push [-o json]`: updates of 0.4 MB a second through the real learner, identities on.

Clusters push over mutual TLS, each over a connection of its own, and push again as soon as their update is on the
learner's disk and the newest head in their hands. All clusters live in one process, which shares the machine with the
learner. Beside it, within the same rounds: the same in plain text, and a bare grpcio server that sends the same bytes
back, to clusters that do nothing with them, and to clusters that build and read messages as for a push.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import parser_of, show, workplace
from benchmarks.push.measure import measure
from global_learner.telemetry import set_up_logging

_COLUMNS = (
    "clusters",
    "updates_per_second",
    "p50_ms",
    "p99_ms",
    "cpu_ms_per_update",
    "over_echo",
    "over_message_echo",
    "over_plain",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = parser_of("push", __doc__)
    parser.add_argument("--clusters", type=int, nargs="+", default=[1, 4, 16], help="how many push at once")
    parser.add_argument("--rounds", type=int, default=5, help="figures are medians over these")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of each load in each round")
    parser.add_argument(
        "--folder", type=Path, help="on the disk to measure; the system's temporary folder unless given"
    )
    options = parser.parse_args(arguments)
    if min(options.clusters) < 1 or options.rounds < 1 or options.seconds <= 0.0:
        parser.error("--clusters and --rounds take 1 or more, --seconds more than 0")
    set_up_logging("warning")
    with workplace("push", options.folder) as (folder, reported):
        result = measure(folder, options.clusters, options.rounds, options.seconds, reported)
    show(result, options.output, "runs", _COLUMNS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
