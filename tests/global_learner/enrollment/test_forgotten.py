"""Clusters that were turned out and forgotten: in no list any more, refused all the same, and never mistaken."""

import asyncio
from pathlib import Path

import grpc
import pytest
from folding_clock import FoldingClock
from identity_makers import Enrolling, enrolling
from learner_in_process import serving
from learner_makers import policy

from global_learner.errors import BadRequest, IdentityRefused, UnknownCluster
from global_learner.registry.assignments import forget, renew_incarnations
from global_learner.registry.tables import ClusterRow
from policy_net.exchange.generated import fleet_pb2 as pb


def registered(here: Enrolling, cluster: str) -> int:
    """Let a cluster register where there is a version; its incarnation."""
    registry = here.thread.registry
    if registry.newest() is None:
        registry.publish(policy(), 0, 0.0, {}, 0.0, assign_all=False)
    return registry.register(cluster, False, (), 0.0).incarnation


def names(here: Enrolling) -> list[str]:
    return [entry.cluster for entry in here.thread.registry.registrations()]


async def test_a_revoked_cluster_is_forgotten_and_stays_refused(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        registrar = here.identities.registrar
        north = await here.member("north")
        await here.member("south")
        assert (registered(here, "north"), registered(here, "south")) == (1, 1)
        await registrar.revoke("north", "ada")
        assert await registrar.forget("north", "ada", dry_run=True)
        assert names(here) == ["north", "south"]
        assert await registrar.forget("north", "ada", "sold")
        assert names(here) == ["south"]
        assert [entry.cluster for entry in await registrar.clusters()] == ["south"]
        with pytest.raises(IdentityRefused, match="revoked"):
            here.identities.identity.cluster("", here.context(north))
        (line,) = [line for line in registrar.store.audit(0.0) if line.action == "forgotten"]
        assert (line.actor, line.subject, line.detail) == ("ada", "north", "was registered: sold")
        assert here.counted("forgotten") == 1
        with pytest.raises(UnknownCluster, match="no cluster north is listed"):
            await registrar.forget("north", "ada")
    with enrolling(tmp_path) as here:
        assert [entry.cluster for entry in await here.identities.registrar.clusters()] == ["south"]


async def test_only_whom_somebody_turned_out_is_forgotten(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        registrar = here.identities.registrar
        await here.member("north")
        registered(here, "north")
        await registrar.invite("east", "ada")
        for cluster, says in (("north", "is enrolled, and only a revoked one"), ("east", "is invited, and only")):
            with pytest.raises(BadRequest, match=says):
                await registrar.forget(cluster, "ada")
        with pytest.raises(UnknownCluster):
            await registrar.forget("west", "ada")
        with pytest.raises(BadRequest):
            await registrar.forget("no name", "ada")
        assert names(here) == ["north"]


async def test_a_cluster_that_was_never_enrolled_is_forgotten_once_it_is_away(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        registrar = here.identities.registrar
        assert registered(here, "south") == 1
        with pytest.raises(UnknownCluster, match=r"south was ever enrolled here; .*`policyctl cluster forget`"):
            await registrar.revoke("south", "ada")
        with pytest.raises(BadRequest, match=r"heard within the last 180 s, .* stop its agent, and forget it then"):
            await registrar.forget("south", "ada", unheard_seconds=180.0)
        assert await registrar.forget("south", "ada", dry_run=True)
        assert names(here) == ["south"]
        assert await registrar.forget("south", "ada", "its machine is sold")
        assert names(here) == []
        (line,) = [line for line in registrar.store.audit(0.0) if line.action == "forgotten"]
        assert (line.actor, line.subject, line.detail) == ("ada", "south", "was registered: its machine is sold")
        with pytest.raises(UnknownCluster, match="no cluster south is listed here"):
            await registrar.forget("south", "ada")
        assert registered(here, "south") == 2
        await here.member("south")
        with pytest.raises(BadRequest, match="is enrolled, and only a revoked one"):
            await registrar.forget("south", "ada")


async def test_a_rollout_keeps_a_cluster_that_was_never_enrolled_too_and_nothing_is_noted(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        registered(here, "south")
        with here.thread.registry.transaction() as session:
            session.get_one(ClusterRow, "south").rollout = 3
        with pytest.raises(BadRequest, match="rollout 3 still counts cluster south"):
            await here.identities.registrar.forget("south", "ada")
        assert names(here) == ["south"]
        assert "forgotten" not in [line.action for line in here.identities.registrar.store.audit(0.0)]


def test_without_identities_too_who_is_away_is_forgotten_and_others_are_not(tmp_path: Path) -> None:
    async def lives() -> None:
        async with serving(tmp_path) as caller:
            await caller.register("north")
            await caller.register("south")
            clock = FoldingClock()
            caller.learner.fleet.clock = clock
            south = caller.learner.fleet.get("south")
            assert south is not None
            clock.now = south.heard_seconds + 179.0
            request = pb.ForgetClusterRequest(cluster="south")
            assert await caller.refused("ForgetCluster", request) is grpc.StatusCode.INVALID_ARGUMENT
            clock.now += 2.0
            with pytest.raises(grpc.aio.AioRpcError, match="policyctl cluster forget"):
                await caller.call("RevokeCluster", pb.RevokeClusterRequest(cluster="south"))
            assert (await caller.call("ForgetCluster", request)).registered
            assert [view.cluster for view in (await caller.fleet()).clusters] == ["north"]
            assert await caller.refused("ForgetCluster", request) is grpc.StatusCode.NOT_FOUND
            assert (await caller.register("south")).incarnation == 2

    asyncio.run(lives())


async def test_who_comes_back_gets_no_incarnation_again(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        registrar = here.identities.registrar
        await here.member("north")
        assert [registered(here, "north") for _ in range(3)] == [1, 2, 3]
        await registrar.revoke("north", "ada")
        await registrar.forget("north", "ada")
        await here.member("north")
        assert [entry.cluster for entry in await registrar.clusters()] == ["north"]
        assert registered(here, "north") == 4
        await registrar.revoke("north", "ada")
        await registrar.forget("north", "ada")
        with here.thread.registry.transaction() as session:
            renew_incarnations(session, {"north": 9})
        assert registered(here, "north") == 11


async def test_a_cluster_that_a_rollout_counts_is_not_forgotten(tmp_path: Path) -> None:
    with enrolling(tmp_path) as here:
        registrar = here.identities.registrar
        await here.member("north")
        registered(here, "north")
        await registrar.revoke("north", "ada")
        with here.thread.registry.transaction() as session:
            session.get_one(ClusterRow, "north").rollout = 3
        with pytest.raises(BadRequest, match="rollout 3 still counts cluster north"):
            await registrar.forget("north", "ada")
        assert [entry.cluster for entry in await registrar.clusters()] == ["north"]
        with here.thread.registry.session() as session:
            assert not forget(session, "south")


def test_the_fleet_and_the_metrics_show_it_no_longer(tmp_path: Path) -> None:
    async def lives() -> None:
        async with serving(tmp_path) as caller:
            await caller.register("north")
            await caller.register("south")
            caller.learner.forget("north")
            caller.learner.forget("north")
            assert [view.cluster for view in (await caller.fleet()).clusters] == ["south"]
            sample = caller.learner.telemetry.registry.get_sample_value
            assert sample("fedl2_learner_clusters_count") == 1.0
            assert sample("fedl2_learner_cluster_silent_seconds", {"cluster": "north"}) is None
            await caller.refused("ForgetCluster", pb.ForgetClusterRequest(cluster="south"))
            await caller.register("north")
            assert sample("fedl2_learner_cluster_silent_seconds", {"cluster": "north"}) is not None

    asyncio.run(lives())
