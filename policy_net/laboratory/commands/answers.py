"""Answers of a replay: its results under other assumptions too, in sentences, in tables, and for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foundation.figures import Unit, unit_for
from foundation.tables import Column, FittedTable
from policy_net.domain import PlacementEffect, PolicyContext, SpeedModel
from policy_net.laboratory.commands.world_options import WorldOptions
from policy_net.laboratory.report.caveats import cautions_in_short
from policy_net.laboratory.report.comparison import Comparison, Recorded
from policy_net.laboratory.report.findings import as_recorded, certainty, fairness, money
from policy_net.laboratory.report.headline import headline, subline
from policy_net.laboratory.report.owners import FIELDS, owners_by
from policy_net.laboratory.report.spread import (
    ELASTIC_SHARES,
    KINDS,
    STALLS_SECONDS,
    AssumedCase,
    Assumptions,
    spread_of,
    usual_cases,
)
from policy_net.laboratory.report.tables import TextTable
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import ReplayResult, replay, uncovered
from policy_net.laboratory.workloads.loaders.record import Recording
from policy_net.laboratory.workloads.workload import JobKindChoice, Workload
from policy_net.policy import decides_at_once
from policy_net.policy_kinds import load_policy

RECORDED = "(recorded)"
"""Row of the record; no policy has this name."""
_COLUMNS = {
    "policy": Column("policy", 0),
    "completed": Column("jobs\ndone", 3),
    "avg_wait_seconds": Column("avg wait\n[{unit}]", 1),
    "avg_jct_seconds": Column("avg JCT\n[{unit}]", 0),
    "p99_jct_seconds": Column("p99 JCT\n[{unit}]", 2),
    "max_jct_seconds": Column("max JCT\n[{unit}]", 6),
    "makespan_seconds": Column("makespan\n[{unit}]", 7),
    "gpu_utilization": Column("GPUs\nheld", 5),
    "gpu_hours": Column("GPU-\nhours", 4),
}
_TIMINGS = {
    "inference_p50_us": Column("infer\n[µs]", 9),
    "slot_decide_p99_ms": Column("decide\n[ms]", 8),
    "wall_seconds": Column("wall\n[s]", 10),
}
_HOURS_SECONDS = 4 * 3600.0
"""Averages of as much and more are in hours."""
_OWNER_COLUMNS_LEFT_OUT = (0, 4, 5, 3, 0, 0, 0, 0, 1, 2)
"""By the columns of the report's table: name, jobs, GPU-hours, recorded wait, waits, completions, change, later.

Both sides of a change stay, and with the waits the marks of who waits longer.
"""


@dataclass(frozen=True)
class Setting:
    """Inputs of all replays of one workload.

    Attributes:
        recording: the file's jobs, read once; None for workloads that are no recording.
        policies: names and files as they were typed, in the order of the results; a policy has another name itself.
    """

    source: str
    recording: Recording | None
    options: WorldOptions
    truth: SpeedModel
    effect: PlacementEffect | None
    context: PolicyContext
    policies: tuple[str, ...]

    def typed(self, comparison: Comparison, result: ReplayResult) -> str:
        """Name by which a result's policy is loaded again."""
        named = zip(comparison.results, self.policies, strict=True)
        return next(name for of_result, name in named if of_result is result)


