"""`python -m benchmarks.fleet [-o json]`: a thousand clusters on one learner for ten minutes, over mutual TLS.

The real `global-learner serve` enrolls every cluster, which then sends a heartbeat every two seconds and, every twenty,
pulls the head and pushes an update of 0.4 MB. At the end the learner is killed with SIGKILL, and its log is compared
with what the clusters were told. Behind it, in turns: 16 clusters that push without pause, and a bare grpcio echo.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import parser_of, show, workplace
from benchmarks.fleet.load import Pace
from benchmarks.fleet.measure import Plan, measure
from global_learner.telemetry import set_up_logging


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = parser_of("fleet", __doc__)
    parser.add_argument("--quick", action="store_true", help="200 clusters for a minute, and fewer turns of the echo")
    parser.add_argument("--clusters", type=int, help="how many; 1000 unless given")
    parser.add_argument("--seconds", type=float, help="for how long; 600 unless given")
    parser.add_argument("--period-seconds", type=float, default=20.0, help="from one update of a cluster to its next")
    parser.add_argument("--heartbeat-seconds", type=float, default=2.0, help="the same of heartbeats; 0 for none")
    parser.add_argument("--processes", type=int, default=4, help="the clusters are dealt over so many")
    parser.add_argument("--ratio-rounds", type=int, help="turns of learner and echo; 0 for none")
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which clusters begin")
    parser.add_argument(
        "--folder", type=Path, help="on the disk to measure; the system's temporary folder unless given"
    )
    options = parser.parse_args(arguments)
    clusters = options.clusters if options.clusters is not None else 200 if options.quick else 1000
    seconds = options.seconds if options.seconds is not None else 60.0 if options.quick else 600.0
    rounds = options.ratio_rounds if options.ratio_rounds is not None else 3 if options.quick else 7
    if min(clusters, options.processes) < 1 or seconds <= 0.0 or options.period_seconds <= 0.0:
        parser.error("--clusters and --processes take 1 or more, --seconds and --period-seconds more than 0")
    if rounds < 0 or options.heartbeat_seconds < 0.0:
        parser.error("--ratio-rounds and --heartbeat-seconds take 0 or more")
    set_up_logging("warning")
    pace = Pace(options.period_seconds, options.heartbeat_seconds, seconds, options.seed)
    plan = Plan(clusters, options.processes, pace, ratio_rounds=rounds)
    with workplace("fleet", options.folder) as (folder, reported):
        result = measure(folder, plan, reported)
    show(result, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
