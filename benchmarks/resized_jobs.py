"""What real jobs learn when they are resized and suspended while they train, beside the same jobs left alone.

Each of the example scripts trains twice as a job with parameter servers and twice as an all-reduce job, under the local
backend: once with one worker from its start to its end, once with sizes that a seed draws at given shares of its work,
one of which is a suspension. Their last lines are compared: losses of the final model over what it was trained on and
over what it was not, and its accuracy on the latter.

    python -m benchmarks.resized_jobs
    python -m benchmarks.resized_jobs -o json --example digits --seed 3
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from cluster_agent.backend_settings import LocalBackendSettings
from cluster_agent.backends.base import AgentParts
from cluster_agent.backends.local.backend import LocalBackend, open_backend
from cluster_agent.backends.local.job_file import check_job
from cluster_agent.backends.local.job_table import JobState
from cluster_agent.jobs.job_logs import JobLogs
from deploy.train.jobs import EXAMPLES
from deploy.train.records import resizes
from policy_net.domain import SUSPENDED, Allocation, Decision, Job

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


def measure(example: str, seed: int, folder: Path, work: float = 1.0, deadline_seconds: float = 1200.0) -> list[Pair]:
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
        backend._jobs.look()
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


def _record(pair: Pair) -> dict[str, object]:
    return {**asdict(pair), "loss_ratio": pair.loss_ratio, "test_loss_ratio": pair.test_loss_ratio}


def _row(pair: Pair) -> str:
    accuracy = "" if pair.resized.accuracy is None else f"{pair.alone.accuracy:.2%}, {pair.resized.accuracy:.2%}"
    return (
        f"| {pair.example} | {pair.communication} | {pair.resizes} and {pair.suspensions} | {pair.alone.loss:.6g} | "
        f"{pair.loss_ratio:.6f} | {pair.alone.test_loss:.6g} | {pair.test_loss_ratio:.6f} | {accuracy} |"
    )


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--example", choices=sorted(EPOCHS), action="append", help="all unless given")
    parser.add_argument("--seed", type=int, default=0, help="draws the sizes")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    pairs: list[Pair] = []
    for example in options.example or sorted(EPOCHS):
        with tempfile.TemporaryDirectory() as folder:
            try:
                pairs += measure(example, options.seed, Path(folder))
            except JobLost as error:
                print(f"resized_jobs: {error}", file=sys.stderr)
                return 1
    if options.output == "json":
        print(json.dumps([_record(pair) for pair in pairs], indent=2))
    else:
        print("| script | kind | resizes, suspensions | loss | ratio | test loss | ratio | accuracy |")
        print("|---|---|---|---|---|---|---|---|")
        print("\n".join(_row(pair) for pair in pairs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
