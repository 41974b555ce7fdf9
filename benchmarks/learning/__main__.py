"""`python -m benchmarks.learning`: eight agents teach one `dl2` by their pasts, through a learner; a ninth is silent.

`global-learner serve` and `cluster-agent run` are processes of their own. A fleet begins from a network at about DRF's
level, and its last published version is judged, acting greedily, on workloads that nobody learned from. Beside it: what
the silent cluster gains, a control with nothing to learn from, a learning rate of 0, and what it costs when one of the
eight sends noise or the opposite of its gradient, with and without robust aggregation. Ratios less 1 of average JCT.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.command import parser_of, show
from benchmarks.learning.fleet import ATTACKS, RunSettings, run_fleet
from benchmarks.learning.score import average_jcts, mean_log_ratio, ratio_interval
from benchmarks.learning.worlds import (
    HELD_OUT_A_MIX,
    HELD_OUT_SILENT,
    PUSHING,
    SILENT,
    START_SEEDS,
    environment,
    held_out,
    source,
)
from policy_net.dl2.network import initial_weights
from policy_net.exchange.policy_file import PolicyFile, read_policy_file, write_policy_file
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.group_training import GroupLearner
from policy_net.laboratory.training.settings import Dl2Settings
from policy_net.laboratory.workloads.sources import load_workload

UPDATES, IDLE_UPDATES = 400, 16
"""Of a run, and of that with a learning rate of 0."""
START_UPDATES = 25
"""From random weights: about DRF's level."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = parser_of("learning", __doc__)
    parser.add_argument("--seeds", type=int, default=3, help="training seeds (at least 2)")
    parser.add_argument("--updates", type=int, default=UPDATES, help="updates of each run")
    parser.add_argument("--folder", type=Path, help="keep what the runs leave here (must not exist yet)")
    parser.add_argument("--attacks", nargs="*", choices=ATTACKS, default=ATTACKS, help="by the first seed's fleet")
    options = parser.parse_args(arguments)
    if options.seeds < 2 or options.updates < 1:
        parser.error("--seeds takes 2 or more, --updates 1 or more")
    if options.folder is not None and options.folder.exists():
        parser.error(f"--folder {options.folder}: is there already; name a new one")
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedl2-learning-")))
        folder.mkdir(parents=True, exist_ok=True)
        result = measure(folder, options.seeds, options.updates, options.attacks)
    show(result, options.output)
    return 0


def measure(folder: Path, seeds: int, updates: int, attacks: Sequence[str]) -> dict[str, Any]:
    """Run everything in `folder` and return the figures."""
    began = time.monotonic()
    v1 = _start(folder)
    runs = {f"seed-{seed}": RunSettings(seed, updates) for seed in range(seeds)}
    runs["control"] = RunSettings(0, updates, permute=True)
    runs["rate-0"] = RunSettings(0, IDLE_UPDATES, optimizer=(("learning_rate", 0.0),))
    for mode in ("async", "robust"):
        for attack in (None, *attacks) if attacks else ():
            if (mode, attack) != ("async", None):  # which is the first seed's
                runs[f"{attack or 'clean'}-{mode}"] = RunSettings(0, updates, attack, mode)
    applied = {name: _run(folder, v1, settings, name) for name, settings in runs.items()}
    files = {name: folder / f"{name}.safetensors" for name in runs}
    pushing, silent = held_out(PUSHING, HELD_OUT_A_MIX), held_out(SILENT, HELD_OUT_SILENT)
    drf, start, *after = average_jcts(["drf", v1, *files.values()], pushing)
    learned = [f"seed-{seed}" for seed in range(seeds)]
    silent_start, *silent_after = average_jcts([v1, *(files[name] for name in learned)], silent)
    by_run = dict(zip(runs, after, strict=True))
    gains = np.array([mean_log_ratio(by_run[name], start) for name in learned])
    silent_gains = mean_log_ratio(np.array(silent_after), silent_start)

    def over(name: str, other: str) -> float:
        return _less_one(mean_log_ratio(by_run[name], by_run[other]))

    costs = {
        f"{attack}_{mode}": over(f"{attack}-{mode}", "seed-0" if mode == "async" else "clean-robust")
        for mode in ("async", "robust")
        for attack in attacks
    }
    return {
        "final_over_v1_mean": _less_one(gains.mean()),
        "final_over_v1_ci95": [round(bound - 1.0, 4) for bound in ratio_interval(gains)],
        "v1_over_drf": _less_one(mean_log_ratio(start, drf)),
        "final_over_drf": _less_one(np.mean([mean_log_ratio(by_run[name], drf) for name in learned])),
        "silent_over_v1_mean": _less_one(silent_gains.mean()),
        "silent_share_of_gain": round(float(silent_gains.mean() / gains.mean()), 4),
        "control_over_v1": _less_one(mean_log_ratio(by_run["control"], start)),
        "rate_zero_identical": read_policy_file(files["rate-0"]).weights.tobytes()
        == read_policy_file(v1).weights.tobytes(),
        "robust_over_async": over("clean-robust", "seed-0") if attacks else None,
        "over_clean": costs,
        "updates": applied,
        "held_out_workloads": len(pushing),
        "wall_seconds": round(time.monotonic() - began, 1),
    }


def _run(folder: Path, v1: Path, settings: RunSettings, name: str) -> dict[str, int]:
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=settings.updates)
        result = run_fleet(folder / name, v1, settings, lambda step: progress.update(task, completed=step))
    write_policy_file(folder / f"{name}.safetensors", result.final)
    console.print(f"{name}: {sum(result.updates.values())} updates in {result.seconds:.0f} s", highlight=False)
    return result.updates


def _start(folder: Path) -> Path:
    """Train v1 on workloads of every mix in turn."""
    spec, mixes = Dl2Settings().spec(MODEL_NAMES), {**PUSHING, **SILENT}.values()
    episodes = (
        (load_workload(source(mix, START_SEEDS + number)), environment())
        for number in itertools.count()
        for mix in mixes
    )
    learner = GroupLearner(spec, initial_weights(spec, 0), episodes, default_speeds(), Dl2Settings().groups, 0)
    for number in range(START_UPDATES):
        learner.update(number / START_UPDATES)
    out = folder / "v1.safetensors"
    write_policy_file(out, PolicyFile(spec, learner.weights, {"trained_by": "benchmarks.learning"}))
    return out


def _less_one(log_ratio: NDArray[np.float64] | np.floating[Any]) -> float:
    return round(float(np.expm1(log_ratio)), 4)


if __name__ == "__main__":
    sys.exit(main())
