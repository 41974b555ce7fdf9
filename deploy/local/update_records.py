"""What the learner's own records say about the updates, once it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from global_learner.receipts import read_receipts
from policy_net.exchange.policy_file import read_policy_file


def staleness_by_cluster(state_dir: Path, policy_file: Path, clusters: Sequence[str]) -> dict[str, list[int]]:
    """The staleness of every applied update, in head steps, by cluster and in the clusters' order.

    Raises:
        StateUnusable: a record is damaged.
    """
    staleness: dict[str, list[int]] = {cluster: [] for cluster in clusters}
    for receipt in read_receipts(state_dir, read_policy_file(policy_file).spec.digest):
        staleness[receipt.cluster].append(receipt.staleness)
    return staleness
