"""Seeds and windows: those to train on, those to look at while choosing, and those that only judge.

Everything here measures on `TEST` unless it is asked for another part. The benchmark of learning trains and judges
within the same parts (its held-out workloads begin at `TEST.generator.start`), so nothing that it or `policy-net train`
was given by default has seen a workload that judges here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

JUDGED_GENERATOR_SEED = 9_700_000
"""The first generator seed that judges here: within the test part, beyond those that judge learning."""


class Part(StrEnum):
    """What a seed or a window may be used for."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class SeedRanges:
    """The seeds of one part.

    Attributes:
        generator: of `dl2:` workloads.
        models: those that assign models to the jobs of a recorded workload (`policy-net replay --seed`).
        disturbances: of noise, wrong declarations and failing nodes.
    """

    generator: range
    models: range
    disturbances: range


SEEDS = {
    Part.TRAIN: SeedRanges(range(9_000_000), range(1_000), range(1_000)),
    Part.VALIDATION: SeedRanges(range(9_000_000, 9_500_000), range(1_000, 2_000), range(1_000, 2_000)),
    Part.TEST: SeedRanges(range(9_500_000, 10_000_000), range(2_000, 3_000), range(2_000, 3_000)),
}

SMALLEST_WINDOW = 0.5
"""A last window with a smaller share of its jobs is left out, unless it is the only one: few jobs are noise."""


def windows_of(jobs: int, length: int) -> dict[int, Part]:
    """The windows of a recorded workload that take part, by index in order of time, and what each is for.

    The last one judges; of those before it, the middle one validates and the first trains. A cluster with one window
    is for judging only. Later parts of the clusters than the files have are for nobody to look at.
    """
    count = jobs // length + (jobs % length >= SMALLEST_WINDOW * length)
    last = max(count, 1) - 1
    parts = {last: Part.TEST}
    for index, part in ((0, Part.TRAIN), (last // 2, Part.VALIDATION)):
        parts.setdefault(index, part)
    return dict(sorted(parts.items()))
