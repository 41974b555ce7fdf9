"""`python -m benchmarks.training_modes [-o json]`: two workers and a parameter server against two DDP processes.

Both train the same network on the same pictures with the same batches a step, in turn, on the same machine; the ratio
of their speeds is taken in each round, and its median reported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.training_modes.subject import WARM_UP_STEPS

WORKERS = 2
_HERE = Path(__file__).parent
_RUN_SECONDS = 280.0
"""The longest that one side may take; a run of 1,500 steps takes some ten seconds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_modes", description=__doc__)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500, help="of each side in each round")
    parser.add_argument("--global-batch", type=int, nargs="+", default=[64, 256])
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.steps <= WARM_UP_STEPS or min(options.global_batch) < WORKERS:
        parser.error(f"--rounds takes 1 or more, --steps more than {WARM_UP_STEPS}, --global-batch {WORKERS} or more")
    result = measure(options.rounds, options.steps, options.global_batch)
    print(json.dumps(result) if options.output == "json" else _table(result))
    return 0


def measure(rounds: int, steps: int, batches: Sequence[int]) -> dict[str, Any]:
    """Both sides in turn, `rounds` times for each size of the global batch."""
    return {
        "workers": WORKERS,
        "servers": 1,
        "cores": len(os.sched_getaffinity(0)),
        "steps": steps,
        "rounds": rounds,
        "runs": [_compare(rounds, steps, batch) for batch in batches],
    }


def _compare(rounds: int, steps: int, batch: int) -> dict[str, Any]:
    servers, plain = [], []
    for number in range(rounds):
        print(f"global batch {batch}: round {number + 1} of {rounds}", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="fedl2-modes-") as folder:
            servers.append(_run(_with_servers(Path(folder)), Path(folder) / "servers", steps, batch))
            plain.append(_run(_plain_ddp(), Path(folder) / "plain", steps, batch))
    ratios = [
        ours["steps_per_second"] / theirs["steps_per_second"] for ours, theirs in zip(servers, plain, strict=True)
    ]
    return {
        "global_batch": batch,
        "ps_over_ddp": round(statistics.median(ratios), 3),
        "ps_over_ddp_all": [round(ratio, 3) for ratio in ratios],
        "ps_steps_per_second": round(statistics.median(run["steps_per_second"] for run in servers), 1),
        "ddp_steps_per_second": round(statistics.median(run["steps_per_second"] for run in plain), 1),
        "ps_worker_cpu_ms_per_step": round(statistics.median(run["cpu_ms_per_step"] for run in servers), 3),
        "ddp_worker_cpu_ms_per_step": round(statistics.median(run["cpu_ms_per_step"] for run in plain), 3),
        "ps_loss": round(statistics.median(run["loss"] for run in servers), 4),
        "ddp_loss": round(statistics.median(run["loss"] for run in plain), 4),
    }


def _with_servers(folder: Path) -> list[str]:
    tool = [sys.executable, "-m", "elastic_runtime.cli", "--ps", "1", "--workers", str(WORKERS)]
    return [*tool, "--folder", str(folder / "jobs"), "--name", "measured", str(_HERE / "with_servers.py")]


def _plain_ddp() -> list[str]:
    tool = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORKERS}"]
    return [*tool, str(_HERE / "plain_ddp.py")]


def _run(command: list[str], figures: Path, steps: int, batch: int) -> dict[str, float]:
    """One side, whose speed is that of its slowest worker."""
    command = [*command, "--steps", str(steps), "--global-batch", str(batch), "--figures", str(figures)]
    source = str(_HERE.parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_RUN_SECONDS, check=False)
    if ended.returncode:
        said = ended.stderr if len(ended.stderr) < 4000 else f"{ended.stderr[:2000]}\n…\n{ended.stderr[-2000:]}"
        raise RuntimeError(f"{' '.join(command[:6])} … ended with {ended.returncode}: {said}")
    workers = [json.loads(figures.with_suffix(f".{number}").read_text()) for number in range(WORKERS)]
    return {
        "steps_per_second": min(worker["steps_per_second"] for worker in workers),
        "cpu_ms_per_step": statistics.mean(worker["cpu_ms_per_step"] for worker in workers),
        "loss": statistics.mean(worker["loss"] for worker in workers),
    }


def _table(result: dict[str, Any]) -> str:
    names = [name for name in result["runs"][0] if name != "ps_over_ddp_all"]
    lines = ["".join(f"{name:>28}" for name in names)]
    lines += ["".join(f"{run[name]:>28}" for name in names) for run in result["runs"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
