"""`python -m benchmarks.resize [-o json]`: what it costs to add and remove a parameter server of a running job.

Real processes on this machine: a coordinator, two workers, and two parameter servers, to which a third is added and
from which one is removed, again and again, while a synthetic model is trained by SGD with momentum. For each model size
and each mode: how long workers waited, what a step took while blocks moved, what moved, and what it all cost.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import parser_of, show
from benchmarks.resize.figures import draw
from benchmarks.resize.movement_bound import layout_of, least_bytes
from benchmarks.resize.resizing import Settling, observe
from benchmarks.resize.row import row
from benchmarks.resize.running_job import JobSetup
from elastic_runtime.control.messages import ResizeMode
from elastic_runtime.errors import ElasticError

_SIZES_MB = [24.0, 102.0, 408.0]
_LARGE_MB = 400.0
_RESIZES = {ResizeMode.ROLLING: 30, ResizeMode.STOP_THE_WORLD: 30, ResizeMode.CHECKPOINT_RESTART: 3}
_RESIZES_OF_A_LARGE_MODEL = 10
_CHECKPOINT_SECONDS = 3600.0
"""Longer than any row: what is measured is resizes, not the checkpoints that a job writes anyway."""
_COLUMNS = (
    "model_mb",
    "mode",
    "resizes",
    "stall_p50_ms",
    "stall_p99_ms",
    "extra_step_time_percent",
    "moved_bytes_over_minimum",
    "total_seconds",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = _options(arguments)
    settling = Settling(options.settle_steps, options.settle_seconds)
    setup, runs = _read(options.records)
    sizes_mb = options.size if options.size is not None else [] if options.records else _SIZES_MB
    setup = setup if options.records and not sizes_mb else _setup(options)
    code = 0
    try:
        for size_mb in sizes_mb:
            job = JobSetup(size_mb, options.global_batch, coordinator=(f"--checkpoint-seconds={_CHECKPOINT_SECONDS}",))
            for mode in map(ResizeMode, options.mode):
                resizes = options.resizes or _usual_resizes(size_mb, mode)
                runs.append(_run(job, mode, resizes, settling, options.deadline))
    except ElasticError as error:
        print(f"benchmarks.resize: {error}", file=sys.stderr)
        code = 1  # rows that are done are printed all the same
    show({"setup": setup, "runs": runs}, options.output, "runs", _COLUMNS)
    if options.figures is not None and runs:
        draw(runs, options.figures)
    return code


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("resize", __doc__)
    modes = [mode.value for mode in ResizeMode]
    parser.add_argument(
        "--size", type=float, nargs="+", help="of the model, in 10^6 bytes; 24, 102 and 408 unless given"
    )
    parser.add_argument("--mode", nargs="+", default=modes, choices=modes)
    parser.add_argument(
        "--resizes", type=int, help="a row; 30 unless given, 10 from 400 MB on, 3 of checkpoint-restart"
    )
    parser.add_argument("--global-batch", type=int, default=16, help="samples of a step over both workers")
    parser.add_argument("--settle-steps", type=int, default=12, help="quiet steps between two resizes")
    parser.add_argument("--settle-seconds", type=float, default=2.0, help="and quiet seconds")
    parser.add_argument("--deadline", type=float, default=180.0, help="seconds of every wait")
    parser.add_argument("--figures", type=Path, help="folder for figure13.png and figure14.png")
    parser.add_argument(
        "--records", type=Path, nargs="+", default=[], help="earlier records, whose rows go before; alone: no new rows"
    )
    options = parser.parse_args(arguments)
    if options.resizes is not None and options.resizes < 1:
        parser.error(f"--resizes {options.resizes}; one at least")
    missing = [str(path) for path in options.records if not path.is_file()]
    if missing:
        parser.error(f"--records {' '.join(missing)}: no such file")
    return options


def _read(records: Sequence[Path]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first record's set-up, and the rows of all."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in records]
    return (found[0]["setup"] if found else {}), [run for record in found for run in record["runs"]]


def _usual_resizes(size_mb: float, mode: ResizeMode) -> int:
    usual = _RESIZES[mode]
    return min(usual, _RESIZES_OF_A_LARGE_MODEL) if size_mb >= _LARGE_MB else usual


def _run(setup: JobSetup, mode: ResizeMode, resizes: int, settling: Settling, deadline: float) -> dict[str, Any]:
    def report(line: str) -> None:
        print(f"{setup.size_mb:g} MB, {mode.value}: {line}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="fedl2-resize-") as folder:
        observation = observe(setup, mode, resizes, Path(folder), settling, deadline, report)
    layout = layout_of(setup.size_mb)
    least = least_bytes(layout, [setup.servers, *(resize.servers for resize in observation.resizes)])
    return row(setup.size_mb, mode, observation, least, layout.total_bytes)


def _setup(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "workers": 2,
        "servers": [2, 3],
        "optimizer": "SGD with momentum",
        "global_batch": options.global_batch,
        "settle_steps": options.settle_steps,
        "settle_seconds": options.settle_seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
