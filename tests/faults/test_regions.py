"""Two regions under one root, over mutual TLS: what their clusters learn reaches the root's head and comes back down.

Samples count: what a cluster was acknowledged must be in one push of its region, and that in the root's log, once.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from learner_makers import SPEC, policy
from learner_process import LearnerProcess
from region_fleet import (
    LOOSE,
    QUICK,
    Cluster,
    events_of,
    lines_of,
    new_learner,
    new_region,
    samples_by_name,
    wait_for,
)

from global_learner.storage.receipts import read_receipts
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.generated import fleet_pb2_grpc as rpc
from policy_net.exchange.identity_file import read_identity
from policy_net.exchange.spec import PolicySpec

NAMES = ("east", "west")
KILLS = 3
UPDATES_PER_LIFE = 60


class Tree:
    """A root and two regions with a cluster each, all running."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.root = new_learner(folder / "root", publish={"every_steps": 5})
        stack.callback(self.root.close)
        self.root.start()
        self.regions: dict[str, LearnerProcess] = {}
        self.clusters: dict[str, Cluster] = {}
        for name in NAMES:
            region = new_region(folder / name, self.root, name, durability={"snapshot_every_steps": 30})
            stack.callback(region.close)
            region.start()
            self.regions[name] = region
            self.clusters[name] = Cluster(region, f"{name}-cluster", folder / f"{name}-cluster")
            stack.callback(self.clusters[name].client.close)

    def start_clusters(self) -> None:
        for cluster in self.clusters.values():
            cluster.start()

    def settle(self) -> None:
        """End the clusters, and wait until nothing waits in a region."""
        for cluster in self.clusters.values():
            cluster.end()
        wanted = {name: cluster.samples for name, cluster in self.clusters.items()}
        wait_for(lambda: samples_by_name(self.root) == wanted, f"the root has not all of {wanted}")

    def acknowledged(self) -> int:
        return sum(cluster.acknowledged for cluster in self.clusters.values())


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with ExitStack() as stack:
        yield Tree(tmp_path, stack)


@pytest.mark.heavy
def test_gradients_of_all_clusters_reach_the_roots_head_which_comes_down_to_them(tree: Tree) -> None:
    tree.start_clusters()
    wait_for(lambda: tree.acknowledged() >= UPDATES_PER_LIFE, "the clusters do not learn")
    tree.settle()
    assert {view.cluster for view in tree.root.fleet().clusters} == set(NAMES)
    reader = Cluster(tree.root, "reader", tree.folder / "reader")
    reader.register()
    top = reader.head().weights
    reader.client.close()
    assert not np.array_equal(top, policy().weights)
    for cluster in tree.clusters.values():
        wait_for(lambda one=cluster: np.array_equal(one.head().weights, top), "the root's head does not come down")
    for region in tree.regions.values():
        assert "push-lost" not in events_of(region)


@pytest.mark.heavy
def test_a_version_that_the_root_assigns_to_a_region_comes_to_its_clusters_under_the_regions_key(tree: Tree) -> None:
    tree.start_clusters()
    wait_for(lambda: tree.root.fleet().latest_version >= 2, "the root published nothing")
    tree.settle()
    with tree.root.operators() as channel:
        admin, fleet = rpc.AdminStub(channel), rpc.FleetStub(channel)
        admin.AssignVersion(pb.AssignVersionRequest(version=2, clusters=["east"]), timeout=60)
        wanted = fleet.FetchPolicy(pb.FetchPolicyRequest(version=2), timeout=60).digest

    east, west = tree.clusters["east"], tree.clusters["west"]
    assigned = wait_for(lambda: (one := east.beat()).version != 1 and one, "the version does not come down")
    fetched = east.client.fetch_policy(assigned.version)
    east.trust.check(fetched, assigned.timestamp)
    assert fetched.digest == wanted
    assert west.beat().version == 1

    # And back: what the region has already is assigned again, and not entered again.
    with tree.root.operators() as channel:
        rpc.AdminStub(channel).AssignVersion(pb.AssignVersionRequest(version=1, clusters=["east"]), timeout=60)
    wait_for(lambda: east.beat().version == 1, "the version does not go back")
    assert tree.regions["east"].fleet().latest_version == 2


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_after_kills_of_a_region_and_of_the_root_nothing_acknowledged_is_lost_or_counted_twice(tree: Tree) -> None:
    tree.start_clusters()
    for life in range(1, KILLS + 1):
        wait_for(lambda goal=life: tree.acknowledged() >= goal * UPDATES_PER_LIFE, "the clusters do not learn")
        wait_for(lambda goal=life: pushes_of(tree.root, "east") >= goal, "the region pushes nothing in this life")
        for victim in (tree.regions["east"], tree.root):
            victim.kill()
            victim.start()
    goal = tree.acknowledged() + UPDATES_PER_LIFE
    wait_for(lambda: tree.acknowledged() >= goal, "the clusters do not learn any more")
    tree.settle()
    for name, region in tree.regions.items():
        assert "push-lost" not in events_of(region)
        assert region.end() == 0
        # What the region's own log says it took is what its cluster was told, kill or no kill.
        assert samples_by_name(region) == {f"{name}-cluster": tree.clusters[name].samples}
        pushes = [
            receipt.sequence for receipt in read_receipts(region.state_dir, SPEC.digest) if receipt.kind == "passed-up"
        ]
        assert len(pushes) == len(set(pushes)) >= (KILLS if name == "east" else 1)


