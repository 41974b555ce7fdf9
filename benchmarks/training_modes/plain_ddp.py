"""Plain PyTorch: DistributedDataParallel over gloo, started by torchrun. Nothing of ours in it but the subject."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import torch
from torch import distributed, nn
from torch.nn.functional import cross_entropy

from benchmarks.training_modes.subject import Options, Stopwatch, network, pictures


def main() -> None:
    """Entry point of each process."""
    options = Options.parse()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    watch = Stopwatch(replace(options, figures=options.figures.with_suffix(f".{rank}")))
    images, labels = pictures()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    order = torch.Generator().manual_seed(0)
    share = options.global_batch // world
    done = False
    while not done:
        permutation = torch.randperm(len(images), generator=order)
        for start in range(0, len(images) - options.global_batch + 1, options.global_batch):
            mine = permutation[start + rank * share : start + (rank + 1) * share]
            optimizer.zero_grad()
            loss = cross_entropy(model(images[mine]), labels[mine])
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
            optimizer.step()
            done = watch.step(loss.item())
            if done:
                break
    distributed.destroy_process_group()
    # DistributedDataParallel keeps gloo's threads past the group's end, and one that drops a last tensor while Python
    # shuts down ends the process by SIGABRT (once in a hundred runs on a busy machine). All figures are written.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
