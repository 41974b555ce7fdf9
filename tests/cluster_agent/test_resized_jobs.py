"""What is learned does not depend on how a job was resized and suspended while it trained.

Each of the example scripts trains twice as a job with parameter servers and twice as an all-reduce job, under the local
backend: once with one worker from its start to its end, once with sizes that a seed draws at given shares of its work,
one of which is a suspension. Their last lines are compared.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from cluster_agent.backend_settings import LocalBackendSettings
from cluster_agent.backends.base import AgentParts
from cluster_agent.backends.local.backend import LocalBackend, open_backend
from cluster_agent.backends.local.job_file import check_job
from cluster_agent.backends.local.job_table import JobState
from cluster_agent.jobs.commands import JobLogs
from deploy.train.jobs import EXAMPLES
from deploy.train.story import resizes
from policy_net.domain import SUSPENDED, Allocation, Decision, Job, Resources

TOLERANCE = 1e-3
"""Of losses of models without batch norm, as docs/guide/elastic.md promises it."""
EPOCHS = {"digits": 60, "gpt": 4, "tabular": 240}
"""Of each script: long enough for all changes, short enough to wait for."""
CHANGES_AT = (0.1, 0.25, 0.4, 0.55, 0.7)
"""Shares of a job's work at which it gets another size."""
SUSPENDED_AT = 2
"""The index of the change that suspends it."""
_SLOT_SECONDS = 2.0
_LAST_LINE = re.compile(
    r"trained (?P<steps>\d+) steps +loss (?P<loss>\S+) +test loss (?P<test_loss>\S+)"
    r"(?: +test accuracy (?P<accuracy>\S+))?"
)


@dataclass(frozen=True, slots=True)
class Learned:
    """What a job's last line says of its final model.

    Attributes:
        loss: over what it was trained on; `test_loss` over what it was not.
        accuracy: on what it was not trained on; None where that means nothing.
    """

    steps: int
    loss: float
    test_loss: float
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """One script under one kind of communication, alone and resized.

    Attributes:
        resizes: that came about while the job trained, or by a checkpoint; `suspensions` likewise.
        loss_ratio: resized over alone; `test_loss_ratio` likewise.
    """

    example: str
    communication: str
    alone: Learned
    resized: Learned
    resizes: int
    suspensions: int
    sizes: tuple[str, ...]

    @property
    def loss_ratio(self) -> float:
        """Of what was trained on."""
        return self.resized.loss / self.alone.loss

    @property
    def test_loss_ratio(self) -> float:
        """Of what was not."""
        return self.resized.test_loss / self.alone.test_loss


class JobLost(Exception):
    """A job failed, or did not end in time."""


def train_each_way(
    example: str, seed: int, folder: Path, work: float = 1.0, deadline_seconds: float = 1200.0
) -> list[Pair]:
    """Train one script in all four ways, side by side.

    Args:
        work: so much of the usual epochs.

    Raises:
        JobLost: a job failed, or did not end in time.
    """
    settings = LocalBackendSettings(cpu_milli=64_000, slot_seconds=_SLOT_SECONDS, debounce_seconds=0.2, until_done=True,
                                    start_seconds=600.0, resize_seconds=600.0)  # fmt: skip
    ends_at = time.monotonic() + deadline_seconds

    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return time.monotonic() > ends_at

    backend = open_backend(settings, AgentParts(folder, "drf", None, wait, time.monotonic))
    kinds = {"PS": "ps", "AllReduce": "allreduce"}
    plans: dict[str, list[Allocation]] = {}
    epochs = max(1, round(EPOCHS[example] * work))
    for number, (communication, kind) in enumerate(kinds.items()):
        for resized in (False, True):
            name = f"{kind}-{'resized' if resized else 'alone'}"
            content = {
                "name": name,
                "modelType": example,
                "communication": communication,
                "work": {"epochs": epochs},
                "script": str(EXAMPLES / example / "train.py"),
                "args": ["--epochs", str(epochs)],
                "env": {"OMP_NUM_THREADS": "1"},
            }
            backend.table.add(check_job(content, Path.cwd(), example), time.time())
            plans[name] = _sizes(random.Random(2 * seed + number), communication) if resized else []
    try:
        _train(backend, plans)
    finally:
        _end(backend)
    found = resizes(folder / "jobs", list(plans))
    pairs = []
    for communication, kind in kinds.items():
        carried_out = [row for row in found if row.job == f"{kind}-resized" and row.done]
        pairs.append(
            Pair(
                example,
                communication,
                _learned(backend, f"{kind}-alone"),
                _learned(backend, f"{kind}-resized"),
                sum(row.live for row in carried_out),
                sum(row.suspends for row in carried_out),
                tuple(f"{row.workers}+{row.ps}" for row in carried_out),
            )
        )
    return pairs


def _sizes(draw: random.Random, communication: str) -> list[Allocation]:
    """One for each change, never the same twice in turn."""
    servers = (1, 2) if communication == "PS" else (0,)
    known = [Allocation(workers, ps) for workers in (1, 2, 3) for ps in servers]
    sizes, before = [], known[0]
    for number in range(len(CHANGES_AT)):
        wanted = SUSPENDED if number == SUSPENDED_AT else draw.choice([size for size in known if size != before])
        sizes.append(wanted)
        before = wanted
    return sizes


