"""Random reports, deaths, resizes and restarts: what must always hold, and that every job comes to its end."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated_world import TOTAL_STEPS, World

from elastic_runtime.control.messages import RequestState, ResizeMode, Size
from elastic_runtime.protocol.plan import JobPhase

FEW = 60
EXAMPLES = int(os.environ.get("ELASTIC_EXAMPLES", FEW))
"""The usual few are always the same ones, as others wait for this suite; ask for more to search."""
SIZES = [Size(1, 1), Size(2, 2), Size(3, 2), Size(1, 3), Size(4, 4), Size(2, 1), Size(0, 0)]
OPERATIONS = [
    "deliver",
    "act",
    "send",
    "turn",
    "kill",
    "kill silently",
    "start",
    "resize",
    "resume",
    "time",
    "crash",
    "sprint",
    "network",
    "drain",
    "stopped",
]
WEIGHTS = [4, 6, 6, 24, 2, 1, 4, 3, 1, 3, 2, 6, 2, 2, 2]
operations = st.lists(
    st.tuples(
        st.sampled_from([name for name, weight in zip(OPERATIONS, WEIGHTS, strict=True) for _ in range(weight)]),
        st.integers(0, 1000),
    ),
    min_size=20,
    max_size=120,
)


def operate(world: World, operation: str, number: int) -> None:  # noqa: PLR0912
    members = list(world.members.values())
    member = members[number % len(members)] if members else None
    if operation == "start":
        for task in world.views[-1].wanted[: 1 + number % 3]:
            world.start(task)
    elif operation == "resize":
        mode = list(ResizeMode)[number % 3]
        victims = tuple(name for name in list(world.members)[:1] if number % 5 == 0)
        target = SIZES[number % len(SIZES)]
        world.request(RequestState(f"r{number}", "resize", target=target, mode=mode, victims=victims))
    elif operation == "resume":
        world.request(RequestState(f"s{number}", "resume", target=Size(1 + number % 3, 1 + number % 2)))
    elif operation == "time":
        world.pass_time([0.1, 1.0, 5.0, 25.0][number % 4])
    elif operation == "stopped":
        world.pass_time(2.0, missed_seconds=3600.0)
    elif operation == "crash":
        outcome = world.machine.on_tick(world.now + 0.01)
        world.take(outcome, journaled=bool(number % 2), published=False)
    elif operation == "network":
        world.slow_network = bool(number % 2)
    elif operation == "sprint":
        for _ in range(number % 40):
            for each in members:
                if each.worker:
                    world.act(each)
    elif member is None:
        return
    elif operation == "drain":
        member.report = replace(member.report, draining=True)
    elif operation == "deliver":
        world.deliver(member)
    elif operation == "act":
        world.act(member)
    elif operation == "send":
        world.send(member)
    elif operation == "turn":
        for each in members[: 1 + number % 6]:
            world.deliver(each)
            world.act(each)
            if world.members.get(each.task) is each:
                world.send(each)
    else:
        world.kill(member, reported=operation == "kill")


@pytest.mark.heavy
@settings(max_examples=EXAMPLES, derandomize=EXAMPLES == FEW, suppress_health_check=[HealthCheck.too_slow])
@given(operations)
def test_whatever_happens_the_job_finishes_with_all_steps_done(script: list[tuple[str, int]]) -> None:
    world = World()
    for _ in range(8):
        world.round()
    for operation, number in script:
        operate(world, operation, number)
    world.slow_network = False
    for attempt in range(20):
        world.until(JobPhase.FINISHED, JobPhase.SUSPENDED, JobPhase.FAILED)
        if world.views[-1].phase is not JobPhase.SUSPENDED:
            break
        world.request(RequestState(f"wake {attempt}", "resume", target=Size(1, 1)))
        world.round()
    status = world.status()
    assert status.phase is JobPhase.FINISHED, status
    assert (status.durable_step, status.step) == (TOTAL_STEPS, TOTAL_STEPS)
    assert all(request.ended for request in status.requests)
    assert {row.request_id for row in status.requests} >= world.requested.keys()
