"""Train a network on a table, scikit-learn's breast cancer set: 569 tumours, 30 measures each, benign or malignant.

`pip install 'fedl2[examples]'`, then `python docs/examples/tabular/train.py`, or the same with torchrun or elastic-run.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy

import elastic_runtime as elastic


def table() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Measures [N, 30], scaled by what is trained on, and labels [N]: four fifths to train on, one to test with."""
    measures, labels = load_breast_cancer(return_X_y=True)
    rows, targets = torch.tensor(measures, dtype=torch.float32), torch.tensor(labels)
    train, test = train_test_split(range(len(labels)), test_size=0.2, random_state=0, stratify=labels)
    rows = (rows - rows[train].mean(0)) / rows[train].std(0)
    return (rows[train], targets[train]), (rows[test], targets[test])


def network() -> nn.Module:
    """Two hidden layers: 280,000 parameters."""
    return nn.Sequential(nn.Linear(30, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))


@torch.no_grad()
def accuracy(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of rows that are told right."""
    return (model(rows).argmax(dim=1) == labels).double().mean().item()


@torch.no_grad()
def mean_loss(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> float:
    """As it is trained to be small."""
    return cross_entropy(model(rows), labels).item()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--global-batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # a small network: more threads only wait for each other
    torch.manual_seed(options.seed)
    train_set, test_set = table()
    model = network()

    def loss(data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """The mean over a batch."""
        rows, labels = data
        return cross_entropy(model(rows), labels)

    job = elastic.join(
        model,
        elastic.SGD(lr=0.002, momentum=0.9, weight_decay=1e-3),
        train_set,
        global_batch=options.global_batch,
        epochs=options.epochs,
        seed=options.seed,
        practice=loss,
    )
    for batch in job:
        job.step(loss(batch.data))
        if batch.ends_epoch and job.is_first:
            job.synchronize()  # from here on the model has this step's values
            done = job.progress
            print(
                f"epoch {batch.epoch + 1:2d}  step {batch.step + 1:4d}  loss {done.loss:.4f}  "
                f"test accuracy {accuracy(model, *test_set):.4f}  {done.samples_per_second:.0f} samples/s",
                flush=True,
            )
    if job.finished and job.is_first:
        print(
            f"{job.mode}: trained {job.global_step} steps  loss {mean_loss(model, *train_set):.6g}  "
            f"test loss {mean_loss(model, *test_set):.6g}  test accuracy {accuracy(model, *test_set):.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
