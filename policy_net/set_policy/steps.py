"""Steps of a job, the best next one from whatever it has, and the prices that the planner counts them in.

Steps are the monotone concave hull of a job's speeds, corner by corner. From a split (p, w), the step worth taking is
the one to the larger split with the highest gain in utility per cost. Any single grant on the way there raises the
slope of what is left, so a planner that grants one task at a time by these slopes keeps to its size; and a step that
pays only with several tasks is not overlooked. Source: our own; the utility is `baselines.hull`'s. Deviation from its
hull: tasks are only ever added, as inside DL2's 3J + 1 actions, so a hull starts from what a job was granted.

Prices say how speed and work weigh, and what a parameter server costs beside a worker. What a task is worth to a job
follows from its speeds; what it costs the others, and how much more a short job's end is worth than a long one's,
follows from how full the cluster is. No planner derives these, so they are numbers of the policy, learned where its
file has them, and what the planner has always counted in where it has not:

- a step's gain is that of speed^e / e, with e = ¼ · exp(p₀ + p₁ · c);
- a job's steps count by its remaining work to the power of −b, with b = ¼ · exp(p₂ + p₃ · c);
- a step's cost is its workers and, for each server, exp(p₄ + p₅ · c).

c is contention, half the log of how many times over the jobs could use the cluster, each at its best: 0 where they
would just fill it. It is taken in steps of an eighth, as each type's steps are to be found anew whenever it changes.
Source: our own; the form with p = 0 is `baselines.hull`'s.

A job that is given another size stands still for a while, with all its tasks. That is worth it where the other size
lasts long enough. So of a job that trains, every size but its own counts with its utility as if its speed were lower by
the share of that time which the stall takes (`keeping`). Then it keeps a size that others would gain little by, grows
by several tasks at once, and changes little shortly before its end. Where resizes cost nothing, nothing changes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.hull import FAIRNESS_EXPONENT
from policy_net.baselines.needs import remaining_samples
from policy_net.domain import Allocation, ClusterState, Job, Resources, SpeedModel
from policy_net.exchange.spec import PRICES, SetSpec, Weights, split_weights
from policy_net.placement.capacity import dominant_share
from policy_net.throughput.beliefs import TypeCache

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prices:
    """What gains and costs are counted in.

    Attributes:
        speed_exponent: e of a speed's utility, speed^e / e.
        work_exponent: b of a job's urgency, its remaining samples to the power of −b.
        ps_price: what a parameter server costs, in workers.
    """

    speed_exponent: float
    work_exponent: float
    ps_price: float


_MOST_KEPT = 512
"""Tables of jobs that keep their sizes, beside one table: 2 KiB each."""

USUAL_PRICES = Prices(FAIRNESS_EXPONENT, FAIRNESS_EXPONENT, 1.0)


@dataclass(frozen=True, slots=True)
class SplitStep:
    """A step to a larger split.

    Attributes:
        slope: gain in utility per worker, or what costs as much, above 0.
        speed_share: speed at that size over the type's best speed within the job's caps.
    """

    size: Allocation
    slope: float
    speed_share: float


class StepTable:
    """The steps of one job type under given caps and minimum, at one state of the speed model."""

    def __init__(self, grid: Array, max_ps: int, max_workers: int, smallest: Allocation) -> None:
        """`grid` has speeds in samples/s [ps, workers]."""
        speeds = grid[: max_ps + 1, : max_workers + 1].copy()
        speeds[: smallest.ps] = 0.0
        speeds[:, : smallest.workers] = 0.0
        self._speeds = speeds
        self._prices: Prices | None = None
        self._known: dict[Allocation, SplitStep | None] = {}
        self._kept: dict[tuple[Allocation | None, float], StepTable] = {}
        self.count_in(USUAL_PRICES)
        self.best_speed = float(speeds.max(initial=0.0))
        trains = speeds[speeds > 0]
        self.slowest_speed = float(trains.min()) if trains.size else 0.0
        fastest = np.argwhere(speeds >= self.best_speed)
        best = min(fastest.tolist(), key=sum) if self.best_speed > 0 else [0, 0]
        self.best = Allocation(workers=best[1], ps=best[0])

    def count_in(self, prices: Prices) -> None:
        """Count gains and costs of steps in these prices from now on."""
        if prices is self._prices or prices == self._prices:
            return
        self._prices = prices
        self._utility: Array = np.power(self._speeds, prices.speed_exponent) / prices.speed_exponent
        ps, workers = np.indices(self._speeds.shape)
        self._cost = np.asarray(workers + prices.ps_price * ps, dtype=np.float64)
        self._known.clear()
        self._kept.clear()

    def keeping(self, granted: Allocation | None, share: float) -> StepTable:
        """These steps, for a job to which every size but its own is worth only this share of its utility.

        Args:
            granted: within the caps; None where all sizes are worth the share.
        """
        found = self._kept.get((granted, share))
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            found = self._kept[granted, share] = copy.copy(self)
            found._utility = self._utility * share
            if granted is not None:
                found._utility[granted.ps, granted.workers] = self._utility[granted.ps, granted.workers]
            found._known, found._kept = {}, {}
        return found

    def speed(self, split: Allocation) -> float:
        """The believed speed in samples/s with a split; 0 beyond the caps, and where it does not train."""
        ps, workers = self._speeds.shape
        return float(self._speeds[split.ps, split.workers]) if split.ps < ps and split.workers < workers else 0.0

    def step(self, granted: Allocation) -> SplitStep | None:
        """The best step from here with no limit but the caps; None if nothing gains."""
        if granted not in self._known:
            self._known[granted] = self.limited_step(granted, None)
        return self._known[granted]

    def fitting(
        self, job: Job, granted: Allocation, free_cpu_milli: int, free_gpu: int, refused: list[Allocation]
    ) -> NDArray[np.bool_]:
        """Which splits fit the free resources on top of what was granted, and do not contain a refused one."""
        ps, workers = np.ogrid[: self._speeds.shape[0], : self._speeds.shape[1]]
        more_ps, more_workers = ps - granted.ps, workers - granted.workers
        cpu = more_workers * job.worker_demand.cpu_milli + more_ps * job.ps_demand.cpu_milli
        gpu = more_workers * job.worker_demand.gpu + more_ps * job.ps_demand.gpu
        fits: NDArray[np.bool_] = (cpu <= free_cpu_milli) & (gpu <= free_gpu)
        for split in refused:
            fits[split.ps :, split.workers :] = False
        return fits

    def limited_step(self, granted: Allocation, fits: NDArray[np.bool_] | None) -> SplitStep | None:
        """The best step among the targets that fit, shape as the caps allow, [ps, workers]; None: all fit."""
        part = (slice(granted.ps, None), slice(granted.workers, None))
        more = self._cost[part] - self._cost[granted.ps, granted.workers]
        if not more.size:
            return None
        more[0, 0] = 1.0
        gain = (self._utility[part] - self._utility[granted.ps, granted.workers]) / more
        if fits is not None:
            gain = np.where(fits[part], gain, 0.0)
        index = int(gain.argmax())
        slope = float(gain.flat[index])
        if slope <= 0.0:
            return None
        ps, workers = divmod(index, gain.shape[1])
        size = Allocation(workers=granted.workers + workers, ps=granted.ps + ps)
        return SplitStep(size, slope, float(self._speeds[size.ps, size.workers]) / self.best_speed)


class StepTables(TypeCache[StepTable]):
    """Step tables of a speed model's types."""

    def __init__(self, speeds: SpeedModel) -> None:
        super().__init__(speeds, StepTable)


