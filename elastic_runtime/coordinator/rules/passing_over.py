"""A job's checkpoint is damaged: it goes back to the newest sound one, and says so.

Servers compare the digest of each block that they read. What one of them says is looked at again here, where all
checkpoints are, before one is passed over: a server whose disk is not there sees damage too, and is what is at fault.
"""

from __future__ import annotations

from elastic_runtime.checkpoint import Search
from elastic_runtime.coordinator.checkpoint_store import lent
from elastic_runtime.coordinator.rules import leases
from elastic_runtime.coordinator.rules.assembly import fail
from elastic_runtime.coordinator.rules.failures import failed
from elastic_runtime.coordinator.rules.job import GATHERING, Job
from elastic_runtime.coordinator.rules.orders import SearchOrder
from elastic_runtime.coordinator.rules.state import Checkpoints


def searched(job: Job, order: SearchOrder, search: Search | None, error: str) -> None:
    """A sound checkpoint was looked for; without a result, `error` says why not."""
    job.searching = 0
    generation, course = job.state.generation, job.state.course
    if order.generation != generation.number or course.phase not in GATHERING:
        return  # what was looked for is not needed any more
    complaints = {name: job.report(name).damage for name in generation.start_plan.servers if job.report(name).damage}
    if search is None or not search.damaged:
        for name, line in complaints.items():
            failed(job, name, error or line)
        return
    if search.sound is None:
        fail(job, search.line)
        return
    names = [name for name, _ in job.state.checkpoints.durable]
    kept = job.state.checkpoints.durable[: names.index(search.sound.folder.name) + 1]
    book_json = lent(search.sound)
    job.state.checkpoints = Checkpoints(kept, book_json)
    leases.gone_back(job, book_json)
    job.course(formed=False, notice=search.line)
    job.timers.clear("start", "gather")
