"""What is said of all clusters is not said of those that were turned out, and a dry run changes nothing."""

import asyncio
from pathlib import Path

import grpc
from learner_in_process import serving

from policy_net.exchange.generated import fleet_pb2 as pb


def test_all_clusters_are_those_that_were_not_turned_out(tmp_path: Path) -> None:
    async def lives() -> None:
        async with serving(tmp_path) as caller:
            for cluster in ("north", "south"):
                await caller.register(cluster)
            rollouts = caller.learner.rollouts
            rollouts.turned_out = lambda cluster: cluster == "south"
            reported = await caller.call("AssignVersion", pb.AssignVersionRequest(version=1, all=True))
            assert ([entry.cluster for entry in reported.assignments], list(reported.passed_over)) == (
                ["north"],
                ["south"],
            )
            held = {view.cluster: view.held for view in (await caller.fleet()).clusters}
            assert held == {"north": True, "south": False}
            named = await caller.call("AssignVersion", pb.AssignVersionRequest(version=1, clusters=["south"]))
            assert ([entry.cluster for entry in named.assignments], list(named.passed_over)) == (["south"], [])

            rollouts.turned_out = lambda _cluster: True
            assert (
                await caller.refused("AssignVersion", pb.AssignVersionRequest(version=1, all=True))
                is grpc.StatusCode.INVALID_ARGUMENT
            )

    asyncio.run(lives())


def test_a_dry_run_of_an_assignment_or_a_reset_says_what_would_be_and_changes_nothing(tmp_path: Path) -> None:
    async def lives() -> None:
        async with serving(tmp_path, publish={"every_steps": 1}) as caller:
            await caller.register("north")
            await caller.push(1)
            before = [line.action for line in (await caller.call("ListAudit", pb.ListAuditRequest())).entries]
            request = pb.AssignVersionRequest(version=1, clusters=["north"], dry_run=True)
            (entry,) = (await caller.call("AssignVersion", request)).assignments
            assert (entry.cluster, entry.to_version, entry.held) == ("north", 1, True)
            reset = await caller.call("ResetHead", pb.ResetHeadRequest(version=1, dry_run=True))
            assert (reset.from_step, reset.head_step, reset.changed) == (1, 2, True)
            fleet = await caller.fleet()
            assert (fleet.head_step, fleet.clusters[0].held) == (1, False)
            assert [line.action for line in (await caller.call("ListAudit", pb.ListAuditRequest())).entries] == before

            await caller.call("ResetHead", pb.ResetHeadRequest(version=1, reason="a bad night"))
            lines = (await caller.call("ListAudit", pb.ListAuditRequest())).entries
            assert [line.detail for line in lines if line.action == "head-reset-reason"] == ["step 2: a bad night"]

    asyncio.run(lives())
