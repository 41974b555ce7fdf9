"""Train a small GPT on the letters of this project's own guide: which one comes next, after at most 64 of them.

`python docs/examples/gpt/train.py`, or the same script with torchrun or with elastic-run; `--text FILE` takes another
text.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import elastic_runtime as elastic

CONTEXT = 64
GUIDE = Path(__file__).parents[2] / "guide"


def letters(text: str) -> tuple[torch.Tensor, int]:
    """The text as numbers [N], and how many letters there are."""
    known = {letter: number for number, letter in enumerate(sorted(set(text)))}
    return torch.tensor([known[letter] for letter in text]), len(known)


def windows(numbers: torch.Tensor) -> torch.Tensor:
    """Runs of 65 letters, each of which begins with the last of the one before: [N, 65]."""
    return numbers.unfold(0, CONTEXT + 1, CONTEXT).contiguous()


class Block(nn.Module):
    """Attention to what came before, and a network of its own for each letter."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.heads = heads

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[B, T, width] to the same."""
        batch, length, width = inputs.shape
        parts = self.mixed(self.before_attention(inputs)).view(batch, length, 3, self.heads, -1).transpose(1, 3)
        query, key, value = parts.unbind(2)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        inputs = inputs + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return inputs + self.network(self.before_network(inputs))


class GPT(nn.Module):
    """Two blocks of width 64: 110,000 parameters."""

    def __init__(self, vocabulary: int, width: int = 64, blocks: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(vocabulary, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        """Numbers of letters [B, T] to logits [B, T, vocabulary]."""
        places = torch.arange(numbers.shape[1], device=numbers.device)
        logits: torch.Tensor = self.head(self.blocks(self.letters(numbers) + self.places(places)))
        return logits


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--global-batch", type=int, default=32)
    parser.add_argument("--text", type=Path, default=None)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # a small network: more threads only wait for each other
    torch.manual_seed(options.seed)
    files = [options.text] if options.text is not None else sorted(GUIDE.glob("*.md"))
    numbers, vocabulary = letters("\n".join(file.read_text(encoding="utf-8") for file in files))
    split = len(numbers) * 9 // 10
    train_set, test_set = windows(numbers[:split]), windows(numbers[split:])[::8]
    model = GPT(vocabulary)

    def loss(runs: torch.Tensor) -> torch.Tensor:
        """The mean over all letters of a batch."""
        return cross_entropy(model(runs[:, :-1]).flatten(0, 1), runs[:, 1:].flatten())

    @torch.no_grad()
    def mean_loss(runs: torch.Tensor) -> float:
        """Of many runs, a few at a time."""
        parts = [loss(part).item() * len(part) for part in runs.split(64)]
        return sum(parts) / len(runs)

    job = elastic.join(
        model,
        elastic.AdamW(lr=2e-3),
        train_set,
        global_batch=options.global_batch,
        epochs=options.epochs,
        seed=options.seed,
        practice=loss,
    )
    for batch in job:
        job.step(loss(batch.data))
        if job.is_first and (batch.ends_epoch or batch.step % 10 == 9):
            done, unseen = job.progress, ""
            if batch.ends_epoch:
                job.synchronize()  # from here on the model has this step's values
                unseen = f"  test loss {mean_loss(test_set):.4f}"
            print(
                f"epoch {batch.epoch + 1:2d}  step {batch.step + 1:4d}  loss {done.loss:.4f}{unseen}  "
                f"{done.samples_per_second:.0f} samples/s",
                flush=True,
            )
    if job.finished and job.is_first:
        print(
            f"{job.mode}: trained {job.global_step} steps  loss {mean_loss(train_set[::8]):.6g}  "
            f"test loss {mean_loss(test_set):.6g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
