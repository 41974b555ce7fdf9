"""Whether training goes on without a server that is lost: every block that it held has another live holder.

The holders before a change that is under way have its blocks, whatever has come of it: who gives a block away keeps its
copy until the change is over. The holders after it have them once they have said that everything arrived.

Source: none; DL2 §5 goes back to a checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection

from elastic_runtime.coordinator.job import Job
from elastic_runtime.protocol.plan import Plan


def survives(job: Job, lost: Collection[str]) -> bool:
    """Whether all blocks have a live holder to go on with them, and one to have them from, without these servers."""
    after, before, arrived = _plans(job)
    return all(_goes_on(after, before, arrived, block, lost) for block in range(len(after.owners)))


def doubly_held(job: Job) -> int:
    """How many blocks outlive the loss of any one server; a copy that is still on its way counts as none."""
    plan, moving = job.plan(), job.moving()
    if moving is None or not moving.stages:
        return len(plan.replicas) - plan.replicas.count("")
    after, before, arrived = _plans(job)
    gone = job.state.generation.lost
    return sum(
        all(
            _goes_on(after, before, arrived, block, {*gone, name})
            for name in (*after.holders(block), *before.holders(block))
            if name not in gone
        )
        for block in range(len(after.owners))
    )


def _plans(job: Job) -> tuple[Plan, Plan, Collection[str]]:
    """The newest plan, the one before the change that is under way, and who has got everything that it brings."""
    after, moving = job.named(), job.moving()
    if moving is None:
        return after, after, ()
    return (
        after,
        job.named_before(moving),
        {name for name in after.servers if job.report(name).arrived >= moving.number},
    )


def _goes_on(after: Plan, before: Plan, arrived: Collection[str], block: int, lost: Collection[str]) -> bool:
    new, old = _live(after, block, lost), _live(before, block, lost)
    return bool(new) and (bool(old) or all(name in arrived for name in new))


def _live(plan: Plan, block: int, lost: Collection[str]) -> list[str]:
    return [name for name in plan.holders(block) if name not in lost]
