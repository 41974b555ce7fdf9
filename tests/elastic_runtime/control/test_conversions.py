"""What travels: there and back it is the same, and what nobody sends is refused."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic_runtime.control.conversions import (
    MESSAGES,
    report_from_message,
    status_from_message,
    to_message,
    view_from_message,
)
from elastic_runtime.control.messages import (
    JobStatus,
    MemberReport,
    RequestOutcome,
    RequestState,
    ResizeMode,
    Shard,
    Size,
    TaskStatus,
)
from elastic_runtime.errors import ProtocolError
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.protocol.plan import Change, ChangeStage, JobPhase, Member, Plan, TaskRole, View

BLOCKS = 6
NOT_SENT = {RequestState: {"victims"}}
"""Fields that are the coordinator's own."""
SENT_BESIDE = {JobStatus: {"has_loss"}, MemberReport: {"has_loss"}}
"""Fields of messages that say whether another one is there."""
numbers = st.integers(0, 2**64 - 1)
servers = st.sampled_from(["ps-0", "ps-1", "ps-12"])
workers = st.lists(st.sampled_from(["worker-0", "worker-1"]), max_size=3).map(tuple)
blocks = st.integers(0, BLOCKS - 1)
seconds = st.sampled_from(["", "ps-3", "ps-40"])
stages = st.builds(
    ChangeStage,
    st.dictionaries(blocks, servers, max_size=4),
    st.none() | workers,
    st.dictionaries(blocks, seconds, max_size=4),
)
changes = st.builds(
    Change, numbers, numbers, st.lists(stages, max_size=3).map(tuple), st.booleans(), st.booleans(), st.booleans()
)
FIRST_CLOCK = 2**40


def in_order(found: list[Change]) -> tuple[Change, ...]:
    """By number, and each behind the one before."""
    ordered = sorted(found, key=lambda change: change.number)
    return tuple(replace(c, clock=FIRST_CLOCK + 10 * i + c.clock % 5) for i, c in enumerate(ordered))


