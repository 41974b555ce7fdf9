"""The same training by `elastic_runtime`, started by elastic-run."""

from __future__ import annotations

import os
from dataclasses import replace

import torch
from torch.nn.functional import cross_entropy

import elastic_runtime as elastic
from benchmarks.training_modes.subject import Options, Stopwatch, network, pictures


def main() -> None:
    """Entry point of each worker."""
    options = Options.parse()
    torch.set_num_threads(1)
    number = os.environ["ELASTIC_TASK"].rpartition("-")[2]
    watch = Stopwatch(replace(options, figures=options.figures.with_suffix(f".{number}")))
    data = pictures()
    torch.manual_seed(0)
    model = network()
    job = elastic.join(
        model,
        elastic.SGD(lr=0.05, momentum=0.9, weight_decay=5e-4),
        data,
        global_batch=options.global_batch,
        epochs=-(-options.steps // (len(data[0]) // options.global_batch)),
        drop_last=True,
    )
    for batch in job:
        images, labels = batch.data
        loss = cross_entropy(model(images), labels)
        job.step(loss)
        watch.step(loss.item())


if __name__ == "__main__":
    main()