def with_spread(
    comparison: Comparison, setting: Setting, cases: int | None, on_case: Callable[[float], None] | None = None
) -> Comparison:
    """The comparison with its answer under other assumptions; unchanged where none can be made.

    Args:
        cases: most replays; None for as many as suit the workload.
    """
    base = (comparison.workload, comparison.environment)
    if not comparison.compares or comparison.workload.machines is None:
        return comparison
    today_name, proposed_name = (setting.typed(comparison, one) for one in (comparison.today, comparison.proposed))
    proposed = load_policy(proposed_name, setting.context)
    compiled = uncovered(*base, proposed, setting.truth, setting.effect) is None
    most = usual_cases(len(base[0].jobs), compiled=compiled) if cases is None else cases
    if not most:
        return comparison
    assumptions = _assumptions(setting.options)
    workloads: dict[tuple[JobKindChoice, int, float], Workload] = {_drawn(assumptions.base): base[0]}

    def change(case: AssumedCase) -> float:
        resize, resume = case.stall_seconds
        options = dataclasses.replace(
            setting.options,
            job_kind=case.kind,
            seed=case.seed,
            resize_seconds=resize,
            resume_seconds=resume,
            elastic_share=case.elastic_share,
        )
        drawn = _drawn(case)
        if drawn not in workloads:
            workloads[drawn] = options.workload(setting.source, setting.truth, setting.recording)
        environment = options.environment(workloads[drawn])
        after, before = (average_seconds(workloads[drawn], environment, name) for name in (proposed_name, today_name))
        return after / before - 1

    def average_seconds(workload: Workload, environment: Environment, policy: str) -> float:
        decides = load_policy(policy, setting.context)
        result = replay(workload, environment, decides, setting.truth, placement_effect=setting.effect)
        return comparison.avg_jct_seconds(result)

    after, before = map(comparison.avg_jct_seconds, (comparison.proposed, comparison.today))
    spread = spread_of(after / before - 1, assumptions, change, most, on_case)
    return dataclasses.replace(comparison, spread=spread)


def with_pace(comparison: Comparison, setting: Setting) -> Comparison:
    """The comparison, with the JCT if the proposed policy decided at every event, where that makes a difference.

    Left out where a second replay would take long.
    """
    workload, environment = comparison.workload, comparison.environment
    if not comparison.compares or environment.decide_on is DecideOn.SLOT or not environment.debounce_seconds:
        return comparison
    proposed = load_policy(setting.typed(comparison, comparison.proposed), setting.context)
    unpaced = dataclasses.replace(environment, debounce_seconds=0.0)
    if decides_at_once(proposed) or uncovered(workload, unpaced, proposed, setting.truth, setting.effect) is not None:
        return comparison
    result = replay(workload, unpaced, proposed, setting.truth, placement_effect=setting.effect)
    return dataclasses.replace(comparison, unpaced_jct_seconds=comparison.avg_jct_seconds(result))


def _drawn(case: AssumedCase) -> tuple[JobKindChoice, int, float]:
    return case.kind, case.seed, case.elastic_share


def _assumptions(options: WorldOptions) -> Assumptions:
    """Assumptions to vary; those that the user stated stay."""
    stall = (options.resize_seconds, options.resume_seconds)
    share = 1.0 if options.elastic_share is None else options.elastic_share
    base = AssumedCase(options.job_kind or JobKindChoice.ALLREDUCE, options.seed, stall, share)
    return Assumptions(
        base,
        kinds=KINDS if options.job_kind is None else (base.kind,),
        stalls_seconds=(stall,) if any(stall) else STALLS_SECONDS,
        elastic_shares=ELASTIC_SHARES if options.elastic_share is None else (share,),
    )


def sentences(comparison: Comparison) -> Iterator[str]:
    """Sentences below the tables; the answer itself comes last."""
    if comparison.compares:
        for findings in (certainty, as_recorded, fairness, money):
            for finding in findings(comparison):
                yield f"{finding.topic}: {finding.text}"
    for caution in cautions_in_short(comparison):
        yield f"Caution: {caution}"
    yield subline(comparison)
    yield headline(comparison)


def json_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Every policy's figures, with what was recorded and, of the proposed policy, the answer and its range."""
    recorded = None if comparison.recorded is None else dataclasses.asdict(comparison.recorded)
    spread = comparison.spread
    beyond, capped = comparison.cut_jobs
    rows = []
    for result, figures in zip(comparison.results, comparison.figures, strict=True):
        tried = spread if result is comparison.proposed else None
        rows.append(
            {
                **figures,
                "jobs_beyond_cluster": beyond,
                "jobs_beyond_limit": capped,
                "recorded": recorded,
                "change_against_record": comparison.change_against_record(result),
                "elastic_share": comparison.elastic_share,
                "range": tried
                and {
                    "against": comparison.today.policy,
                    "replayed": len(tried.changes),
                    "planned": tried.planned,
                    "least_change": tried.least,
                    "most_change": tried.most,
                },
                "answer": _answer(comparison) if result is comparison.proposed else None,
            }
        )
    return rows


