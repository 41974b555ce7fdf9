"""Train a small convolutional network on scikit-learn's handwritten digits: 1,797 real pictures of 8 × 8 pixels.

`pip install 'fedl2[examples]'`, then `python docs/examples/digits/train.py`, or the same script with torchrun or with
elastic-run: what it prints at the end is about the same.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy

import elastic_runtime as elastic


def digits() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Pictures [N, 1, 8, 8] in 0 to 1 and their labels [N]: four fifths to train on, one to test with."""
    pictures, labels = load_digits(return_X_y=True)
    images = torch.tensor(pictures, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    train, test = train_test_split(range(len(labels)), test_size=0.2, random_state=0, stratify=labels)
    targets = torch.tensor(labels)
    return (images[train], targets[train]), (images[test], targets[test])


def network() -> nn.Module:
    """Two convolutions with batch norm: 38,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of pictures that are recognised."""
    model.eval()
    right = (model(images).argmax(dim=1) == labels).double().mean().item()
    model.train()
    return right


@torch.no_grad()
def mean_loss(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """As it is trained to be small, with the statistics that batch norm has learned."""
    model.eval()
    found = cross_entropy(model(images), labels).item()
    model.train()
    return found


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--global-batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # a small network: more threads only wait for each other
    torch.manual_seed(options.seed)
    train_set, test_set = digits()
    model = network()

    def loss(data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """The mean over a batch."""
        images, labels = data
        return cross_entropy(model(images), labels)

    job = elastic.join(
        model,
        elastic.SGD(lr=0.05, momentum=0.9, weight_decay=5e-4),
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
