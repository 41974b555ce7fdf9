"""Scripts as people have them and as they are prepared, and a way to run one by so many workers."""

from __future__ import annotations

import time
from pathlib import Path

from forks import Forks
from reserved_port import ReservedPort

from elastic_runtime.checkpoint.rank_files import FOLDER_VARIABLE

DEADLINE_SECONDS = 200.0

HEAD = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import elastic_runtime as elastic

torch.set_default_dtype(torch.float64)
torch.manual_seed(4)
drawn = torch.Generator().manual_seed(0)
inputs, labels = torch.randn(50, 5, generator=drawn), torch.randint(0, 3, (50,), generator=drawn)
"""

EPOCHS = """
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
loader = DataLoader(TensorDataset(inputs, labels), batch_size=8, shuffle=True)
groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.5}]
optimizer = torch.optim.Adadelta(groups, lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
losses = []
for epoch in range(4):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    scheduler.step()
torch.save([model.state_dict(), losses], sys.argv[1])
"""
EPOCHS_PREPARED = (
    EPOCHS.replace(
        "losses = []",
        "seen = elastic.state(losses=[])\n"
        "model, optimizer, loader, scheduler = elastic.prepare(model, optimizer, loader, scheduler)",
    )
    .replace("range(4)", "elastic.epochs(4)")
    .replace(
        "losses.append(loss.item())", "seen.losses.append(elastic.sum(loss.item() * len(y)) / elastic.sum(len(y)))"
    )
    .replace(
        "torch.save([model.state_dict(), losses]",
        "if elastic.is_first and elastic.finished:\n    torch.save([model.state_dict(), seen.losses]",
    )
)

ACCUMULATED = """
class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.never = nn.Linear(5, 5), nn.Linear(5, 3), nn.Linear(2, 2)
        self.first.bias.requires_grad_(False)
        self.sometimes = nn.Parameter(torch.ones(3))
        self.again = nn.Linear(5, 5)
        self.again.weight = self.first.weight  # tied

    def forward(self, x, step):
        out = self.second(torch.tanh(self.again(torch.tanh(self.first(x)))))
        return out * self.sometimes if step % 3 == 0 else out

model = Odd()
own = torch.Generator().manual_seed(9)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=10, shuffle=True, generator=own)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=20)
done = 0
for epoch in range(4):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x, done), y) / 2
        loss.backward()
        done += 1
        if done % 2 == 0:
            nn.utils.clip_grad_value_(model.parameters(), 0.3)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
torch.save([model.state_dict(), optimizer.state_dict()["state"]], sys.argv[1])
"""
ACCUMULATED_PREPARED = (
    ACCUMULATED.replace(
        "done = 0",
        "optimizer, model, scheduler, loader = elastic.prepare(optimizer, model, scheduler, loader)\n"
        "count = elastic.state(done=0)",
    )
    .replace("range(4)", "elastic.epochs(4)")
    .replace("done += 1", "count.done += 1")
    .replace("if done %", "if count.done %")
    .replace("model(x, done)", "model(x, count.done)")
    .replace("torch.save(", "if elastic.is_first and elastic.finished:\n    torch.save(")
)

STEPS = """
model = nn.Linear(5, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(12):
    chosen = torch.randint(50, (7,))
    shift = torch.rand(7, 1)
    x, y = inputs[chosen] + shift, labels[chosen]
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
torch.save([model.state_dict(), optimizer.state_dict()["state"]], sys.argv[1])
"""
STEPS_PREPARED = (
    STEPS.replace(
        "for step in range(12)", "model, optimizer = elastic.prepare(model, optimizer)\nfor step in elastic.steps(12)"
    )
    .replace("shift = torch", "mine = elastic.rows(7)\n    shift = torch")
    .replace(
        "x, y = inputs[chosen] + shift, labels[chosen]", "x, y = (inputs[chosen] + shift)[mine], labels[chosen][mine]"
    )
    .replace("torch.save(", "if elastic.is_first and elastic.finished:\n    torch.save(")
)

EACH = """
model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
lr = 0.5
for epoch in range(1, 4):
    for start in range(0, 50, 9):
        shift = torch.rand(9, 1)
        x, y = inputs[start : start + 9], labels[start : start + 9]
        loss = nn.functional.cross_entropy(model(x + shift[: len(x)]), y)
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-lr)
    lr /= 2
