"""Queries of a plan, through the driver and the database: a number that is good, bad, silent, or heard amid faults."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from learner_process import LearnerProcess
from one_process import Fault, Met, World
from prometheus_stand_in import StandIn, says, stand_in, vector
from rollout_fleet import living_fleet

from global_learner.errors import BadRequest
from global_learner.rollout.queries import ShownQuery
from global_learner.rollout_driver import RolloutDriver
from global_learner.storage.audit import Order

pytestmark = pytest.mark.heavy

GOOD, BAD, SILENT = vector("0.1"), vector("0.9"), b"no answer"
TEXT = 'max(failed{cluster=~"$clusters"})'
MOST_ROUNDS = 40


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as serving:
        yield serving


def world(folder: Path, server: StandIn, fault: Fault | None = None, met: set[Met] | None = None) -> World:
    """Rounds take two hours: a number has to be good in four of them."""
    query = {"name": "failed", "address": server.address, "query": TEXT, "at_most": 0.5,
             "every_seconds": 3600, "hold_minutes": 360, "ask_after_minutes": 600}  # fmt: skip
    return World(folder, fault, set() if met is None else met, queries=[query])


async def _round(of: World) -> None:
    """One round, in which what is asked is answered."""
    await of.round()
    await of.driver.queries.finished()


async def _live(of: World, until: str, rounds: int = MOST_ROUNDS) -> str:
    """Rounds until a phase, or so many; the phase and the stage's kind then. An operator is obeyed at the gate."""
    await of.start()
    for _ in range(rounds):
        phase, kind = of.place()
        if phase == until and kind != "gate":
            break
        if (phase, kind) == ("asking", "gate"):
            await of.act("promote")
        await _round(of)
    return " ".join(of.place())


async def _shown(driver: RolloutDriver) -> list[ShownQuery]:
    return list((await driver.overview(0)).queries)


async def test_good_numbers_let_a_version_come_to_the_fleet(tmp_path: Path, server: StandIn) -> None:
    server.behave = says(GOOD)
    of = world(tmp_path, server)
    assert await _live(of, "done") == "done fleet"
    (shown,) = await _shown(of.driver)
    assert (shown.state, shown.standing is not None and shown.standing.value) == ("good", 0.1)
    of.check()
    of.close()
    # Asked of the canaries first, of the whole fleet last, three times at least in each of three stages.
    asked = [text.count("cluster-") for text in server.texts]
    assert asked == sorted(asked)
    assert set(asked) == {3, 5, 6}
    assert min(asked.count(clusters) for clusters in (3, 5, 6)) >= 3


async def test_bad_numbers_take_a_version_back_that_is_no_worse_otherwise(tmp_path: Path, server: StandIn) -> None:
    server.behave = says(BAD)
    of = world(tmp_path, server)
    assert await _live(of, "rolled-back") == "rolled-back canary"
    record = of.driver.store.latest()
    assert record is not None
    failed = "failed in stage canary: query failed: 0.9 is beyond its bounds (at most 0.5), for "
    assert record.state.reason.startswith(failed)
    of.check()
    of.close()


async def test_without_answers_an_operator_is_asked_and_with_them_it_goes_on_by_itself(
    tmp_path: Path, server: StandIn
) -> None:
    server.behave = says(SILENT)
    of = world(tmp_path, server)
    assert await _live(of, "asking") == "asking canary"
    (shown,) = await _shown(of.driver)
    assert (shown.state, shown.standing is not None and shown.standing.value) == ("unanswered", None)
    for _ in range(6):
        await _round(of)
    assert of.place() == ("asking", "canary")
    assert {cluster.reported() for cluster in of.clusters} == {(1, None), (1, 2)}
    server.behave = says(GOOD)
    assert await _live(of, "done") == "done fleet"
    of.check()
    of.close()


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.ANSWER_LOST, Fault.ASKER_GONE])
async def test_a_fault_as_an_answer_is_written_changes_no_end(tmp_path: Path, server: StandIn, fault: Fault) -> None:
    server.behave = says(GOOD)
    met: set[Met] = set()
    of = world(tmp_path, server, fault, met)
    assert await _live(of, "done") == "done fleet"
    of.check()
    of.close()
    judged = {("running", kind) for kind in ("canary", "wave", "fleet")}
    assert {where for what, where in met if what == "keep_answer"} >= judged


async def test_a_plan_sends_the_learner_to_no_server_that_its_settings_do_not_name(
    tmp_path: Path, server: StandIn
) -> None:
    of = world(tmp_path, server)
    with stand_in() as other:
        plan = json.dumps({"queries": [{**of.queries[0], "address": other.address}]})
        said = f"query failed asks {other.address}, which the learner's rollouts.prometheus does not name"
        with pytest.raises(BadRequest, match=said):
            await of.driver.begin(2, plan, Order("ada", of.now))
        assert of.driver.store.latest() is None
        of.close()
        assert other.texts == []


def test_a_learner_that_is_killed_still_knows_since_when_a_number_is_good(tmp_path: Path, server: StandIn) -> None:
    server.behave = says(GOOD)
    learner = LearnerProcess(
        tmp_path,
        publish={"every_steps": 1, "auto_assign": False},
        rollouts={"period_seconds": 0.05, "real_time_factor": 1e9, "prometheus": [{"address": server.address}]},
    )
    query = {"name": "failed", "address": server.address, "query": TEXT, "at_most": 0.5,
             "every_seconds": 6, "hold_minutes": 0.2, "stages": ["canary"]}  # fmt: skip
    with living_fleet(learner) as fleet:
        fleet.publish()
        with pytest.raises(grpc.RpcError) as refused:
            fleet.start(2, queries=[{**query, "address": "http://elsewhere"}])
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        fleet.start(2, queries=[query])
        fleet.live_until(lambda now: now.phase == "asking")
        fleet.act("promote")
        before = fleet.live_until(lambda now: bool(now.queries) and now.queries[0].answered_unix_seconds > 0.0)
        assert before.stages[before.stage] == "canary"
        learner.kill()
        learner.start()
        gone_on = fleet.live_until(
            lambda now: (
                now.phase == "done"
                or now.stage > before.stage
                or now.queries[0].answered_unix_seconds > before.queries[0].answered_unix_seconds
            )
        )
        known, then = gone_on.queries[0], before.queries[0]
        if gone_on.stage == before.stage and known.answered_unix_seconds - then.answered_unix_seconds <= 30.0:
            assert known.since_unix_seconds == then.since_unix_seconds
        done = fleet.live_until(lambda now: now.phase in ("done", "rolled-back"))
        assert done.phase == "done"
        counts = Counter((entry.action, entry.subject, entry.detail) for entry in fleet.audit()
                         if entry.action.startswith("rollout-"))  # fmt: skip
        assert max(counts.values()) == 1
        passes = [verdict for verdict in done.verdicts if verdict.outcome == "pass" and verdict.stage == before.stage]
        assert any("query failed: 0.1 is within its bounds" in reason for reason in passes[-1].reasons)
