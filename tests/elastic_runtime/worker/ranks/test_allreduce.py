"""A script under torchrun trains as it does alone, up to rounding; slices count by their samples."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import elastic_runtime as elastic
from elastic_runtime.errors import BadInput
from elastic_runtime.model.data_shards import SampleOrder

SCRIPT = """
import json, sys
import torch
from torch import nn
from torch.nn.functional import cross_entropy
import elastic_runtime as elastic

def model(norm):
    torch.manual_seed(4)
    layers = [nn.Linear(5, 8), *([nn.BatchNorm1d(8)] if norm else []), nn.ReLU(), nn.Linear(8, 3)]
    return nn.Sequential(*layers)

def data():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(22, 5, generator=generator), torch.randint(0, 3, (22,), generator=generator)

OPTIMIZERS = {
    "sgd": elastic.SGD(lr=0.1, momentum=0.9, clip_norm=0.3, lr_at={3: 0.05}),
    "adam": elastic.Adam(lr=0.01),
}

def train(norm, optimizer, global_batch, seed=5):
    trained = model(norm)
    job = elastic.join(trained, OPTIMIZERS[optimizer], data(), global_batch=global_batch, epochs=3, seed=seed,
                       buffer_merge_steps=2)
    sizes = []
    for batch in job:
        inputs, labels = batch.data
        job.step(cross_entropy(trained(inputs), labels))
        sizes.append([batch.step, *batch.indices.tolist()])
    return trained, job, sizes
"""

CASES = [
    {"norm": False, "optimizer": "sgd", "global_batch": 7},  # slices of 4 and 3; the last batch has 1 sample
    {"norm": False, "optimizer": "adam", "global_batch": 8},
    {"norm": True, "optimizer": "sgd", "global_batch": 9},
    {"norm": True, "optimizer": "adam", "global_batch": 19},  # the last batch has 3 samples, for one of the two
]

WORKER = (
    SCRIPT
    + """
import os
from safetensors.torch import save_file
rank, folder = int(os.environ["RANK"]), sys.argv[1]
if rank == 1:  # a process whose model starts with other values, and is overwritten
    start = model
    def model(norm):
        other = start(norm)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(1)
        return other
said = []
for number, case in enumerate(json.loads(sys.argv[2])):
    trained, job, sizes = train(**case)
    save_file(trained.state_dict(), f"{folder}/{number}-{rank}.safetensors")
    said.append({"mode": job.mode, "first": job.is_first, "finished": job.finished, "sizes": sizes})
try:
    train(False, "sgd", 8, seed=rank)
except elastic.ModelMismatch as error:
    said.append(str(error))
try:
    train(True, "sgd", 2)
except elastic.BadInput as error:
    said.append(str(error))
with open(f"{folder}/{rank}.json", "w") as file:
    json.dump(said, file)
def name_of(thread):
    try:
        return open(f"/proc/self/task/{thread}/comm").read().strip()
    except OSError:  # it has just ended
        return ""
