"""When a cluster was heard last, and on what it acted, is known after a restart, in answers and in metrics."""

import asyncio
from pathlib import Path

from learner_in_process import serving

from global_learner.learner import Learner
from global_learner.policyctl.views import fleet_facts, fleet_table
from policy_net.exchange.generated import fleet_pb2 as pb

SILENT = "fedl2_learner_cluster_silent_seconds"
PHASE = "fedl2_learner_rollout_phase_state"


def silence(learner: Learner, cluster: str) -> float | None:
    return learner.telemetry.registry.get_sample_value(SILENT, {"cluster": cluster})


def test_a_restart_forgets_neither_when_a_cluster_was_heard_nor_on_what_it_acted(tmp_path: Path) -> None:
    async def lives() -> None:
        async with serving(tmp_path) as caller:
            await caller.register("north")
            await caller.register("south")
            status = pb.ClusterStatus(acting_version=1, jobs_running=2)
            await caller.call("Heartbeat", pb.HeartbeatRequest(cluster="north", incarnation=1, status=status))
            await caller.learner.keep_heard()
            (north, _) = fleet_facts(await caller.fleet())["clusters"]
            assert (north["reported"], north["acting_version"], north["jobs_running"]) == (True, 1, 2)

    async def lives_again() -> None:
        async with serving(tmp_path) as caller:
            facts = fleet_facts(await caller.fleet())
            north, south = facts["clusters"]
            assert (north["reported"], north["acting_version"]) == (False, 1)
            assert (south["reported"], south["acting_version"]) == (False, 0)
            for entry in (north, south):
                assert entry["seconds_since_heard"] >= 0.0
                assert silence(caller.learner, entry["cluster"]) is not None
            row = fleet_table(facts).rows[0]
            assert row[2:5] == ("–", "–", "v1")
            assert "has not reported since the learner started" in row[-1]

            status = pb.ClusterStatus(finished=True)
            await caller.call("Heartbeat", pb.HeartbeatRequest(cluster="north", incarnation=1, status=status))
            assert silence(caller.learner, "north") == 0.0
            assert silence(caller.learner, "nowhere") is None

            await caller.learner.keep_heard()

    async def lives_thrice() -> None:
        async with serving(tmp_path) as caller:
            assert silence(caller.learner, "north") == 0.0, "it had finished, and nobody waits for it"
            north, _ = fleet_facts(await caller.fleet())["clusters"]
            assert not north["away"]
            await caller.register("south")
            await caller.learner.keep_heard()  # it has said nothing since: what it said before stays

    asyncio.run(lives())
    asyncio.run(lives_again())
    asyncio.run(lives_thrice())


def test_a_silence_of_before_the_start_counts_and_the_phase_of_no_rollout_is_none(tmp_path: Path) -> None:
    async def lives() -> None:
        async with serving(tmp_path) as caller:
            await caller.register("north")
            learner = caller.learner
            await learner.rollouts.poll()
            samples = learner.telemetry.registry.get_sample_value
            assert {samples(PHASE, {"phase": phase}) for phase in ("running", "asking", "rolled-back")} == {0.0}

    async def lives_later() -> None:
        async with serving(tmp_path) as caller:
            fleet = caller.learner.fleet
            (entry,) = fleet.entries()
            assert entry.heard_before is not None
            fleet._wall_clock = lambda: entry.heard_before.unix_seconds + 4000.0
            assert silence(caller.learner, "north") == 4000.0
            assert fleet.silent_seconds(entry) < 4000.0  # a rollout waits for it anew
            (view,) = fleet_facts(await caller.fleet())["clusters"]
            assert view["seconds_since_heard"] == 4000.0

    asyncio.run(lives())
    asyncio.run(lives_later())
