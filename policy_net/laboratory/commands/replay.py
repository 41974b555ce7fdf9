"""Command `policy-net replay`: runs workloads under policies in simulation, and compares what the jobs waited for.

With `--report` it also says which policies a report compares, and writes the report's files. What replays, and what
draws, is loaded when it is at its work: help and refusals of what was typed wait for none of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import policy_net.baselines
import policy_net.set_policy  # noqa: F401  (both register policies' names)
from foundation.command_line import Debug, Output, OutputFormat
from foundation.option_groups import with_option_groups
from policy_net.domain import PlacementEffect, PolicyContext, SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.commands.world_options import WorldOptions, warn_of_malformed_rows
from policy_net.policy import DEFAULT_POLICY, check_known, policy_names

if TYPE_CHECKING:
    from rich.table import Table

    from policy_net.laboratory.simulation.environment import Environment
    from policy_net.laboratory.simulation.replay import ReplayResult
    from policy_net.laboratory.workloads.workload import Workload

_FILE_WIDTH = 120
"""Columns where the output is no terminal that would say how wide it is."""

World = tuple["Workload", "Environment"]

_COLUMNS = {
    "policy": "policy",
    "completed": "jobs\ndone",
    "avg_jct_seconds": "avg JCT\n[h]",
    "p99_jct_seconds": "p99 JCT\n[h]",
    "max_jct_seconds": "max JCT\n[h]",
    "makespan_seconds": "makespan\n[h]",
    "gpu_utilization": "GPUs\nheld",
    "inference_p50_us": "infer\n[µs]",
    "slot_decide_p99_ms": "decide\n[ms]",
    "wall_seconds": "wall\n[s]",
}


@with_option_groups
def replay_command(
    workload: Annotated[
        list[str],
        typer.Option(
            "--workload",
            metavar="SRC",
            help="csv file, sacct:FILE (or philly: helios: pai: openb: k8s:), dl2:jobs=60,… (repeatable).",
        ),
    ],
    world: WorldOptions,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME|FILE",
            help=f"Policy file, or one of {', '.join(policy_names())} (repeatable); with --report, unless given, what a"
            " report compares.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FOLDER",
            help=f"Write what {DEFAULT_POLICY} would have saved, as a page (index.html) and a picture (report.png).",
        ),
    ] = None,
    fit_points: Annotated[
        Path | None,
        typer.Option("--fit-points", help="Measured speeds (csv) to which optimus-fitted fits its speed model."),
    ] = None,
    output: Output = OutputFormat.TABLE,
    debug: Debug = False,
) -> None:
    """Replay workloads under policies, each pair from a fresh policy."""
    del debug  # The error boundary looks for the flag itself.
    policies = _chosen_policies(policy, report)
    check_known(policies)  # a slip of the pen is told before anything is read
    truth, effect = world.speeds(), world.placement_effect()
    measured = None
    if fit_points is not None:
        from policy_net.laboratory.speeds.measured_speeds import read_measured_points  # noqa: PLC0415

        measured = read_measured_points(fit_points)
    context = PolicyContext(seed=world.seed, true_speeds=truth, measured_speeds=measured)
    # Whatever cannot be used is found before the first minute is spent on what can.
    worlds = [(item, world.environment(item)) for item in (world.workload(source, truth) for source in workload)]
    from policy_net.policy_kinds import load_policy  # noqa: PLC0415

    for name in policies:
        load_policy(name, context)
    if measured is not None:
        for item, _ in worlds:
            measured.require(spec.job_type for spec in item.jobs)
    if report is not None:
        from policy_net.laboratory.report import prepare_folder  # noqa: PLC0415

        prepare_folder(report, len(worlds))
    if output is OutputFormat.TABLE:
        _print_assumptions(worlds, world)
    else:
        for item, _ in worlds:
            warn_of_malformed_rows(item)
    results = _run(worlds, policies, truth, effect, context, record_timeline=report is not None)
    if output is OutputFormat.JSON:
        print(json.dumps([result.to_json() for result in results], indent=2))
    else:
        from rich.console import Console  # noqa: PLC0415

        console = Console() if sys.stdout.isatty() else Console(width=_FILE_WIDTH)
        for index, (item, _) in enumerate(worlds):  # two files of different folders may have one name
            of_world = results[index * len(policies) : (index + 1) * len(policies)]
            console.print(_table(item.name, [result.to_json() for result in of_world]))
    if report is not None:
        _write_report(worlds, results, report, world)


def _run(
    worlds: list[World],
    policies: list[str],
    truth: SpeedModel,
    effect: PlacementEffect | None,
    context: PolicyContext,
    *,
    record_timeline: bool,
) -> list[ReplayResult]:
    """Every workload under every policy; a progress bar on a terminal."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    from policy_net.laboratory.simulation.replay import replay  # noqa: PLC0415
    from policy_net.policy_kinds import load_policy  # noqa: PLC0415

    console = Console(stderr=True)
    results: list[ReplayResult] = []
    with Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(),
        console=console, transient=True, disable=not sys.stderr.isatty(),
    ) as bar:  # fmt: skip
        for workload, environment in worlds:
            for name in policies:
                task = bar.add_task(f"{workload.name} · {name}", total=1.0)
                results.append(
                    replay(
                        workload,
                        environment,
                        load_policy(name, context),
                        truth,
                        placement_effect=effect,
                        on_progress=lambda share, task=task: bar.update(task, completed=share),  # type: ignore[misc]
                        record_timeline=record_timeline,
                        compiled=False,  # its readers are told how long an agent's decisions take
                    )
                )
                bar.remove_task(task)
    return results


