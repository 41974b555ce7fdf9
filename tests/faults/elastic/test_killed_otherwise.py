"""Servers or workers are taken away, or workers added, and a process is killed at each state of that: nothing is lost.

One job goes through a kind of resize with each victim at each state, one after the other; its numbers are looked at
once, in the end.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from forks import Forks
from live_job import COORDINATOR, NEVER_SECONDS, LiveJob
from more_resizes import KINDS, HeldResize, Kind

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]

STEPS = 420
VICTIMS = ("server", "changing", "worker", COORDINATOR)


def cells(kind: Kind) -> Iterator[tuple[str, str]]:
    """Victims and states; who comes is not there yet while it is waited for, who leaves may have gone in the end."""
    for victim in VICTIMS:
        for state in kind.states:
            if victim != "changing" or state not in ("registration", "committed"):
                yield victim, state


@pytest.mark.parametrize(
    "name", [name if name == "more-workers" else pytest.param(name, marks=pytest.mark.long) for name in KINDS]
)
def test_resizes_survive(forks: Forks, tmp_path: Path, name: str) -> None:
    kind = KINDS[name]
    # No checkpoints, so that no other change is decided: a job that loses a server goes back to its first step.
    size = {"servers": kind.before.servers, "workers": kind.before.workers, "checkpoint_seconds": NEVER_SECONDS}
    with LiveJob(forks, tmp_path, steps=STEPS, losses=1000, **size) as job:
        job.until(lambda: job.status().step >= job.limit, "the first steps")
        generation = 1
        for number, (victim, state) in enumerate(cells(kind)):
            resize = HeldResize(job, kind, state, number)
            job.kill(resize.tasks[victim])
            resize.release()
            generation += victim == "server" or (victim == "changing" and kind.moves_blocks)
            assert job.view.generation == generation, f"{victim} at {state}\n{job.story()}"
        assert job.limit < STEPS
        job.finish()
