from pathlib import Path

import pytest
from learner_makers import policy

from global_learner.errors import StateUnusable, UnknownPolicyVersion
from global_learner.registry.cards import first_details
from global_learner.registry.registry import Registry
from global_learner.rollout.rollout_store import RolloutStore
from global_learner.storage.audit import Order
from policy_net.exchange.policy_file import digest_of
from policy_net.exchange.shipped import shipped_file

pytestmark = pytest.mark.usefixtures("each_database")


def publish(registry: Registry, step: int, assign_all: bool = False):
    return registry.publish(policy(seed=step), step, 1e9 + step, {"north": step}, 1.5, assign_all)


@pytest.fixture
def registry(tmp_path: Path):
    registry = Registry(tmp_path)
    publish(registry, 0)
    yield registry
    registry.close()


def test_versions_are_numbered_from_one_and_know_their_parent(registry: Registry) -> None:
    publish(registry, 10)
    publish(registry, 20)
    assert [(card.version, card.parent, card.head_step) for card in registry.versions()] == [
        (1, 0, 0),
        (2, 1, 10),
        (3, 2, 20),
    ]
    newest = registry.newest()
    assert newest is not None
    assert newest.contributions == {"north": 20}


def test_a_policy_file_comes_back_as_published(registry: Registry) -> None:
    card, data = registry.policy_bytes(1)
    assert data == policy(seed=0).to_bytes()
    assert digest_of(data) == card.digest


def test_a_damaged_policy_file_is_not_handed_out(registry: Registry, tmp_path: Path) -> None:
    (path,) = (tmp_path / "policies").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(StateUnusable, match="damaged"):
        registry.policy_bytes(1)
    assert registry.first_card() == {}


def test_what_v1_says_of_itself_is_known(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.publish(shipped_file("dl2"), 0, 1e9, {}, 0.0, assign_all=False)
    assert registry.first_card() == shipped_file("dl2").card
    registry.close()


def test_an_unknown_version_is_named(registry: Registry) -> None:
    with pytest.raises(UnknownPolicyVersion, match="v7"):
        registry.policy_bytes(7)


def test_incarnations_rise_with_every_registration_and_survive_a_restart(registry: Registry, tmp_path: Path) -> None:
    assert registry.register("north", False, [], 0.0).incarnation == 1
    assert registry.register("north", False, ["vgg-16"], 1.0).incarnation == 2
    registry.close()
    again = Registry(tmp_path)
    assert again.register("north", False, [], 2.0).incarnation == 3
    assert [entry.cluster for entry in again.registrations()] == ["north"]
    again.close()


def test_a_cluster_stays_on_v1_unless_versions_are_assigned_to_all(registry: Registry) -> None:
    registry.register("north", False, [], 0.0)
    publish(registry, 10)
    assert registry.register("north", False, [], 0.0).assigned_version == 1
    publish(registry, 20, assign_all=True)
    assert registry.register("north", False, [], 0.0).assigned_version == 3
    assert registry.register("south", False, [], 0.0).assigned_version == 1
    assert registry.register("east", True, [], 0.0).assigned_version == 3


def test_what_comes_from_above_is_brought_to_all_but_those_that_an_operator_holds(registry: Registry) -> None:
    for cluster in ("north", "south", "west"):
        registry.register(cluster, False, [], 0.0)
    version = publish(registry, 10).version
    RolloutStore(registry).assign(1, publish(registry, 20).spec_digest, ["south"], Order("ann", 0.0), to_newest=False)
    brought = registry.bring(version, Order("upstream", 5.0))
    assert [(one.cluster, one.from_version, one.to_version, one.held) for one in brought] == [
        ("north", 1, 2, False),
        ("west", 1, 2, False),
    ]
    assert registry.bring(version, Order("upstream", 6.0)) == []
    lines = [(line.actor, line.action, line.subject) for line in registry.audit(1.0)]
    assert lines == [("upstream", "brought", "north"), ("upstream", "brought", "west")]
    with pytest.raises(UnknownPolicyVersion):
        registry.bring(99, Order("upstream", 7.0))


def test_pruning_keeps_the_first_the_assigned_and_the_newest(registry: Registry) -> None:
    for step in (10, 20, 30, 40, 50):
        publish(registry, step, assign_all=step == 20)
        registry.register("north", False, [], 0.0)
        if step == 10:
            continue
    # north was assigned v3 (step 20), whose parent is v2; versions are 1..6
    assert registry.prune(2) == 1
    for version in (1, 2, 3, 5, 6):
        registry.policy_bytes(version)
    with pytest.raises(UnknownPolicyVersion, match="v4 is no longer kept"):
        registry.policy_bytes(4)
    assert len(registry.versions()) == 6
    assert registry.prune(2) == 0


def test_a_file_that_two_versions_share_stays_while_one_is_kept(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    for step in (0, 10, 20, 30):
        registry.publish(policy(seed=1), step, 0.0, {}, 0.0, assign_all=False)
    assert registry.prune(1) == 1
    registry.policy_bytes(1)
    registry.policy_bytes(3)
    registry.close()


@pytest.mark.parametrize("each_database", ["sqlite"], indirect=True)
def test_a_file_that_is_no_registry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "registry.sqlite").write_bytes(b"not a database, whatever its name says" * 40)
    with pytest.raises(StateUnusable, match="no usable registry"):
        Registry(tmp_path)


@pytest.mark.parametrize("name", ["set", "set-taught"])
def test_the_first_card_names_the_policy_that_ships(name: str) -> None:
    assert first_details(shipped_file(name)).notes.startswith(f"ships with fedl2 as {name}")
    assert "ships" not in first_details(policy()).notes
