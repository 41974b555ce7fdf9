"""GPU types: Gavel's measurements on one GPU against `policy_net.laboratory.speeds.placement_effect`.

Two constants, T4 and V100 over A100, come from one measurement each and cannot be checked: the report is about ratios
between V100, P100 and K80.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.speed_fit.quality import FitError, relative, row
from policy_net.laboratory.csv_rows import read_rows
from policy_net.laboratory.speeds.placement_effect import GPU_SPEEDS, Arithmetic

FILE = "gavel_throughput.csv"
COLUMNS = ("source", "gpu_type", "consolidated", "model", "batch_size", "num_gpus", "iters_per_s")
FITTED_TO = {
    "ResNet-50": Arithmetic.CONVOLUTION,
    "LM": Arithmetic.RECURRENCE,
    "Transformer": Arithmetic.ATTENTION,
}
OTHERS = {"ResNet-18": Arithmetic.CONVOLUTION, "CycleGAN": Arithmetic.CONVOLUTION}
AGAINST = "v100"


def report(profiles: Path) -> list[FitError]:
    """One row per model: the ratio of every type to V100 at every batch."""
    speeds: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for item in read_rows(profiles / FILE, COLUMNS):
        alone = item.whole("num_gpus", 1) == 1 and item.whole("consolidated", 0) == 1
        if alone and item.text("source") == "gavel-simulation":
            key = (item.text("model"), item.optional("batch_size") or "")
            speeds[key][item.text("gpu_type")] = item.number("iters_per_s")
    rows = []
    for model, arithmetic in (FITTED_TO | OTHERS).items():
        known = GPU_SPEEDS[arithmetic]
        pairs = [
            (known[gpu_type] / known[AGAINST], speed / by_type[AGAINST])
            for (measured_model, _), by_type in speeds.items()
            for gpu_type, speed in by_type.items()
            if measured_model == model and gpu_type != AGAINST and speed > 0
        ]
        fit, measured = (np.array(column) for column in zip(*pairs, strict=True))
        errors = relative(fit, measured)
        name = f"{arithmetic.value} ({model})"
        rows.append(row(name, errors, "all: not fitted to", errors) if model in OTHERS else row(name, errors))
    return rows
