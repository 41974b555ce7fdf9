"""`python -m benchmarks.policy_quality`: every scheduler on made-up and recorded workloads, compared in pairs."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from benchmarks.policy_quality.measure import check_policy, measured_points_file
from benchmarks.policy_quality.plan import DEFAULT, FULL, QUICK, RECORDED, cells_of
from benchmarks.policy_quality.policies import default_policies, missing_references
from benchmarks.policy_quality.report import build_report
from benchmarks.policy_quality.run import run, tasks_of
from benchmarks.policy_quality.store import ResultStore
from benchmarks.policy_quality.tables import check_page, report_tables, write_page
from benchmarks.policy_quality.worlds import Cluster, clusters_in
from foundation.errors import BAD_INPUT, DONE, FAILED
from policy_net.errors import BadInput
from policy_net.policy import policy_names
from policy_net.twin.library import notice

PROGRAM = "python -m benchmarks.policy_quality"
ALL = "all"
_FILE_WIDTH = 200
"""Columns where the output is no terminal that would say how wide it is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except BadInput as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted" + ("; run again to go on" if options.out else ""), file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--policies", default=ALL, help="names and policy files, by comma; `all` stands for every registered scheduler"
    )
    parser.add_argument("--data", type=Path, help="folder with workloads/*.csv; without it only made-up workloads")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="fewer clusters, jobs and seeds: at most 10 minutes")
    size.add_argument(
        "--recorded",
        action="store_true",
        help="recorded workloads alone, of known and unknown work: minutes",
    )
    size.add_argument("--full", action="store_true", help="the whole grid: some ten minutes on two cores; give --out")
    parser.add_argument("--out", type=Path, help="keep finished cells in this folder, and go on with those there")
    parser.add_argument("--processes", type=int, default=2, help="how many measure at the same time")
    parser.add_argument("--markdown", type=Path, help="a short table for this page, csv files beside it")
    return parser


def _run(options: argparse.Namespace) -> int:
    began = time.monotonic()
    if options.processes < 1:
        raise BadInput(f"--processes is {options.processes}: use 1 or more")
    if options.full and options.out is None:
        raise BadInput("--full takes long: give --out FOLDER, so that a run that is stopped can go on")
    if options.markdown is not None:
        check_page(options.markdown)
    grid = QUICK if options.quick else RECORDED if options.recorded else FULL if options.full else DEFAULT
    policies = _policies(options.policies, options.data)
    clusters = [] if options.data is None else _clusters(options.data)
    if options.recorded and options.data is None:
        raise BadInput("--recorded needs --data FOLDER, the one with workloads/*.csv")
    if options.data is None:
        print(f"{PROGRAM}: no --data: only made-up workloads are compared, no recorded ones", file=sys.stderr)
    slower = notice()
    if slower is not None:
        print(f"{PROGRAM}: {slower}", file=sys.stderr)
    tasks = tasks_of(cells_of(grid, clusters), policies, options.data)
    with ExitStack() as stack:
        folder = options.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedl2-policy-quality-")))
        store = stack.enter_context(ResultStore(folder))
        result = run(tasks, store, options.data, options.processes)
    report = build_report(grid, result, [Path(policy).name for policy in policies], time.monotonic() - began)
    if options.markdown is not None:
        write_page(options.markdown, report)
    if options.output == "json":
        print(json.dumps(report, indent=1))
    else:
        console = Console() if sys.stdout.isatty() else Console(width=_FILE_WIDTH)
        for table in report_tables(report):
            console.print(table.for_terminal())
    return FAILED if result.failures else DONE


def _clusters(data: Path) -> list[Cluster]:
    clusters = clusters_in(data)
    if not clusters:
        raise BadInput(f"{data}: has no workloads/*.csv; name the folder above `workloads`, or leave --data out")
    return clusters


def _policies(text: str, data: Path | None) -> list[str]:
    """The policies to compare, the references among them.

    Raises:
        BadInput: one is neither registered nor a file, cannot be used, or has the name of another.
    """
    names: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if part == ALL:
            names += default_policies(has_measured_points=data is not None and measured_points_file(data).is_file())
        elif part in policy_names() or Path(part).is_file():
            names.append(part)
        else:
            raise BadInput(f"--policies: {part!r} is no file, and none of {', '.join((ALL, *policy_names()))}")
    if not names:
        raise BadInput("--policies names none: leave it out for all, or name some by comma")
    names = list(dict.fromkeys([*missing_references(names), *names]))
    for name in names:
        check_policy(name, data)
    labels = [Path(name).name for name in names]
    for label in labels:
        if labels.count(label) > 1:
            raise BadInput(f"--policies: {label!r} is the name of two of them; rename a file")
    return names


if __name__ == "__main__":
    sys.exit(main())
