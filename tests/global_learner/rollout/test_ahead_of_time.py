"""A cluster that makes up a year of blocks in an instant: what the learner takes of it, counts and says."""

import json
from pathlib import Path

from rollout_histories import CLUSTERS, simulated_fleet
from structlog.testing import capture_logs

from global_learner.rollout.evidence_store import MOST_BLOCKS, MOST_BLOCKS_A_CALL
from global_learner.storage.audit import Order
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.rollout_assignment import AssignmentRole, candidate_acts

PLAN = {"stages": [{"kind": "canary", "count": 3}, {"kind": "fleet"}]}


async def test_a_year_that_was_made_up_counts_for_the_time_that_there_was(tmp_path: Path) -> None:
    async with simulated_fleet(tmp_path, CLUSTERS) as fleet:
        await fleet.driver.begin(2, json.dumps(PLAN), Order("ada", fleet.now, "a test"))
        liar = next(
            entry
            for entry in fleet.fleet.entries()
            if entry.rollout_assignment and entry.rollout_assignment.role is AssignmentRole.ALTERNATING
        )
        rollout_assignment = liar.rollout_assignment
        assert rollout_assignment is not None

        async def all_of_it() -> int:
            following = 0
            for first in range(0, MOST_BLOCKS, MOST_BLOCKS_A_CALL):
                request = pb.ShareEvidenceRequest(cluster=liar.cluster, rollout=rollout_assignment.rollout)
                for number in range(first, first + MOST_BLOCKS_A_CALL):
                    acts = candidate_acts(rollout_assignment.seed, liar.cluster, number)
                    request.blocks.add(number=number, candidate=acts, jobs=5.0 - 4.0 * acts, usual_jobs=5.0)
                taken, following = await fleet.driver.on_evidence(liar.cluster, request)
                assert taken
            return following

        with capture_logs() as logs:
            assert await all_of_it() == 2
            assert await all_of_it() == 2
        (line,) = (entry for entry in logs if entry["event"] == "evidence-ahead-of-time")
        assert (line["cluster"], line["waiting"]) == (liar.cluster, MOST_BLOCKS_A_CALL - 2)
        calls = fleet.telemetry.rollout_evidence.labels("ahead-of-time")._value.get()
        assert calls == 2 * MOST_BLOCKS / MOST_BLOCKS_A_CALL
        fleet.now += 4 * rollout_assignment.block_seconds
        await all_of_it()
        held = {member.cluster: member.blocks for member in (await fleet.rollout()).members}
        assert held[liar.cluster] == 6