views = st.builds(
    View,
    number=numbers,
    generation=numbers,
    phase=st.sampled_from(JobPhase),
    start_step=st.integers(0, FIRST_CLOCK),
    start_checkpoint=st.text(max_size=20),
    start_plan=st.builds(
        Plan, workers, st.tuples(*[servers] * BLOCKS), replicas=st.just(()) | st.tuples(*[seconds] * BLOCKS)
    ),
    changes=st.lists(changes, max_size=3, unique_by=lambda change: change.number).map(in_order),
    proposal=st.none() | changes,
    members=st.lists(st.builds(Member, servers, st.sampled_from(TaskRole), numbers, st.text(max_size=9))).map(tuple),
    committed=numbers,
    substitutes=st.dictionaries(servers, servers),
    initialiser=st.sampled_from(["", "worker-0"]),
    wanted=workers,
    leaving=workers,
    failure=st.text(max_size=20),
    lost_servers=workers,
)
figures = st.floats(0, 1e12)
amounts = st.integers(0, 2**53)
shards = st.builds(Shard, st.just("ps-0.safetensors"), amounts, amounts, st.just("ab" * 32))
reports = st.builds(
    MemberReport,
    task=st.just("worker-0"),
    incarnation=numbers,
    shards=st.lists(shards, max_size=3).map(tuple),
    loss=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    stall_seconds=figures,
    suspects=workers,
    staleness=st.integers(0, 2**32 - 1),
    **dict.fromkeys(("view", "generation", "step", "accepted", "refused", "arrived", "bytes_sent"), amounts),
    **{name: st.booleans() for name in ("ready", "initialised", "finished", "left")},
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(views)
def test_a_view_is_the_same_after_its_journey(view: View) -> None:
    data = to_message(view).SerializeToString()
    assert view_from_message(pb.View.FromString(data)) == view


@given(reports)
def test_a_report_is_the_same_after_its_journey(report: MemberReport) -> None:
    data = to_message(report).SerializeToString()
    assert report_from_message(pb.ReportRequest.FromString(data)) == report


def test_a_status_is_the_same_after_its_journey() -> None:
    request = RequestState(
        "a", "resize", RequestOutcome.RUNNING, "…", Size(3, 4), ResizeMode.STOP_THE_WORLD, (), 1.0, 2.0, 3, 4, 0.5, 6
    )
    status = JobStatus(
        "digits",
        JobPhase.RESIZING,
        2,
        10,
        100,
        0.5,
        5.0,
        8,
        Size(1, 2),
        Size(3, 4),
        (TaskStatus("ps-0", TaskRole.SERVER, "member", 10, 1.0, 0.5, 1, 2, 3, 0.1),),
        (request,),
        loss=0.25,
        wanted=("ps-1",),
        leaving=("worker-0",),
        staleness=3,
        replicas=2,
        blocks=64,
        blocks_with_replica=60,
        failures=7,
        failures_in_a_row=1,
        last_failure="worker-3: ValueError: no (at step 9 of 100)",
    )
    assert status_from_message(to_message(status)) == status
    unknown = replace(status, loss=None, tasks=(), requests=())
    assert status_from_message(to_message(unknown)) == unknown


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (pb.View(phase=99), "99 is no phase"),
        (pb.View(phase=2, start_plan=pb.Plan(servers=["ps-0"], owners=[1])), "a block's owner has number 1 of 1 PSs"),
        (pb.View(phase=2, wanted=["../ps"]), "is no task's name"),
        (pb.View(phase=2, changes=[pb.Change(number=2), pb.Change(number=1)]), "not in order"),
        (
            pb.View(phase=2, changes=[pb.Change(stages=[pb.Stage(moves=[pb.Move(block=7)])], servers=["ps-0"])]),
            "moves block 7 of a model of 0 blocks",
        ),
        (pb.View(phase=2, failure="x" * 70000), "70000 characters"),
        (
            pb.View(phase=2, start_plan=pb.Plan(servers=["ps-0"], owners=[0], replicas=[2])),
            "a block's replica has number 1 of 1 PSs",
        ),
        (pb.View(phase=2, start_plan=pb.Plan(servers=["ps-0"], owners=[0], replicas=[1])), "ps-0 holds block 0 twice"),
        (
            pb.View(phase=2, start_plan=pb.Plan(servers=["a", "b"], owners=[0, 1], replicas=[2])),
            "1 replicas of 2 blocks",
        ),
        (
            pb.View(phase=2, changes=[pb.Change(stages=[pb.Stage(replicas=[pb.Move(block=7, server=9)])])]),
            "a block's replica has number 8 of 0 PSs",
        ),
    ],
)
def test_a_view_that_no_coordinator_sends_is_refused(message: pb.View, line: str) -> None:
    with pytest.raises(ProtocolError, match=line):
        view_from_message(message)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"task": ""}, "is no task's name"),
        ({"task": "worker-0", "stall_seconds": -1.0}, "stall_seconds is -1.0"),
        ({"task": "worker-0", "step_seconds": float("nan")}, "step_seconds is nan"),
        ({"task": "worker-0", "shards": [pb.Shard(name="a", sha256="12")]}, "no SHA-256"),
        ({"task": "worker-0", "shards": [pb.Shard(name="../a", sha256="a" * 64)]}, "no name of a shard's file"),
        ({"task": "worker-0", "shards": [pb.Shard()] * 65}, "65 shards in a report"),
    ],
)
def test_a_report_that_no_member_sends_is_refused(changes: dict[str, object], line: str) -> None:
    with pytest.raises(ProtocolError, match=line):
        report_from_message(pb.ReportRequest(**changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "message"), list(MESSAGES.items()), ids=lambda each: getattr(each, "__name__", ""))
def test_what_is_sent_has_a_field_for_each_of_its_own(kind: Any, message: Any) -> None:
    own = {field.name for field in fields(kind)} - NOT_SENT.get(kind, set())
    assert set(message.DESCRIPTOR.fields_by_name) - SENT_BESIDE.get(kind, set()) == own
