"""A tiny training whose workers make the mistakes that a file beside it names: `{"worker-2": "other-model"}`.

`all` stands for every worker.
"""

import json
import os
import time
from pathlib import Path

import torch

import elastic_runtime as elastic

MISTAKES = Path(os.environ["MISTAKES"])


def mistake() -> str:
    """This worker's."""
    mistakes = json.loads(MISTAKES.read_text())
    return mistakes.get(os.environ["ELASTIC_TASK"], mistakes.get("all", ""))


torch.manual_seed(1)
model = torch.nn.Linear(65 if mistake() == "other-model" else 64, 64)
samples = torch.zeros(240, model.in_features)
job = elastic.join(model, elastic.SGD(lr=0.1), samples, global_batch=24, epochs=100_000)
for batch in job:
    time.sleep(0.05)  # leaves the machine to the others
    if mistake() == "raise":
        raise RuntimeError("this script has a mistake")
    if mistake() == "grow":
        model.bias = torch.nn.Parameter(torch.zeros(1))
    job.step(model(batch.data).square().mean())
