"""Known schedulers, slot by slot, written from their rules alone and as plainly as they read.

What the product's schedulers do on made-up traces is compared with this: a node has four tasks' room and two GPUs; a
job has at most 16 parameter servers and 16 workers, starts each slot from nothing, and ends at its share of the slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

TASKS_PER_NODE, GPUS_PER_NODE, MOST = 4, 2, 16
Grants = list[list[int]]
"""Of each job: its parameter servers and its workers."""
Corner = tuple[int, float, tuple[int, int]]
"""Tasks, utility, and servers and workers."""


@dataclass
class PlainJob:
    """A job as the rules need it: `per_slot[ps][workers]` are epochs, `fitted` those of a fit to measurements."""

    job_id: str
    arrival_slot: int
    epochs: float
    usual_epochs: float
    per_slot: list[list[float]]
    fitted: list[list[float]]
    on_gpu: bool
    hull: list[Corner] = field(default_factory=list)


@dataclass
class Room:
    """What is left of a slot's cluster."""

    tasks: int
    gpus: int

    def take(self, job: PlainJob, ps: int, workers: int) -> bool:
        """Take it if it is there."""
        gpus = workers if job.on_gpu else 0
        if ps + workers > self.tasks or gpus > self.gpus:
            return False
        self.tasks -= ps + workers
        self.gpus -= gpus
        return True


Scheduler = Callable[[Sequence[PlainJob], Sequence[float], Room], Grants]


def average_jct_slots(jobs: Sequence[PlainJob], decide: Scheduler, nodes: int) -> float:
    """The mean time from a job's arrival to its end, in slots."""
    left = {job.job_id: job.epochs for job in jobs}
    total, slot = 0.0, 0
    while left:
        here = [job for job in jobs if job.arrival_slot <= slot and job.job_id in left]
        grants = decide(here, [left[job.job_id] for job in here], Room(TASKS_PER_NODE * nodes, GPUS_PER_NODE * nodes))
        for job, (ps, workers) in zip(here, grants, strict=True):
            done = job.per_slot[ps][workers]
            if done >= left[job.job_id]:
                total += slot + left.pop(job.job_id) / done - job.arrival_slot
            else:
                left[job.job_id] -= done
        slot += 1
        assert slot < 100_000
    return total / len(jobs)


def floor_slots(jobs: Sequence[PlainJob]) -> float:
    """The mean if every job had the cluster for itself, at its best size."""
    return sum(job.epochs / max(map(max, job.per_slot)) for job in jobs) / len(jobs)


def drf(jobs: Sequence[PlainJob], _: Sequence[float], room: Room) -> Grants:
    """Bundles of one server and one worker, in turn by arrival, past those whose bundle does not fit."""
    grants = [[0, 0] for _ in jobs]
    taking = list(range(len(jobs)))
    while taking:
        taking = [index for index in taking if grants[index][1] < MOST and room.take(jobs[index], 1, 1)]
        for index in taking:
            grants[index][0] += 1
            grants[index][1] += 1
    return grants


def optimus(jobs: Sequence[PlainJob], left: Sequence[float], room: Room) -> Grants:
    """One of each by arrival, then one task at a time where it saves most of the remaining time."""
    grants = [[1, 1] if room.take(job, 1, 1) else [0, 0] for job in jobs]
    full: set[tuple[int, int]] = set()
    while True:
        best: tuple[float, int, int] = (0.0, 0, 0)
        for index, (job, (ps, workers)) in enumerate(zip(jobs, grants, strict=True)):
            for role, (more_ps, more_workers) in enumerate(((0, 1), (1, 0))):
                size = (ps + more_ps, workers + more_workers)
                if ps == 0 or max(size) > MOST or (index, role) in full:
                    continue
                saved = _slots(job, left[index], ps, workers) - _slots(job, left[index], *size)
                if saved > best[0]:
                    best = (saved, index, role)
        saved, index, role = best
        if saved <= 0:
            return grants
        if room.take(jobs[index], role, 1 - role):
            grants[index][1 - role] += 1
        else:
            full.add((index, role))


def optimus_fitted(jobs: Sequence[PlainJob], left: Sequence[float], room: Room) -> Grants:
    """The same, planning on fitted speeds."""
    return optimus([replace(job, per_slot=job.fitted) for job in jobs], left, room)


def _slots(job: PlainJob, left: float, ps: int, workers: int) -> float:
    speed = job.per_slot[ps][workers]
    return left / speed if speed > 0 else float("inf")


def oracle(jobs: Sequence[PlainJob], left: Sequence[float], room: Room) -> Grants:
    """Segments of all jobs' concave hulls, by their slope times the job's remaining share^-0.25, while they fit."""
    pairs = []
    for index, job in enumerate(jobs):
        corners = _hull(job)
        urgency = max(left[index] / job.usual_epochs, 0.001) ** -0.25
        for (tasks, utility, _), (more, higher, split) in pairwise(corners):
            pairs.append((-(higher - utility) / (more - tasks) * urgency, index, tasks, split))
    pairs.sort(key=lambda pair: pair[:3])
    grants, closed = [[0, 0] for _ in jobs], set()
    for _, index, start, split in pairs:
        job, now = jobs[index], grants[index]
        if index in closed or sum(now) != start:
            continue
        room.tasks += sum(now)
        room.gpus += now[1] if job.on_gpu else 0
        wanted = split if _fits(job, room, *split) else _best_within(job, room, now)
        if wanted != split:
            closed.add(index)
        assert room.take(job, *wanted)
        grants[index] = list(wanted)
    return grants


def _fits(job: PlainJob, room: Room, ps: int, workers: int) -> bool:
    return ps + workers <= room.tasks and (not job.on_gpu or workers <= room.gpus)


def _best_within(job: PlainJob, room: Room, now: Sequence[int]) -> tuple[int, int]:
    sizes = [(ps, workers) for ps in range(1, MOST + 1) for workers in range(1, MOST + 1)]
    fitting = [size for size in sizes if _fits(job, room, *size)]
    best = max(fitting, key=lambda size: job.per_slot[size[0]][size[1]], default=None)
    if best is None or job.per_slot[best[0]][best[1]] <= job.per_slot[now[0]][now[1]]:
        return now[0], now[1]
    return best


def _hull(job: PlainJob) -> list[Corner]:
    """Corners (tasks, utility, split) of the upper concave hull, from nothing on; the job keeps them."""
    if job.hull:
        return job.hull
    best: dict[int, tuple[float, tuple[int, int]]] = {}
    for ps in range(1, MOST + 1):
        for workers in range(1, MOST + 1):
            share = job.per_slot[ps][workers] / job.usual_epochs
            if share > best.get(ps + workers, (0.0, (0, 0)))[0]:
                best[ps + workers] = (share, (ps, workers))
    corners: list[Corner] = [(0, 0.0, (0, 0))]
    fastest = 0.0
    for tasks in sorted(best):
        share, split = best[tasks]
        if share <= fastest:
            continue
        fastest = share
        corner = (tasks, share**0.25 / 0.25, split)
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) <= _slope(corners[-1], corner):
            corners.pop()
        corners.append(corner)
    job.hull = corners
    return corners


def _slope(one: Corner, two: Corner) -> float:
    return (two[1] - one[1]) / (two[0] - one[0])
