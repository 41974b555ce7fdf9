"""A script that misuses its job is told in one line what it did."""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import elastic_runtime as elastic
from elastic_runtime.errors import BadInput, ElasticError, ModelMismatch, end_with_2_for_bad_input
from elastic_runtime.model.data_shards import SampleOrder
from elastic_runtime.worker.batches import Batch, Batches, as_samples
from elastic_runtime.worker.job import Job
from elastic_runtime.worker.join import report_the_end

DATA = torch.ones(8, 2)


def _joined(model: nn.Module, **changes: Any) -> elastic.Job:
    arguments = {"global_batch": 4, "epochs": 2, "environment": {}, **changes}
    return elastic.join(model, elastic.SGD(lr=0.1), DATA, **arguments)


def _step(job: elastic.Job, model: nn.Module) -> None:
    job.step(model(next(job).data).mean())


def test_each_batch_wants_one_step() -> None:
    model = nn.Linear(2, 1)
    job = _joined(model)
    with pytest.raises(BadInput, match="before the first batch"):
        job.step(model(DATA).mean())
    _step(job, model)
    with pytest.raises(BadInput, match="twice for the batch of step 0"):
        job.step(model(DATA).mean())
    next(job)
    with pytest.raises(BadInput, match=r"the batch of step 1 got no job.step\(loss\)"):
        next(job)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda out: out, BadInput, r"loss of step 0 is a tensor of shape \[4, 1\]; give the mean"),
        (lambda out: out.mean().item(), BadInput, "loss of step 0 is float"),
        (lambda out: out.mean().detach(), BadInput, "does not depend on the model's parameters"),
        (lambda out: out.mean() * float("nan"), ElasticError, "loss of step 0 is nan"),
        (lambda out: out.mean() / 0, ElasticError, "loss of step 0 is -?inf"),
    ],
)
def test_a_loss_that_cannot_be_trained_with_is_refused(make: Any, kind: type[Exception], message: str) -> None:
    model = nn.Linear(2, 1)
    before = model.weight.clone()
    job = _joined(model)
    with pytest.raises(kind, match=message):
        job.step(make(model(next(job).data)))
    assert torch.equal(model.weight, before)


def _grow(model: nn.Sequential) -> None:
    model.add_module("head", nn.Linear(1, 1))


def _replace(model: nn.Sequential) -> None:
    model[0].weight = nn.Parameter(torch.zeros(1, 2))


def _reshape(model: nn.Sequential) -> None:
    model[0].weight.data = torch.zeros(3, 2)


def _freeze(model: nn.Sequential) -> None:
    model[0].bias.requires_grad_(False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_grow, "parameter 'head.weight' is new in the model"),
        (_replace, "a parameter of the model was replaced by another"),
        (_reshape, r"parameter '0.weight' was float32 \[1, 2\] when the model joined the job and is float32 \[3, 2\]"),
        (lambda model: model.double(), "parameter '0.weight' was float32 .* and is float64"),
        (_freeze, r"parameter '0.bias' was float32 \[1\] .* is float32 \[1\], not trained"),
        (lambda model: delattr(model[0], "bias"), "parameter '0.bias' is gone"),
    ],
)
def test_a_model_that_changes_after_joining_is_noticed_in_the_next_step(change: Any, message: str) -> None:
    model = nn.Sequential(nn.Linear(2, 1))
    job = _joined(model)
    _step(job, model)
    batch = next(job)
    loss = model(batch.data).mean()
    change(model)
    with pytest.raises(ModelMismatch, match=message):
        job.step(loss)


def test_buffers_that_change_are_noticed_with_the_next_epoch() -> None:
    model = nn.BatchNorm1d(2)
    job = _joined(model)
    _step(job, model)
    _step(job, model)
    model.running_mean = torch.zeros(3)
    with pytest.raises(ModelMismatch, match=r"buffer 'running_mean' was float32 \[2\]"):
        next(job)


def test_running_statistics_and_modes_may_change() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    job = _joined(model)
    for batch in job:
        job.step(model(batch.data).mean())
        model.eval()
        model.train()
    assert job.finished


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "a model"}, "the model is a str; give a torch.nn.Module"),
        ({"model": nn.ReLU()}, "nothing to train"),
        ({"model": nn.BatchNorm1d(2), "global_batch": 7}, "last batch has 1 of the 2 samples"),
        ({"global_batch": 0}, "global_batch is 0"),
        ({"global_batch": None}, "give global_batch, or worker_batch"),
        ({"worker_batch": 2}, "give global_batch, or worker_batch for asynchronous training: one of the two"),
        ({"global_batch": None, "worker_batch": 2, "environment": {"WORLD_SIZE": "2"}}, "needs parameter servers"),
        (
            {"optimizer": torch.optim.SGD([nn.Parameter(DATA)], lr=0.1)},
            r"^optimizer is a torch\.optim\.sgd\.SGD; give elastic_runtime's SGD, Adam or AdamW$",
        ),
    ],
)
def test_arguments_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    usual = {"model": nn.Linear(2, 1), "optimizer": elastic.SGD(lr=0.1), "global_batch": 4, "environment": {}}
    arguments = {**usual, **changes}
    with pytest.raises(BadInput, match=message):
        elastic.join(**arguments, data=DATA, epochs=1)


