"""The script whose job is resized: a synthetic model, and a line for every step with the time and what was waited.

Times are of the system's monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch

import elastic_runtime as elastic
from benchmarks.models import synthetic_data, synthetic_model

_SAMPLES = 1024
_EPOCHS = 1_000_000
"""More than any measurement takes: whoever measures ends the job."""


def main() -> None:
    """Train until the job is ended; write the task's steps below `--steps`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size-mb", type=float, required=True, help="of the model, in 10^6 bytes")
    parser.add_argument("--global-batch", type=int, required=True, help="samples of a step over all workers")
    parser.add_argument("--steps", type=Path, required=True, help="folder of the lines")
    options = parser.parse_args()
    model = synthetic_model(options.size_mb)

    def loss(data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.mse_loss(model(data[0]), data[1])

    job = elastic.join(
        model,
        elastic.SGD(lr=1e-5, momentum=0.9),
        synthetic_data(model, _SAMPLES),
        global_batch=options.global_batch,
        epochs=_EPOCHS,
        practice=loss,
    )
    path = options.steps / f"{os.environ['ELASTIC_TASK']}.{os.getpid()}.steps"
    with path.open("w", encoding="ascii", buffering=1) as lines:
        for batch in job:
            lines.write(f"{batch.step} {time.monotonic():.6f} {job.progress.stall_seconds:.6f}\n")
            job.step(loss(batch.data))


if __name__ == "__main__":
    main()
