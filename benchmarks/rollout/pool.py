"""Pool of recorded pairs: what each pair of blocks came to in either order, in truth and in the twin, once for all.

A rollout is then drawn from the pool: the order of a pair by its coin, and with it the outcomes that were recorded for
that order. So hundreds of rollouts cost one recording; they share its arrivals and differ in coins, in the day that a
cluster begins with, and in what the rule of verdicts has seen. What a pair leaves behind for the next one is the
incumbent's in all of them.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.rollout.versions import PLANNER, RECORDED, build_version, calibrate
from benchmarks.rollout.worlds import Cluster, build_cluster, jobs_in_system
from global_learner.rollout.state import WASHOUT_SHARE, block_seconds_of
from policy_net.domain import SpeedModel
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment

Snapshot = dict[str, Any]
RUN_IN_BLOCKS = 2
"""Until the cluster is as full as it will be."""
LEFT_BEHIND_BLOCKS = 2
"""So far the twin goes on behind a block: what a version left behind has mostly been worked off by then."""


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """One block.

    Attributes:
        jobs: in the system on average while it counts, in truth.
        priced: in the whole block, and as the twin has them for what it left behind.
        twin_incumbent, twin_candidate: as `priced`, all of it in the twin, from the same begin, under either version.
        jobs_at_start: in the system as it begins.
        arrivals: jobs submitted in it.
    """

    jobs: float
    priced: float
    twin_incumbent: float
    twin_candidate: float
    jobs_at_start: int
    arrivals: int


@dataclass(frozen=True, slots=True)
class PairRecord:
    """Both orders of a pair, each as (first block, second block)."""

    incumbent_first: tuple[BlockRecord, BlockRecord]
    candidate_first: tuple[BlockRecord, BlockRecord]


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """All that is known of a cluster.

    Attributes:
        pairs: by candidate; `planner` is the incumbent against itself.
        jct_ratios: of every candidate to the incumbent, over the whole recording.
        mean_jobs: in the system under the incumbent, on average.
    """

    name: str
    block_seconds: float
    mean_jobs: float
    jct_ratios: dict[str, float]
    pairs: dict[str, tuple[PairRecord, ...]]


def record_by_name(
    name: str, data: Path | None, most_days: float, most_pairs: int, measured_sigma: float
) -> ClusterRecord:
    """Make a cluster and record it, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="fedl2-rollout-") as scratch:
        return record_cluster(build_cluster(name, data, Path(scratch), most_days, measured_sigma), most_pairs)


def record_cluster(cluster: Cluster, most_pairs: int) -> ClusterRecord:
    """Record a cluster's pairs; minutes."""
    shares, jcts = calibrate(cluster)
    return _Recorder(cluster, shares, block_seconds_of(jcts[PLANNER])).record(most_pairs, jcts)


@dataclass(frozen=True, slots=True)
class _Lived:
    after: Snapshot
    jobs: float
    priced: float


