"""Reads speeds that somebody measured, for a policy that is given them beforehand or for a fit.

Unlike a speed table (`speed.read_speed_table`), which is the truth and has no gaps, the points may be few, and one
allocation may have been measured several times.
"""

from __future__ import annotations

from pathlib import Path

from policy_net.domain import MAX_TASKS_PER_ROLE
from policy_net.errors import BadInput
from policy_net.laboratory.csv_rows import read_rows
from policy_net.laboratory.speeds.speed import SPEED_TABLE_COLUMNS, speed_in
from policy_net.throughput.measured import MeasuredFit, SpeedPoint


def read_measured_points(path: str | Path) -> MeasuredFit:
    """Fit the points of a csv; see `read_points`.

    Raises:
        BadInput: the file cannot be read, a row cannot be used, or a model has too few points.
    """
    return MeasuredFit(read_points(path), str(path))


def read_points(path: str | Path) -> dict[str, list[SpeedPoint]]:
    """The points by model of a csv with the columns model, num_ps (0 for all-reduce), num_workers, samples_per_s.

    Raises:
        BadInput: the file cannot be read, or a row cannot be used.
    """
    path = Path(path)
    points: dict[str, list[SpeedPoint]] = {}
    for row in read_rows(path, SPEED_TABLE_COLUMNS):
        model = row.text("model")
        ps, workers = row.whole("num_ps", at_least=0), row.whole("num_workers", at_least=1)
        speed = speed_in(row)
        if ps > MAX_TASKS_PER_ROLE or workers > MAX_TASKS_PER_ROLE:
            continue  # measured, but beyond what a job may hold
        of_model = points.setdefault(model, [])
        if of_model and (of_model[0].ps == 0) != (ps == 0):
            raise row.bad(
                "num_ps",
                f"is {ps}, but {model!r} has points {'without' if ps else 'with'} parameter servers above",
                "give the two ways of training different names",
            )
        of_model.append(SpeedPoint(ps, workers, speed))
    if not points:
        raise BadInput(f"{path}: no row has at most {MAX_TASKS_PER_ROLE} PSs and {MAX_TASKS_PER_ROLE} workers")
    return points
