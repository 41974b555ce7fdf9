"""`python -m benchmarks.rollout [-o json] [--full]`: whether verdicts are right, and in how many cluster-days.

Eight clusters are recorded once, block by block, under the incumbent and under versions that are worse on purpose, in
truth and in the twin; rollouts are then drawn from the recording (`pool.py`). Rollouts of one run therefore share its
arrivals: shares say how the rule does on these, not how it would on others.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.command import parser_of, show
from benchmarks.processes import process_pool
from benchmarks.rollout.fleets import (
    BETTER,
    EQUAL,
    EQUAL_ON_AVERAGE,
    MUCH_WORSE,
    WORSE,
    Contest,
    Ended,
    bad_on_two,
    run_rollout,
    shares,
)
from benchmarks.rollout.pool import ClusterRecord, record_by_name
from benchmarks.rollout.versions import NEGATED, WORSE_5
from benchmarks.rollout.worlds import MEASURED_SIGMA, cluster_names, missing_files
from foundation.errors import DONE
from global_learner.rollout.verdicts.gate import Replayed, judge_replays
from global_learner.rollout.verdicts.verdict import Rule, StageOutcome

SEED = 15
PROCESSES = 2
SMALL_PAIRS, FULL_PAIRS = 4, 24
"""Recorded of every cluster at most."""
SMALL_DAYS, FULL_DAYS = 14.0, 60.0
"""Of every recording at most."""
SMALL_ROLLOUTS, FULL_ROLLOUTS = 40, 200
STAGE_DAYS = 60.0
"""How long a rollout waits for its verdict here."""
LONG_DAYS = 240.0
"""The same without the twin: what is caught later is counted as caught then, in favour of doing without."""
BLIND_ROLLOUTS = 40
"""Without the twin at most, as they take the longest by far."""
CANARIES, CANARY_DAYS = 2, 14.0
"""As in the default plan: without a verdict by then an operator is asked."""
MONTH_DAYS = 30.0
WITH_LIAR = 5
"""Clusters of the rollouts in which one of them lies."""
LIES = (0.05, 0.15, 1.0)
"""Losses that it tells of every pair where a version is no worse; where one is worse, gains."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = parser_of("rollout", __doc__)
    parser.add_argument("--full", action="store_true", help="all recorded days and 200 rollouts of each kind")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="has workloads/*.csv; drawn like them unless given")
    parser.add_argument("--held-out", action="store_true", help="eight other clusters, on which nothing was tuned")
    parser.add_argument(
        "--twin-error", type=float, default=MEASURED_SIGMA, metavar="SHARE", help="of the speeds in the twin (0.05)"
    )
    options = parser.parse_args(arguments)
    data = options.data or _usual_data()
    if options.data is not None and missing_files(options.data):
        parser.error(f"--data {options.data}: has no {missing_files(options.data)[0].relative_to(options.data)}")
    if not 0.0 <= options.twin_error <= 1.0:
        parser.error(f"--twin-error {options.twin_error:g}: use a share from 0 to 1")
    names = cluster_names(data, held_out=options.held_out)
    records = _records(names, data, options.twin_error, full=options.full)
    result = measure(records, FULL_ROLLOUTS if options.full else SMALL_ROLLOUTS)
    result |= {"workloads": ", ".join(record.name for record in records), "seed": SEED}
    show(result, options.output)
    return DONE


def _usual_data() -> Path | None:
    """The folder of public workloads beside a checkout; None where it lacks any."""
    stated = os.environ.get("FEDL2_DATA")
    folder = Path(stated) if stated else Path(__file__).parents[3] / "shared" / "data"
    return folder if folder.is_dir() and not missing_files(folder) else None


def _records(names: Sequence[str], data: Path | None, twin_error: float, *, full: bool) -> list[ClusterRecord]:
    days, pairs = (FULL_DAYS, FULL_PAIRS) if full else (SMALL_DAYS, SMALL_PAIRS)
    console = Console(stderr=True)
    columns = (TextColumn("recording clusters"), BarColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        process_pool(PROCESSES) as pool,
    ):
        task = progress.add_task("", total=len(names))
        records = []
        for record in pool.map(record_by_name, names, repeat(data), repeat(days), repeat(pairs), repeat(twin_error)):
            records.append(record)
            progress.advance(task)
    return records


