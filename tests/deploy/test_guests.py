"""Clusters that somebody lets into a running demo, as docs/guide/identity.md tells, and what the demo then says."""

from pathlib import Path

import pytest

from deploy.demonstration.configs import FLEETS, DemoPolicy
from deploy.local.demo import DemoOptions
from deploy.local.fleet import staleness_by_cluster
from global_learner.storage.receipts import Receipt
from policy_net.set_policy.policy import DEFAULT_SET_FILE


def _receipt(step: int, cluster: str, staleness: int, kind: str = "update") -> str:
    return Receipt(step, cluster, 1, step, step - 1 - staleness, staleness, 3, 1e-4, 20, 1.0, kind).to_line()


def test_updates_of_a_guest_come_after_those_of_the_demos_own_clusters_and_resets_are_nobodys(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    folder.mkdir()
    (tmp_path / "log").mkdir()
    lines = [
        _receipt(1, "north", 0),
        _receipt(2, "fourth", 1),
        _receipt(3, "admin", 0, kind="reset"),
        _receipt(4, "south", 2),
        _receipt(5, "fourth", 0),
    ]
    (folder / "updates-00000000000000000001.jsonl").write_text("".join(lines))
    found = staleness_by_cluster(tmp_path, DEFAULT_SET_FILE, ["south", "north", "idle"])
    assert list(found.items()) == [("south", [2]), ("north", [0]), ("idle", []), ("fourth", [1, 0])]


@pytest.mark.parametrize("policy", DemoPolicy)
@pytest.mark.parametrize("share", [None, 0.1, 1.0, 10.0])
def test_a_longer_demo_has_more_rounds_to_go_through_and_a_shorter_one_no_fewer(
    policy: DemoPolicy, share: float | None
) -> None:
    usual = FLEETS[policy]
    seconds = None if share is None else share * usual.seconds
    options = DemoOptions(policy=policy, seconds=seconds)
    assert options.settings.episodes == usual.episodes * max(1, round(share or 1))
    assert options.settings.seconds == (seconds or usual.seconds)
