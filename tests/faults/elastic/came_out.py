"""What a job of `tiny_training` did, from what its workers noted and from the views that were seen of it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from tiny_training import training

from elastic_runtime.protocol.plan import Timeline, View

Note = tuple[int, tuple[int, ...]]
"""A step, and the samples."""


def notes_of(folder: Path, worker: str) -> list[Note]:
    """Each step that a worker computed."""
    path = folder / f"steps-{worker}"
    rows = [row.split() for row in path.read_text().splitlines()] if path.exists() else []
    return [(int(row[0]), tuple(map(int, row[1].split(",")))) for row in rows if len(row) == 2]


def workers_of_steps(views: Sequence[View], steps: int) -> list[int]:
    """How many workers shared each step that counted in the end."""
    counts = [0] * steps
    for generation in range(1, views[-1].generation + 1):
        seen = [view for view in views if view.generation == generation]
        if not seen:
            continue  # it was gone before anybody looked
        # The newest view has forgotten changes that are long over.
        changes = {change.number: change for view in seen for change in view.changes}
        timeline = Timeline(replace(seen[0], changes=tuple(changes[number] for number in sorted(changes))))
        for step in range(seen[0].start_step, steps):
            counts[step] = len(timeline.at(step).workers)
    return counts


def assert_samples_once(folder: Path, views: Sequence[View], steps: int) -> None:
    """In each step that counted, every sample once; a slice that two workers computed has the same samples.

    A worker repeats steps only after a durable one, and never leaves one out.
    """
    begins = {view.start_step for view in views}
    order = training(steps).order()
    noted = {path.name: notes_of(folder, path.name.removeprefix("steps-")) for path in folder.glob("steps-*")}
    for name, notes in noted.items():
        for (one, _), (following, _) in pairwise(notes):
            assert following in {one, one + 1} or following in begins, f"{name}: step {following} after {one}"
    computed = {note for notes in noted.values() for note in notes}
    for step, workers in enumerate(workers_of_steps(views, steps)):
        for index in range(workers):
            assert (step, tuple(order.slice_indices(step, index, workers).tolist())) in computed
