"""The script of the jobs under test: trains as far as the test lets it, and notes what it trained with.

Environment: FOLDER (of the test), STEPS (of the whole job), FAULT (what goes wrong, and at which step), ASYNCHRONOUS.
"""

import os
import time
from pathlib import Path

from tiny_training import GLOBAL_BATCH, SEED, Tiny, optimizer, samples, training

from elastic_runtime import join

FOLDER = Path(os.environ["FOLDER"])
TASK = os.environ["ELASTIC_TASK"]
LIMIT = FOLDER / "limit"


def held(step: int) -> bool:
    """Whether the test does not let this step be computed yet."""
    return step >= int(LIMIT.read_text() or 0)


model = Tiny()
kind = training(int(os.environ["STEPS"]))
job = join(
    model,
    optimizer(),
    samples(),
    **{"worker_batch" if os.environ.get("ASYNCHRONOUS") else "global_batch": GLOBAL_BATCH},
    epochs=kind.epochs,
    seed=SEED,
    buffer_merge_steps=kind.buffer_merge_steps,
)
with (FOLDER / f"steps-{TASK}").open("a", buffering=1) as notes:
    for batch in job:
        while not batch.warm_up and held(batch.step):
            time.sleep(0.002)
        if not batch.warm_up:
            notes.write(f"{batch.step} {','.join(map(str, batch.indices.tolist()))}\n")
        job.step(model.loss(batch.data))