STALL_WEIGHT = 4.0
"""What a second of standing still counts: for the job, for who could have had its tasks meanwhile, and for the changes
that one change brings to others. From 1 to 6, on windows of recorded clusters to choose on; flat from 3 on."""
_SHARE_STEPS = 1024.0
"""Shares are rounded to so many parts, so that steps are found once for many jobs and decisions."""


@dataclass(frozen=True, slots=True)
class ResizeCost:
    """What resizes cost, as it was measured.

    Attributes:
        seconds: for how long a job stands still, at the mean.
        interval_seconds: after how long a job is resized again, at the mean.
    """

    seconds: float = 0.0
    interval_seconds: float = 3600.0

    def share(self, remaining_seconds: float, speed_exponent: float) -> float:
        """Of its utility that another size keeps, for a job with so much left to train."""
        lasts = 1.0 / (1.0 / remaining_seconds + 1.0 / self.interval_seconds)
        share: float = (lasts / (lasts + STALL_WEIGHT * self.seconds)) ** speed_exponent
        return math.floor(share * _SHARE_STEPS + 0.5) / _SHARE_STEPS


NO_COST = ResizeCost()


def keeping(
    jobs: Sequence[Job],
    tables: Sequence[StepTable],
    cost: ResizeCost,
    speed_exponent: float,
    stays: Sequence[bool] | None = None,
    speeds: Sequence[float] | None = None,
) -> list[StepTable]:
    """The steps of all jobs, in which those that train keep their sizes unless another is worth a resize.

    Args:
        stays: of every job, whether these are its steps where it lies now; elsewhere its size is worth no more than
            another. None: they are.
        speeds: of every job, in samples/s at its size where it lies, which these tables need not have; None: they do.
    """
    if cost.seconds <= 0.0:
        return list(tables)
    found = []
    for index, (job, table) in enumerate(zip(jobs, tables, strict=True)):
        speed = table.speed(job.current) if speeds is None else speeds[index]
        if speed > 0.0:
            share = cost.share(remaining_samples(job) / speed, speed_exponent)
            table = table.keeping(job.current if stays is None or stays[index] else None, share)  # noqa: PLW2901
        found.append(table)
    return found


