"""The subject of both sides: a convolutional network on scikit-learn's digits, and how they tell their speed."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import nn

WARM_UP_STEPS = 100
"""Not measured: the first steps of a process are slow."""


@dataclass(frozen=True, slots=True)
class Options:
    """One side's arguments.

    Attributes:
        global_batch: over both workers.
        steps: in all.
        figures: where each worker leaves its figures; the file's name ends with the worker's number.
    """

    global_batch: int
    steps: int
    figures: Path

    @classmethod
    def parse(cls) -> Options:
        """From the command line."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--global-batch", type=int, required=True)
        parser.add_argument("--steps", type=int, required=True)
        parser.add_argument("--figures", type=Path, required=True)
        options = parser.parse_args()
        return cls(options.global_batch, options.steps, options.figures)


def network() -> nn.Module:
    """38,000 parameters, two layers of batch norm."""
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


def pictures() -> tuple[torch.Tensor, torch.Tensor]:
    """All 1,797 pictures [N, 1, 8, 8] and their labels [N]."""
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)


class Stopwatch:
    """Steps a second and processor time a step of this process, after the warm-up."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._steps = 0
        self._began = (0.0, 0.0)
        self._last_loss = float("nan")

    def step(self, loss: float) -> bool:
        """One more step is done; whether that was the last one."""
        self._steps += 1
        self._last_loss = loss
        if self._steps == WARM_UP_STEPS:
            self._began = time.perf_counter(), time.process_time()
        if self._steps != self._options.steps:
            return False
        steps = self._steps - WARM_UP_STEPS
        wall, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        figures = {"steps_per_second": steps / wall, "cpu_ms_per_step": 1e3 * cpu / steps, "loss": self._last_loss}
        self._options.figures.write_text(json.dumps(figures))
        return True