class _Recorder:
    def __init__(self, cluster: Cluster, shares: dict[str, float], block_seconds: float) -> None:
        self._cluster, self._shares, self._block_seconds = cluster, shares, block_seconds
        self._submits = np.array([job.submit_time_seconds for job in cluster.workload.jobs])

    def record(self, most_pairs: int, jcts: dict[str, float]) -> ClusterRecord:
        """Follow the incumbent; at each pair's begin, fork."""
        snapshot = Simulation(self._cluster.workload, self._cluster.environment, self._cluster.truth).snapshot()
        for block in range(RUN_IN_BLOCKS):
            snapshot = self._live(snapshot, PLANNER, block).after
        block = RUN_IN_BLOCKS
        pairs: dict[str, list[PairRecord]] = {version: [] for version in (PLANNER, *RECORDED)}
        last = math.floor(self._cluster.last_arrival_seconds / self._block_seconds)
        jobs: list[float] = []
        while block + 2 <= last and len(jobs) < most_pairs:
            first = self._live(snapshot, PLANNER, block)
            second = self._live(first.after, PLANNER, block + 1)
            jobs.append((first.jobs + second.jobs) / 2.0)
            twins = [self._foresee(snapshot, PLANNER, block), self._foresee(first.after, PLANNER, block + 1)]
            incumbent = (
                self._block(snapshot, block, first, twins[0], twins[0]),
                self._block(first.after, block + 1, second, twins[1], twins[1]),
            )
            pairs[PLANNER].append(PairRecord(incumbent, incumbent))
            for version in RECORDED:
                pairs[version].append(self._pair(version, block, snapshot, first, twins))
            snapshot, block = second.after, block + 2
        return ClusterRecord(
            self._cluster.name,
            self._block_seconds,
            float(np.mean(jobs)),
            {version: jct / jcts[PLANNER] for version, jct in jcts.items()},
            {version: tuple(rows) for version, rows in pairs.items()},
        )

    def _pair(self, version: str, block: int, snapshot: Snapshot, first: _Lived, twins: list[float]) -> PairRecord:
        """Both orders, of which the first block under the incumbent is known already."""
        candidate_second = self._live(first.after, version, block + 1)
        candidate_first = self._live(snapshot, version, block)
        incumbent_second = self._live(candidate_first.after, PLANNER, block + 1)
        twin_first = self._foresee(snapshot, version, block)
        twin_second = self._foresee(first.after, version, block + 1)
        other = candidate_first.after
        other_twins = [self._foresee(other, played, block + 1) for played in (PLANNER, version)]
        return PairRecord(
            (
                self._block(snapshot, block, first, twins[0], twin_first),
                self._block(first.after, block + 1, candidate_second, twins[1], twin_second),
            ),
            (
                self._block(snapshot, block, candidate_first, twins[0], twin_first),
                self._block(other, block + 1, incumbent_second, *other_twins),
            ),
        )

    def _block(
        self, snapshot: Snapshot, block: int, lived: _Lived, twin_incumbent: float, twin_candidate: float
    ) -> BlockRecord:
        begin, end = self._times(block)
        arrivals = int(((self._submits >= begin) & (self._submits < end)).sum())
        at_start = len(snapshot["jobs"]["present"])
        return BlockRecord(lived.jobs, lived.priced, twin_incumbent, twin_candidate, at_start, arrivals)

    def _times(self, block: int) -> tuple[float, float]:
        return block * self._block_seconds, (block + 1) * self._block_seconds

    def _live(self, snapshot: Snapshot, version: str, block: int) -> _Lived:
        """A block as it really is, and what the twin has for what it leaves behind."""
        begin, end = self._times(block)
        counted = begin + WASHOUT_SHARE * self._block_seconds
        cluster = self._cluster
        after, ends = self._simulate(snapshot, version, end, cluster.environment, cluster.truth)
        jobs = jobs_in_system(self._submits, ends, counted, end)
        return _Lived(after, jobs, jobs_in_system(self._submits, ends, begin, end) + self._left_behind(after, end))

    def _foresee(self, snapshot: Snapshot, version: str, block: int) -> float:
        """The same all in the twin, from the same begin, with the arrivals that really came."""
        begin, end = self._times(block)
        after, ends = self._simulate(snapshot, version, end, self._cluster.twin, self._cluster.measured)
        return jobs_in_system(self._submits, ends, begin, end) + self._left_behind(after, end)

    def _left_behind(self, after: Snapshot, end: float) -> float:
        """The jobs in the system in the next blocks under the incumbent, added up."""
        until = end + LEFT_BEHIND_BLOCKS * self._block_seconds
        _, ends = self._simulate(after, PLANNER, until, self._cluster.twin, self._cluster.measured)
        return LEFT_BEHIND_BLOCKS * jobs_in_system(self._submits, ends, end, until)

    def _simulate(
        self, snapshot: Snapshot, version: str, until: float, environment: Environment, speeds: SpeedModel
    ) -> tuple[Snapshot, NDArray[np.float64]]:
        """Go on from a snapshot; how things stand behind it, and when every job ended, infinite if it has not."""
        simulation = Simulation(self._cluster.workload, environment, speeds)
        simulation.restore({**snapshot, "environment": environment.as_json})
        policy = build_version(version, self._cluster, self._shares)
        while not simulation.finished and simulation.time_seconds < until:
            state, trigger = simulation.observe()
            policy.observe(simulation.apply(policy.decide(state, trigger)))
        ends = [outcome.end_seconds for outcome in simulation.jobs.outcomes()]
        return simulation.snapshot(), np.array([math.inf if at is None else at for at in ends])
