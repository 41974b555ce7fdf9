"""A convolutional network with batch norm on made pictures, on the GPU: `train_pictures.py EPOCHS GO`.

Until the file GO is there a step takes its time. The process that is first prints what it has seen and learned.
"""

import os
import pathlib
import sys
import time

import torch
from torch import nn

import elastic_runtime as elastic

generator = torch.Generator().manual_seed(0)
wanted = torch.randint(0, 4, (1024,), generator=generator)
pictures = torch.randn(1024, 3, 16, 16, generator=generator) + wanted.view(-1, 1, 1, 1) * 0.2
torch.manual_seed(1)
model = nn.Sequential(
    *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(2)),
    *(nn.Flatten(), nn.Linear(256, 4096), nn.ReLU(), nn.Linear(4096, 4)),
).to("cuda")


def loss_of(data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    inputs, labels = (column.to("cuda", non_blocking=True) for column in data)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(inputs)
    return nn.functional.cross_entropy(logits.float(), labels)


rule = elastic.AdamW(lr=0.001, clip_norm=1.0)
job = elastic.join(
    model, rule, (pictures, wanted), global_batch=128, epochs=int(sys.argv[1]), prefetch=True, practice=loss_of
)
go = pathlib.Path(sys.argv[2])
for batch in job:
    if not go.exists():
        time.sleep(0.05)
    job.step(loss_of(batch.data))
if job.finished and job.is_first:
    model.eval()
    with torch.no_grad():
        right = (model(pictures.to("cuda")).argmax(1).cpu() == wanted).float().mean().item()
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    print(f"trained {job.progress.step} right {right:.3f} gpus {torch.cuda.device_count()} seen {seen}", flush=True)
