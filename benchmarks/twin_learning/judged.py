"""A taught policy file, judged: every cluster's window of a part under it and under another, such as the shipped one.

Clusters that taught it and clusters that it has never seen are told apart; of the former, the part's windows come later
than those that they taught with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.policy_quality.cells import RealCell
from benchmarks.policy_quality.worlds import Cluster, build_world
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile
from policy_net.laboratory.simulation.replay import replay
from policy_net.set_policy.policy import set_policy_of

FIGURES = ("avg_jct_seconds", "p99_jct_seconds", "max_jct_seconds")

Cells = Callable[[Cluster, int], RealCell | None]
"""A cluster's window to judge on, under the so many-th draw of models and noise; None where it has none."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One cluster: mean changes of the logs of `FIGURES`, over draws.

    Attributes:
        taught: whether it taught the policy.
    """

    cluster: str
    taught: bool
    changes: tuple[float, ...]


def compare(
    file: PolicyFile, other: PolicyFile, clusters: Sequence[Cluster], cells: Cells, draws: int, data: Path
) -> list[Compared]:
    """The policy of a file against another, by cluster.

    Raises:
        BadInput: the file does not say which clusters taught it.
    """
    teachers = file.card.get("clusters")
    if not isinstance(teachers, list):
        raise BadInput("the policy file's card does not say which clusters taught it; use one that --write has made")
    found = []
    for cluster in clusters:
        changes = []
        for draw in range(draws):
            cell = cells(cluster, draw)
            if cell is None:
                break
            figures = []
            for content in (other, file):
                world = build_world(cell, data)
                result = replay(
                    world.workload, world.environment, set_policy_of(content, "a policy"), world.speeds
                ).to_json()
                figures.append([result[name] for name in FIGURES])
            changes.append([math.log(after / before) for before, after in zip(*figures, strict=True)])
        if changes:
            means = tuple(math.fsum(column) / len(changes) for column in zip(*changes, strict=True))
            found.append(Compared(cluster.name, cluster.name in teachers, means))
    return found


def averaged(files: Sequence[Sequence[Compared]]) -> list[Compared]:
    """The same clusters under several files: the mean of each cluster's logs."""
    return [
        Compared(
            of_files[0].cluster,
            of_files[0].taught,
            tuple(math.fsum(column) / len(column) for column in zip(*(one.changes for one in of_files), strict=True)),
        )
        for of_files in zip(*files, strict=True)
    ]


def summary(compared: Sequence[Compared]) -> dict[str, Any]:
    """Changes as fractions over all clusters, over those that taught, and over those that did not."""
    groups = {
        "all": list(compared),
        "taught": [one for one in compared if one.taught],
        "never_seen": [one for one in compared if not one.taught],
    }
    return {name: _of_group(group) for name, group in groups.items() if group} | {
        "clusters": {one.cluster: math.expm1(one.changes[0]) for one in compared}
    }


def _of_group(group: Sequence[Compared]) -> dict[str, Any]:
    changes = np.expm1(np.array([one.changes for one in group]))
    average = changes[:, 0]
    return {
        "clusters": len(group),
        "mean": float(average.mean()),
        "without_best": float(np.sort(average)[1:].mean()) if len(group) > 1 else None,
        "standard_error": float(average.std(ddof=1) / len(group) ** 0.5) if len(group) > 1 else None,
        "median": float(np.median(average)),
        "best": float(average.min()),
        "worst": float(average.max()),
        "p99_mean": float(changes[:, 1].mean()),
        "longest_mean": float(changes[:, 2].mean()),
    }
