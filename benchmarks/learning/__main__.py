"""`python -m benchmarks.learning`: five training seeds through `global-learner serve` and `cluster-agent run`.

Every seed trains a fleet of four clusters from the same warm start; the last published version is then judged, acting
greedily, on workloads that nobody trained on. Beside it: the same with rewards permuted (nothing to learn from), with
a learning rate of 0 (nothing may change), and the judgement for the cluster that never pushes.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from benchmarks.command import parser_of, show
from benchmarks.learning.fleet import RunResult, RunSettings, run_fleet
from benchmarks.learning.score import average_jcts, mean_log_ratio, ratio_interval
from benchmarks.learning.worlds import (
    ARRIVAL_SCALE,
    HELD_OUT_A_MIX,
    HELD_OUT_SILENT,
    JOBS_PER_BATCH,
    NODES,
    PUSHING,
    SILENT,
    TRAIN_SEED,
    held_out,
    source,
)
from deploy.demonstration.processes import Processes
from policy_net.exchange.policy_file import read_policy_file, write_policy_file

LEARNING_RATE = 3e-4
"""Chosen on seeds and workloads that appear nowhere here: docs/experiments.md."""
UPDATES = 2500
IDLE_UPDATES = 60
"""Of the run with learning rate 0."""
WARM_START_SECONDS = 240.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = parser_of("learning", __doc__)
    parser.add_argument("--seeds", type=int, default=5, help="training seeds (at least 2)")
    parser.add_argument("--updates", type=int, default=UPDATES, help="updates of each seed")
    parser.add_argument("--folder", type=Path, help="keep what the runs leave here (must not exist yet)")
    options = parser.parse_args(arguments)
    if options.seeds < 2 or options.updates < 1:
        parser.error("--seeds takes 2 or more, --updates 1 or more")
    if options.folder is not None and options.folder.exists():
        parser.error(f"--folder {options.folder}: is there already; name a new one")
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedl2-learning-")))
        folder.mkdir(parents=True, exist_ok=True)
        result = measure(folder, options.seeds, options.updates)
    show(result, options.output)
    return 0


def measure(folder: Path, seeds: int, updates: int) -> dict[str, Any]:
    """Run everything in `folder` and return the figures; ratios of average JCT, below 1 is better."""
    began = time.monotonic()
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        v1 = _warm_start(folder, progress)
        idle = _run(folder, v1, RunSettings(0, IDLE_UPDATES, 0.0), "rate-0", progress)
        unchanged = idle.final.weights.tobytes() == read_policy_file(v1).weights.tobytes()
        settings = [RunSettings(seed, updates, LEARNING_RATE) for seed in range(seeds)]
        learned = [_run(folder, v1, each, f"seed-{each.seed}", progress) for each in settings]
        controls = [
            _run(
                folder, v1, RunSettings(seed, updates, LEARNING_RATE, permute_rewards=True), f"control-{seed}", progress
            )
            for seed in range(seeds)
        ]
        files = [folder / f"seed-{seed}.safetensors" for seed in range(seeds)]
        control_files = [folder / f"control-{seed}.safetensors" for seed in range(seeds)]
        judging = progress.add_task("judging on held-out workloads", total=2)
        pushing = list(held_out(PUSHING, HELD_OUT_A_MIX))
        drf, before, *after = average_jcts(["drf", v1, *files, *control_files], pushing)
        progress.advance(judging)
        silent_before, *silent_after = average_jcts([v1, *files], list(held_out(SILENT, HELD_OUT_SILENT)))
        progress.advance(judging)
    finals = mean_log_ratio(np.array(after[:seeds]), before)
    control = mean_log_ratio(np.array(after[seeds:]), before)
    silent = mean_log_ratio(np.array(silent_after), silent_before)
    return {
        "final_over_v1_mean": _round(finals.mean()),
        "final_over_v1_ci95": [round(bound, 4) for bound in ratio_interval(finals)],
        "v1_over_drf_mean": _round(mean_log_ratio(before, drf).mean()),
        "final_over_drf_mean": _round(mean_log_ratio(np.array(after[:seeds]), drf).mean()),
        "control_mean": _round(control.mean()),
        "control_ci95": [round(bound, 4) for bound in ratio_interval(control)],
        "silent_cluster_mean": _round(silent.mean()),
        "silent_cluster_ci95": [round(bound, 4) for bound in ratio_interval(silent)],
        "rate_zero_identical": unchanged,
        "updates_per_seed": [result.updates for result in learned],
        "updates_per_control": [result.updates for result in controls],
        "held_out_workloads": len(pushing),
        "wall_seconds": round(time.monotonic() - began, 1),
    }


def _run(folder: Path, v1: Path, settings: RunSettings, name: str, progress: Progress) -> RunResult:
    task: TaskID = progress.add_task(name, total=settings.updates)
    result = run_fleet(folder / name, v1, settings, lambda step: progress.update(task, completed=step))
    write_policy_file(folder / f"{name}.safetensors", result.final)
    return result


def _warm_start(folder: Path, progress: Progress) -> Path:
    """Train v1 with the command that a user would type."""
    task = progress.add_task("warm start: imitating drf", total=None)
    out = folder / "v1.safetensors"
    mixes = {**PUSHING, **SILENT}.values()
    workloads = [part for mix in mixes for part in ("--workload", source(mix, TRAIN_SEED))]
    world = ["--nodes", str(NODES), "--arrival-scale", str(ARRIVAL_SCALE), "--jobs-per-batch", str(JOBS_PER_BATCH)]
    with Processes(folder) as processes:
        processes.start(
            "warm-start",
            "policy_net.cli",
            ["train", *workloads, *world, "--imitate", "drf", "--reward", "slot-utility", "--out", str(out)],
        )
        deadline = time.monotonic() + WARM_START_SECONDS
        while processes.is_running("warm-start"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the warm start took more than {WARM_START_SECONDS:.0f} s")
            time.sleep(0.1)
        processes.check()
    progress.update(task, total=1, completed=1)
    return out


def _round(log_ratio: np.floating[Any]) -> float:
    return round(math.exp(log_ratio), 4)


if __name__ == "__main__":
    sys.exit(main())
