"""Command `policy-net replay`: runs workloads under policies in simulation, compares them, and writes a report.

Code that replays or draws is loaded when it is needed, so that help and refusals of options are quick.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import policy_net.baselines
import policy_net.dl2
import policy_net.set_policy  # noqa: F401  (both register policies' names)
from foundation.command_line import with_option_groups
from foundation.figures import duration, shown
from foundation.output import Form, Output, console_of, show
from policy_net.domain import PlacementEffect, PolicyContext, SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.commands.own_policies import own_names, register_own
from policy_net.laboratory.commands.world_options import WorldOptions, assumptions
from policy_net.policy import DEFAULT_POLICY, check_known, policy_names, shown_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from policy_net.laboratory.commands.answers import Setting
    from policy_net.laboratory.report import Comparison
    from policy_net.laboratory.simulation.environment import Environment
    from policy_net.laboratory.simulation.replay import ReplayResult
    from policy_net.laboratory.workloads.workload import Workload
    from policy_net.policy import SchedulerPolicy
    from policy_net.throughput.parametric import MeasuredFit

World = tuple["Workload", "Environment"]
HIGHEST_PRICE = 1e6


class OwnerField(StrEnum):
    """Kinds of owners of jobs."""

    USER = "user"
    ACCOUNT = "account"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """Options of `replay` on its answer."""

    range_cases: Annotated[
        int | None,
        typer.Option(
            "--range",
            min=0,
            max=1000,
            metavar="N",
            help="Replays under other assumptions, from which the answer's range comes; 0 for none. Unless given,"
            " as many as take a minute or less, for recorded jobs; with -o json, yaml or csv none without --report.",
        ),
    ] = None
    gpu_hour_price: Annotated[
        float | None,
        typer.Option(
            "--gpu-hour-price", min=0.0, max=HIGHEST_PRICE, help="What a GPU costs an hour, for the money in a year."
        ),
    ] = None
    by: Annotated[
        list[OwnerField] | None,
        typer.Option("--by", help="A table by user, account or partition, as far as the log names them (repeatable)."),
    ] = None
    timing: Annotated[
        bool, typer.Option("--timing", help="Show how long decisions of our own code took; the replay takes longer.")
    ] = False


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
    answer: AnswerOptions,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME|FILE|MODULE:FUNCTION",
            help=f"Policy file, module:function of your own, or one of {', '.join(policy_names())} (repeatable); unless"
            " given, what a report compares.",
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
    output: Output = Form.TABLE,
) -> None:
    """Replay workloads under policies, each pair from a fresh policy."""
    policies = _chosen_policies(policy)
    register_own(policies)
    check_known(policies)  # a slip of the pen is told before anything is read
    truth, effect = world.speeds(), world.placement_effect()
    measured = _measured(fit_points)
    context = PolicyContext(seed=world.seed, true_speeds=truth, measured_speeds=measured)
    # Whatever cannot be used is found before the first minute is spent on what can.
    from policy_net.laboratory.workloads.sources import read_source  # noqa: PLC0415

    recordings = [read_source(source, strict=world.strict) for source in workload]
    loaded = [world.workload(*of_source) for of_source in zip(workload, repeat(truth), recordings, strict=False)]
    worlds = [(item, world.environment(item)) for item in loaded]
    from policy_net.policy_kinds import load_policy  # noqa: PLC0415

    for name in policies:
        load_policy(name, context)
    if measured is not None:
        for item, _ in worlds:
            measured.require(spec.job_type for spec in item.jobs)
    if report is not None:
        from policy_net.laboratory.report import check_folder  # noqa: PLC0415

        check_folder(report, len(worlds))
    for of_world in worlds:
        for line in assumptions(*of_world, world, for_people=output.for_people):
            print(line, file=sys.stderr)
    from policy_net.laboratory.commands.answers import Setting, json_rows, with_pace  # noqa: PLC0415
    from policy_net.laboratory.report import Comparison, write_report  # noqa: PLC0415

    # The figures of a program's reader have always had our own times among them; a person asks for them.
    timed = answer.timing or not output.for_people
    say_each = output.for_people and not sys.stderr.isatty()
    results = _run(
        worlds,
        policies,
        truth,
        effect,
        context,
        record_timeline=report is not None,
        compiled=not timed,
        say_each=say_each,
    )
    each = len(policies)
    comparisons = [
        Comparison(
            *of_world,
            tuple(results[index * each : (index + 1) * each]),
            nodes_given=bool(world.nodes or world.gpu_types),
            locality=world.locality,
            gpu_hour_price=answer.gpu_hour_price,
            elastic_share=world.elastic_share_of(of_world[0]),
        )
        for index, of_world in enumerate(worlds)  # two files of different folders may have one name
    ]
    settings = [
        Setting(*of_source, world, truth, effect, context, tuple(policies))
        for of_source in zip(workload, recordings, strict=True)
    ]
    comparisons = list(map(with_pace, comparisons, settings))
    if answer.range_cases is not None or report is not None or output.for_people:
        comparisons = _with_spreads(comparisons, settings, answer.range_cases)
    if output.for_people:
        _print_answers(comparisons, answer, console_of(output))
    else:
        rows = [row for comparison in comparisons for row in json_rows(comparison)]
        show(output, rows, "", rows)
    if report is not None:
        for path in write_report(comparisons, report):
            print(f"written: {path}", file=sys.stderr)


def _measured(points: Path | None) -> MeasuredFit | None:
    if points is None:
        return None
    from policy_net.laboratory.speeds.measured_speeds import read_measured_points  # noqa: PLC0415

    return read_measured_points(points)


def _with_spreads(comparisons: list[Comparison], settings: list[Setting], cases: int | None) -> list[Comparison]:
    from policy_net.laboratory.commands.answers import with_spread  # noqa: PLC0415

    found = []
    with _progress() as bar:
        for comparison, setting in zip(comparisons, settings, strict=True):
            task = bar.add_task(f"{comparison.workload.name} · other assumptions", total=1.0)
            found.append(
                with_spread(
                    comparison,
                    setting,
                    cases,
                    lambda share, task=task: bar.update(task, completed=share),  # type: ignore[misc]
                )
            )
            bar.remove_task(task)
    return found


def _print_answers(comparisons: list[Comparison], answer: AnswerOptions, console: Console) -> None:
    from policy_net.laboratory.commands.answers import (  # noqa: PLC0415
        owner_table_on_terminal,
        replay_table,
        sentences,
    )
    from policy_net.laboratory.report.tables import owner_table  # noqa: PLC0415

    for comparison in comparisons:
        name = comparison.workload.name
        console.print(replay_table(name, comparison.figures, recorded=comparison.recorded, timing=answer.timing))
        console.print()
        for field in answer.by or ():
            table = owner_table(comparison, field.value)
            if table is None:
                print(
                    f"{name}: --by {field.value}: the log names no two of them, or there is nothing to compare",
                    file=sys.stderr,
                )
            else:
                console.print(owner_table_on_terminal(f"{name} by {field.value}", table))
                console.print()
    for comparison in comparisons:
        if len(comparisons) > 1:
            console.print(f"{shown(comparison.workload.name)}:", markup=False, highlight=False)
        for sentence in sentences(comparison):
            console.print(sentence, markup=False, highlight=False, soft_wrap=not sys.stdout.isatty())


def _progress() -> Progress:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip


def _run(
    worlds: list[World],
    policies: list[str],
    truth: SpeedModel,
    effect: PlacementEffect | None,
    context: PolicyContext,
    *,
    record_timeline: bool,
    compiled: bool,
    say_each: bool,
) -> list[ReplayResult]:
    """Every workload under every policy; a progress bar on a terminal, with `say_each` also a line each on stderr."""
    from policy_net.laboratory.simulation.replay import replay  # noqa: PLC0415
    from policy_net.policy_kinds import load_policy  # noqa: PLC0415

    results: list[ReplayResult] = []
    with _progress() as bar:
        for workload, environment in worlds:
            for name in policies:
                task = bar.add_task(f"{workload.name} · {name}", total=1.0)
                chosen = load_policy(name, context)
                results.append(
                    replay(
                        workload,
                        environment,
                        chosen,
                        truth,
                        placement_effect=effect,
                        on_progress=lambda share, task=task: bar.update(task, completed=share),  # type: ignore[misc]
                        record_timeline=record_timeline,
                        compiled=compiled,  # the twin cannot say how long an agent's decisions take
                    )
                )
                bar.remove_task(task)
                lacking = _untaught(chosen, workload, results[-1])
                if lacking:
                    meaning = "where that is so an agent lets its fallback decide; this replay does not"
                    print(f"{workload.name}: {chosen.name} {lacking}; {meaning}", file=sys.stderr, flush=True)
                if say_each:
                    done, average = results[-1], duration(results[-1].to_json()["avg_jct_seconds"])
                    line = f"  done: {done.workload} under {done.policy}, {average} on average"
                    print(line, file=sys.stderr, flush=True)
    return results


def _untaught(policy: SchedulerPolicy, workload: Workload, result: ReplayResult) -> str:
    """What a policy that ships was never taught of this replay; see `TaughtJobs.lacking`."""
    taught = getattr(policy, "taught", None)
    return "" if taught is None else str(taught.lacking(result.most_at_once, {job.kind for job in workload.jobs}))


def _chosen_policies(names: list[str] | None) -> list[str]:
    """Those named; unless any are, those that a report compares."""
    if not names:
        from policy_net.laboratory.report import REPORT_POLICIES  # noqa: PLC0415

        names = list(REPORT_POLICIES)
    policies = own_names(names)
    for number, name in enumerate(policies):
        if name in policies[:number]:
            raise BadInput(f"--policy {shown_name(name)} is given twice; name it once")
    return policies
