"""How fast a cluster may send updates, and what it is told beyond."""

import asyncio
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_in_process import serving
from learner_makers import settings, update, vector

from global_learner.errors import TooFast
from global_learner.pushes import PushOutcome, UpdateRates
from policy_net.exchange.generated import fleet_pb2 as pb


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def sent(rates: UpdateRates, cluster: str, attempts: int) -> int:
    done = 0
    for _ in range(attempts):
        try:
            rates.admit(cluster)
        except TooFast:
            break
        rates.on_applied(cluster)
        done += 1
    return done


@given(per_second=st.floats(0.01, 100.0), burst=st.integers(1, 50), waits=st.lists(st.floats(0.0, 30.0), max_size=30))
def test_nobody_sends_more_than_a_burst_and_what_the_rate_allows(per_second, burst, waits) -> None:
    clock = Clock()
    rates = UpdateRates(per_second, burst, clock)
    total = 0
    for wait in (0.0, *waits):
        clock.now += wait
        total += sent(rates, "north", 1000)
        assert total <= burst + clock.now * per_second + 1e-6
    assert total >= min(burst, 1000)


def test_an_outage_is_caught_up_with_and_then_the_rate_holds() -> None:
    clock = Clock()
    rates = UpdateRates(1.0, 512, clock)
    assert sent(rates, "north", 600) == 512
    for _ in range(100):
        clock.now += 1.0
        assert sent(rates, "north", 5) == 1
    clock.now += 3600.0
    assert sent(rates, "north", 600) == 512


def test_who_is_too_fast_is_told_when_to_come_again_and_may_then() -> None:
    clock = Clock()
    rates = UpdateRates(0.5, 1, clock)
    assert sent(rates, "north", 1) == 1
    with pytest.raises(TooFast, match=r"cluster north sent more .*; send this one again in 2\.0 s"):
        rates.admit("north")
    rates.admit("south")
    clock.now += 2.0
    rates.admit("north")


@given(per_second=st.floats(0.01, 100.0), burst=st.integers(1, 50), waits=st.lists(st.floats(0.0, 30.0), max_size=30))
def test_answers_that_apply_nothing_have_the_rate_of_updates_and_take_none_of_it(per_second, burst, waits) -> None:
    clock = Clock()
    rates = UpdateRates(per_second, burst, clock)
    within = 0
    for wait in (0.0, *waits):
        clock.now += wait
        answers = [rates.is_beyond("north") for _ in range(200)]
        assert answers == sorted(answers), "once it has too many, every one is"
        within += answers.count(False)
        assert within <= burst + clock.now * per_second + 1e-6
    assert within >= burst
    assert not rates.is_beyond("south")
    assert sent(rates, "north", 1000) >= burst


def test_where_there_is_no_rate_no_answer_is_beyond_it() -> None:
    rates = UpdateRates(0.0, 1, Clock())
    assert not any(rates.is_beyond("north") for _ in range(100))


def test_loopback_has_no_limit_and_every_other_address_has_one_unless_the_settings_say(tmp_path: Path) -> None:
    certificates = {"identity": {"names": ["learner.example"]}}
    assert settings(tmp_path).updates_per_second == 0.0
    assert settings(tmp_path, listen="0.0.0.0:7070", **certificates).updates_per_second == 1.0
    for listen in ("127.0.0.1:0", "0.0.0.0:7070"):
        chosen = settings(tmp_path, listen=listen, ingest={"updates_per_second": 2.5}, **certificates)
        assert chosen.updates_per_second == 2.5