def _print_assumptions(worlds: list[World], options: WorldOptions) -> None:
    """What a reader must know to believe the figures, on stderr."""
    for workload, environment in worlds:
        print(
            f"{workload.name}: {len(workload.jobs)} jobs on {environment.nodes} nodes × {environment.gpus_per_node} GPU"
            f" and {environment.cpus_per_node} CPU, decisions by {environment.decide_on.value}",
            file=sys.stderr,
        )
        for note in (*workload.notes, *environment.notes, *options.placement_notes):
            print(f"  {note}", file=sys.stderr)


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for key, heading in _COLUMNS.items():
        # Rich would take a unit such as [h] for an instruction.
        table.add_column(escape(heading), justify="left" if key == "policy" else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(key, row)) for key in _COLUMNS))
    return table


def _cell(key: str, row: dict[str, Any]) -> str:
    value = row[key]
    if value is None:
        return "–"
    if key == "completed":
        return f"{value}/{row['jobs']}"
    if _COLUMNS[key].endswith("[h]"):
        return f"{value / 3600:.2f}"
    if key == "gpu_utilization":
        return f"{value:.0%}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _chosen_policies(policies: Sequence[str] | None, report: Path | None) -> list[str]:
    """Those named; for a report, unless any are, those that it compares.

    Raises:
        BadInput: none is named, and no report is asked for.
    """
    if policies:
        return list(policies)
    from policy_net.laboratory.report import REPORT_POLICIES  # noqa: PLC0415

    if report is None:
        raise BadInput(
            f"no --policy: give NAME or FILE, such as {DEFAULT_POLICY} (repeatable), or --report FOLDER, which compares"
            f" {', '.join(REPORT_POLICIES)}"
        )
    return list(REPORT_POLICIES)


def _write_report(
    worlds: Sequence[World], results: Sequence[ReplayResult], folder: Path, options: WorldOptions
) -> None:
    """Write the page and the picture, and say on stderr where they are.

    Args:
        results: for every world as many, in the order of the worlds.
    """
    from policy_net.laboratory.report import Comparison, write_report  # noqa: PLC0415

    each = len(results) // len(worlds)
    comparisons = [
        Comparison(
            workload,
            environment,
            tuple(results[index * each : (index + 1) * each]),
            nodes_given=bool(options.nodes or options.gpu_types),
            locality=options.locality,
        )
        for index, (workload, environment) in enumerate(worlds)
    ]
    for path in write_report(comparisons, folder):
        print(f"written: {path}", file=sys.stderr)
