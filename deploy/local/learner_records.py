"""Records of the learner that has ended: the staleness of its updates, and the moments that nobody needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from global_learner.registry.registry import Registry
from global_learner.storage.receipts import read_receipts
from global_learner.storage.state_dir import StateDir
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


def drop_moments(state_dir: Path) -> int:
    """Remove the moments of all versions but the newest from an ended learner's state; of how many.

    What a demo leaves is for looking at; only a learner that goes on needs moments. Under `dl2` a demo publishes some
    180 versions: 1.4 MB each for the policy, which replaying a decision log needs, and three times that for the
    moments.

    Raises:
        StateUnusable: the learner still runs, or left something unusable.
    """
    with StateDir(state_dir) as state, closing(Registry(state.path, state.commits)) as registry:
        return registry.forget_moments()
