"""Places in a plan: which GPU type a job gets, what it gains by workers that span nodes, and where its tasks go.

Nodes with GPUs of one type are a *pool*, and a job lies within one: the slowest GPU sets the pace of most jobs. Where
there are several, a plan without places first says who gets how much. Then pools are dealt out, dearest first: to the
job that gains most by the faster pool, per task and per second that it has left, as long as its size fits. So short
jobs and those that the slow type slows most get the fast one. Last, the same greedy grants are made again, pool by
pool, on speeds as they are believed to be there; whose pool is full is offered the others.
A size counts with the speed that it has on as few nodes as possible, so the step that would span one more is taken only
where it still gains. Within a pool, those that are believed to lose most by lying apart choose first.
To move a job costs what to start it costs: another pool, and other nodes, must save more than that over the time that
it has left. Where a cluster moves no tasks (`Job.moves`), a job keeps to the pool where most of its workers lie as long
as it has any, and grows around what it has. Baselines are moved for free (`laboratory.simulation.engine`).
Source: our own; Gavel (OSDI 2020) has types of GPUs in every policy, Chronus (SoCC 2021) and Pollux (OSDI 2021) places.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policy_net.baselines.needs import remaining_samples
from policy_net.domain import (
    SUSPENDED,
    Allocation,
    ClusterState,
    Decision,
    Job,
    Moves,
    Node,
    PlacementEffect,
    Resources,
    Share,
)
from policy_net.placement.layout import NodeLayout, layout_of, placing_order
from policy_net.placement.spread import SpreadPlan
from policy_net.placement.together import Placed, place_around, place_together
from policy_net.set_policy.planner import Grants
from policy_net.set_policy.pools import GpuPool, home_in
from policy_net.set_policy.steps import SplitStep, StepTable

LEAST_LOSS = 0.02
"""A job that loses less by lying on two nodes than this share of its speed fills gaps."""


@dataclass(frozen=True)
class PlaceView:
    """What a decision knows of places.

    Attributes:
        tables: by pool, of every job.
    """

    state: ClusterState
    pools: tuple[GpuPool, ...]
    tables: tuple[tuple[StepTable, ...], ...]
    effect: PlacementEffect
    restart_seconds: float

    @property
    def shares_now(self) -> Mapping[str, tuple[Share, ...]]:
        """Where tasks lie now."""
        return self.state.placement or {}

    def pool_of(self, job: Job) -> int | None:
        """The pool that all of a job's tasks lie in now."""
        shares = self.shares_now.get(job.job_id, ())
        for number, pool in enumerate(self.pools):
            index = layout_of(pool.nodes).index
            if shares and all(share.node_id in index for share in shares):
                return number
        return None

    def home_of(self, job: Job) -> int | None:
        """See `home_in`."""
        return home_in(self.pools, job, self.shares_now.get(job.job_id, ()))

    @property
    def nodes(self) -> tuple[tuple[Node, ...], ...]:
        """By pool, what its jobs may have: what one holds beyond the pool that it keeps to is part of that pool."""
        lent: dict[str, Resources] = {}
        more: list[dict[str, Resources]] = [{} for _ in self.pools]
        for job in self.state.jobs:
            home = self.home_of(job)
            if home is None:
                continue
            for share in self.shares_now[job.job_id]:
                if share.node_id not in self.pools[home].gpu_types:
                    used = job.worker_demand * share.allocation.workers + job.ps_demand * share.allocation.ps
                    for taken in (lent, more[home]):
                        taken[share.node_id] = taken.get(share.node_id, Resources(0)) + used
        if not lent:
            return tuple(pool.nodes for pool in self.pools)
        return tuple(
            (*(_less(node, lent) for node in pool.nodes), *(Node(name, used) for name, used in beyond.items()))
            for pool, beyond in zip(self.pools, more, strict=True)
        )

    def speed_after_move(self, index: int, pool: int, size: Allocation, now: int | None) -> float:
        """Believed speed in samples/s in a pool, less the time that moving there costs."""
        speed, job = self.tables[pool][index].speed(size), self.state.jobs[index]
        if now is None or now == pool or speed <= 0.0:
            return speed
        seconds = remaining_samples(job) / speed
        return speed * seconds / (seconds + self.restart_seconds)

    def relative_speed(self, pool: int, job: Job, shares: Sequence[Share]) -> float:
        """Believed effect of lying like this in a pool."""
        gpu_types = self.pools[pool].gpu_types
        if any(share.node_id not in gpu_types for share in shares):
            gpu_types = {node.node_id: node.gpu_type for node in self.state.nodes}
        places = [(gpu_types[share.node_id], share.allocation.workers) for share in shares if share.allocation.workers]
        return self.effect.relative_speed(job.job_type, places)


def _less(node: Node, lent: Mapping[str, Resources]) -> Node:
    taken, has = lent.get(node.node_id, Resources(0)), node.capacity
    left = Resources(max(has.cpu_milli - taken.cpu_milli, 0), max(has.gpu - taken.gpu, 0))
    return node if left == has else replace(node, capacity=left)