def _answer(comparison: Comparison) -> dict[str, Any]:
    """The headline for programs, with None where nothing was compared or tried. A change of -0.25 is a quarter less."""
    spread = comparison.spread
    after, before = (comparison.avg_jct_seconds(result) for result in (comparison.proposed, comparison.today))
    return {
        "sentence": headline(comparison),
        "policy": comparison.proposed.policy,
        "against": comparison.today.policy if comparison.compares else None,
        "avg_jct_seconds": after,
        "against_avg_jct_seconds": before if comparison.compares else None,
        "change": after / before - 1 if comparison.compares else None,
        "least_change": spread and spread.least,
        "most_change": spread and spread.most,
        "cautions": list(cautions_in_short(comparison)),
        "fairness": _fairness(comparison),
    }


def _fairness(comparison: Comparison) -> dict[str, dict[str, int]]:
    """Numbers of users, accounts and partitions, and of those that lose against today's policy or the record."""
    found = {}
    for field in FIELDS:
        owners = owners_by(comparison, field)
        if owners:
            found[field] = {
                "owners": len(owners),
                "wait_longer": sum(owner.waits_longer for owner in owners),
                "done_later": sum(owner.ends_later for owner in owners),
                "with_recorded_wait": sum(owner.recorded_wait_seconds is not None for owner in owners),
                "wait_longer_than_recorded": sum(owner.waits_longer_than_recorded for owner in owners),
            }
    return found


def replay_table(
    title: str, rows: Sequence[Mapping[str, Any]], *, recorded: Recorded | None = None, timing: bool = False
) -> FittedTable:
    """The policies' figures, after those of the record; with `timing` also the times of our own code."""
    columns = _COLUMNS | (_TIMINGS if timing else {})
    unit = _unit(rows, recorded)
    lines = [] if recorded is None else [_recorded_cells(columns, recorded, unit)]
    lines += [[_cell(key, row, unit) for key in columns] for row in rows]
    headed = [
        dataclasses.replace(column, heading=column.heading.replace("{unit}", unit.name)) for column in columns.values()
    ]
    return FittedTable(title, headed, lines)


def _unit(rows: Sequence[Mapping[str, Any]], recorded: Recorded | None) -> Unit:
    """Unit of all times of a table: that of the averages, hours at most."""
    averages = [row["avg_jct_seconds"] for row in rows] + ([] if recorded is None else [recorded.avg_jct_seconds])
    known = [min(seconds, _HOURS_SECONDS) for seconds in averages if seconds is not None]
    return unit_for(*known) if known else unit_for(_HOURS_SECONDS)


def owner_table_on_terminal(title: str, table: TextTable) -> FittedTable:
    """The report's table of users, accounts or partitions."""
    columns = [
        Column(heading.replace("Completion,", "JCT,").replace(" ", "\n").replace("-", "-\n"), left_out)
        for heading, left_out in zip(table.headings, _OWNER_COLUMNS_LEFT_OUT, strict=True)
    ]
    return FittedTable(title, columns, [(row.name, *row.cells) for row in table.rows], list(table.legend))


def _recorded_cells(columns: Mapping[str, Column], recorded: Recorded, unit: Unit) -> list[str]:
    known = {
        "policy": RECORDED,
        "avg_wait_seconds": _time(recorded.avg_wait_seconds, unit),
        "avg_jct_seconds": _time(recorded.avg_jct_seconds, unit),
        "p99_jct_seconds": _time(recorded.p99_jct_seconds, unit),
    }
    return [known.get(key, "–") for key in columns]


def _cell(key: str, row: Mapping[str, Any], unit: Unit) -> str:
    value = row[key]
    if value is None:
        return "–"
    if key == "completed":
        return f"{value}/{row['jobs']}"
    if key in _COLUMNS and key.endswith("_seconds"):
        return _time(value, unit)
    if key == "gpu_hours":
        return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"
    if key == "gpu_utilization":
        return f"{value:.0%}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _time(seconds: float | None, unit: Unit) -> str:
    return "–" if seconds is None else f"{seconds / unit.seconds:.2f}"
