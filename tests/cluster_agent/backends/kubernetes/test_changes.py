"""Changes as they are written: exactly once, on what was seen, and known or doubted afterwards."""

from collections.abc import Iterator
from typing import Any

import pytest
from apiserver.serving import Asked, Fault
from kube_clients import api_of
from kube_cluster import JOBS, KubeCluster, kube_cluster
from kube_facts import target

from cluster_agent.backends.kubernetes.changes import SizeWriter, Written
from cluster_agent.backends.kubernetes.observation import ObservedTarget
from cluster_agent.backends.kubernetes.sizing import SizeChange
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.targets import TargetFacts, job_facts

Json = dict[str, Any]
TARGET = target()


class World:
    """A Job on a server, a cache that is told of it by hand, and who writes its size."""

    def __init__(self, cluster: KubeCluster) -> None:
        self.cluster = cluster
        self.seconds = 0.0
        self.may_write = True
        self.cache: Cache[TargetFacts] = Cache(job_facts, lambda: self.seconds, lambda: None)
        cluster.job("train", workers=2)
        self.see()
        self.writer = SizeWriter(
            api_of(cluster.server, "auto", request_seconds=2.0),
            self.cache,
            lambda: self.seconds,
            lambda: self.may_write,
        )

    @property
    def job(self) -> Json:
        return self.cluster.server.call(lambda: self.cluster.server.store.get(JOBS, "team", "train"))

    def see(self) -> None:
        self.cache.put(self.job)

    def set(self, after: int) -> tuple[Written, str]:
        entry = self.cache.get(("team", "train"))
        assert entry is not None
        return self.writer.set(SizeChange(ObservedTarget(TARGET, entry.kept, None, None), entry.kept.workers, after))

    def sizes(self) -> tuple[int, int]:
        spec = self.job["spec"]
        return spec["parallelism"], spec["completions"]

    def fail(self, fault: Fault, times: int = 1) -> None:
        left = [times]

        def faults(asked: Asked) -> Fault | None:
            if asked.verb != "patch" or not left[0]:
                return None
            left[0] -= 1
            return fault

        self.cluster.server.faults = faults


@pytest.fixture
def world() -> Iterator[World]:
    with kube_cluster() as cluster:
        yield World(cluster)


def test_both_numbers_are_set_together_and_known_before_they_are_seen(world: World) -> None:
    assert world.set(4) == (Written.SET, "")
    assert world.sizes() == (4, 4)
    assert world.writer.counted_workers(TARGET) == 4
    assert not world.writer.has_seen_all(TARGET)
    assert world.set(3)[0] is Written.CONFLICT, "what is seen is not what there is"
    world.see()
    assert world.writer.has_seen_all(TARGET)
    assert world.set(3) == (Written.SET, "")
    assert world.sizes() == (3, 3)


def test_a_suspended_job_is_started_with_its_size(world: World) -> None:
    world.cluster.change(JOBS, "train", spec={**world.job["spec"], "suspend": True})
    world.see()
    assert world.set(3) == (Written.SET, "")
    assert world.job["spec"]["suspend"] is False
    assert world.sizes() == (3, 3)


def test_what_somebody_changed_meanwhile_is_never_overwritten(world: World) -> None:
    world.cluster.change(JOBS, "train", spec={**world.job["spec"], "parallelism": 1, "completions": 1})
    assert world.set(4)[0] is Written.CONFLICT
    assert world.sizes() == (1, 1)
    world.see()
    assert world.set(4)[0] is Written.SET


def test_a_job_made_anew_under_its_name_is_another(world: World) -> None:
    old = world.cache.get(("team", "train"))
    assert old is not None
    change = SizeChange(ObservedTarget(TARGET, old.kept, None, None), 2, 4)
    world.cluster.server.call(lambda: world.cluster.server.store.delete(JOBS, "team", "train", {}))
    world.cluster.job("train", workers=2, pods=0)
    assert world.writer.set(change)[0] is Written.CONFLICT
    world.see()
    assert world.writer.set(change)[0] is Written.GONE
    assert world.sizes() == (2, 2)


