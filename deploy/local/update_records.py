"""What the learner's own records say about the updates, once it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from global_learner.storage.receipts import read_receipts
from policy_net.exchange.policy_file import read_policy_file


def staleness_by_cluster(state_dir: Path, policy_file: Path, clusters: Sequence[str]) -> dict[str, list[int]]:
    """The staleness of every applied update, in head steps, by cluster.

    Args:
        clusters: those of the demo, in their order; clusters that somebody let in meanwhile come after them.

    Raises:
        StateUnusable: a record is damaged.
    """
    staleness: dict[str, list[int]] = {cluster: [] for cluster in clusters}
    for receipt in read_receipts(state_dir, read_policy_file(policy_file).spec.digest):
        if receipt.kind == "update":  # a reset of the head is in the name of whoever asked for it
            staleness.setdefault(receipt.cluster, []).append(receipt.staleness)
    return staleness
