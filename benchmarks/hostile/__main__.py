"""`python -m benchmarks.hostile [-o json]`: what honest clusters and the operator lose while one caller attacks.

Five honest clusters push 0.4 MB twenty times a second each, over mutual TLS, at a learner with the settings that it
has where others can reach it: robust aggregation, and a rate by cluster, here twice the honest pace. An operator asks
for the fleet, invites and revokes. For each attack there is a phase without and one with it, at the same learner,
started anew for each round. Figures are ratios of the two, medians over the rounds; the operator's is the slowest call
of all. Targets: applied_share 0.9 or more, p99_ratio 3 or less, operator_max_seconds 1 or less, memory_ratio 1.3 or
less, and learned_ratio, what honest clusters learn meanwhile, 0.7 or more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.command import parser_of, show, workplace
from benchmarks.hostile.attackers import ATTACKS
from benchmarks.hostile.measure import Plan, measure
from global_learner.telemetry import set_up_logging

_COLUMNS = (
    "name",
    "applied_share",
    "p99_ratio",
    "operator_max_seconds",
    "memory_ratio",
    "updates_ratio",
    "learned_ratio",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = parser_of("hostile", __doc__)
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--rounds", type=int, default=3, help="figures are medians over these")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of each phase")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.seconds <= 0.0:
        parser.error("--rounds takes 1 or more, --seconds more than 0")
    set_up_logging("warning")
    with workplace("hostile") as (folder, reported):
        plan = Plan(options.attacks, options.rounds, options.seconds, options.seed)
        result = measure(folder, plan, reported)
    show(result, options.output, "attacks", _COLUMNS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