def test_a_job_that_is_gone_costs_nothing(world: World) -> None:
    world.cluster.server.call(lambda: world.cluster.server.store.delete(JOBS, "team", "train", {}))
    assert world.set(4)[0] is Written.CONFLICT
    assert world.writer.failing() == {}


def test_who_may_not_write_does_not(world: World) -> None:
    world.may_write = False
    before = len(world.cluster.server.asked)
    assert world.set(4)[0] is Written.NOT_NOW
    assert len(world.cluster.server.asked) == before


def test_a_busy_server_is_not_the_jobs_fault(world: World) -> None:
    world.fail(Fault(code=429, retry_after=1), times=5)
    for _ in range(5):
        assert world.set(4)[0] is Written.NOT_NOW
    assert world.writer.failing() == {}
    assert world.set(4)[0] is Written.SET


def test_a_refusal_is_a_failure_and_after_three_the_job_is_left_alone_for_a_while(world: World) -> None:
    world.fail(Fault(code=403), times=3)
    uid = world.job["metadata"]["uid"]
    for number in range(3):
        assert uid not in world.writer.failing(), number
        written, line = world.set(4)
        assert written is Written.FAILED
    assert line.startswith("3 changes failed, so there is only advice for 5 minutes: PATCH ")
    assert world.writer.failing() == {uid: line}
    world.seconds = 299.0
    assert uid in world.writer.failing()
    world.seconds = 301.0
    assert world.writer.failing() == {}
    assert world.set(4)[0] is Written.SET


def test_a_success_ends_the_count(world: World) -> None:
    world.fail(Fault(code=403), times=2)
    world.set(4), world.set(4), world.set(4)
    world.see()
    world.fail(Fault(code=403), times=2)
    world.set(3), world.set(3)
    assert world.writer.failing() == {}


def test_a_fault_before_the_write_changes_nothing_and_is_doubted_until_the_next_version(world: World) -> None:
    world.fail(Fault(code=500))
    assert world.set(4)[0] is Written.FAILED
    assert world.sizes() == (2, 2)
    assert world.writer.counted_workers(TARGET) == 4, "it may still come to pass"
    assert world.set(4)[0] is Written.CONFLICT
    world.cluster.annotate("train", done="1")
    world.see()
    assert world.writer.counted_workers(TARGET) == 2, "the patch would be refused now"
    assert world.set(4)[0] is Written.SET


def test_a_doubt_ends_by_itself(world: World) -> None:
    world.fail(Fault(code=500))
    world.set(4)
    world.seconds = 91.0
    assert world.writer.counted_workers(TARGET) == 2
    assert world.writer.has_seen_all(TARGET)


def test_an_answer_that_was_lost_is_looked_for(world: World) -> None:
    world.fail(Fault(cut=True))
    assert world.set(4) == (Written.SET, "")
    assert world.sizes() == (4, 4)
    assert world.writer.counted_workers(TARGET) == 4
    world.see()
    assert world.writer.has_seen_all(TARGET)


def test_a_server_that_is_silent_after_a_write_leaves_the_larger_size_in_doubt(world: World) -> None:
    world.cluster.server.faults = lambda asked: (
        Fault(cut=True) if asked.verb == "patch" else Fault(code=503) if asked.verb == "get" else None
    )
    assert world.set(1)[0] is Written.FAILED
    assert world.sizes() == (1, 1)
    assert world.writer.counted_workers(TARGET) == 2
    world.see()
    assert world.writer.counted_workers(TARGET) == 1


def test_what_is_forgotten_of_other_objects_is_not_of_this_one(world: World) -> None:
    world.set(4)
    world.writer.forget(frozenset({world.job["metadata"]["uid"]}))
    assert world.writer.counted_workers(TARGET) == 4
    world.writer.forget(frozenset())
    assert world.writer.counted_workers(TARGET) == 2