class _Recorded:
    """A mode that gives what it is told to, and notes what it is asked."""

    name = "parameter-server"
    is_first = False
    stall_seconds = 1.5
    finished = False
    is_drained = False
    global_step = 3

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches
        self.calls: list[str] = []

    def next_batch(self) -> Batch | None:
        return self._batches.pop(0) if self._batches else None

    def step(self, batch: Batch, loss: torch.Tensor | None, value: float | None) -> None:
        self.calls.append(f"step {batch.step}")

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def end(self) -> None:
        self.calls.append("end")

    def leave(self) -> None:
        self.calls.append("leave")

    def fail(self, error: BaseException) -> None:
        self.calls.append(f"fail {error}")

    def close(self) -> None:
        self.calls.append("close")


def test_a_removed_worker_ends_with_what_it_has_computed() -> None:
    model = nn.Linear(2, 1)
    batches = Batches(as_samples(DATA, None), SampleOrder(8, 4, 0, 4))
    mode = _Recorded([batches.batch(2, 0, 2), batches.batch(2, 1, 2)])
    clock = itertools.count(10.0, 2.0)
    job = Job(mode, model, batches.order, lambda: next(clock))
    for batch in job:
        assert not batch.warm_up
        job.step(model(batch.data).mean())
    assert mode.calls == ["step 2", "step 2", "close"]
    assert not job.finished
    progress = job.progress
    assert (progress.samples, progress.samples_per_second, progress.stall_seconds) == (4, 2.0, 1.5)
    assert (progress.epoch, progress.total_epochs) == (1.5, 4)
    job.fail(ValueError("late"))
    assert "fail late" not in mode.calls


def test_a_script_that_raises_tells_its_mode_and_still_shows_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(str(error)))
    at_exit: list[Any] = []
    monkeypatch.setattr("atexit.register", at_exit.append)
    model = nn.Linear(2, 1)
    mode = _Recorded([])
    job = Job(mode, model, SampleOrder(8, 4, 0, 1))
    report_the_end(job)
    sys.excepthook(RuntimeError, RuntimeError("my mistake"), None)
    assert mode.calls == ["fail my mistake", "close"]
    assert shown == ["my mistake"]
    assert at_exit == [job.script_ended]


@pytest.mark.parametrize("how", ["ends", "leaves its loop"])
@pytest.mark.parametrize("drained", [True, False])
def test_a_script_that_goes_after_sigterm_leaves_the_job_to_the_others(how: str, drained: bool) -> None:
    model = nn.Linear(2, 1)
    batches = Batches(as_samples(DATA, None), SampleOrder(8, 4, 0, 4))
    mode = _Recorded([batches.batch(2, 0, 2), batches.batch(2, 1, 2)])
    mode.is_drained = drained
    job = Job(mode, model, batches.order)
    if how == "ends":
        next(job)
    else:
        for _ in job:
            break
    job.script_ended()
    in_time = ["end", "close"] if how == "leaves its loop" else ["close"]
    assert mode.calls == (["leave", "close"] if drained else in_time)


def test_a_script_that_ends_without_leaving_its_loop_is_told_so(capfd: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(2, 1)
    job = _joined(model)
    _step(job, model)
    job.script_ended()
    job.script_ended()
    assert capfd.readouterr().err == (
        f"the script ended at step 1 of {job.total_steps}, before its job did; let the loop come to its end, leave it "
        "by break, or call job.end()\n"
    )
    assert not job.finished


def test_a_script_of_a_job_that_is_used_wrongly_ends_with_2_and_any_other_as_python_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(str(error)))
    end_with_2_for_bad_input.cache_clear()  # a test before may have asked for a public name
    with pytest.raises(BadInput) as raised:
        elastic.join("no model", elastic.SGD(lr=0.1), [], epochs=1)  # type: ignore[arg-type]
    trace = raised.value.__traceback__
    assert trace is not None
    assert trace.tb_next is not None, "where it was raised, in ours"
    with pytest.raises(SystemExit) as ended:
        sys.excepthook(BadInput, raised.value, trace)
    assert ended.value.code == 2
    assert trace.tb_next is None, "shown as far as the script's own lines"
    sys.excepthook(RuntimeError, RuntimeError("my mistake"), None)
    assert shown == [str(raised.value), "my mistake"]