def _train(backend: LocalBackend, plans: dict[str, list[Allocation]]) -> None:
    """Decide until all have ended; a suspended job goes on with the next decision."""
    reached = dict.fromkeys(plans, 0)
    while not backend.finished:
        observed = backend.observe()
        if observed is None:
            break
        state, _ = observed
        backend.apply(Decision({job.job_id: _wanted(job, plans[job.job_id], reached) for job in state.jobs}))
    for record in backend.table:
        if record.state is not JobState.DONE:
            raise JobLost(
                f"{record.name}: {record.failure or 'did not end in time'}; see {backend.facts(record)['log']}"
            )


def _wanted(job: Job, sizes: Sequence[Allocation], reached: dict[str, int]) -> Allocation:
    """The size that a job has come to; nothing is skipped while a change is under way."""
    smallest = Allocation(1, int(job.kind.uses_ps))
    at = reached[job.job_id]
    done = 1.0 - job.remaining_epochs / job.total_epochs
    now = sizes[at - 1] if at else smallest
    if job.current == now and at < len(sizes) and (now == SUSPENDED or done >= CHANGES_AT[at]):
        reached[job.job_id] = at + 1
        now = sizes[at]
    return now


def _end(backend: LocalBackend) -> None:
    """Leave nothing running where it went wrong."""
    for record in backend.table.unended:
        backend.table.change(record.name, cancelling=True)
    deadline = time.monotonic() + 120.0
    while list(backend.table.unended) and time.monotonic() < deadline:
        backend.jobs.poll()
        time.sleep(0.1)
    backend.close()


def _learned(backend: LocalBackend, name: str) -> Learned:
    record = backend.table.get(name)
    facts = {} if record is None else backend.facts(record)
    text = b"".join(JobLogs(Path(str(facts["log"])), Path(str(facts["logs"]))).read()).decode()
    found = list(_LAST_LINE.finditer(text))
    if len(found) != 1:
        raise JobLost(f"{name}: has {len(found)} last lines; see {facts['logs']}")
    said = found[0]
    accuracy = None if said["accuracy"] is None else float(said["accuracy"])
    return Learned(int(said["steps"]), float(said["loss"]), float(said["test_loss"]), accuracy)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def pairs_of(example: str, folder: Path) -> list[Pair]:
    pairs = train_each_way(example, seed=0, folder=folder, work=0.5, deadline_seconds=1500.0)
    assert [pair.communication for pair in pairs] == ["PS", "AllReduce"]
    for pair in pairs:
        assert pair.resized.steps == pair.alone.steps, "no step is lost, and none is made twice"
        assert pair.resizes + pair.suspensions >= 1, pair
    return pairs


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="launchers are found by /proc")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("example", ["tabular", "gpt"])
def test_jobs_that_were_resized_and_suspended_end_with_the_loss_of_jobs_left_alone(
    example: str, tmp_path: Path
) -> None:
    pairs = pairs_of(example, tmp_path)
    assert pairs[0].alone.loss == pytest.approx(pairs[1].alone.loss, rel=TOLERANCE), "alone, both kinds learn the same"
    for pair in pairs:
        assert pair.loss_ratio == pytest.approx(1.0, abs=TOLERANCE), pair
        assert pair.test_loss_ratio == pytest.approx(1.0, abs=TOLERANCE), pair


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="launchers are found by /proc")
@pytest.mark.timeout(1800)
def test_digits_are_told_apart_however_the_job_was_resized(tmp_path: Path) -> None:
    for pair in pairs_of("digits", tmp_path):
        for learned in (pair.alone, pair.resized):
            assert learned.accuracy is not None
            assert learned.accuracy >= 0.97, pair
        assert abs(pair.resized.test_loss - pair.alone.test_loss) < 0.02, pair


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="launchers are found by /proc")
@pytest.mark.timeout(1800)
def test_with_batch_norm_both_kinds_learn_the_same_before_rounding_has_grown(tmp_path: Path) -> None:
    """After 23 steps they are one in 5 million apart, after 69 a thousandth, after 115 a tenth."""
    servers, ranks = train_each_way(
        "digits", seed=0, folder=tmp_path, work=1 / EPOCHS["digits"], deadline_seconds=1500.0
    )
    assert servers.alone.loss == pytest.approx(ranks.alone.loss, rel=1e-4)
    assert servers.alone.test_loss == pytest.approx(ranks.alone.test_loss, rel=1e-4)


def job(done: float, current: Allocation) -> Job:
    return Job("a", "x", 0.0, Resources(1), Resources(1), 10.0, 100.0, 100.0 * (1.0 - done), current=current)


def test_sizes_are_drawn_by_a_seed_and_reached_one_after_the_other() -> None:
    sizes = _sizes(random.Random(1), "PS")
    assert sizes == _sizes(random.Random(1), "PS")
    assert sizes[2] == SUSPENDED
    assert all(size.ps == 0 for size in _sizes(random.Random(1), "AllReduce"))
    assert all(one != two for one, two in pairwise(sizes))
    reached = {"a": 0}
    first = Allocation(1, 1)
    assert _wanted(job(0.05, first), sizes, reached) == first
    assert _wanted(job(0.3, first), sizes, reached) == sizes[0]
    assert _wanted(job(0.3, first), sizes, reached) == sizes[0], "it does not have that yet"
    assert _wanted(job(0.3, sizes[0]), sizes, reached) == sizes[1]
    assert _wanted(job(CHANGES_AT[2], sizes[1]), sizes, reached) == SUSPENDED
    assert _wanted(job(CHANGES_AT[2], SUSPENDED), sizes, reached) == sizes[3], "it goes on with the next decision"
