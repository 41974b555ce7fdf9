"""Command `policy-net reproduce`: a paper's figures from this code, with the paper's own.

Code that computes is loaded when it is needed, so that help and refusals of options are quick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.errors import FAILED
from foundation.figures import counted
from foundation.output import Form, Output, show
from foundation.text import nearest
from policy_net.errors import BadInput

if TYPE_CHECKING:
    from foundation.tables import FittedTable

USUAL_PROCESSES = 2
_VERDICTS = {
    "same direction": "same_direction",
    "the same": "same_direction",
    "opposite direction": "opposite_direction",
    "no difference shown": "no_difference",
}
_WORDS = {
    "same_direction": "as the\npaper",
    "opposite_direction": "opposite",
    "no_difference": "no difference\nshown",
    "other": "other",
}
"""Columns by the names that programs read; `other` has no direction in the paper, or no figure here."""
LARGEST_SEED = 1_000
MOST_SEEDS = 100


class Paper(StrEnum):
    """Papers with figures."""

    DL2 = "dl2"


def reproduce(
    paper: Annotated[Paper, typer.Argument(help="Whose figures; dl2 is the one there is.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where results go; another run goes on there.")],
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="FIGURES", help="Some of them, by comma: fig9,table2; all unless given."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Short trainings on small workloads: half an hour on 2 idle cores.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="Of the first training.")] = 0,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            max=MOST_SEEDS,
            help="Trainings of each policy; five, with --quick two, unless given. More may follow in the same DIR.",
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=10_000, help="Tasks at a time; each takes one core.")
    ] = USUAL_PROCESSES,
    output: Output = Form.TABLE,
) -> None:
    """Measure a paper's figures anew: for each a table, a picture, and what it came to beside the paper's."""
    del paper  # there is one paper
    from rich.console import Console  # noqa: PLC0415

    from foundation.locks import FileLock, LockHeld  # noqa: PLC0415
    from policy_net.laboratory.commands.training_progress import training_progress  # noqa: PLC0415
    from policy_net.laboratory.reproduction.dl2 import EXPERIMENTS, SCALES  # noqa: PLC0415
    from policy_net.laboratory.reproduction.folder import Folder  # noqa: PLC0415
    from policy_net.laboratory.reproduction.runner import ExperimentRunner, crew  # noqa: PLC0415

    names = [experiment.name for experiment in EXPERIMENTS]
    chosen = _chosen(only, names)
    scale = SCALES["quick" if quick else "full"]
    if seeds is not None:
        scale = replace(scale, seeds=seeds)
    workers = crew(processes)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(out / "lock")
    except LockHeld as error:
        raise BadInput(f"--out {out}: another run (process {error.holder}) works there; wait for its end") from error
    except OSError as error:
        raise BadInput(f"--out {out}: cannot be written ({error.strerror}); name another folder") from error
    console = Console(stderr=True)
    with lock, closing(workers), training_progress(console) as progress:
        folder = Folder(out, scale, seed)
        bar = progress.add_task(f"{len(chosen)} figures", total=None, figure="")
        figures = []

        def on_task(stage: str, done: int, total: int) -> None:
            progress.update(bar, description=stage, completed=done, total=total)

        runner = ExperimentRunner(EXPERIMENTS, folder.tasks, scale, seed, workers, on_task)
        for experiment in EXPERIMENTS:
            if experiment.name not in chosen:
                continue
            if not folder.is_whole(experiment):
                folder.add(experiment, runner.run(experiment))
                folder.write_summary(names)
            failed = folder.failures(experiment)
            verdicts = [claim["verdict"] for claim in folder.figures[experiment.name]["claims"]]
            figures.append({"figure": experiment.name, "failed": failed} | verdict_counts(verdicts))
            for reason in failed:
                console.print(f"{experiment.name}: a policy has no figure, as {reason}", markup=False, soft_wrap=True)
        folder.write_summary(names)
    summary = str(out / "summary.md")
    show(output, {"summary": summary, "figures": figures}, lambda: verdicts_table(figures, summary), figures)
    if any(figure["failed"] for figure in figures):
        raise typer.Exit(FAILED)


def verdict_counts(verdicts: Sequence[str]) -> dict[str, int]:
    """Numbers of a figure's rows by their verdict against the paper's."""
    counts = Counter(_VERDICTS.get(verdict, "other") for verdict in verdicts)
    return {"rows": len(verdicts)} | {name: counts[name] for name in _WORDS}


def verdicts_table(figures: Sequence[Mapping[str, Any]], summary: str) -> FittedTable:
    """Verdicts of each figure, and of all in a sentence.

    Args:
        figures: each with its name and `verdict_counts`.
        summary: the page's path.
    """
    from foundation.tables import Column, FittedTable  # noqa: PLC0415

    columns = [Column("figure"), Column("rows", 1), *(Column(words, 1) for words in _WORDS.values())]
    rows = [[str(figure["figure"]), str(figure["rows"]), *(str(figure[name]) for name in _WORDS)] for figure in figures]
    sums = {name: sum(figure[name] for figure in figures) for name in ("rows", *_WORDS)}
    sentence = (
        f"of {counted(sums['rows'], 'row')} beside the paper's {sums['same_direction']} in its direction,"
        f" {sums['opposite_direction']} in the opposite, {sums['no_difference']} without a difference shown"
    )
    if others := sums["other"]:
        sentence += f"; {others} without a direction or a figure"
    below = [sentence, f"page: {summary}, with a csv and a picture of each figure beside it"]
    return FittedTable("", columns, rows, below)


def _chosen(only: str | None, names: list[str]) -> set[str]:
    """Figures of `--only`; raises BadInput for an unknown one."""
    if only is None:
        return set(names)
    chosen = [name.strip() for name in only.split(",")]
    for name in chosen:
        if name not in names:
            close = nearest(name, names)
            where = (
                "figures 13 and 14 are measured by python -m benchmarks.resize"
                if name in ("fig13", "fig14")
                else f"did you mean {close}?"
                if close
                else "there is no such figure"
            )
            raise BadInput(f"--only {name!r}: {where}; use some of {', '.join(names)}")
    return set(chosen)
