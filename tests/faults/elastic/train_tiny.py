"""The script of the jobs under test: trains as far as the test lets it, and notes what it trained with.

Environment: FOLDER (of the test), STEPS (of the whole job), TENSORS (of the model), FAULT (`raise` or `grow`: what goes
wrong), FAULT_STEP (from which step on), ASYNCHRONOUS.
"""

import os
import time
from pathlib import Path

import torch
from tiny_training import GLOBAL_BATCH, SEED, TENSORS, Tiny, optimizer, samples, training

from elastic_runtime import join

FOLDER = Path(os.environ["FOLDER"])
TASK = os.environ["ELASTIC_TASK"]
LIMIT = FOLDER / "limit"


def held(step: int) -> bool:
    """Whether the test does not let this step be computed yet."""
    return step >= int(LIMIT.read_text() or 0)


def misbehave() -> None:
    """Do what the test wants to go wrong."""
    if os.environ.get("FAULT") == "raise":
        raise RuntimeError("this script has a mistake")
    if os.environ.get("FAULT") == "grow":
        model.vectors[0] = torch.nn.Parameter(torch.zeros(7))


model = Tiny(int(os.environ.get("TENSORS") or TENSORS))
kind = training(int(os.environ["STEPS"]))
job = join(
    model,
    optimizer(),
    samples(),
    **{"worker_batch" if os.environ.get("ASYNCHRONOUS") else "global_batch": GLOBAL_BATCH},
    epochs=kind.epochs,
    seed=SEED,
    buffer_merge_steps=kind.buffer_merge_steps,
    practice=model.loss,
)
with (FOLDER / f"steps-{TASK}").open("a", buffering=1) as notes:
    for batch in job:
        while held(batch.step):
            time.sleep(0.005)
        if batch.step >= int(os.environ.get("FAULT_STEP", "0")):
            misbehave()
        notes.write(f"{batch.step} {','.join(map(str, batch.indices.tolist()))}\n")
        job.step(model.loss(batch.data))
