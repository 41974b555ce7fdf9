"""`python -m benchmarks.adversarial_job`: what a job gains by misstating itself, and what the others lose.

Of each replay one job lies, within bounds (`lies_of`): of epochs, type, reports, least tasks, CPU of a task. Lies are
searched on some workloads; the worst of each group of jobs is judged on others: in DL2's own world a group is a type,
in `benchmarks.set_default`'s a kind of workload. So `gain` is of a job that knows which lie pays; `worst` is the
luckiest case of the search, `others_lose_most` by the lie that costs most. No seed trained or chose any weights.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import policy_net.baselines  # noqa: F401  (registers the schedulers)
from benchmarks import set_default
from benchmarks.command import parser_of, show
from policy_net.domain import PolicyContext, Resources
from policy_net.errors import NoProgress
from policy_net.laboratory.catalogue import ALLREDUCE_MODEL_NAMES, MODEL_NAMES
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import TableSpeedModel, default_speeds
from policy_net.laboratory.training.offline import Episode
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadJob
from policy_net.policy import build_policy

COLUMNS = ("policy", "world", "lies", "gain", "worst", "others_lose", "others_lose_most")
POLICIES = "dl2,set-taught,drf,optimus,srtf,fifo-easy"
NODES, FIRST_SEED, NEW_TYPE = 24, 9_700_000, "a-type-of-its-own"


@dataclass(frozen=True)
class Lie:
    """A misstatement; `epochs` and `reports` over the truth, no epochs: work unknown; `least` of either role."""

    job_type: str = ""
    epochs: float | None = 1.0
    reports: float = 1.0
    least: int = 1
    rigid: bool = False
    cpu: float = 1.0

    @property
    def demands(self) -> bool:
        """Whether it is of what the job needs, which no progress shows."""
        return self.least > 1 or self.cpu != 1.0

    def stated_by(self, job: WorkloadJob) -> WorkloadJob:
        """The job as it states itself."""
        least, least_ps = max(job.min_workers, self.least), max(job.min_ps, self.least if job.max_ps else 0)
        most, most_ps = (least, least_ps) if self.rigid else (job.max_workers, job.max_ps)
        truthful = self.epochs == 1.0 == self.reports
        stated = replace(
            job, job_type=self.job_type or job.job_type, true_type=job.job_type, report_factor=self.reports
        )
        stated = replace(stated, min_workers=least, min_ps=least_ps, max_workers=most, max_ps=most_ps)
        stated = replace(
            stated, worker_demand=_part(job.worker_demand, self.cpu), ps_demand=_part(job.ps_demand, self.cpu)
        )
        declared = job.declared_epochs if truthful or self.epochs is None else job.total_epochs * self.epochs
        known = self.epochs is not None and (job.work_known or not truthful)
        return replace(stated, declared_epochs=declared, work_known=known)


def _part(demand: Resources, cpu: float) -> Resources:
    return Resources(round(demand.cpu_milli * cpu), demand.gpu)


def lies_of(job: WorkloadJob) -> Iterator[Lie]:
    """What is searched."""
    yield from (Lie(epochs=epochs) for epochs in (0.001, 0.1, 1 / 3, 10.0, None))
    yield from (Lie(reports=reports) for reports in (0.1, 10.0))
    yield from (Lie(epochs=reports, reports=reports) for reports in (0.1, 10.0))
    yield from (Lie(least=least) for least in (2, 4, 8))
    yield from (Lie(least=4, rigid=True), Lie(least=4, epochs=0.001), Lie(cpu=0.5), Lie(epochs=None, reports=10.0))
    others = [name for name in (MODEL_NAMES if job.kind.uses_ps else ALLREDUCE_MODEL_NAMES) if name != job.job_type]
    yield from (Lie(name) for name in (*others[:: max(1, len(others) // 7)], NEW_TYPE))
    yield Lie(NEW_TYPE, epochs=0.001)


@cache
def speeds() -> TableSpeedModel:
    """The simulator's; of the type of its own nothing is asked but whether there are any."""
    grids = {name: default_speeds().grid(name) for name in (*MODEL_NAMES, *ALLREDUCE_MODEL_NAMES)}
    return TableSpeedModel({**grids, NEW_TYPE: grids[MODEL_NAMES[0]]}, "the simulator")


@cache
def dl2_world(number: int) -> Episode:
    """DL2's own."""
    workload = load_workload(f"dl2:jobs=60,arrivals=google,sizes=varied,seed={FIRST_SEED + number}")
    return workload, Environment(nodes=NODES, speed_noise=set_default.NOISE, seed=number)


@cache
def mixed_world(number: int) -> Episode:
    """That of the shipped `set`, one kind after another."""
    every = len(set_default.NODES)
    first = FIRST_SEED - FIRST_SEED % set_default.WORLDS_PER_ROUND + set_default.NODES.index(NODES)
    return set_default.episode(first + number * every)