def dealt(view: PlaceView, planned: Decision) -> dict[int, int]:
    """The pool of every job that a plan without places gives anything to, by the job's index."""
    free = [sum(node.capacity.gpu for node in nodes) for nodes in view.nodes]
    offers: list[tuple[float, int, Allocation, list[float]]] = []
    found: dict[int, int] = {}
    for index, job in enumerate(view.state.jobs):
        size = planned.of(job.job_id)
        if not size.tasks:
            continue
        home = view.home_of(job)
        if home is not None:
            found[index] = home
            free[home] = max(free[home] - size.workers * job.worker_demand.gpu, 0)
            continue
        now = view.pool_of(job)
        speeds = [view.speed_after_move(index, pool, size, now) for pool in range(len(view.pools))]
        best, worst = max(speeds), min(speeds)
        gain = math.inf if worst <= 0.0 else (best / worst - 1.0) * best / remaining_samples(job) / size.tasks
        offers.append((gain, index, size, speeds))
    for _, index, size, speeds in sorted(offers, key=lambda offer: (-offer[0], offer[1])):
        demand = view.state.jobs[index].worker_demand.gpu
        # Where no pool has as much left as was planned, the one where what is left of it is worth most.
        worth = [
            speed
            if left >= size.workers * demand
            else view.tables[pool][index].speed(replace(size, workers=left // demand))
            for pool, (speed, left) in enumerate(zip(speeds, free, strict=True))
        ]
        whole = [left >= size.workers * demand and speed > 0.0 for speed, left in zip(speeds, free, strict=True)]
        pool = max(range(len(free)), key=lambda each: (whole[each], worth[each], -each))
        free[pool] = max(free[pool] - size.workers * demand, 0)
        found[index] = pool
    return found


class PlacedGrants:
    """Like `Grants`, in pools: a job that was granted something keeps to its pool.

    Args:
        wished: by the index of a job, the pool that it is offered first.
    """

    def __init__(self, view: PlaceView, wished: Mapping[int, int]) -> None:
        self._view = view
        self._wished = wished
        self._in_pools = [
            Grants(replace(view.state, nodes=nodes), tables)
            for nodes, tables in zip(view.nodes, view.tables, strict=True)
        ]
        self._chosen: dict[int, int] = {}
        self._offers: dict[int, list[SplitStep | None]] = {}

    def first(self, index: int) -> SplitStep | None:
        """See `Granting`."""
        home = self._view.home_of(self._view.state.jobs[index])
        self._offers[index] = [
            grants.first(index) if home in (None, pool) else None for pool, grants in enumerate(self._in_pools)
        ]
        return self._offer(index)[1]

    def granted(self, index: int) -> Allocation:
        """See `Granting`."""
        pool = self._chosen.get(index)
        return SUSPENDED if pool is None else self._in_pools[pool].granted(index)

    def take(self, index: int, step: SplitStep) -> SplitStep | None:
        """See `Granting`."""
        chosen = self._chosen.get(index)
        if chosen is not None:
            return self._in_pools[chosen].take(index, step)
        pool = self._offer(index)[0]
        following = self._in_pools[pool].take(index, step)
        if self._in_pools[pool].granted(index).tasks:
            self._chosen[index] = pool
            return following
        self._offers[index][pool] = following
        return self._offer(index)[1]

    def decision(self) -> Decision:
        """Sizes that were granted to all jobs, and where."""
        sizes = {
            job.job_id: self.granted(index)
            for index, job in enumerate(self._view.state.jobs)
            if self.granted(index).tasks
        }
        placement: dict[str, tuple[Share, ...]] = {}
        for pool in range(len(self._in_pools)):
            members = [index for index in range(len(self._view.state.jobs)) if self._chosen.get(index) == pool]
            placement |= placed(self._view, pool, [(index, self.granted(index)) for index in members])
        return Decision(sizes, placement)

    def _offer(self, index: int) -> tuple[int, SplitStep | None]:
        offers = self._offers[index]
        wished = self._wished.get(index)
        if wished is not None and offers[wished] is not None:
            return wished, offers[wished]
        slopes = [-1.0 if step is None else step.slope for step in offers]
        best = int(np.argmax(slopes))
        return best, offers[best]


def placed(view: PlaceView, pool: int, sizes: Sequence[tuple[int, Allocation]]) -> dict[str, tuple[Share, ...]]:
    """Where the tasks of a pool's jobs go: as they lie now and the rest around them, or all anew if that pays."""
    layout = layout_of(view.pools[pool].nodes)
    ordered = _in_order(view, pool, sizes)
    if any(job.moves is not Moves.FREELY for job in view.state.jobs):
        chosen = [replace(job, stays=_lasting(view.state.jobs[index], view.shares_now, job)) for index, job in ordered]
        return place_around(layout, chosen, _guests(view, pool))
    staying = place_together(layout, [replace(job, stays=_kept(view, layout, job)) for _, job in ordered])
    if staying is not None and not _loses(view, pool, ordered, staying):
        return staying
    anew = place_together(layout, [job for _, job in ordered])
    if anew is None or (staying is not None and not _pays(view, pool, ordered, staying, anew)):
        return staying if staying is not None else _spread(layout, ordered)
    return anew


def _lasting(job: Job, shares_now: Mapping[str, tuple[Share, ...]], placed_job: Placed) -> tuple[Share, ...]:
    """Where tasks lie that stay there; of one that shrinks, those on the first of its nodes."""
    size, shares = placed_job.allocation, shares_now.get(job.job_id, ())
    running = Allocation(sum(each.allocation.workers for each in shares), sum(each.allocation.ps for each in shares))
    if job.moves is not Moves.NEVER and running != size:
        return ()
    found, workers, ps = [], size.workers, size.ps
    for share in shares:
        stay = Allocation(min(share.allocation.workers, workers), min(share.allocation.ps, ps))
        workers, ps = workers - stay.workers, ps - stay.ps
        if stay.tasks:
            found.append(replace(share, allocation=stay))
    return tuple(found)


def _guests(view: PlaceView, pool: int) -> list[Placed]:
    """Jobs that keep to another pool, and have some tasks here."""
    found = []
    for job in view.state.jobs:
        shares = tuple(
            each for each in view.shares_now.get(job.job_id, ()) if each.node_id in view.pools[pool].gpu_types
        )
        if shares and view.home_of(job) not in (None, pool):
            found.append(Placed(job.job_id, job.worker_demand, job.ps_demand, job.current, stays=shares))
    return found


def _in_order(view: PlaceView, pool: int, sizes: Sequence[tuple[int, Allocation]]) -> list[tuple[int, Placed]]:
    found = []
    for index, size in sizes:
        job = view.state.jobs[index]
        loss = loss_apart(view, pool, job, size.workers)
        loose = job.kind.uses_ps and loss < LEAST_LOSS
        order = (*placing_order(job.worker_demand), loose, -size.workers, -loss)
        found.append((order, index, Placed(job.job_id, job.worker_demand, job.ps_demand, size, loose)))
    return [(index, job) for _, index, job in sorted(found, key=lambda entry: (entry[0], entry[1]))]


def loss_apart(view: PlaceView, pool: int, job: Job, workers: int) -> float:
    """The share of its speed that a job is believed to lose where its workers lie on two nodes, half and half."""
    if workers < 2:
        return 0.0
    gpu_type, half = view.pools[pool].gpu_type, workers // 2
    together = view.effect.relative_speed(job.job_type, ((gpu_type, workers),))
    return 1.0 - view.effect.relative_speed(job.job_type, ((gpu_type, workers - half), (gpu_type, half))) / together


def _kept(view: PlaceView, layout: NodeLayout, job: Placed) -> tuple[Share, ...]:
    """Where a job lies now, if it holds as much as it is to have, on nodes of this pool."""
    shares = view.shares_now.get(job.job_id, ())
    workers = sum(share.allocation.workers for share in shares)
    if Allocation(workers, sum(share.allocation.ps for share in shares)) != job.allocation:
        return ()
    return shares if all(share.node_id in layout.index for share in shares) else ()


Ordered = Sequence[tuple[int, Placed]]
Found = Mapping[str, tuple[Share, ...]]


def _loses(view: PlaceView, pool: int, ordered: Ordered, found: Found) -> bool:
    """Whether some job lies on more nodes than it needs, and is believed to be slower for it."""
    for index, placed_job in ordered:
        job = view.state.jobs[index]
        fewest = view.pools[pool].fewest(job.worker_demand, placed_job.allocation.workers)
        spanned = sum(share.allocation.workers > 0 for share in found[placed_job.job_id])
        if fewest is None or spanned <= len(fewest):
            continue
        best = view.effect.relative_speed(job.job_type, fewest)
        if view.relative_speed(pool, job, found[placed_job.job_id]) < (1.0 - LEAST_LOSS) * best:
            return True
    return False


def _pays(view: PlaceView, pool: int, ordered: Ordered, staying: Found, anew: Found) -> bool:
    """Whether the time that jobs save by other places is longer than the restarts of those that move for it."""
    saved = 0.0
    for index, placed_job in ordered:
        job = view.state.jobs[index]
        before, after = staying[placed_job.job_id], anew[placed_job.job_id]
        if set(before) == set(after):
            continue
        seconds = [
            remaining_samples(job) / max(view.tables[pool][index].speed(placed_job.allocation) * effect, 1e-9)
            for effect in (view.relative_speed(pool, job, before), view.relative_speed(pool, job, after))
        ]
        # The table's speed has the effect of the fewest nodes in it, the same in both.
        fewest = view.pools[pool].fewest(job.worker_demand, placed_job.allocation.workers)
        least = 1.0 if fewest is None else view.effect.relative_speed(job.job_type, fewest)
        saved += (seconds[0] - seconds[1]) * least
        if before == view.shares_now.get(job.job_id):
            saved -= view.restart_seconds
    return saved > 0.0


def _spread(layout: NodeLayout, ordered: Ordered) -> dict[str, tuple[Share, ...]]:
    """As `spread` places them, as they fitted when the grants were made."""
    requests = [(job.job_id, job.worker_demand, job.ps_demand, job.allocation) for _, job in ordered]
    return dict(SpreadPlan(layout, requests).shares)