LARGEST_CONTENTION = 1.5
CONTENTION_STEP = 0.125
LARGEST_SHARE = 100.0
LARGEST_LOG_CHANGE = 3.0
"""Exponents lie between 0.012 and 5, and so does the price over a worker's: beyond that scores lose their digits."""


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """The numbers of a policy: of each price the log of its factor, and what contention adds to it."""

    speed: tuple[float, float] = (0.0, 0.0)
    work: tuple[float, float] = (0.0, 0.0)
    ps: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def of(cls, spec: SetSpec, weights: Weights) -> PriceTerms:
        """Those among the weights of a policy; zeros where its spec has none.

        Raises:
            SpecMismatch: the weights are of another length than the spec's.
        """
        found = split_weights(weights, spec).get(PRICES)
        if found is None:
            return cls()
        values = [float(value) for value in found]
        return cls((values[0], values[1]), (values[2], values[3]), (values[4], values[5]))

    @property
    def flat(self) -> tuple[float, ...]:
        """In the order of the weights."""
        return (*self.speed, *self.work, *self.ps)

    @property
    def usual(self) -> bool:
        """Whether prices are the same in every cluster, and what they have always been."""
        return not np.any(self.flat)

    def at(self, contention: float) -> Prices:
        """The prices where the cluster is that full."""
        return Prices(
            FAIRNESS_EXPONENT * _factor(self.speed, contention),
            FAIRNESS_EXPONENT * _factor(self.work, contention),
            _factor(self.ps, contention),
        )

    def of_state(self, state: ClusterState, tables: Sequence[StepTable]) -> Prices:
        """The prices of a decision; `tables` are of every job, and are then to count in them."""
        return USUAL_PRICES if self.usual else self.at(contention_of(state, tables))


def contention_of(state: ClusterState, tables: Sequence[StepTable]) -> float:
    """Half the log of what all jobs could use over what there is, from −1.5 to 1.5, in steps of an eighth."""
    demand, total = 0.0, state.total
    for job, table in zip(state.jobs, tables, strict=True):
        demand += desired_share(job, table, total)
    contention = math.log(max(demand, 1e-3)) / 2.0
    clipped = min(max(contention, -LARGEST_CONTENTION), LARGEST_CONTENTION)
    return math.floor(clipped / CONTENTION_STEP + 0.5) * CONTENTION_STEP


def desired_share(job: Job, table: StepTable, total: Resources) -> float:
    """The dominant share of a cluster that a job would use alone, at most 100; 0 of a job that cannot train."""
    if table.best_speed <= 0.0:
        return 0.0
    best = table.best
    # Infinite where the cluster has none of what the job needs, as when all its nodes are away.
    return min(dominant_share(job.worker_demand * best.workers + job.ps_demand * best.ps, total), LARGEST_SHARE)


def _factor(terms: tuple[float, float], contention: float) -> float:
    log_factor = terms[0] + terms[1] * contention
    return math.exp(min(max(log_factor, -LARGEST_LOG_CHANGE), LARGEST_LOG_CHANGE))
