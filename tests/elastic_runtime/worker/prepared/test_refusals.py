"""What `elastic.prepare` and the words around it refuse, by name and with the way out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forks import Forks
from prepared_scripts import EPOCHS_PREPARED, STEPS_PREPARED, run
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

import elastic_runtime as elastic
from elastic_runtime.errors import BadInput
from elastic_runtime.worker.prepared import prepare as words
from elastic_runtime.worker.prepared.user_state import State, content_of


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from iter(int, 1)


class FullyShardedDataParallel(nn.Linear):
    """Has the name by which a sharded model is known."""


@pytest.fixture(autouse=True)
def nothing_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_training", None)
    monkeypatch.setattr(words, "_states", [])


def parts() -> tuple[nn.Linear, torch.optim.Optimizer, DataLoader[Any]]:
    model = nn.Linear(2, 1)
    data = TensorDataset(torch.randn(6, 2), torch.randn(6, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=4)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


class OwnLoader(DataLoader[Any]):
    def __iter__(self) -> Any:
        return iter([])


MODEL = nn.Linear(2, 1)
DATA = TensorDataset(torch.ones(4, 2))
REFUSED = {
    "two models": ([MODEL, nn.Linear(2, 1), sgd(MODEL)], "got 2 models; give one"),
    "no model": ([sgd(MODEL)], "got 0 models; give one"),
    "two optimizers": ([MODEL, sgd(MODEL), sgd(MODEL)], "two optimizers; give them as a list"),
    "another model's optimizer": ([MODEL, sgd(nn.Linear(2, 1))], "a parameter that the prepared model has not"),
    "a closure": ([MODEL, torch.optim.LBFGS(MODEL.parameters())], "LBFGS calls backward() as often as it likes"),
    "a number": ([MODEL, sgd(MODEL), 7], "got a builtins.int; give a model, an optimizer, a DataLoader"),
    "a wrapped model": ([nn.DataParallel(MODEL), sgd(MODEL)], "wrapped in DataParallel; give the model itself"),
    "a sharded model": (
        [FullyShardedDataParallel(1, 1)],
        "is a FullyShardedDataParallel, whose parameters lie in parts",
    ),
    "a frozen model": ([nn.ReLU(), sgd(MODEL)], "no parameter with requires_grad: there is nothing to train"),
    "an iterable data set": ([MODEL, sgd(MODEL), DataLoader(Endless())], "reads an iterable data set (Endless)"),
    "no batches": (
        [MODEL, sgd(MODEL), DataLoader(TensorDataset(torch.ones(2, 2)), batch_size=None)],
        "makes no batches (batch_size=None); give a batch_size",
    ),
    "a sampler that leaves out": (
        [MODEL, sgd(MODEL), DataLoader(DATA, sampler=DistributedSampler(DATA, num_replicas=2, rank=0))],
        "has a DistributedSampler, which leaves out",
    ),
    "a loader of one's own": ([MODEL, sgd(MODEL), OwnLoader(DATA)], "is a OwnLoader with an __iter__ of its own"),
    "an order without an end": (
        [MODEL, sgd(MODEL), DataLoader(DATA, batch_sampler=itertools.repeat([0, 1]))],
        "sampler has no length",
    ),
    "no shape": ([nn.LazyLinear(1), sgd(MODEL)], "has no shape yet: run the model once"),
    "two loaders": (
        [MODEL, sgd(MODEL), *(DataLoader(TensorDataset(torch.ones(2, 2))) for _ in range(2))],
        "two loaders; give the one that is trained with",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_prepared_is_refused_by_name(what: str) -> None:
    given, said = REFUSED[what]
    with pytest.raises(BadInput) as refused:
        elastic.prepare(*given, environment={})
    assert said in str(refused.value)
    elastic.prepare(*parts(), environment={})


def test_a_job_with_parameter_servers_is_told_of_join() -> None:
    with pytest.raises(BadInput, match=r"submit it as an all-reduce job, or use elastic\.join"):
        elastic.prepare(*parts(), environment={"ELASTIC_COORDINATOR": "127.0.0.1:1"})


def test_a_second_training_is_refused() -> None:
    elastic.prepare(*parts(), environment={})
    with pytest.raises(BadInput, match="was called already"):
        elastic.prepare(*parts(), environment={})


@pytest.mark.parametrize("word", ["epochs", "each", "steps", "rows", "weight", "sum"])
def test_words_before_prepare_are_refused(word: str) -> None:
    with pytest.raises(BadInput, match=rf"elastic\.{word} before elastic\.prepare"):
        getattr(elastic, word)(3)


def test_a_loader_that_is_read_outside_the_epochs_is_refused() -> None:
    _, _, loader = elastic.prepare(*parts(), environment={})
    with pytest.raises(BadInput, match=r"write `for epoch in elastic\.epochs\(N\):` around"):
        next(iter(loader))


def test_a_second_loop_is_refused() -> None:
    elastic.prepare(*parts(), environment={})
    loop = elastic.epochs(2)
    next(loop)
    with pytest.raises(BadInput, match="a second time; a job trains in one loop"):
        next(elastic.epochs(2))


def test_a_closure_and_a_parameter_that_came_later_are_refused_at_the_step() -> None:
    _, optimizer, _ = elastic.prepare(*parts(), environment={})
    with pytest.raises(BadInput, match="got a closure"):
        optimizer.step(lambda: 0.0)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    with pytest.raises(BadInput, match="another number of parameters"):
        optimizer.step()


@pytest.mark.parametrize("value", [object(), {"a": [object()]}, lambda: 0])
def test_a_state_that_cannot_be_kept_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match=r"elastic\.state\(best=…\) is a "):
        elastic.state(best=value)
    state = elastic.state(best=0.0)
    with pytest.raises(BadInput, match=r"elastic\.state\(best=…\) is a "):
        state.best = value
    assert state.best == 0.0


def test_a_state_of_too_many_tensors_does_not_travel() -> None:
    state = State({"history": torch.zeros(9 * 2**20, dtype=torch.float64)})
    with pytest.raises(BadInput, match="72 MB of tensors, more than 64"):
        content_of(state, plain_only=True)


def test_alone_is_first_and_sums_are_its_own() -> None:
    assert elastic.is_first
    assert not elastic.finished
    _, _, loader = elastic.prepare(*parts(), environment={})
    assert [len(x) for _ in elastic.epochs(2) for x, _ in loader] == [4, 2, 4, 2]
    assert elastic.finished
    assert elastic.sum(3) == 3
    assert elastic.rows(5) == slice(0, 5)
    assert (loader.step, len(loader), loader.batch_size) == (4, 2, 4)


def unfreeze(model: nn.Module) -> None:
    model.get_parameter("bias").requires_grad_(False)


def step_in_a_hook(model: nn.Module) -> None:
    model.get_parameter("bias").register_post_accumulate_grad_hook(lambda _: None)


@pytest.mark.parametrize(
    ("change", "said"),
    [(unfreeze, "other parameters are trained than when"), (step_in_a_hook, "a hook of the script's that runs once")],
)
def test_what_changes_the_training_between_batches_is_refused(change: Callable[[nn.Module], None], said: str) -> None:
    model, _, loader = elastic.prepare(*parts(), environment={})
    batches = (batch for _ in elastic.epochs(2) for batch in loader)
    next(batches)
    change(model)
    with pytest.raises(BadInput, match=said):
        next(batches)


def test_a_loader_is_read_by_one_thread() -> None:
    _, _, loader = elastic.prepare(*parts(), environment={})
    for _ in elastic.epochs(1):
        with ThreadPoolExecutor(1) as pool, pytest.raises(BadInput, match="is read in another thread"):
            pool.submit(list, loader).result()
        break


@pytest.mark.parametrize("value", [np.float64(0.5), [np.int64(3)], {"a": np.float32(2.0)}])
def test_numbers_of_numpy_are_kept_as_plain_ones(value: Any) -> None:
    state = elastic.state(best=value)
    kept = content_of(state)["best"]
    assert kept == value
    assert "numpy" not in repr(type(kept)) + repr(kept)


APART = {
    "the scheduler": ("    scheduler.step()", "    if elastic.is_first: scheduler.step()", "the optimizer's settings"),
    "the optimizer": (
        "        optimizer.step()",
        "        if elastic.is_first: optimizer.step()",
        "steps of the optimizer",
    ),
    "backward": (
        "        loss.backward()",
        "        loss.backward(retain_graph=True)\n        if not elastic.is_first: loss.backward()",
        "batches",  # of the second call here and the first one of the next batch there
    ),
}


@pytest.mark.heavy
@pytest.mark.parametrize("what", APART)
def test_workers_that_go_apart_are_stopped_by_name(forks: Forks, tmp_path: Path, what: str) -> None:
    before, after, said = APART[what]
    script = EPOCHS_PREPARED.replace("        seen.losses.append", "        if False: seen.losses.append")
    assert before in script
    text = run(forks, tmp_path, script.replace(before, after), 2, codes=(1, 1))
    assert f"{said} are not the same in all workers" in text
    assert not (tmp_path / "trained.pt").exists()


@pytest.mark.heavy
def test_workers_with_other_models_are_refused(forks: Forks, tmp_path: Path) -> None:
    script = EPOCHS_PREPARED.replace("nn.Linear(5, 16)", "nn.Linear(5, 16, bias=elastic.is_first)")
    assert "do not prepare the same model" in run(forks, tmp_path, script, 2, codes=(1, 1))


@pytest.mark.heavy
def test_the_first_worker_s_values_hold(forks: Forks, tmp_path: Path) -> None:
    """Such as the best figure so far, which it alone computes; the others have it with the batch after the next."""
    script = EPOCHS_PREPARED.replace(
        "    scheduler.step()",
        "    scheduler.step()\n"
        "    if epoch: assert seen.best == float(epoch), seen\n"
        "    if elastic.is_first: seen.best = epoch + 1.0",
    ).replace("state(losses=[])", "state(losses=[], best=0.0)")
    run(forks, tmp_path, script, 2)


WRONG = {
    "gradients of a slice": ("loss.backward()", "torch.autograd.grad(loss, list(model.parameters()))", "slice alone"),
    "a graph of the sum": (
        "loss.backward()",
        "loss.backward(create_graph=True)",
        "the sum over the workers has no graph",
    ),
    "a caught error": (
        "loss.backward()",
        "handle = model[0].weight.register_hook(lambda _: 1 / 0)\n"
        "        try: loss.backward()\n"
        "        except ZeroDivisionError: handle.remove()",
        "ended with an error that the script caught",
    ),
}


@pytest.mark.heavy
@pytest.mark.parametrize("what", WRONG)
def test_what_would_train_another_model_in_each_worker_is_refused(forks: Forks, tmp_path: Path, what: str) -> None:
    before, after, said = WRONG[what]
    script = EPOCHS_PREPARED.replace(before, after).replace(
        "        seen.losses.append", "        if False: seen.losses.append"
    )
    assert said in run(forks, tmp_path, script, 2, codes=(1, 1))


@pytest.mark.heavy
def test_a_batch_without_rows_is_refused(forks: Forks, tmp_path: Path) -> None:
    script = STEPS_PREPARED.replace("elastic.rows(7)", "slice(0, 7)")
    assert "backward() before elastic.rows" in run(forks, tmp_path, script, 2, codes=(1, 1))


@pytest.mark.heavy
def test_a_worker_that_leaves_the_epochs_takes_all_along(forks: Forks, tmp_path: Path) -> None:
    script = EPOCHS_PREPARED.replace(
        "    scheduler.step()", "    scheduler.step()\n    if epoch == 1 and elastic.is_first: break"
    )
    run(forks, tmp_path, script, 3)
    _, losses = torch.load(tmp_path / "trained.pt", weights_only=True)
    assert len(losses) == 2 * 7


@pytest.mark.heavy
def test_a_scheduler_that_the_job_does_not_know_is_refused(forks: Forks, tmp_path: Path) -> None:
    script = EPOCHS_PREPARED.replace("loader, scheduler = elastic", "loader = elastic").replace(", scheduler)\n", ")\n")
    assert "would begin anew where the job goes on" in run(forks, tmp_path, script, 2, files=tmp_path, codes=(1, 1))