threads = sorted(map(name_of, os.listdir("/proc/self/task")))
assert not [name for name in threads if "gloo" in name], threads  # they would outlive the interpreter
"""
)


Two = tuple[Path, list[list[Any]]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Two:
    """All cases, run by torchrun in two processes: the folder with their models, and what each of them said."""
    folder = tmp_path_factory.mktemp("two")
    script = folder / "script.py"
    script.write_text(WORKER, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with subprocess.Popen(
        [*torchrun, str(script), str(folder), json.dumps(CASES)], stderr=subprocess.PIPE, text=True
    ) as started:
        try:
            _, errors = started.communicate(timeout=100)
        finally:
            started.terminate()  # torchrun ends its processes then
    assert started.returncode == 0, errors
    return folder, [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]


def _alone(case: dict[str, Any]) -> nn.Module:
    """The same script alone; with batch norm, a plain loop that computes the two slices one after the other."""
    names: dict[str, Any] = {}
    exec(SCRIPT, names)  # noqa: S102  # the same lines that the processes run
    if not case["norm"]:
        trained, job, _ = names["train"](**case)
        assert job.mode == "alone"
        return trained  # type: ignore[no-any-return]
    model, (inputs, labels) = names["model"](True), names["data"]()
    other = copy.deepcopy(model)
    order = SampleOrder(22, case["global_batch"], 5, 3, smallest_slice=2)
    rule = names["OPTIMIZERS"][case["optimizer"]]
    optimizer = (
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if case["optimizer"] == "sgd"
        else torch.optim.Adam(model.parameters(), lr=0.01)
    )
    for step in range(order.total_steps):
        optimizer.zero_grad()
        slices = [torch.from_numpy(order.slice_indices(step, index, 2).copy()) for index in range(2)]
        sizes = [len(chosen) for chosen in slices]
        other.load_state_dict({**model.state_dict(), **dict(other.named_buffers())})
        other.zero_grad()
        for replica, chosen in zip((model, other), slices, strict=True):
            if len(chosen):
                (cross_entropy(replica(inputs[chosen]), labels[chosen]) * len(chosen) / sum(sizes)).backward()
        for parameter, twin in zip(model.parameters(), other.parameters(), strict=True):
            parameter.grad += twin.grad if twin.grad is not None else 0
        if rule.clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), rule.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = rule.lr_for(step)
        optimizer.step()
        if (step + 1) % 2 == 0 or step + 1 == order.total_steps:
            for (name, mine), theirs in zip(model.named_buffers(), other.buffers(), strict=True):
                mean = (mine.double() * sizes[0] + theirs.double() * sizes[1]) / sum(sizes)
                merged = torch.maximum(mine, theirs) if name.endswith("tracked") else mean
                mine.copy_(merged)
                theirs.copy_(merged)
    return model


@pytest.mark.heavy
@pytest.mark.parametrize("number", range(len(CASES)))
def test_two_processes_train_what_one_does(two: Two, number: int) -> None:
    from safetensors.torch import load_file

    folder, _ = two
    first, second = (load_file(folder / f"{number}-{rank}.safetensors") for rank in range(2))
    expected = _alone(CASES[number]).state_dict()
    assert first.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(
            first[name], value, rtol=2e-5, atol=2e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.heavy
@pytest.mark.parametrize("number", range(len(CASES)))
def test_each_sample_is_computed_once_an_epoch_by_one_of_the_two(two: Two, number: int) -> None:
    _, said = two
    steps_per_epoch = -(-22 // CASES[number]["global_batch"])
    for epoch in range(3):
        read = [
            sample
            for process in said
            for step, *samples in process[number]["sizes"]
            if step // steps_per_epoch == epoch
            for sample in samples
        ]
        assert sorted(read) == list(range(22))


@pytest.mark.heavy
def test_one_of_the_processes_is_the_first(two: Two) -> None:
    _, said = two
    assert [process[0]["first"] for process in said] == [True, False]
    assert all(case["finished"] and case["mode"] == "all-reduce" for process in said for case in process[: len(CASES)])


@pytest.mark.heavy
def test_processes_that_train_differently_all_say_so(two: Two) -> None:
    _, said = two
    assert said[0][-2] == "another process does not train what this one does; its own message says what differs"
    assert said[1][-2] == "process 1 does not train what process 0 does: seed is 1 here and 0 there"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WORLD_SIZE": "2"}, "RANK, MASTER_ADDR, MASTER_PORT is not set, and WORLD_SIZE is"),
        (
            {"WORLD_SIZE": "two", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
            "WORLD_SIZE is 'two'; torchrun sets it to a whole number",
        ),
    ],
)
def test_an_environment_that_torchrun_did_not_make_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        elastic.join(
            nn.Linear(1, 1), elastic.SGD(lr=1), torch.ones(4, 1), global_batch=2, epochs=1, environment=environment
        )


@pytest.mark.heavy
def test_more_processes_than_samples_in_a_batch_are_refused(two: Two) -> None:
    _, said = two
    for process in said:
        assert "2 workers cannot share a global batch of 2 at 2 or more samples each" in process[-1]