def test_a_coordinator_or_an_agent_works_without_loading_torch() -> None:
    script = (
        "import elastic_runtime, elastic_runtime.protocol.plan, sys; print('torch' in sys.modules, elastic_runtime.SGD)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("False <class")


def test_every_public_name_can_be_had() -> None:
    assert all(getattr(elastic, name) is not None for name in elastic.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        elastic.nothing  # noqa: B018


def _returns(job: elastic.Job, model: nn.Module) -> None:
    for batch in job:
        job.step(model(batch.data).mean())
        return


def _breaks_out_of_a_progress_bar(job: elastic.Job, model: nn.Module) -> None:
    def shown(batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            assert batch.size == 4
            yield batch

    for _, batch in enumerate(shown(job)):
        with torch.enable_grad():
            job.step(model(batch.data).mean())
            break


@pytest.mark.parametrize("leave", [_returns, _breaks_out_of_a_progress_bar])
def test_a_loop_that_is_left_ends_the_job(leave: Any) -> None:
    model = nn.Linear(2, 1)
    job = _joined(model)
    leave(job, model)
    assert job.finished
    assert job.global_step == 1
    with pytest.raises(BadInput, match="was left after step 0, which has ended the job"):
        iter(job)


def _raises(job: elastic.Job, model: nn.Module) -> None:
    for batch in job:
        job.step(model(batch.data).mean())
        raise KeyError("a mistake")


def _exits(job: elastic.Job, model: nn.Module) -> None:
    for batch in job:
        job.step(model(batch.data).mean())
        sys.exit(0)


def _has_a_progress_bar_that_raises(job: elastic.Job, model: nn.Module) -> None:
    def shown(batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            yield batch
            raise KeyError("a mistake")

    for batch in shown(job):
        job.step(model(batch.data).mean())


@pytest.mark.parametrize("leave", [_raises, _exits, _has_a_progress_bar_that_raises])
def test_an_exception_does_not_end_the_job(leave: Any) -> None:
    model = nn.Linear(2, 1)
    job = _joined(model)
    with pytest.raises((KeyError, SystemExit)):
        leave(job, model)
    assert not job.finished
    _step(job, model)
    assert job.global_step == 2


def test_the_first_batch_may_be_looked_at_before_the_loop() -> None:
    model = nn.Linear(2, 1)
    job = _joined(model)
    job.step(model(next(iter(job)).data).mean())
    for batch in job:
        job.step(model(batch.data).mean())
    assert job.global_step == job.total_steps == 4


def test_so_many_steps_may_be_asked_for_in_place_of_epochs() -> None:
    model = nn.Linear(2, 1)
    assert _joined(model, epochs=None, steps=5).total_steps == 5
    assert _joined(model, epochs=1, steps=5).total_steps == 2
    with pytest.raises(BadInput, match="give epochs, or steps"):
        _joined(model, epochs=None)
    with pytest.raises(BadInput, match="steps is 0"):
        _joined(model, steps=0)


def test_gradients_that_are_cleared_do_not_count() -> None:
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    other.load_state_dict(model.state_dict())
    job, plain = _joined(model), _joined(other)
    for batch in job:
        model(batch.data).square().mean().backward()
        model.zero_grad()
        job.step(model(batch.data).mean())
    for batch in plain:
        plain.step(other(batch.data).mean())
    assert torch.equal(model.weight, other.weight)


def test_an_accumulated_gradient_that_is_not_finite_is_refused() -> None:
    model = nn.Linear(2, 1)
    job = _joined(model)
    batch = next(job)
    (model(batch.data).mean() * float("nan")).backward()
    with pytest.raises(ElasticError, match="gradients of step 0 are not finite"):
        job.step(model(batch.data).mean())


def test_what_is_written_into_one_tensor_again_and_again_is_noticed_in_a_large_model() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(40)), nn.Linear(2, 1))
    job = _joined(model, epochs=40)

    def train() -> None:
        for batch in job:
            job.step(model(batch.data).mean())
            model[17].weight.data.mul_(1.01)

    with pytest.raises(BadInput, match=r"parameter '17.weight' was written by the script"):
        train()


def test_nothing_that_a_module_does_by_itself_counts_as_written() -> None:
    model = nn.Sequential(
        nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.utils.parametrizations.weight_norm(nn.Linear(4, 1))
    )
    job = _joined(model, epochs=4)
    for batch in job:
        job.step(model(batch.data).mean())
        copy.deepcopy(model).load_state_dict(model.state_dict())
        model.eval()(DATA)
        model.train()
    assert job.finished


def test_to_synchronize_is_for_after_a_step() -> None:
    model = nn.Linear(2, 1)
    job = _joined(model)
    batch = next(job)
    with pytest.raises(BadInput, match=r"job.synchronize before the job.step of step 0"):
        job.synchronize()
    job.step(model(batch.data).mean())
    job.synchronize()
