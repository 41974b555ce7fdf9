"""A rollback is told as over when agents that were told so have said that they went back, and no heartbeat sooner."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_process import Cluster, World

from policy_net.exchange.generated import fleet_pb2 as pb


def under_way(world: World, cluster: Cluster) -> None:
    """A heartbeat of an agent that has not begun its assignment yet, and so says that it acts on what it had."""
    entry = world.fleet.get(cluster.name)
    assert entry is not None
    world.fleet.on_heard(cluster.name, entry.incarnation)
    world.fleet.on_status(entry, pb.ClusterStatus(acting_version=1, avg_jct_seconds=3600.0))
    world.fleet.on_answered(entry)
    cluster.acting, cluster.rollout_assignment = entry.assigned_version, entry.rollout_assignment


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_heartbeat_that_was_under_way_before_agents_were_told_does_not_end_a_rollback(
    tmp_path: Path, restarted: bool
) -> None:
    world = World(tmp_path, None, set())
    await world.start()
    while world.place()[1] != "canary":
        if world.place() == ("asking", "gate"):
            await world.act("promote")
        await world.round()
    alternating = [cluster for cluster in world.clusters if cluster.rollout_assignment is not None]
    assert len(alternating) == 3
    await world.act("abort")
    if restarted:
        world.thread.close()
        world.open(world._registry())
    assert world.place() == ("rolling-back", "canary")
    for cluster in alternating:
        # Composed before the answer that it brings: until then the agent may begin with its next decision.
        under_way(world, cluster)
    await world.driver.poll()
    assert world.place() == ("rolling-back", "canary")
    world.hear()
    await world.driver.poll()
    assert world.place() == ("rolled-back", "canary")
    assert {cluster.reported() for cluster in world.clusters} == {(1, None)}
    world.check()
    world.close()
