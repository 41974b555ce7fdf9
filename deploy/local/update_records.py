"""What the learner's own records say about the updates, once it has ended."""

from __future__ import annotations

from pathlib import Path

from global_learner.receipts import read_receipts
from policy_net.exchange.policy_file import read_policy_file


def staleness_by_cluster(state_dir: Path, policy_file: Path) -> dict[str, list[int]]:
    """Cluster to the staleness of each of its applied updates, in head steps.

    Raises:
        StateUnusable: a record is damaged.
    """
    staleness: dict[str, list[int]] = {}
    for receipt in read_receipts(state_dir, read_policy_file(policy_file).spec.digest):
        staleness.setdefault(receipt.cluster, []).append(receipt.staleness)
    return dict(sorted(staleness.items()))
