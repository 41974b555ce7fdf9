"""Command line that the benchmarks of twin learning share: which data, which settings, how it is trained and judged."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.policy_quality.cells import Durations
from foundation.errors import BAD_INPUT
from policy_net.errors import BadInput

SETTINGS = {
    "mix-unknown": ("mix", Durations.UNKNOWN),
    "mix-known": ("mix", Durations.KNOWN),
    "allreduce-unknown": ("allreduce", Durations.UNKNOWN),
    "allreduce-known": ("allreduce", Durations.KNOWN),
}


def parser_of(
    program: str, description: str | None, settings: Sequence[str] = tuple(SETTINGS)
) -> argparse.ArgumentParser:
    """A parser with what all of them take.

    Args:
        settings: that are measured unless some are named.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("-o", "--output", choices=("json",), default="json")
    parser.add_argument("--data", type=Path, required=True, help="folder with workloads/*.csv")
    parser.add_argument("--settings", nargs="+", choices=tuple(SETTINGS), default=list(settings))
    return parser


def add_training(parser: argparse.ArgumentParser) -> None:
    """How is trained."""
    parser.add_argument("--pairs", type=int, default=4, help="of a gradient")
    parser.add_argument("--window-jobs", type=int, default=500)
    parser.add_argument("--learning-rate", type=float, default=0.3, help="of the first step, in spreads")


def run(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, work: Callable[[argparse.Namespace], int]
) -> int:
    """Do the work with the options that were typed; returns the exit code, and says a refusal in a line."""
    options = parser.parse_args(arguments)
    try:
        return work(options)
    except BadInput as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return BAD_INPUT