async def test_a_flood_is_refused_in_a_status_that_agents_retry_and_others_go_on(tmp_path: Path) -> None:
    async with serving(tmp_path, ingest={"updates_per_second": 1e-6, "burst_updates": 5}) as caller:
        await caller.register("flood")
        await caller.register("north")
        for number in range(1, 6):
            reply = await caller.push(number, cluster="flood", base_step=caller.learner.head.step)
            assert reply.outcome == pb.PushReply.APPLIED
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError, match=r"send this one again in \d+\.\d s") as caught:
                await caller.push(6, cluster="flood", base_step=caller.learner.head.step)
            # What an agent's client takes for a busy learner: it waits, and offers the same update again.
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await caller.push(5, cluster="flood")).outcome == pb.PushReply.DUPLICATE
        reply = await caller.push(1, cluster="north", base_step=caller.learner.head.step)
        assert reply.outcome == pb.PushReply.APPLIED
        value = caller.learner.telemetry.registry.get_sample_value
        assert value("fedl2_learner_refusals_total", {"method": "Push", "reason": "too-fast"}) == 3


class Gate:
    """A pause that ends when the test says."""

    def __init__(self) -> None:
        self.waiting = 0
        self.opened = asyncio.Event()
        self.entered = asyncio.Event()

    async def __call__(self) -> None:
        self.waiting += 1
        self.entered.set()
        await self.opened.wait()


async def test_duplicates_wait_once_they_come_faster_than_updates_may_and_others_go_on(tmp_path: Path) -> None:
    gate = Gate()
    async with serving(tmp_path, pause=gate, ingest={"updates_per_second": 1e-6, "burst_updates": 5}) as caller:
        await caller.register("north")
        await caller.register("flood")
        assert (await caller.push(1, cluster="flood")).outcome == pb.PushReply.APPLIED
        for _ in range(5):  # as an agent whose answers were lost
            assert (await caller.push(1, cluster="flood")).outcome == pb.PushReply.DUPLICATE
        assert gate.waiting == 0
        flood = [asyncio.create_task(caller.push(1, cluster="flood", want_weights=True)) for _ in range(3)]
        await gate.entered.wait()
        reply = await caller.push(1, cluster="north", base_step=caller.learner.head.step)
        assert reply.outcome == pb.PushReply.APPLIED
        # What it applied does not wait, however many duplicates there were before.
        reply = await caller.push(2, cluster="flood", base_step=caller.learner.head.step)
        assert reply.outcome == pb.PushReply.APPLIED
        assert not any(task.done() for task in flood)
        gate.opened.set()
        answers = await asyncio.gather(*flood)
        assert {answer.outcome for answer in answers} == {pb.PushReply.DUPLICATE}
        assert all(answer.weights for answer in answers)
        assert gate.waiting == 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"gradient": vector(3)[:-1]}, "quarantined"), ({"incarnation": 9}, "unknown-incarnation"), ({}, "head-reset")],
)
async def test_rejections_wait_once_they_come_faster_than_updates_may(tmp_path: Path, changes, reason: str) -> None:
    gate = Gate()
    gate.opened.set()
    limits = {"updates_per_second": 1e-6, "burst_updates": 4}
    async with serving(tmp_path, pause=gate, ingest=limits, quarantine={"rejections": 2}) as caller:
        await caller.register("north")
        assert (await caller.push(1)).outcome == pb.PushReply.APPLIED
        if reason == "head-reset":
            await caller.call("ResetHead", pb.ResetHeadRequest(version=1))
        step = caller.learner.head.step - (reason == "head-reset")
        replies = [await caller.push(number, **{"base_step": step, **changes}) for number in range(2, 12)]
        assert {reply.outcome for reply in replies} == {pb.PushReply.REJECTED}
        assert replies[-1].reason == reason
        assert gate.waiting == 6


async def test_names_that_are_not_registered_share_one_bucket(tmp_path: Path) -> None:
    async with serving(tmp_path, ingest={"updates_per_second": 1e-6, "burst_updates": 3}) as caller:
        answers = [await caller.learner.pushes.push(update(1, cluster=f"c{number}"), False) for number in range(5)]
        assert {answer.outcome for answer in answers} == {PushOutcome.REJECTED}
        assert [answer.is_beyond_rate for answer in answers] == [False] * 3 + [True] * 2