torch.save([model.state_dict(), lr], sys.argv[1])
"""
EACH_PREPARED = (
    EACH.replace("lr = 0.5", "now = elastic.state(lr=0.5)\nmodel = elastic.prepare(model)")
    .replace("range(1, 4)", "elastic.epochs(1, 4)")
    .replace("range(0, 50, 9)", "elastic.each(range(0, 50, 9))")
    .replace(
        "        loss = nn",
        "        mine = elastic.rows(len(x))\n"
        "        x, y, shift = x[mine], y[mine], shift[: len(x)][mine]\n"
        "        loss = nn",
    )
    .replace("-lr)", "-now.lr)")
    .replace("    lr /= 2", "    now.lr /= 2")
    .replace("torch.save([model.state_dict(), lr]", "if elastic.is_first:\n    torch.save([model.state_dict(), now.lr]")
)

HEADED = EPOCHS.replace("    for x, y in loader:", "    scheduler.step()\n    for x, y in loader:").replace(
    "    scheduler.step()\ntorch.save", "torch.save"
)
"""With a learning rate that numpy computes, a scheduler that steps at an epoch's head, and draws there."""
HEADED = HEADED.replace("StepLR(optimizer, 1, gamma=0.7)", "LambdaLR(optimizer, lambda step: np.cos(step / 9))")
HEADED = "import numpy as np\n" + HEADED.replace("    scheduler.step()\n", "    scheduler.step()\n    torch.rand(3)\n")
HEADED_PREPARED = (
    HEADED.replace(
        "losses = []",
        "seen = elastic.state(losses=[])\n"
        "model, optimizer, loader, scheduler = elastic.prepare(model, optimizer, loader, scheduler)",
    )
    .replace("range(4)", "elastic.epochs(4)")
    .replace(
        "losses.append(loss.item())",
        "seen.losses.append(np.float64(elastic.sum(loss.item() * len(y))) / elastic.sum(len(y)))",
    )
    .replace(
        "torch.save([model.state_dict(), losses]",
        "if elastic.is_first and elastic.finished:\n    torch.save([model.state_dict(), list(map(float, seen.losses))]",
    )
)

SCRIPTS = {
    "epochs": (EPOCHS, EPOCHS_PREPARED),
    "accumulated": (ACCUMULATED, ACCUMULATED_PREPARED),
    "steps": (STEPS, STEPS_PREPARED),
    "each": (EACH, EACH_PREPARED),
    "headed": (HEADED, HEADED_PREPARED),
}


def run(
    forks: Forks, folder: Path, script: str, processes: int, files: Path | None = None, codes: tuple[int, ...] = ()
) -> str:
    """All processes of one run, to their end; what they said. 0 processes: one that is no worker of anything."""
    path, out = folder / "train.py", folder / "trained.pt"
    path.write_text(HEAD + script, encoding="utf-8")
    port = ReservedPort()
    group = (
        {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.port)} if processes else {}
    )
    if files is not None:
        group[FOLDER_VARIABLE] = str(files)
    logs = [folder / f"{rank}.log" for rank in range(max(processes, 1))]
    running = [
        forks.start(str(path), [str(out)], {**group, "RANK": str(rank)} if processes else {}, log)
        for rank, log in enumerate(logs)
    ]
    deadline = time.monotonic() + DEADLINE_SECONDS
    while None in (ended := [forks.exit_code(pid) for pid in running]):
        assert time.monotonic() < deadline, ended
        time.sleep(0.01)
    port.close()
    said = "\n".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)
    assert tuple(ended) == (codes or (0,) * len(running)), said
    return said
