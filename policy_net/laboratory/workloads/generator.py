"""Generated workloads, made up from a seed, of the character of those that DL2 was evaluated on.

Source: DL2 §6.2 (jobs of eight models; Google-like, uniform and Poisson arrivals; sizes varied, so that a job's type
does not give its size away).

Arrivals: `google` imitates the pattern that DL2's authors took from Google's cluster trace (75 slots, published with
their code), in which, leaving out one slot, the log of the rate has a standard deviation of 0.23 and a correlation of
0.51 between neighbouring slots, and one slot has 20 times the usual rate. Here the log of the rate is a first-order
autoregressive process with those two figures; one slot in 75 is a burst of 20 times; and the count is the rate
rounded up, at most `max_arrivals`, as in DL2's set-ups (≤ 3 and ≤ 10 a slot). The median rate (0.68 of the maximum)
was chosen to meet the spans of arrival of DL2-like reference traces: 23 slots for 60 jobs at ≤ 3 (ours: 24 on average)
and 29–31 for 200 at ≤ 10 (ours: 27). The other two patterns have the same mean rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from foundation.figures import counted
from policy_net.laboratory.catalogue import CATALOGUE, MODEL_NAMES, SLOT_SECONDS, UNSTATED_REQUEST
from policy_net.laboratory.workloads.workload import Workload, job_of

SIZES = ("fixed", "varied")

DEFAULT_MAX_ARRIVALS = 3

SIZE_SIGMA = 0.6
"""Spread of the log of a varied job's size. The varied sizes of DL2-like reference traces (300 jobs; mean 0.96,
standard deviation of the log 0.59, bounds 0.1 and 4) are of this kind: lognormal around a mean of one."""

SIZE_BOUNDS = (0.1, 4.0)

NODES_PER_JOB = 0.4
NODES_PER_ARRIVAL = 8
"""Cluster size that makes schedulers differ: 24 nodes for 60 jobs at ≤ 3 arrivals a slot, 80 for 200 at ≤ 10. A long
workload never has all its jobs at once, so its size follows from the arrivals."""

MEDIAN_LEVEL = 0.68
"""Median rate, as a part of the most arrivals in a slot."""
LEVEL_SIGMA = 0.23
LEVEL_CORRELATION = 0.51
BURST_PROBABILITY = 1 / 75
BURST_FACTOR = 20.0


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """What a `dl2:` source says.

    Attributes:
        max_arrivals: most arrivals in a slot (for `poisson`, which has no bound, it sets the rate alone).
        sizes: `fixed`, a model's nominal epochs; `varied`, those times a lognormal factor of mean one within 0.1–4.
        mix: weight of every model that occurs.
    """

    jobs: int = 60
    arrivals: str = "google"
    max_arrivals: int = DEFAULT_MAX_ARRIVALS
    sizes: str = "varied"
    seed: int = 0
    mix: Mapping[str, float] = field(default_factory=lambda: MappingProxyType(dict.fromkeys(MODEL_NAMES, 1.0)))

    def __post_init__(self) -> None:
        if self.arrivals not in ARRIVAL_PATTERNS or self.sizes not in SIZES:
            raise ValueError(
                f"arrivals {self.arrivals!r} of {tuple(ARRIVAL_PATTERNS)}, sizes {self.sizes!r} of {SIZES}"
            )
        if self.jobs < 1 or self.max_arrivals < 1 or not self.mix:
            raise ValueError(f"need at least one job, arrival and model: {self}")


def generate(settings: GeneratorSettings) -> Workload:
    """Make a workload; the same settings give the same jobs.

    Arrivals, models and sizes are drawn from separate streams, so that changing one leaves the others as they were.
    """
    of_arrivals, of_models, of_sizes = (
        np.random.default_rng(stream) for stream in np.random.SeedSequence(settings.seed).spawn(3)
    )
    slots = arrivals_per_slot(settings.arrivals, settings.jobs, settings.max_arrivals, of_arrivals)
    names = tuple(settings.mix)
    weights = np.array([settings.mix[name] for name in names])
    models = of_models.choice(len(names), size=settings.jobs, p=weights / weights.sum())
    # a mean of one: the mean of exp(normal(m, s)) is exp(m + s²/2)
    factors = np.exp(SIZE_SIGMA * of_sizes.standard_normal(settings.jobs) - SIZE_SIGMA**2 / 2).clip(*SIZE_BOUNDS)
    jobs = []
    for index, (slot, model, factor) in enumerate(
        zip(np.repeat(np.arange(len(slots)), slots), models, factors, strict=True)
    ):
        profile = CATALOGUE[names[model]]
        epochs = profile.nominal_epochs * (float(factor) if settings.sizes == "varied" else 1.0)
        jobs.append(job_of(profile, f"job-{index:04d}", float(slot) * SLOT_SECONDS, epochs, profile.unstated_request))
    suggested = math.ceil(min(NODES_PER_JOB * settings.jobs, NODES_PER_ARRIVAL * settings.max_arrivals))
    return Workload(
        name=_describe(settings),
        jobs=tuple(jobs),
        notes=(
            f"generated: {counted(settings.jobs, 'job')} over {counted(len(slots), 'slot')} of {SLOT_SECONDS:.0f} s",
            f"every job asks for {UNSTATED_REQUEST.workers} workers and {UNSTATED_REQUEST.ps} PSs"
            " (matters to fixed-size schedulers only)",
            f"{counted(suggested, 'node')} suggested: {NODES_PER_JOB} a job,"
            f" at most {NODES_PER_ARRIVAL} for every arrival a slot",
        ),
        suggested_nodes=suggested,
        slotted=True,
    )


def _describe(settings: GeneratorSettings) -> str:
    """The source that gives this workload again, complete but for what is default and rarely set."""
    text = f"dl2:jobs={settings.jobs},arrivals={settings.arrivals},sizes={settings.sizes},seed={settings.seed}"
    if settings.max_arrivals != DEFAULT_MAX_ARRIVALS:
        text += f",max-arrivals={settings.max_arrivals}"
    if dict(settings.mix) != dict.fromkeys(MODEL_NAMES, 1.0):
        text += ",mix=" + "+".join(
            name if weight == 1 else f"{name}*{weight:g}" for name, weight in settings.mix.items()
        )
    return text


Draw = Callable[[], int]


def _google(max_arrivals: int, random: np.random.Generator) -> Draw:
    deviation = LEVEL_SIGMA * random.standard_normal()

    def draw() -> int:
        nonlocal deviation
        burst = BURST_FACTOR if random.random() < BURST_PROBABILITY else 1.0
        count = math.ceil(max_arrivals * MEDIAN_LEVEL * math.exp(deviation) * burst)
        innovation = LEVEL_SIGMA * math.sqrt(1 - LEVEL_CORRELATION**2)
        deviation = LEVEL_CORRELATION * deviation + innovation * random.standard_normal()
        return min(count, max_arrivals)

    return draw


def _mean_rate(max_arrivals: int) -> float:
    """About the mean of `google`: the median rate, plus half a job for rounding up, at most the maximum."""
    return min(MEDIAN_LEVEL * max_arrivals + 0.5, float(max_arrivals))


def _uniform(max_arrivals: int, random: np.random.Generator) -> Draw:
    """Every count from some least one to the maximum alike; the least one makes the mean that of `google`."""
    least = max(0, round(2 * _mean_rate(max_arrivals)) - max_arrivals)
    return lambda: int(random.integers(least, max_arrivals, endpoint=True))


def _poisson(max_arrivals: int, random: np.random.Generator) -> Draw:
    rate = _mean_rate(max_arrivals)
    return lambda: int(random.poisson(rate))


ARRIVAL_PATTERNS: Mapping[str, Callable[[int, np.random.Generator], Draw]] = MappingProxyType(
    {"google": _google, "uniform": _uniform, "poisson": _poisson}
)
"""By name: given the most arrivals in a slot and a source of chance, what draws the count of the next slot."""


def arrivals_per_slot(pattern: str, jobs: int, max_arrivals: int, random: np.random.Generator) -> list[int]:
    """Counts for slots 0, 1, … until all `jobs` have arrived; the first job arrives in slot 0, the last in the last."""
    draw = ARRIVAL_PATTERNS[pattern](max_arrivals, random)
    counts: list[int] = []
    left = jobs
    while left:
        count = min(draw(), left)
        if count or counts:  # time starts with the first arrival
            counts.append(count)
            left -= count
    return counts
