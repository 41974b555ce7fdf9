"""The script that trains alike in all modes, or is refused alike: CASE names what it does, FOLDER is where it notes it.

DEVICE is where the model computes; the data stay with the processor, as they do where they are many.

float64 throughout: what is left of rounding is far below what a training that differs would differ by.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

import elastic_runtime as elastic

FOLDER = Path(os.environ.get("FOLDER", "."))
DEVICE = os.environ.get("DEVICE", "cpu")
PROCESS = os.environ.get("ELASTIC_TASK") or os.environ.get("RANK") or "alone"
SAMPLES, CLASSES, GLOBAL_BATCH, EPOCHS = 44, 3, 8, 3
STEPS_LEFT_AT = 7
"""In the middle of the second epoch, which has six steps."""


class Script:
    """One run: model, data, and what is noted of it."""

    def __init__(self, optimizer: Any = None, batch: str = "global_batch", **options: Any) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(SAMPLES, 5, generator=generator, dtype=torch.float64)
        self.labels = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
        torch.manual_seed(4)
        self.model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double().to(DEVICE)
        self.notes: dict[str, Any] = {"evaluated": [], "practice": 0, "steps": []}
        options = {"epochs": EPOCHS, batch: GLOBAL_BATCH, **options}
        rule = optimizer or elastic.AdamW(lr=0.05, clip_norm=0.5)
        self.job = elastic.join(self.model, rule, (self.inputs, self.labels), seed=5, **options)

    def loss(self, data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return cross_entropy(self.model(data[0].to(DEVICE)), data[1].to(DEVICE))

    @torch.no_grad()
    def evaluate(self) -> float:
        self.model.eval()
        value = float(self.loss((self.inputs, self.labels)))
        self.model.train()
        return value

    def halves(self, batch: elastic.Batch) -> list[tuple[torch.Tensor, torch.Tensor, float]]:
        """Two unequal parts, with their shares in the batch."""
        inputs, labels = batch.data
        cut = (batch.size + 2) // 3
        parts = [(inputs[:cut], labels[:cut]), (inputs[cut:], labels[cut:])]
        return [(x, y, len(x) / batch.size) for x, y in parts if len(x)]

    def end(self) -> None:
        self.notes |= {"finished": self.job.finished, "loss": self.evaluate(), "step": self.job.global_step}
        if self.job.finished and self.job.is_first:
            save_file(self.model.state_dict(), FOLDER / "model.safetensors")
        (FOLDER / f"notes-{PROCESS}.json").write_text(json.dumps(self.notes))


def plain() -> None:
    run = Script()
    for batch in run.job:
        run.job.step(run.loss(batch.data))
    run.end()


def halves_then_step() -> None:
    """The last part goes to `job.step`, as one that a script wrote before it accumulated."""
    run = Script()
    for batch in run.job:
        *first, (x, y, share) = run.halves(batch)
        for inputs, labels, part in first:
            (run.loss((inputs, labels)) * part).backward()
        run.job.step(run.loss((x, y)) * share)
    run.end()


def halves_of_its_own() -> None:
    """All parts are the script's own; `job.step` is told what is to be shown."""
    run = Script()
    for batch in run.job:
        total = 0.0
        for inputs, labels, part in run.halves(batch):
            loss = run.loss((inputs, labels)) * part
            loss.backward()
            total += loss.item()
        run.job.step(total)
        assert run.job.progress.loss == total
    run.end()


def steps() -> None:
    run = Script(epochs=None, steps=STEPS_LEFT_AT)
    for batch in run.job:
        run.notes["steps"].append([batch.step, batch.ends_epoch])
        run.job.step(run.loss(batch.data))
    run.end()


def left_after_a_step() -> None:
    run = Script()
    for batch in run.job:
        run.job.step(run.loss(batch.data))
        if batch.step + 1 == STEPS_LEFT_AT:
            break
    run.end()


def left_before_a_step() -> None:
    run = Script()
    for batch in run.job:
        if batch.step == STEPS_LEFT_AT:
            break
        run.job.step(run.loss(batch.data))
    run.end()


def left_by_one() -> None:
    """One process alone leaves; the others are in the midst of the next step."""
    run = Script()
    for batch in run.job:
        run.job.step(run.loss(batch.data))
        if batch.step + 1 == STEPS_LEFT_AT and run.job.is_first:
            break
    run.end()


def ended_by_one() -> None:
    """As a callback would do it, that cannot break."""
    run = Script()
    for batch in run.job:
        run.job.step(run.loss(batch.data))
        if batch.step + 1 == STEPS_LEFT_AT and run.job.is_first:
            run.job.end()
    run.end()


