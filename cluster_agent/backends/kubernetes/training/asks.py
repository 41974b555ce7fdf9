"""Requests to a job's coordinator: which one is next, and under which id; pure.

An id is never used for two different things: it names the decision, what is asked for, and the try. Tries are counted
by what the coordinator remembers, so that an agent that has just begun goes on with the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cluster_agent.backends.kubernetes.training.memory import Memory
from elastic_runtime.control.messages import JobStatus, RequestOutcome, Size
from elastic_runtime.protocol.plan import Phase
from policy_net.domain import SUSPENDED, Allocation

_MOST_TRIES = 10**9


class Request(StrEnum):
    """What a coordinator is asked for."""

    RESIZE = "resize"
    SUSPEND = "suspend"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the coordinator; under its id it may be sent again."""

    request: Request
    request_id: str
    size: Size


def next_ask(
    wanted: Allocation, decision: str, status: JobStatus, memory: Memory, now: float
) -> tuple[str, Ask | None]:
    """What to ask for, so that a job gets the size that was decided; and what people are told.

    Args:
        wanted: the size that it is to have; 0/0: none.
        decision: names the decision that said so.
        status: what its coordinator said.
        now: monotonic seconds.
    """
    size = Size(wanted.ps, wanted.workers)
    request = Request.RESIZE if wanted != SUSPENDED else Request.SUSPEND
    if status.phase is Phase.SUSPENDED:
        request = Request.RESUME
    done = wanted == SUSPENDED if request is Request.RESUME else status.target == size
    if done or status.phase not in (Phase.RUNNING, Phase.RESIZING, Phase.SUSPENDED):
        return "", None
    name = f"{decision}-{request}-{size.servers}x{size.workers}"
    line = {
        Request.RESIZE: f"becomes {_sizes(wanted)}",
        Request.SUSPEND: "gives back what it has",
        Request.RESUME: f"goes on with {_sizes(wanted)}",
    }[request]
    given_up, why = memory.given_up
    if given_up.rpartition("-")[0] == name and now < memory.asked_again_at:
        return f"keeps what it has: {why}", None
    number = _number(name, status, given_up)
    return line, None if number is None else Ask(request, f"{name}-{number}", size)


def _number(name: str, status: JobStatus, given_up: str) -> int | None:
    """Of the next try, as the coordinator remembers those before; None: one is under way.

    One decision may be carried out several times, as when a job is suspended by its user in between.
    """
    rows = {int(row.request_id.rpartition("-")[2]): row for row in status.requests if _is_try(row.request_id, name)}
    if not rows:
        return 0
    newest = max(rows)
    row = rows[newest]
    if not row.ended:
        return None
    # One that was given up is asked for once more: the answer says why.
    return newest if row.state is RequestOutcome.ABORTED and row.request_id != given_up else newest + 1


def _is_try(request_id: str, name: str) -> bool:
    before, _, number = request_id.rpartition("-")
    return before == name and number.isascii() and number.isdecimal() and len(number) < len(str(_MOST_TRIES))


def _sizes(size: Allocation) -> str:
    workers, servers = "s" * (size.workers != 1), "s" * (size.ps != 1)
    return f"{size.workers} worker{workers} and {size.ps} PS{servers}"