# By name: what makes its workloads, and how many make a round of them.
WORLDS: Mapping[str, tuple[Callable[[int], Episode], int]] = {"dl2": (dl2_world, 1), "mix": (mixed_world, 8)}


def liars(world: str, number: int) -> list[tuple[int, str]]:
    """Jobs that lie, one at a time, and the group of each."""
    jobs = WORLDS[world][0](number)[0].jobs
    order = np.random.default_rng(number).permutation(len(jobs)).tolist()
    if world == "mix":
        return [(place, set_default.KINDS[number % len(set_default.KINDS)]) for place in order[:2]]
    by_type = {jobs[place].job_type: place for place in reversed(order)}
    return [(place, name) for name, place in sorted(by_type.items())]


@cache
def jcts(policy: str, world: str, number: int, liar: int, lie: Lie) -> NDArray[np.float64]:
    """JCT in seconds of every job of a workload in which this job lies."""
    workload, environment = WORLDS[world][0](number)
    jobs = list(workload.jobs)
    jobs[liar] = jobs[liar] if lie == Lie() else lie.stated_by(jobs[liar])
    built = build_policy(policy, PolicyContext(true_speeds=speeds()))
    try:
        result = replay(replace(workload, jobs=tuple(jobs)), environment, built, speeds())
    except NoProgress:  # by its own lie it is never given what it trains with, which counts as no gain
        return jcts(policy, world, number, 0, Lie())
    return np.array([outcome.jct_seconds for outcome in result.outcomes])


Row = tuple[str, Lie, float, float]
"""Group, lie, and over the honest: the liar's JCT and that of the others."""


def outcomes(case: tuple[str, str, int, int, str], asked: Sequence[Lie] = ()) -> list[Row]:
    """What every lie of a liar brings, or those that are asked; policy, world, workload, liar and group."""
    policy, world, number, liar, group = case
    honest, found = jcts(policy, world, number, 0, Lie()), []
    others = np.arange(len(honest)) != liar
    for lie in asked or lies_of(WORLDS[world][0](number)[0].jobs[liar]):
        stated = jcts(policy, world, number, liar, lie)
        found.append(
            (group, lie, float(stated[liar] / honest[liar]), float(stated[others].mean() / honest[others].mean()))
        )
    return found


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(float(np.mean(np.log(ratios))))


def worst_lies(rows: Sequence[Row]) -> dict[str, tuple[Lie, Lie]]:
    """Of every group, the lie by which a liar gains most, and that by which the others lose most."""
    worst = {}
    for group in {row[0] for row in rows}:
        lies = list(dict.fromkeys(row[1] for row in rows if row[0] == group))
        gains = {lie: _mean([row[2] for row in rows if row[0] == group and row[1] == lie]) for lie in lies}
        costs = {lie: _mean([row[3] for row in rows if row[0] == group and row[1] == lie]) for lie in lies}
        worst[group] = min(gains, key=gains.__getitem__), max(costs, key=costs.__getitem__)
    return worst


def study(key: tuple[str, str], rounds: int) -> list[dict[str, Any]]:
    """One policy in one world: what is stated of work, type and progress, and what is demanded."""
    each = rounds * WORLDS[key[1]][1]
    cases = [(*key, number, *liar) for number in range(2 * each) for liar in liars(key[1], number)]
    found = [row for case in cases if case[2] < each for row in outcomes(case)]
    studied = []
    for demands in (False, True):
        rows = [row for row in found if row[1].demands == demands]
        worst = worst_lies(rows)
        judged = [outcomes(case, worst[case[4]]) for case in cases if case[2] >= each and case[4] in worst]
        gains: dict[str, list[float]] = {}
        for gain, _ in judged:
            gains.setdefault(gain[0], []).append(gain[2])
        row = {"policy": key[0], "world": key[1], "lies": "demands" if demands else "statements"}
        figures = {
            "gain": 1.0 - _mean([gain[2] for gain, _ in judged]),
            "worst": 1.0 - min(row[2] for row in rows),
            "others_lose": _mean([gain[3] for gain, _ in judged]) - 1.0,
            "others_lose_most": _mean([cost[3] for _, cost in judged]) - 1.0,
        }
        by_group = {name: [round(1.0 - _mean(own), 4), *map(repr, worst[name])] for name, own in gains.items()}
        studied.append({**row, **{name: round(value, 4) for name, value in figures.items()}, "groups": by_group})
    return studied


def main() -> int:
    """Entry point; returns the exit code."""
    parser = parser_of("adversarial_job", __doc__)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--rounds", type=int, default=1, help="of workloads to search, and as many to judge")
    asked = parser.parse_args()
    keys = itertools.product(asked.policies.split(","), asked.worlds.split(","))
    rows = [row for key in keys for row in study(key, asked.rounds)]
    show({"runs": rows}, asked.output, "runs", COLUMNS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