def left_asynchronously() -> None:
    run = Script(batch="worker_batch", epochs=1000)
    for batch in run.job:
        run.job.step(run.loss(batch.data))
        run.job.synchronize()
        if batch.step >= STEPS_LEFT_AT and run.job.is_first:
            break
    run.end()


def asynchronous_steps() -> None:
    run = Script(batch="worker_batch", epochs=None, steps=STEPS_LEFT_AT)
    for batch in run.job:
        run.notes["steps"].append(batch.size)
        run.job.step(run.loss(batch.data))
    run.end()


def left_and_entered_again() -> None:
    run = Script()
    for _ in range(EPOCHS):
        for batch in run.job:
            run.job.step(run.loss(batch.data))
            if batch.ends_epoch:
                break
    run.end()


def evaluated() -> None:
    run = Script()
    for batch in run.job:
        run.job.step(run.loss(batch.data))
        if batch.step % 2:
            run.job.synchronize()
            run.notes["evaluated"].append([batch.step, run.evaluate()])
    run.end()


def _written(run: Script, step: int, write: Any) -> None:
    for batch in run.job:
        run.job.step(run.loss(batch.data))
        if batch.step == step:
            with torch.no_grad():
                write(run.model)
    run.end()


def clamped() -> None:
    _written(Script(), 2, lambda model: [p.clamp_(-0.1, 0.1) for p in model.parameters()])


def clamped_by_data() -> None:
    """The way of older scripts, which leaves torch's version counters as they are."""
    _written(Script(), 2, lambda model: [p.data.clamp_(-0.1, 0.1) for p in model.parameters()])


def loaded() -> None:
    run = Script()
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    _written(run, 3, lambda model: model.load_state_dict(before))


def loaded_before_the_loop() -> None:
    """After joining: the start values of the job are those that it joined with."""
    run = Script()
    with torch.no_grad():
        run.model.load_state_dict({name: value * 2 for name, value in run.model.state_dict().items()})
    _written(run, -1, None)


def gradients_clipped() -> None:
    run = Script()
    for batch in run.job:
        run.loss(batch.data).backward()
        nn.utils.clip_grad_norm_(run.model.parameters(), 0.5)
        run.job.step()
    run.end()


def gradients_clipped_by_data() -> None:
    run = Script()
    for batch in run.job:
        run.loss(batch.data).backward()
        for parameter in run.model.parameters():
            parameter.grad.data.clamp_(-0.01, 0.01)
        run.job.step()
    run.end()


def hook_that_looks() -> None:
    """As tools do that draw histograms of gradients."""
    run = Script()
    norms: list[float] = []
    for parameter in run.model.parameters():
        parameter.register_hook(lambda gradient: norms.append(float(gradient.norm())))
    for batch in run.job:
        run.job.step(run.loss(batch.data))
    assert norms
    run.end()


def hook_that_changes() -> None:
    run = Script()
    run.model[0].weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    for batch in run.job:
        run.job.step(run.loss(batch.data))
    run.end()


def _clamp(values: torch.Tensor) -> None:
    values.clamp_(-0.01, 0.01)


def hook_that_changes_in_place() -> None:
    run = Script()
    run.model[0].weight.register_hook(lambda gradient: _clamp(gradient.data))
    for batch in run.job:
        run.job.step(run.loss(batch.data))
    run.end()


def hook_once_accumulated() -> None:
    run = Script()
    run.model[0].weight.register_post_accumulate_grad_hook(lambda parameter: parameter.grad.clamp_(-0.01, 0.01))
    for batch in run.job:
        run.job.step(run.loss(batch.data))
    run.end()


def checkpoints_that_share() -> None:
    """Two reentrant checkpoints use the same layer: each has a backward pass of its own within the step's."""
    run = Script()
    for batch in run.job:
        inputs, labels = batch.data
        parts = [(inputs, labels), (-inputs, labels)]
        seen = [(x.clone().requires_grad_(), y) for x, y in parts]
        losses = [cross_entropy(checkpoint(run.model, x, use_reentrant=True), y) for x, y in seen]
        run.job.step(sum(losses) / 2)
    run.end()


def gradients_left_over() -> None:
    run = Script()
    for batch in run.job:
        run.job.step(run.loss(batch.data))
        run.loss(batch.data).backward()
    run.end()


def backward_twice() -> None:
    run = Script()
    for batch in run.job:
        loss = run.loss(batch.data)
        loss.backward()
        run.job.step(loss)
    run.end()


def bad_before_joining() -> None:
    Script(optimizer=elastic.SGD(lr=0.1, lr_at=elastic.CosineRate(total_steps=5, warm_up_steps=5)))


if __name__ == "__main__":
    globals()[os.environ["CASE"]]()
