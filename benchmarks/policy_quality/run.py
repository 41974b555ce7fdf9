"""The run: whatever of a plan is not yet in the store is measured, in several processes, and progress is told."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.policy_quality.cells import Cell, SyntheticCell
from benchmarks.policy_quality.measure import Measurement, measure, measured_points_file
from benchmarks.policy_quality.policies import PS_ONLY, applies, rough_cost
from benchmarks.policy_quality.store import Figures, ResultStore, Task
from benchmarks.policy_quality.version import policy_version
from benchmarks.policy_quality.workers import Failure, run_in_processes


@dataclass(frozen=True)
class RunResult:
    """What a run measured.

    Attributes:
        figures: of every finished task, found in the store or measured now.
        resumed: how many of them were in the store.
    """

    figures: dict[Task, Figures]
    failures: dict[Task, str]
    resumed: int


def tasks_of(cells: Sequence[Cell], policies: Sequence[str], data: Path | None) -> list[Task]:
    """Every cell under every policy that applies to it."""
    measured = None if data is None else measured_points_file(data)
    versions = {policy: policy_version(policy, measured if policy in PS_ONLY else None) for policy in policies}
    return [Task(cell, policy, versions[policy]) for cell in cells for policy in policies if applies(policy, cell)]


def run(tasks: Sequence[Task], store: ResultStore, data: Path | None, processes: int) -> RunResult:
    """Measure what is missing, the longest first; a failed task does not stop the others."""
    known = {task: store.get(task) for task in tasks}
    figures: dict[Task, Figures] = {task: found for task, found in known.items() if found is not None}
    resumed = len(figures)
    missing = [task for task in tasks if task not in figures]
    missing.sort(key=lambda task: rough_cost(task.policy, task.cell), reverse=True)
    failures: dict[Task, str] = {}
    console = Console(stderr=True)
    with _progress(console) as bar:
        work = sum(rough_cost(task.policy, task.cell) for task in missing)
        done = bar.add_task("cells", total=work, cells=f"{resumed}/{len(tasks)}")
        items = [Measurement(task, data) for task in missing]
        for index, outcome in run_in_processes(measure, items, processes, alike=_shared):
            task = missing[index]
            if isinstance(outcome, Failure):
                failures[task] = outcome.reason
                console.print(f"failed: {task}: {outcome.reason}", markup=False, highlight=False, soft_wrap=True)
            else:
                store.add(task, outcome)
                figures[task] = outcome
            cells = f"{len(figures) + len(failures)}/{len(tasks)}"
            bar.update(done, advance=rough_cost(task.policy, task.cell), cells=cells)
    return RunResult(figures, failures, resumed)


def _shared(measurement: Measurement) -> Hashable:
    """What a process that has measured one has at hand for the next: a workload as it was recorded, or a cell."""
    cell = measurement.task.cell
    if isinstance(cell, SyntheticCell):
        return cell
    return cell.cluster, cell.window, cell.model_seed, cell.job_kind, cell.locality


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description} {task.fields[cells]}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
