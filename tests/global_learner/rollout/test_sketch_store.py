"""A cluster's latest sketch stands; a rollout goes on with those that it began with."""

from dataclasses import replace
from pathlib import Path

import pytest
from learner_makers import SPEC, policy
from rollout_makers import NOW

from global_learner.registry.registry import Registry
from global_learner.registry.signing import Signing
from global_learner.rollout.plan import RolloutPlan
from global_learner.rollout.rollout_store import RolloutStore
from global_learner.rollout.sketch_store import MOST_FROZEN, SketchStore
from global_learner.rollout.verdicts.gate import FrozenSketch, own_work
from global_learner.storage.audit import Order
from policy_net.domain import JobKind
from policy_net.exchange.workload_sketch import KindSketch, WorkloadSketch

pytestmark = pytest.mark.usefixtures("each_database")

PS = KindSketch(JobKind.PS, 1.0, (60.0,) * 5, (1,) * 5, (1,) * 5)
SKETCH = WorkloadSketch(4, 2, 8, 40.0, (), (PS,))


def registry_of(folder: Path, clusters: int) -> Registry:
    registry = Registry(folder, None, Signing(folder, 3600.0, lambda: NOW))
    for number in range(2):
        registry.publish(policy(seed=number), 10 * number, 0.0, {}, 0.0, assign_all=False)
    for number in range(clusters):
        registry.register(f"cluster-{number}", False, (), NOW)
    return registry


def begin(registry: Registry, plan: RolloutPlan | None = None, gone: frozenset[str] = frozenset()) -> int:
    taken = RolloutStore(registry).start(2, plan or RolloutPlan(), SPEC.digest, (), gone, {}, Order("ada", NOW))
    assert taken.record is not None
    return taken.record.state.number


def test_the_latest_word_stands_and_can_be_taken_back(tmp_path: Path) -> None:
    with_one = SketchStore(registry_of(tmp_path, 1))
    assert with_one.keep("cluster-0", SKETCH, NOW)
    assert not with_one.keep("cluster-0", SKETCH, NOW + 1)
    assert with_one.keep("cluster-0", replace(SKETCH, nodes=5), NOW + 2)
    assert with_one.keep("cluster-0", None, NOW + 3)
    assert not with_one.keep("cluster-0", None, NOW + 4)


def test_a_gate_goes_on_with_the_sketches_that_it_began_with_also_after_a_restart(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, 3)
    store = SketchStore(registry)
    for cluster in ("cluster-0", "cluster-1", "cluster-2", "stranger"):
        store.keep(cluster, SKETCH, NOW)
    number = begin(registry, gone=frozenset({"cluster-2"}))
    store.keep("cluster-0", replace(SKETCH, nodes=9), NOW + 1)
    store.keep("cluster-1", None, NOW + 1)
    store.note(number, "cluster-0", {"drf": 5.0})
    store.note(number, "cluster-0", {"v2": None})
    store.note(number, "cluster-1", {}, "it took too long")
    registry.close()
    again = SketchStore(Registry(tmp_path, None, Signing(tmp_path, 3600.0, lambda: NOW)))
    first, second = again.frozen(number)
    assert (first.cluster, second.cluster) == ("cluster-0", "cluster-1")
    assert WorkloadSketch.from_json(first.sketch) == SKETCH
    assert (first.jct_seconds, first.dropped) == ({"drf": 5.0, "v2": None}, "")
    assert second.dropped == "it took too long"
    assert first.seed != second.seed
    assert again.frozen(number + 1) == []


def test_no_gate_no_set_and_of_many_so_many(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, MOST_FROZEN + 3)
    store = SketchStore(registry)
    for number in range(MOST_FROZEN + 3):
        store.keep(f"cluster-{number}", SKETCH, NOW)
    dry = RolloutStore(registry).start(2, RolloutPlan(), SPEC.digest, (), (), {}, Order("ada", NOW, dry_run=True))
    assert dry.record is not None
    assert store.frozen(1) == []
    assert len(store.frozen(begin(registry))) == MOST_FROZEN


def test_a_candidate_that_stands_still_is_ten_times_slower_and_nobody_who_finishes_leaves_a_sketch_out() -> None:
    base = {"v1": 4.0, "drf": 3.0, "optimus": 5.0}
    sketches = [FrozenSketch("a", 1, {}, {**base, "v2": None}), FrozenSketch("b", 1, {}, {**base, "v2": 2.0})]
    work = own_work(sketches, 2, {1})
    assert work is not None
    assert [run.candidate for run in work.runs.values()] == [30.0, 2.0]
    assert [run.incumbent for run in work.runs.values()] == [4.0, 4.0]
    assert own_work([FrozenSketch("a", 1, {}, base)], 2, {1}) is None
    stuck = own_work([FrozenSketch("a", 1, {}, dict.fromkeys(("v1", "v2", "drf", "optimus")))], 2, {1})
    assert stuck is not None
    assert "gets its jobs done" in stuck.dropped["a"]
