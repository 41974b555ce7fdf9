"""Tetris as the code that the DL2 authors published has it, for comparison with its figures.

Node by node in a fixed order, not by load: the job with the highest score gets a bundle there, until the best one does
not fit. The score adds how well a bundle's demand lines up with what the node has left, and demand × the share of the
epochs that is *left*, both scaled to the same mean. The second term should favour the job that is nearly done and does
the reverse, so jobs starve close to their end. `tetris` is what its paper defines.
Source: the authors' simulator, as published with DL2 (§6.1), after Tetris (SIGCOMM 2014). Own code, same behaviour.
Deviation: jobs with the same score come by arrival; there, in no defined order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policy_net.baselines.authors import share_left
from policy_net.baselines.authors_nodes import AuthorsNodes, bundle_of, load_units, most_bundles
from policy_net.domain import ClusterState, Decision, Progress, Trigger


class TetrisAuthorsPolicy:
    """Packs one node after the other, by alignment and longest remaining work."""

    name = "tetris-authors"

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Fill node by node."""
        nodes = AuthorsNodes(state)
        bundles = [bundle_of(job) for job in state.jobs]
        demands = np.array(
            [
                load_units(job.worker_demand * bundle.workers + job.ps_demand * bundle.ps)
                for job, bundle in zip(state.jobs, bundles, strict=True)
            ]
        ).reshape(-1, 2)
        work = demands.sum(axis=1) * np.array([share_left(job) for job in state.jobs])
        most = [most_bundles(job) for job in state.jobs]
        # Added to the scores: no job that has reached its caps is the best.
        handicap = np.array([0.0 if count > 0 else -np.inf for count in most])
        growing = sum(count > 0 for count in most)
        if not growing or not work.any():
            return nodes.decision()
        mean_work = work.mean()
        for position in range(len(state.nodes)):
            while True:
                cpu, gpu = nodes.free_units(position)
                # Not by a matrix product: rounded row by row, jobs that tie in everything might not tie.
                alignment = demands[:, 0] * cpu + demands[:, 1] * gpu
                whole = np.add.reduce(alignment)  # of terms none of which is negative
                if not whole:
                    break
                # Capped jobs count in the two means, as there.
                scores = alignment + whole / len(work) / mean_work * work
                best = int((scores + handicap).argmax())  # the first of several
                if not nodes.grant_on(position, best, bundles[best]):
                    break
                if nodes.held[best].workers >= most[best]:
                    handicap[best] = -np.inf
                    growing -= 1
                    if not growing:
                        return nodes.decision()
        return nodes.decision()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: scores do not depend on speeds."""