def measure(records: Sequence[ClusterRecord], rollouts: int) -> dict[str, Any]:
    """All figures, each of so many rollouts."""
    count = len(records)
    equal = _many(records, EQUAL, rollouts)
    turned = _many(records, EQUAL_ON_AVERAGE, rollouts)
    worse = _many(records, WORSE, rollouts)
    blind = _many(records, WORSE, min(rollouts, BLIND_ROLLOUTS), with_twin=False, days=LONG_DAYS)
    better = _many(records, BETTER, rollouts)
    generator = np.random.default_rng(SEED)
    draws = [sorted(generator.choice(count, size=2, replace=False).tolist()) for _ in range(rollouts)]
    mixed = [
        run_rollout(records, bad_on_two(places), SEED * 100_000 + seed, days=STAGE_DAYS, with_twin=True)
        for seed, places in enumerate(draws)
    ]
    canaries = [
        run_rollout(records, MUCH_WORSE, seed, days=CANARY_DAYS, with_twin=True, clusters=places)
        for seed, places in enumerate(sorted(generator.permutation(count)[:CANARIES]) for _ in range(rollouts))
    ]
    reported = _with_liar(records, rollouts)
    fleet_jobs = sum(record.mean_jobs for record in records)
    gate = judge_replays(
        {record.name: [Replayed(record.jct_ratios[NEGATED], 1.0, 1.0)] for record in records}, Rule().margin
    )
    return {
        "false_alarm_share": shares(equal)[StageOutcome.FAIL],
        "false_alarm_share_if_equal_on_average": shares(turned)[StageOutcome.FAIL],
        "caught_5_percent_worse_share": shares(worse)[StageOutcome.FAIL],
        "passed_5_percent_worse_share": shares(worse)[StageOutcome.PASS],
        "cluster_days": round(_cluster_days(worse, count), 1),
        "cluster_days_without_twin": round(_cluster_days(blind, count), 1),
        "caught_5_percent_worse_share_without_twin": shares(blind)[StageOutcome.FAIL],
        "canary_loss_percent": round(
            100.0 * statistics.fmean(one.extra_job_days for one in canaries) / (fleet_jobs * MONTH_DAYS), 2
        ),
        "canary_days_median": statistics.median(one.days for one in canaries),
        "canary_stopped_share": shares(canaries)[StageOutcome.FAIL],
        "gate_on_much_worse": gate.outcome.value,
        "better_passed_share": shares(better)[StageOutcome.PASS],
        "better_days_median": statistics.median(one.days for one in better),
        "equal_passed_share": shares(equal)[StageOutcome.PASS],
        "bad_on_two_outcomes": {outcome.value: share for outcome, share in shares(mixed).items() if share},
        "bad_on_two_held_share": sum(bool(one.held) for one in mixed) / rollouts,
        **reported,
        "measured_5_percent": round(statistics.fmean(record.jct_ratios[WORSE_5] for record in records) - 1.0, 4),
        "measured_much_worse": round(statistics.fmean(record.jct_ratios[NEGATED] for record in records) - 1.0, 4),
        "rollouts": rollouts,
        "clusters": count,
        "recorded_pairs": sum(len(record.pairs[WORSE_5]) for record in records),
    }


def _with_liar(records: Sequence[ClusterRecord], rollouts: int) -> dict[str, float]:
    """Figures of rollouts in which one of five clusters lies, each with the lie that does the most harm to it."""

    def ended(contest: Contest, lie: float | None = None) -> list[Ended]:
        generator = np.random.default_rng(SEED)
        count = min(WITH_LIAR, len(records))
        return [
            run_rollout(
                records,
                contest,
                SEED * 100_000 + seed,
                days=STAGE_DAYS,
                with_twin=True,
                clusters=generator.permutation(len(records))[:count].tolist(),
                lie=lie,
            )
            for seed in range(rollouts)
        ]

    def pairs_to_a_pass(of: Sequence[Ended]) -> float:
        passed = [one.pairs for one in of if one.outcome is StageOutcome.PASS]
        return statistics.fmean(passed) if passed else math.inf

    praised = [shares(ended(WORSE, -lie)) for lie in LIES]
    blamed = [ended(EQUAL, lie) for lie in LIES]
    honest = ended(EQUAL)
    return {
        "caught_5_percent_worse_share_of_five": shares(ended(WORSE))[StageOutcome.FAIL],
        "caught_5_percent_worse_share_if_one_of_five_praises_it": min(share[StageOutcome.FAIL] for share in praised),
        "passed_5_percent_worse_share_if_one_of_five_praises_it": max(share[StageOutcome.PASS] for share in praised),
        "false_alarm_share_if_one_of_five_blames_it": max(shares(one)[StageOutcome.FAIL] for one in blamed),
        "pairs_to_a_pass_of_five": round(pairs_to_a_pass(honest), 1),
        "pairs_to_a_pass_ratio_if_one_of_five_blames_it": round(
            max(map(pairs_to_a_pass, blamed)) / pairs_to_a_pass(honest), 2
        ),
    }


def _many(
    records: Sequence[ClusterRecord],
    contest: Contest,
    rollouts: int,
    *,
    with_twin: bool = True,
    days: float = STAGE_DAYS,
) -> list[Ended]:
    return [
        run_rollout(records, contest, SEED * 100_000 + number, days=days, with_twin=with_twin)
        for number in range(rollouts)
    ]


def _cluster_days(ended: Sequence[Ended], clusters: int) -> float:
    """Until a verdict, or until the time was over."""
    return statistics.fmean(one.days for one in ended) * clusters


if __name__ == "__main__":
    sys.exit(main())