@pytest.mark.heavy
def test_what_stands_in_the_way_is_one_line_and_the_region_serves_on(tmp_path: Path) -> None:
    other = PolicySpec(jobs_per_batch=1, type_columns=1, hidden=(3,))
    with ExitStack() as stack:

        def started(learner: LearnerProcess) -> LearnerProcess:
            stack.callback(learner.close)
            learner.start()
            return learner

        root = started(new_learner(tmp_path / "root", identity={"enroll_port": 0, "token_minutes": 0.0001}))
        late = started(new_region(tmp_path / "late", root, "late"))
        wait_for(lambda: "expired-token" in refusals_of(late), "the old token is taken")

        plain = {"identity": None}
        strange = started(new_learner(tmp_path / "strange", **plain))
        (tmp_path / "alien").mkdir()
        above = {"address": strange.address, "name": "alien", **QUICK}
        alien = started(LearnerProcess(tmp_path / "alien", spec=other, **LOOSE, upstream=above))
        wait_for(lambda: "cluster alien runs policies of spec" in refusals_of(alien), "another spec is taken")

        loop = new_learner(tmp_path / "loop", **plain)
        loop.sections["upstream"] = {"address": f"localhost:{loop.port}", "name": "loop", **QUICK}
        started(loop)
        wait_for(lambda: "is this learner itself: a loop" in refusals_of(loop), "a loop is taken")

        # Two that are each above the other: one of them knows it by the other's answer, whoever comes first.
        one, two = (new_learner(tmp_path / name, **plain) for name in ("one", "two"))
        for learner, above_it, name in ((one, two, "one"), (two, one, "two")):
            learner.sections["upstream"] = {"address": above_it.address, "name": name, **QUICK}
            started(learner)
        wait_for(lambda: "is a region below this one: a loop" in refusals_of(one) + refusals_of(two), "a ring is taken")
        for learner in (late, alien, loop, one, two):
            assert learner.fleet().upstream.fault
            assert learner.end() == 0


@pytest.mark.heavy
def test_a_region_renews_its_certificate_in_time_and_outlives_its_first(tmp_path: Path) -> None:
    with ExitStack() as stack:
        root = new_learner(tmp_path / "root", identity={"enroll_port": 0, "certificate_days": 8.0 / 86_400.0})
        stack.callback(root.close)
        root.start()
        region = new_region(tmp_path / "east", root, "east")
        stack.callback(region.close)
        region.start()
        file = region.state_dir / "upstream" / "identity.pem"
        wait_for(file.exists, "the region is not enrolled")
        first = read_identity(file)
        wait_for(lambda: time.time() > first.ends_unix_seconds + 1.0, "the first certificate does not run out")
        assert read_identity(file).ends_unix_seconds > first.ends_unix_seconds
        assert not region.fleet().upstream.fault
        assert region.fleet().upstream.seconds_since_heard >= 0.0
        wait_for(lambda: root.fleet().clusters[0].seconds_since_heard < 1.0, "the root does not hear the region")


def pushes_of(root: LearnerProcess, region: str) -> int:
    return sum(view.updates_accepted for view in root.fleet().clusters if view.cluster == region)


def refusals_of(learner: LearnerProcess) -> str:
    """What a region's log says that the learner above refused."""
    return "\n".join(str(line["error"]) for line in lines_of(learner, "learner-above-refused"))
